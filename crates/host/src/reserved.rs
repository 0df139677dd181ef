//! Comparison of vCPUs' reservations with the placement service's promises.

use crate::control::ReservationGap;
use crate::guarantees::MachineSnapshot;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tailbound_agent::Periodic;
use tailbound_api::{CpuReservation, CpuUse, RefusedVm, Thousandths, UnpromisedGuest};

/// The reservation in force of each vCPU, by guest.
pub(crate) type Reservations = BTreeMap<String, Vec<Option<Periodic>>>;

/// Largest number of guests that a report names for unpromised reservations.
const NAMED: usize = 16;

/// Differences between the CPU that guests have reserved and the placement service's promises.
#[derive(Debug, Default)]
pub(crate) struct ReservationDifferences {
    /// The VMs whose guests are here and have less than promised, or a different reservation:
    /// admission counted exactly the promise. A VM that is not here, or is off, lacks nothing.
    lacking: Vec<RefusedVm>,
    /// The guests that have more, the largest difference first; VMs of the service and others.
    beyond: Vec<ExcessReservation>,
}

/// A guest that has more CPU reserved than is promised.
#[derive(Debug)]
struct ExcessReservation {
    guest: String,
    reserved_cpu: CpuUse,
    promised: CpuUse,
}

impl ExcessReservation {
    /// Returns the difference.
    fn by(&self) -> CpuUse {
        CpuUse {
            cpu: self.reserved_cpu.cpu.saturating_sub(self.promised.cpu),
            threads: self
                .reserved_cpu
                .threads
                .saturating_sub(self.promised.threads),
        }
    }

    fn describe(&self) -> String {
        let cpu = |used: CpuUse| {
            format!(
                "{} of a CPU for {} vCPUs",
                Thousandths(used.cpu),
                used.threads
            )
        };
        let promised = if self.promised == CpuUse::default() {
            "nothing".to_owned()
        } else {
            cpu(self.promised)
        };
        format!(
            "it has {} reserved, and is promised {promised}",
            cpu(self.reserved_cpu)
        )
    }
}

impl ReservationDifferences {
    /// Compares the reservations in force with the service's promises to these VMs.
    pub(crate) fn new(machines: &[MachineSnapshot], reservations: &Reservations) -> Self {
        let known = machines
            .iter()
            .filter_map(|machine| Some((machine.guest.as_str(), machine.known.as_ref()?)));
        let known: BTreeMap<_, _> = known.collect();
        let mut compared = Self::default();
        for (guest, vcpus) in reservations {
            let known = known.get(guest.as_str());
            let promised = known.and_then(|known| known.cpu_reservation);
            if let Some(known) = known
                && let Some(promised) = promised
                && let Some(why) = lacks(guest, promised, vcpus)
            {
                compared.lacking.push(RefusedVm {
                    tenant: known.tenant,
                    vm: known.vm.clone(),
                    why,
                });
            }
            let beyond = ExcessReservation {
                guest: guest.clone(),
                reserved_cpu: reserved_cpu(vcpus),
                promised: promised
                    .map(|promised| promised.of_machine())
                    .unwrap_or_default(),
            };
            if beyond.by() != CpuUse::default() {
                compared.beyond.push(beyond);
            }
        }
        compared
            .beyond
            .sort_by_key(|beyond| Reverse((beyond.by().cpu, beyond.by().threads)));
        compared
    }

    /// Returns the report to the service.
    pub(crate) fn report(self) -> ReservationGap {
        ReservationGap {
            unpromised: self.unpromised(),
            named: self.named(),
            lacking: self.lacking,
        }
    }

    /// Returns the total CPU reserved beyond the promises.
    fn unpromised(&self) -> CpuUse {
        let all = self.beyond.iter().map(ExcessReservation::by);
        all.fold(CpuUse::default(), CpuUse::plus)
    }

    /// Returns each guest's CPU beyond its promise, in thousandths of a CPU, with the number of
    /// vCPUs.
    pub(crate) fn by_guest(&self) -> impl Iterator<Item = (&str, CpuUse)> {
        self.beyond
            .iter()
            .map(|beyond| (beyond.guest.as_str(), beyond.by()))
    }

    /// Returns the guests with the most CPU beyond the promises, as text.
    fn named(&self) -> Vec<UnpromisedGuest> {
        let most = self.beyond.iter().take(NAMED);
        let guests = most.map(|beyond| UnpromisedGuest {
            guest: beyond.guest.clone(),
            what: beyond.describe(),
        });
        guests.collect()
    }
}

/// Returns the total that vCPUs have reserved, with each density rounded up as the service does.
fn reserved_cpu(vcpus: &[Option<Periodic>]) -> CpuUse {
    let each = vcpus.iter().flatten().map(|reservation| {
        let one = CpuReservation {
            runtime: reservation.runtime,
            deadline: reservation.deadline,
            period: reservation.period,
            vcpus: 1,
        };
        one.of_machine()
    });
    each.fold(CpuUse::default(), CpuUse::plus)
}

/// Returns the difference between a guest's promise and its reservations, as text, if it lacks any.
fn lacks(guest: &str, promised: CpuReservation, vcpus: &[Option<Periodic>]) -> Option<String> {
    let wanted = Periodic {
        runtime: promised.runtime,
        deadline: promised.deadline,
        period: promised.period,
    };
    let given = vcpus.iter().filter(|given| **given == Some(wanted)).count();
    let enough = usize::try_from(promised.vcpus).is_ok_and(|promised| given >= promised);
    (!enough).then(|| {
        let Periodic {
            runtime,
            deadline,
            period,
        } = wanted;
        format!(
            "{given} of the {} vCPUs of {guest} have {runtime}/{deadline}/{period}, which is \
                guaranteed for {}; add a rule of the agent that sets it",
            vcpus.len(),
            promised.vcpus
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tailbound_units::Nanos;

    fn periodic(runtime_ms: u64) -> Periodic {
        Periodic {
            runtime: Nanos::from_millis(runtime_ms),
            deadline: Nanos::from_millis(4),
            period: Nanos::from_millis(4),
        }
    }

    fn machine(guest: &str, number: u32, vcpus: Option<u32>) -> MachineSnapshot {
        let vm = format!("acme/web/{number}");
        let reservation = vcpus.map(
            |vcpus| json!({"runtime": "1ms", "deadline": "4ms", "period": "4ms", "vcpus": vcpus}),
        );
        let known = json!({
            "vm": vm, "tenant": 7, "tenant_vms": 5, "cpu_reservation": reservation,
        });
        MachineSnapshot {
            guest: guest.to_owned(),
            vm: vm.parse().expect("its form"),
            known: serde_json::from_value(known).expect("the service's own form"),
        }
    }

    #[test]
    fn a_vm_with_less_cpu_than_promised_is_reported() {
        let machines = [
            machine("kept", 0, Some(2)),
            machine("one", 1, Some(2)),
            machine("other", 2, Some(1)),
            machine("off", 3, Some(1)),
            machine("plain", 4, None),
        ];
        let reservations = [
            ("kept", vec![Some(periodic(1)), None, Some(periodic(1))]),
            ("one", vec![Some(periodic(1)), None]),
            ("other", vec![Some(periodic(2))]),
            ("plain", vec![None]),
        ];
        let reservations = reservations.map(|(guest, vcpus)| (guest.to_owned(), vcpus));
        let ReservationDifferences { lacking: told, .. } =
            ReservationDifferences::new(&machines, &reservations.into());
        let why = |told: &RefusedVm| {
            assert_eq!(told.tenant.0, 7);
            format!("{}: {}", told.vm, told.why)
        };
        let told: Vec<_> = told.iter().map(why).collect();
        let promise = "add a rule of the agent that sets it";
        assert_eq!(
            told,
            [
                format!(
                    "acme/web/1: 1 of the 2 vCPUs of one have 1ms/4ms/4ms, which is guaranteed for \
                     2; {promise}"
                ),
                format!(
                    "acme/web/2: 0 of the 1 vCPUs of other have 1ms/4ms/4ms, which is guaranteed \
                     for 1; {promise}"
                ),
            ]
        );
    }

    #[test]
    fn a_vm_with_more_cpu_than_promised_is_named_and_counted() {
        let machines = [
            machine("kept", 0, Some(2)),
            machine("more", 1, Some(1)),
            machine("longer", 2, Some(1)),
            machine("plain", 3, None),
        ];
        let one = Some(periodic(1));
        let reservations = [
            ("kept", vec![one, None, one]),
            ("more", vec![one, one, None, one]),
            ("longer", vec![Some(periodic(2))]),
            ("plain", vec![None, one]),
            ("own", vec![Some(periodic(3))]),
            ("quiet", vec![None]),
        ];
        let reservations = reservations.map(|(guest, vcpus)| (guest.to_owned(), vcpus));
        let compared = ReservationDifferences::new(&machines, &reservations.into());
        let told: Vec<_> = compared
            .named()
            .into_iter()
            .map(|it| (it.guest, it.what))
            .collect();
        let nothing =
            |cpu| format!("it has {cpu} of a CPU for 1 vCPUs reserved, and is promised nothing");
        let one = "0.250 of a CPU for 1 vCPUs";
        let expected = [
            ("own", nothing("0.750")),
            (
                "more",
                format!("it has 0.750 of a CPU for 3 vCPUs reserved, and is promised {one}"),
            ),
            ("plain", nothing("0.250")),
            (
                "longer",
                format!("it has 0.500 of a CPU for 1 vCPUs reserved, and is promised {one}"),
            ),
        ];
        assert_eq!(told, expected.map(|(guest, what)| (guest.to_owned(), what)));
        let CpuUse { cpu, threads } = compared.unpromised();
        assert_eq!((cpu, threads), (750 + 500 + 250 + 250, 1 + 2 + 1));
    }

    #[test]
    fn a_few_are_named_and_all_are_counted() {
        let reservations = (0..100).map(|number| (format!("g{number}"), vec![Some(periodic(1))]));
        let compared = ReservationDifferences::new(&[], &reservations.collect());
        assert_eq!(compared.named().len(), NAMED);
        assert_eq!(compared.unpromised().threads, 100);
    }
}
