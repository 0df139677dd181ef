//! A ledger with a large tenant, and changes of one of its machines.

use crate::ledger::testing::call;
use crate::ledger::{Call, Caller, Change, Command, Ledger, NamedMachine, Reply};
use tailbound_api::{
    HostMachines, MachineRequest, MoveStep, MoveVm, NewReservation, PinnedHost, ReservationId,
};
use tailbound_placement::{Policy, Spec, TenantId};
use tailbound_units::Nanos;

/// Returns a ledger with one tenant of `machines` named machines, each on a host of its own, and the
/// changes that a new store has to keep.
pub(super) fn large(machines: u32) -> (Ledger, Vec<Change>) {
    let tree = format!(
        r#"
        frame = "1538B"
        [[host]]
        name = "host"
        count = {}
        slots = 4
        uplink = {{ rate = "10Gbit/s", buffer = "300KB", up_buffer = "62500B" }}
        "#,
        machines + 10
    );
    let (mut ledger, mut changes) =
        Ledger::new(Spec::from_toml(&tree).unwrap(), Policy::Silo).unwrap();
    let numbers: Vec<u32> = (0..machines).collect();
    for some in numbers.chunks(10) {
        let decision = ledger.decide(&reserve(some), Nanos(1)).unwrap();
        changes.extend(decision.changes);
        let Reply::Reservation(reservation) = decision.reply else {
            panic!("it is a reservation");
        };
        let confirm = call(Command::Confirm(reservation.id));
        changes.extend(ledger.decide(&confirm, Nanos(1)).unwrap().changes);
    }
    (ledger, changes)
}

fn name(number: u32) -> String {
    format!("5c1f6bb0-58d2-4d0e-9d0b-{number:012}")
}

fn reserve(numbers: &[u32]) -> Call {
    let on = |number: &u32| PinnedHost {
        host: format!("host-{}", number + 1),
        vms: 1,
    };
    call(Command::Reserve(Box::new(NewReservation {
        tenant: "web".to_owned(),
        owner: Some("acme".to_owned()),
        request: Some(MachineRequest::default()),
        placement: numbers.iter().map(on).collect(),
        ttl: Nanos::from_secs(30),
        machines: numbers.iter().map(|number| name(*number)).collect(),
        replace: false,
    })))
}

/// A change of one machine of [`large`] with this number of machines. A confirmation is of the
/// reservation that the change before it made.
pub(super) type Step = fn(u32, ReservationId) -> Call;

/// Changes of one machine each, in their order.
pub(super) fn steps() -> [(&'static str, Step); 6] {
    [
        ("grow", |machines, _| reserve(&[machines])),
        ("confirm", |_, id| call(Command::Confirm(id))),
        ("move", |machines, _| {
            let to = format!("host-{}", machines + 5);
            step(machines / 2, MoveStep::Begin { to })
        }),
        ("moved", |machines, _| step(machines / 2, MoveStep::Done)),
        ("shrink", |machines, _| {
            call(Command::DeleteMachine {
                machine: NamedMachine {
                    owner: "acme".to_owned(),
                    name: name(machines / 3),
                },
                host: format!("host-{}", machines / 3 + 1),
                caller: Caller::Owner,
            })
        }),
        ("put", |machines, _| {
            call(Command::PutHost {
                id: TenantId(1),
                host: format!("host-{}", machines + 3),
                machines: HostMachines {
                    vms: 1,
                    remove: Vec::new(),
                },
            })
        }),
    ]
}

fn step(vm: u32, step: MoveStep) -> Call {
    let (id, step) = (TenantId(1), MoveVm { vm, step });
    call(Command::Move { id, step })
}

/// Makes the steps, and returns the changes of each with its name.
pub(super) fn made(ledger: &mut Ledger, machines: u32) -> Vec<(&'static str, Vec<Change>)> {
    let mut last = ReservationId(0);
    let steps = steps().into_iter().map(|(name, step)| {
        let decision = ledger.decide(&step(machines, last), Nanos(2)).unwrap();
        if let Reply::Reservation(reservation) = &decision.reply {
            last = reservation.id;
        }
        (name, decision.changes)
    });
    steps.collect()
}
