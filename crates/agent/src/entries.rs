//! Threads that run vCPUs, as observed by the kernel: those that have entered a guest
//! (`kvm_entry`). Any process may use a vCPU's name for a thread, so names count only without this
//! evidence: if the kernel cannot be queried, and for threads that run a vCPU without KVM and enter
//! no guest.

use super::guest::{Guest, GuestThread, Role, Vmm};
use std::collections::{BTreeMap, BTreeSet};
use tailbound_sys::thread::ThreadId;

/// Number of looks after which a note is made that a thread has entered no guest yet.
const LOOKS: u32 = 10;

/// Note about a guest whose vCPUs are known neither by name nor by QMP.
pub(crate) const NAMELESS: &str = "no thread is named as a vCPU: start QEMU with -name \
    NAME,debug-threads=on, or set its QMP socket (qmp = \"PATH\")";

/// Knowledge about threads that have entered a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entries {
    /// Unknown, with the reason.
    Unknown(String),
    /// For each followed thread, whether it has entered a guest since then.
    Known(BTreeMap<ThreadId, bool>),
}

impl Entries {
    fn of(&self, thread: ThreadId) -> Option<bool> {
        match self {
            Self::Unknown(_) => None,
            Self::Known(entered) => entered.get(&thread).copied(),
        }
    }
}

/// Returns true if a thread claims to run a vCPU by KVM, so that it enters a guest.
pub(crate) fn says_kvm(vmm: Vmm, thread: &GuestThread) -> bool {
    match vmm {
        Vmm::Qemu => thread.name.ends_with("/KVM"),
        Vmm::Firecracker | Vmm::CloudHypervisor => true,
        Vmm::Other => false,
    }
}

/// Returns true if the class of this guest depends on the kernel's observation.
pub(crate) fn asks(guest: &Guest) -> bool {
    guest.vmm != Vmm::Other
}

/// The threads of `guests` that may enter one.
pub(crate) fn candidates<'g>(guests: impl Iterator<Item = &'g Guest>) -> BTreeSet<ThreadId> {
    let threads = guests
        .filter(|guest| asks(guest))
        .flat_map(|guest| &guest.threads);
    threads.map(|thread| thread.id).collect()
}

/// Sets the roles of threads: a thread that has entered a guest runs a vCPU, under any name; a
/// thread that only claims it is a [`Role::Claim`]. A thread that `holds` a class keeps it, since
/// it was checked before.
pub(crate) fn settle(guests: &mut [Guest], entries: &Entries, holds: impl Fn(ThreadId) -> bool) {
    for guest in guests.iter_mut().filter(|guest| asks(guest)) {
        let vmm = guest.vmm;
        let mut next = 0;
        for thread in &mut guest.threads {
            let Role::Vcpu(number) = thread.role else {
                continue;
            };
            next = next.max(number.saturating_add(1));
            let known = entries.of(thread.id) == Some(false) && !holds(thread.id);
            if known && says_kvm(vmm, thread) {
                thread.role = Role::Claim(number);
            }
        }
        let nameless = !guest.has_vcpus();
        for thread in &mut guest.threads {
            let helps = matches!(thread.role, Role::Emulator | Role::Io);
            if helps && entries.of(thread.id) == Some(true) {
                thread.role = Role::Vcpu(next);
                next = next.saturating_add(1);
            }
        }
        if nameless && guest.has_vcpus() {
            guest.notes.retain(|note| note != NAMELESS);
        }
    }
}

/// The threads that only claim to run a vCPU.
pub(crate) fn claims(guests: &[Guest]) -> impl Iterator<Item = (&Guest, &GuestThread)> {
    let threads = guests
        .iter()
        .flat_map(|guest| guest.threads.iter().map(move |it| (guest, it)));
    threads.filter(|(_, thread)| matches!(thread.role, Role::Claim(_)))
}

/// Returns the note about a thread that only claims to run a vCPU.
pub(crate) fn note(guest: &Guest, thread: &GuestThread) -> String {
    format!(
        "{} (process {}): thread {} calls itself {}, has entered no guest yet (kvm_entry), and gets \
         no class until it does",
        guest.name, guest.pid, thread.id.tid, thread.name
    )
}

/// Remembers the age of claims without an observation.
#[derive(Debug, Default)]
pub(crate) struct Claims(BTreeMap<ThreadId, u32>);

impl Claims {
    /// Looks at guests with settled roles; returns one note for each thread whose claim is old.
    pub(crate) fn look(&mut self, guests: &[Guest]) -> Vec<String> {
        let mut notes = Vec::new();
        let mut now = BTreeMap::new();
        for (guest, thread) in claims(guests) {
            let looks = self
                .0
                .get(&thread.id)
                .map_or(1, |looks| looks.saturating_add(1));
            now.insert(thread.id, looks);
            if looks == LOOKS {
                notes.push(note(guest, thread));
            }
        }
        self.0 = now;
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::guest;

    fn known(entered: &[(ThreadId, bool)]) -> Entries {
        Entries::Known(entered.iter().copied().collect())
    }

    fn roles(guest: &Guest) -> Vec<Role> {
        guest.threads.iter().map(|thread| thread.role).collect()
    }

    fn settled(mut guest: Guest, entries: &Entries, held: &[ThreadId]) -> Guest {
        settle(std::slice::from_mut(&mut guest), entries, |thread| {
            held.contains(&thread)
        });
        guest
    }

    #[test]
    fn threads_named_as_vcpus_stay_claims_until_they_enter_kvm() {
        let web = guest("web", 100, 50, 3);
        let [first, second, third] = [0, 1, 2].map(|at| web.threads[at].id);
        // The third is not followed: there were too many, and nobody may be shut out by that.
        let entries = known(&[(first, true), (second, false)]);
        let now = settled(web.clone(), &entries, &[]);
        assert_eq!(roles(&now), [Role::Vcpu(0), Role::Claim(1), Role::Vcpu(2)]);
        assert!(!Role::Claim(1).is_vcpu());
        // Who has a class has been asked before.
        assert_eq!(
            roles(&settled(web.clone(), &entries, &[second])),
            roles(&web)
        );
        let unknown = Entries::Unknown("no kvm".to_owned());
        assert_eq!(roles(&settled(web.clone(), &unknown, &[])), roles(&web));
        let mut emulated = web.clone();
        for thread in &mut emulated.threads {
            thread.name = thread.name.replace("KVM", "TCG");
        }
        let none = known(&[(first, false), (second, false), (third, false)]);
        assert_eq!(roles(&settled(emulated.clone(), &none, &[])), roles(&web));
        // Firecracker has nothing but KVM, by whatever names.
        emulated.vmm = Vmm::Firecracker;
        let claims = [0, 1, 2].map(Role::Claim);
        assert_eq!(roles(&settled(emulated, &none, &[])), claims);
    }

    #[test]
    fn threads_that_enter_kvm_are_vcpus_under_any_name() {
        let mut web = guest("web", 100, 50, 4);
        for thread in &mut web.threads {
            thread.name = "qemu-system-x86".to_owned();
            thread.role = Role::Emulator;
        }
        web.threads[0].role = Role::Vhost;
        web.notes = vec![NAMELESS.to_owned(), "else".to_owned()];
        let ids: Vec<_> = web.threads.iter().map(|thread| thread.id).collect();
        let none = known(&[(ids[1], false), (ids[2], false), (ids[3], false)]);
        assert_eq!(settled(web.clone(), &none, &[]), web);
        let entries = known(&[
            (ids[0], true),
            (ids[1], false),
            (ids[2], true),
            (ids[3], true),
        ]);
        let now = settled(web.clone(), &entries, &[]);
        let expected = [Role::Vhost, Role::Emulator, Role::Vcpu(0), Role::Vcpu(1)];
        assert_eq!(roles(&now), expected);
        assert_eq!(now.notes, ["else"]);
        // Beside those with names it takes the next number.
        web.threads[1].role = Role::Vcpu(6);
        let now = settled(web, &entries, &[]);
        let expected = [Role::Vhost, Role::Vcpu(6), Role::Vcpu(7), Role::Vcpu(8)];
        assert_eq!(roles(&now), expected);
    }

    #[test]
    fn a_process_that_is_no_hypervisor_runs_no_vcpu() {
        let mut task = guest("job", 100, 50, 1);
        task.vmm = Vmm::Other;
        task.threads[0].role = Role::Task;
        let entries = known(&[(task.threads[0].id, false)]);
        assert_eq!(settled(task.clone(), &entries, &[]), task);
        assert!(candidates(std::iter::once(&task)).is_empty());
    }

    #[test]
    fn a_lasting_claim_is_reported_once() {
        let mut web = guest("web", 100, 50, 1);
        web.threads[0].role = Role::Claim(0);
        let mut claims = Claims::default();
        let mut said = Vec::new();
        for _ in 0..3 * LOOKS {
            said.extend(claims.look(std::slice::from_ref(&web)));
        }
        assert_eq!(
            said,
            [
                "web (process 100): thread 100 calls itself CPU 0/KVM, has entered no guest yet \
              (kvm_entry), and gets no class until it does"
            ]
        );
        web.threads[0].role = Role::Vcpu(0);
        assert!(claims.look(std::slice::from_ref(&web)).is_empty());
        assert!(claims.0.is_empty(), "whoever has entered is forgotten");
    }
}
