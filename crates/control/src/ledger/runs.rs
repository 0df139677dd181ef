//! Assigns numbers to machines on hosts. A machine keeps its number for life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tailbound_api::Run;

/// Returns the machines' numbers on the hosts of a new placement, in ascending order.
///
/// On each host the machines with the lowest numbers stay, up to the number of its places in the
/// placement. The others move to hosts with vacant places and keep their numbers, the lowest first.
/// The remaining places receive new machines with the lowest free numbers, from 0 up.
pub(super) fn assign<'a>(
    old: &'a [Run],
    hosts: impl Iterator<Item = (&'a Arc<str>, u32)>,
) -> Vec<Run> {
    let mut here: BTreeMap<&Arc<str>, Vec<u32>> = BTreeMap::new();
    for run in old {
        let numbers = run.first..run.first.saturating_add(run.count);
        here.entry(&run.host).or_default().extend(numbers);
    }
    let mut placed: Vec<(u32, &Arc<str>)> = Vec::new();
    let mut vacant: Vec<(&Arc<str>, u32)> = Vec::new();
    for (host, count) in hosts {
        let mut numbers = here.remove(host).unwrap_or_default();
        numbers.sort_unstable();
        let stay = numbers.len().min(count as usize);
        here.insert(host, numbers.split_off(stay));
        placed.extend(numbers.into_iter().map(|number| (number, host)));
        vacant.push((host, count - stay as u32));
    }
    let used_numbers: BTreeSet<u32> = placed.iter().map(|(number, _)| *number).collect();
    let moved: BTreeSet<u32> = here.into_values().flatten().collect();
    let free = (0..).filter(|number| !used_numbers.contains(number) && !moved.contains(number));
    let mut numbers = moved.iter().copied().chain(free);
    for (host, count) in vacant {
        let next = numbers.by_ref().take(count as usize);
        placed.extend(next.map(|number| (number, host)));
    }
    placed.sort_unstable();
    joined(&placed)
}

/// Returns the host of a machine.
pub(super) fn host_of(runs: &[Run], number: u32) -> Option<&str> {
    let mut runs = runs.iter();
    let run = runs.find(|run| {
        number
            .checked_sub(run.first)
            .is_some_and(|at| at < run.count)
    });
    run.map(|run| &*run.host)
}

/// Returns the runs where one machine is on another host.
pub(super) fn moved(runs: &[Run], number: u32, to: &Arc<str>) -> Vec<Run> {
    let each = runs.iter().flat_map(|run| {
        let numbers = run.first..run.first.saturating_add(run.count);
        numbers.map(|each| (each, if each == number { to } else { &run.host }))
    });
    joined(&each.collect::<Vec<_>>())
}

/// Returns the runs without some machines.
pub(super) fn without(runs: &[Run], removed_numbers: &BTreeSet<u32>) -> Vec<Run> {
    let each = runs.iter().flat_map(|run| {
        let numbers = run.first..run.first.saturating_add(run.count);
        numbers.map(|each| (each, &run.host))
    });
    let left: Vec<_> = each
        .filter(|(each, _)| !removed_numbers.contains(each))
        .collect();
    joined(&left)
}

/// Joins neighbouring numbers on one host to one run.
pub(super) fn joined(placed: &[(u32, &Arc<str>)]) -> Vec<Run> {
    let is_next = |one: &(u32, &Arc<str>), next: &(u32, &Arc<str>)| {
        one.0.checked_add(1) == Some(next.0) && one.1 == next.1
    };
    // They are kept for a day, so they get the memory that they need and no more.
    let mut runs = Vec::with_capacity(placed.chunk_by(is_next).count());
    runs.extend(placed.chunk_by(is_next).filter_map(|run| {
        let (first, host) = run.first()?;
        Some(Run {
            first: *first,
            count: run.len() as u32,
            host: Arc::clone(host),
        })
    }));
    runs
}

/// Checks that each machine has a number of its own, that runs are in ascending order, and that
/// there are `vms` machines.
pub(super) fn check(runs: &[Run], vms: u32) -> Result<(), String> {
    let mut next = 0_u64;
    let mut sum = 0_u64;
    for run in runs {
        if run.count == 0 || u64::from(run.first) < next {
            return Err(format!(
                "its machines from {} on are out of order",
                run.first
            ));
        }
        next = u64::from(run.first) + u64::from(run.count);
        if next > u64::from(u32::MAX) {
            return Err(format!("its machine {} has too high a number", run.first));
        }
        sum += u64::from(run.count);
    }
    if sum != u64::from(vms) {
        return Err(format!("it has {sum} machines, not {vms}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_moves_and_all_keep_their_numbers() {
        let run = |first, count, host: &str| Run {
            first,
            count,
            host: host.into(),
        };
        let runs = [run(0, 3, "a"), run(5, 1, "b")];
        let split = [
            run(0, 1, "a"),
            run(1, 1, "b"),
            run(2, 1, "a"),
            run(5, 1, "b"),
        ];
        assert_eq!(moved(&runs, 1, &"b".into()), split);
        assert_eq!(moved(&split, 1, &"a".into()), runs);
        assert_eq!(moved(&runs, 4, &"b".into()), runs);
        let hosts = [0, 2, 3, 5, 6].map(|number| host_of(&runs, number));
        assert_eq!(hosts, [Some("a"), Some("a"), None, Some("b"), None]);
    }

    #[test]
    fn numbers_that_cannot_be_counted_are_no_machines() {
        let run = |first, count| Run {
            first,
            count,
            host: "a".into(),
        };
        assert_eq!(check(&[run(0, 1), run(7, 2)], 3), Ok(()));
        for (runs, vms) in [
            ([run(0, 1), run(u32::MAX, 1)], 2),
            ([run(0, 2), run(1, 1)], 3),
            ([run(0, 0), run(0, 1)], 1),
            ([run(0, 1), run(1, 1)], 3),
        ] {
            assert!(check(&runs, vms).is_err(), "{runs:?}");
        }
    }
}
