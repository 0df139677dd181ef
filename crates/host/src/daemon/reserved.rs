//! Whether vCPUs have the reservations that the placement service promises their machines.

use crate::guarantees::MachineSnapshot;
use std::collections::BTreeMap;
use tailbound_agent::Periodic;
use tailbound_api::{RefusedVm, VmGuarantee};

/// By guest: of each vCPU the reservation that is in force.
type Reservations = BTreeMap<String, Vec<Option<Periodic>>>;

/// Returns the machines whose guests are here and have less than is promised, or something else:
/// admission counted just that. A machine that is not here, or is off, lacks nothing.
pub(super) fn lacking(machines: &[MachineSnapshot], reservations: &Reservations) -> Vec<RefusedVm> {
    let lacking = machines.iter().filter_map(|machine| {
        let known = machine.known.as_ref()?;
        let vcpus = reservations.get(&machine.guest)?;
        Some(RefusedVm {
            tenant: known.tenant,
            vm: known.vm.clone(),
            why: lacks(&machine.guest, known, vcpus)?,
        })
    });
    lacking.collect()
}

/// Returns what a guest lacks of what is promised.
fn lacks(guest: &str, known: &VmGuarantee, vcpus: &[Option<Periodic>]) -> Option<String> {
    let promised = known.cpu_reservation?;
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
             promised for {}; a rule of the agent has to give them that",
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
    fn who_has_not_what_is_promised_is_told_and_who_is_off_or_promised_nothing_is_not() {
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
        let told = lacking(&machines, &reservations.into());
        let why = |told: &RefusedVm| {
            assert_eq!(told.tenant.0, 7);
            format!("{}: {}", told.vm, told.why)
        };
        let told: Vec<_> = told.iter().map(why).collect();
        let promise = "a rule of the agent has to give them that";
        assert_eq!(
            told,
            [
                format!(
                    "acme/web/1: 1 of the 2 vCPUs of one have 1ms/4ms/4ms, which is promised for \
                     2; {promise}"
                ),
                format!(
                    "acme/web/2: 0 of the 1 vCPUs of other have 1ms/4ms/4ms, which is promised \
                     for 1; {promise}"
                ),
            ]
        );
    }
}
