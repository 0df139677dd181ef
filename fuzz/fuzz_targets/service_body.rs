//! Bodies of requests to the placement service: each is malformed, refused without an effect, or
//! decided.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use tailbound_api::{Adoption, Batch, CandidateQuestions, HostMachines, MachinePut, MoveVm};
use tailbound_api::{NewReservation, NewTenant, NewToken, TenantPatch, VmLimit};
use tailbound_control::ledger::{Caller, Command, NamedMachine, PutMachine, candidates};
use tailbound_fuzz::service::{decide, ledger};
use tailbound_placement::{Request, TenantId};

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Tenants name their owner, as the handlers see to it.
fn owned(mut new: NewTenant) -> NewTenant {
    new.owner.get_or_insert_with(|| "acme".to_owned());
    new
}

fuzz_target!(|input: (u8, &str)| {
    let (kind, text) = input;
    let id = TenantId(1);
    let mut ledger = ledger();
    let command = match kind % 12 {
        0 => read(text).map(|new| Command::Create(owned(new))),
        1 => read(text).and_then(|patch: TenantPatch| {
            let guarantee = patch.guarantee;
            let vms = patch.vms;
            Some(Command::Change { id, vms, guarantee })
        }),
        2 => read::<MoveVm>(text).map(|step| Command::Move { id, step }),
        3 => read::<VmLimit>(text).map(|limit| Command::Limit { id, limit }),
        4 => read::<HostMachines>(text).map(|machines| Command::PutHost {
            id,
            host: "a-1".to_owned(),
            machines,
        }),
        5 => read(text).map(|mut new: NewReservation| {
            new.owner.get_or_insert_with(|| "acme".to_owned());
            Command::Reserve(Box::new(new))
        }),
        6 => read::<MachinePut>(text).map(|put| {
            Command::PutMachine(Box::new(PutMachine {
                machine: NamedMachine {
                    owner: "acme".to_owned(),
                    name: "vm".to_owned(),
                },
                put,
                caller: Caller::Owner,
            }))
        }),
        7 => read(text).map(|batch: Batch| Command::Batch(batch.operations)),
        8 => read(text).map(|adoption: Adoption| {
            Command::Adopt(adoption.tenants.into_iter().map(owned).collect())
        }),
        9 => {
            if let Some(questions) = read::<CandidateQuestions>(text) {
                let _ = candidates(&ledger, None, &questions);
            }
            None
        }
        10 => {
            if let Some(request) = read::<Request>(text)
                && request.check().is_ok()
            {
                let _ = ledger.explain(&request);
            }
            None
        }
        _ => {
            let _ = read::<NewToken>(text);
            None
        }
    };
    if let Some(command) = command {
        decide(&mut ledger, command);
    }
});
