//! One observation of guest entries, without a watcher.

use super::entries::{Entries, asks, candidates, claims, note, says_kvm, settle};
use super::guest::{Guest, GuestThread, Role};
use super::tail::Tail;
use std::time::{Duration, Instant};
use tailbound_sys::thread::ThreadId;
use tailbound_units::Nanos;

/// Time limit for a guest's vCPUs in one observation: an idle vCPU sleeps.
const VCPU_TIME_LIMIT: Duration = Duration::from_secs(2);

/// Settles the roles of guests' threads in one observation of at most two seconds; returns notes.
pub fn settle_once(guests: &mut [Guest], holds: impl Fn(ThreadId) -> bool) -> Vec<String> {
    let kvm = |guest: &Guest, thread: &GuestThread| {
        matches!(thread.role, Role::Vcpu(_)) && says_kvm(guest.vmm, thread)
    };
    let needs_role = |guest: &Guest| {
        let any = guest.threads.iter().any(|thread| kvm(guest, thread));
        asks(guest) && (any || !guest.has_vcpus())
    };
    let threads = candidates(guests.iter().filter(|guest| needs_role(guest)));
    if threads.is_empty() {
        return Vec::new();
    }
    let by_name = |why: &str| {
        vec![format!(
            "vCPUs are known by the names of their threads alone: {why}"
        )]
    };
    let mut tail = match Tail::open(Nanos(u64::MAX)) {
        Ok(tail) => tail,
        Err(error) => return by_name(&error.to_string()),
    };
    if let Err(error) = tail.follow(&threads) {
        return by_name(&error.to_string());
    }
    let end = Instant::now() + VCPU_TIME_LIMIT;
    loop {
        let entries = tail.entries(&threads);
        if let Entries::Unknown(why) = &entries {
            return by_name(why);
        }
        let mut seen = guests.to_vec();
        settle(&mut seen, &entries, &holds);
        let waits =
            claims(&seen).next().is_some() || seen.iter().any(|it| asks(it) && !it.has_vcpus());
        if !waits || Instant::now() >= end {
            guests.clone_from_slice(&seen);
            return claims(guests)
                .map(|(guest, thread)| note(guest, thread))
                .collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
