//! The budget of a rule. The guests of a rule can grow, rename their threads and start further
//! threads, even if their identity is right. The budget limits all of them together.

use super::class::{Bandwidth, CPU, Class};
use super::desired::Desired;
use super::guest::{Guest, GuestThread};
use super::rule::{GuestRule, desired_of};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use tailbound_sys::thread::ThreadId;

/// Default limit of threads with a class for each rule.
pub const MAX_THREADS: u32 = 256;

/// Limits of a rule for all its guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Largest number of threads with a class.
    pub threads: u32,
    /// Largest sum of the reserved CPU shares.
    pub cpus: Bandwidth,
}

impl Budget {
    /// Returns the budget of a rule on a host with `cpus` CPUs. By default, half of them may be
    /// reserved.
    pub fn of(rule: &GuestRule, cpus: u32) -> Self {
        Self {
            threads: rule.max_threads.unwrap_or(MAX_THREADS),
            cpus: rule
                .max_cpus
                .unwrap_or(Bandwidth(u64::from(cpus) * CPU / 2)),
        }
    }
}

/// The threads of a guest that its rule's budget leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    /// The guest's name.
    pub guest: String,
    /// Number of its threads.
    pub threads: usize,
    /// The budget of the rule.
    pub budget: Budget,
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            guest,
            threads,
            budget,
        } = self;
        write!(
            f,
            "{guest}: the limit of its rule is {} threads and {} CPUs, for all guests of the \
                rule; {threads} threads of this guest exceed the limit and get no class; find \
                the program that starts them, or raise max_threads or max_cpus",
            budget.threads, budget.cpus
        )
    }
}

/// The desired states of the threads of all guests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredStates {
    /// The desired states that budgets allow.
    pub desired: Vec<Desired>,
    /// Excess over the budget, by guest.
    pub beyond: Vec<Beyond>,
}

/// Returns the desired states of the threads of `guests` within each rule's budget, on a host with
/// `cpus` CPUs. Guests without a rule, and threads whose class is [`Class::Normal`], have no
/// desired state: they stay as they are. Threads that have a class (`holds`) keep it before new
/// ones. Then older guests precede younger ones, and vCPUs precede helpers.
pub fn desired(
    rules: &[GuestRule],
    guests: &[Guest],
    cpus: u32,
    holds: impl Fn(ThreadId) -> bool,
) -> DesiredStates {
    let mut wanted = DesiredStates::default();
    let mut by_rule: BTreeMap<usize, Vec<ThreadRequest<'_>>> = BTreeMap::new();
    for guest in guests {
        let Some((index, rule)) = guest.rule.and_then(|at| Some((at, rules.get(at)?))) else {
            continue;
        };
        let age = guest.threads.iter().map(|thread| thread.id.start).min();
        let requests = guest.threads.iter().filter_map(|thread| {
            let desired = desired_of(rule, guest, thread)?;
            let holds_reservation = holds(thread.id);
            let order = (
                Reverse(holds_reservation),
                age,
                guest.pid,
                rank(thread),
                thread.id,
            );
            Some((order, guest, desired))
        });
        by_rule.entry(index).or_default().extend(requests);
    }
    for (index, mut requests) in by_rule {
        requests.sort_by_key(|(order, ..)| *order);
        spend(Budget::of(&rules[index], cpus), requests, &mut wanted);
    }
    // In the order of guests and threads, whatever decided about them.
    let place: BTreeMap<_, _> = guests
        .iter()
        .flat_map(|guest| &guest.threads)
        .enumerate()
        .map(|(place, thread)| (thread.id, place))
        .collect();
    wanted.desired.sort_by_key(|desired| place[&desired.thread]);
    wanted
}

/// The order in which threads use the budget.
type Order = (Reverse<bool>, Option<u64>, u32, u32, ThreadId);

/// A thread of a guest, and what its rule wants for it.
type ThreadRequest<'g> = (Order, &'g Guest, Desired);

/// vCPUs by their numbers, then all others.
fn rank(thread: &GuestThread) -> u32 {
    match thread.role {
        super::guest::Role::Vcpu(number) => number,
        role if role.is_vcpu() => 0,
        _ => u32::MAX,
    }
}

fn spend(budget: Budget, requests: Vec<ThreadRequest<'_>>, wanted: &mut DesiredStates) {
    let (mut threads, mut cpus) = (0, 0);
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, guest, desired) in requests {
        let share = match desired.class {
            Class::Periodic(periodic) => periodic.bandwidth(),
            _ => 0,
        };
        if threads < budget.threads && cpus + share <= budget.cpus.0 {
            threads += 1;
            cpus += share;
            wanted.desired.push(desired);
        } else {
            *left_out.entry(&guest.name).or_default() += 1;
        }
    }
    let beyond = left_out.into_iter().map(|(guest, threads)| Beyond {
        guest: guest.to_owned(),
        threads,
        budget,
    });
    wanted.beyond.extend(beyond);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::guest;
    use proptest::prelude::*;

    fn rule(text: &str) -> Vec<GuestRule> {
        let text = format!("[[guest]]\nname = \"*\"\nuid = 1000\n{text}\n");
        crate::AgentConfig::parse(&text).unwrap().rules
    }

    fn names(wanted: &DesiredStates) -> Vec<&str> {
        let names = wanted.desired.iter().map(|desired| desired.name.as_str());
        names.collect()
    }

    #[test]
    fn a_thread_flood_is_capped_and_takes_no_class_from_others() {
        let rules = rule("level = \"top\"\nmax_cpus = 1");
        let web = guest("web", 100, 50, 2);
        let before = desired(&rules, std::slice::from_ref(&web), 8, |_| false);
        assert_eq!(names(&before), ["web vcpu 0", "web vcpu 1"]);
        let holds = |thread: ThreadId| before.desired.iter().any(|own| own.thread == thread);
        // An older process of the same owner starts a thousand threads.
        let flood = guest("flood", 40, 7, 1000);
        let after = desired(&rules, &[flood.clone(), web.clone()], 8, holds);
        assert_eq!(
            names(&after),
            ["flood vcpu 0", "flood vcpu 1", "web vcpu 0", "web vcpu 1"]
        );
        assert_eq!(after.beyond.len(), 1);
        assert_eq!(
            after.beyond[0].to_string(),
            "flood: the limit of its rule is 256 threads and 1 CPUs, for all guests of the rule; 998 threads of this guest exceed the limit and get no class; find the program that starts them, or raise max_threads or max_cpus"
        );
        // Among those who have nothing yet the older goes first.
        let anew = desired(&rules, &[web, flood], 8, |_| false);
        assert_eq!(names(&anew).len(), 4);
        assert!(names(&anew).iter().all(|name| name.starts_with("flood")));
    }

    #[test]
    fn a_rule_without_limits_reserves_half_of_the_cpus() {
        let guests = [guest("web", 100, 50, 1000)];
        let top = desired(&rule("level = \"top\""), &guests, 4, |_| false);
        assert_eq!(top.desired.len(), 8, "a quarter each of two CPUs");
        let high = desired(&rule("level = \"high\""), &guests, 4, |_| false);
        assert_eq!(high.desired.len(), 256);
        let few = rule("level = \"high\"\nmax_threads = 3");
        assert_eq!(desired(&few, &guests, 4, |_| false).desired.len(), 3);
    }

    proptest! {
        #[test]
        fn no_guests_take_more_than_the_budget_and_none_is_forgotten(
            sizes in prop::collection::vec(0u32..40, 0..6),
            max_threads in 1u32..60,
            max_cpus in 0u32..12,
        ) {
            let rules = rule(&format!(
                "level = \"top\"\nmax_threads = {max_threads}\nmax_cpus = {max_cpus}"
            ));
            let guests: Vec<_> = (0..)
                .zip(&sizes)
                .map(|(n, size)| guest(&format!("g{n}"), 1000 * (n + 1), u64::from(n), *size))
                .collect();
            let wanted = desired(&rules, &guests, 8, |thread| thread.tid % 3 == 0);
            let given = u32::try_from(wanted.desired.len()).unwrap();
            let all: u32 = sizes.iter().sum();
            prop_assert_eq!(given, all.min(max_threads).min(4 * max_cpus));
            let beyond: usize = wanted.beyond.iter().map(|beyond| beyond.threads).sum();
            prop_assert_eq!(u32::try_from(beyond).unwrap(), all - given);
        }
    }
}
