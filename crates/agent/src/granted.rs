//! Reservations of guests' vCPUs, for the report to the placement service.

use super::class::{Class, Periodic};
use super::guest::Guest;
use super::rule::{GuestRule, rule_for};
use std::collections::{BTreeMap, BTreeSet};
use tailbound_sys::thread::ThreadId;

/// For each guest, the reservation in force of each vCPU. A process that only claims to be a guest,
/// and has no rule, is not included.
pub(super) fn granted(
    rules: &[GuestRule],
    guests: &[Guest],
    in_force: &BTreeSet<ThreadId>,
) -> BTreeMap<String, Vec<Option<Periodic>>> {
    let mut granted = BTreeMap::<_, Vec<_>>::new();
    for guest in guests {
        let rule = rule_for(rules, guest);
        if rule.is_none() && (guest.origin.named_itself() || guest.origin.nested) {
            continue;
        }
        let vcpus = guest.threads.iter().filter(|thread| thread.role.is_vcpu());
        let reserved = vcpus.map(|thread| match rule?.class_of(thread) {
            Class::Periodic(periodic) if in_force.contains(&thread.id) => Some(periodic),
            _ => None,
        });
        granted
            .entry(guest.name.clone())
            .or_default()
            .extend(reserved);
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{GuestThread, Role};
    use crate::place::Manager;
    use crate::testing::{guest, periodic, reservation};

    #[test]
    fn only_classes_in_force_of_verified_guests_are_granted() {
        let rules = [GuestRule {
            name: Some("web*".to_owned()),
            class: Some(periodic(1_000, 4_000)),
            ..GuestRule::default()
        }];
        let mut web = guest("web1", 10, 1, 2);
        let emulator = GuestThread {
            role: Role::Emulator,
            ..web.threads[0].clone()
        };
        web.threads.push(emulator);
        let unruled = |name: &str, pid| {
            let mut guest = guest(name, pid, 1, 1);
            guest.rule = None;
            guest
        };
        let (mut vouched, claims) = (unruled("db", 20), unruled("claims", 30));
        vouched.origin.place = Some((Manager::Libvirt("db".to_owned()), "/scope".to_owned()));
        let in_force = [&web, &vouched, &claims].map(|guest| guest.threads[0].id);
        let granted = granted(&rules, &[web, vouched, claims], &in_force.into());
        let one = Some(reservation(1_000, 4_000));
        let expected = [("db", vec![None]), ("web1", vec![one, None])];
        let expected = expected.map(|(name, granted)| (name.to_owned(), granted));
        assert_eq!(granted, expected.into());
    }
}
