//! Rules: which guests get which class.
//!
//! A rule selects a guest by its creator. A name counts if a manager wrote it (libvirt's scope, the
//! jailer's group), since only root can create that group. A name that a process chose counts only
//! for the rule's user, by default the agent's own. UUIDs and VMIDs are on command lines, so they
//! count like the latter. A UUID also counts if libvirt created the control group, since libvirt
//! starts its QEMUs itself.

use super::class::{Bandwidth, Class, Level};
use super::desired::{Affinity, Desired, Excess};
use super::guest::{Guest, GuestThread, Role, WeightBearer, matches};
use super::identifier::{Uuid, Vmid};
use super::place::Manager;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use tailbound_document::{Problem, Step};
use tailbound_units::Nanos;

/// Matches guests by exactly one of `name` to `pod`, and sets their threads' class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestRule {
    /// Guest's name; `*` matches any text.
    pub name: Option<String>,
    /// Libvirt domain (`virsh domuuid NAME`).
    pub uuid: Option<Uuid>,
    /// VM of Proxmox VE (`qm list`).
    pub vmid: Option<Vmid>,
    /// PID of the guest's process.
    pub pid: Option<u32>,
    /// Control group, as in `/proc/PID/cgroup`, or its directory.
    pub cgroup: Option<String>,
    /// Prefix of a container's ID.
    pub container: Option<String>,
    /// UID of a pod.
    pub pod: Option<String>,
    /// User of the guest's process; any for guests of a manager (libvirt, a container runtime),
    /// otherwise the agent's own. Required if a user chooses the guest's name.
    pub uid: Option<u32>,
    /// Executable of the guest's process, by device and inode; never the only key.
    pub exe: Option<PathBuf>,
    /// Maximum of threads with a class, over the rule's guests; 256.
    pub max_threads: Option<u32>,
    /// Maximum of reserved CPU, over the rule's guests; half of the host's.
    pub max_cpus: Option<Bandwidth>,
    /// Name of a guest that `pid` or `cgroup` selects.
    pub label: Option<String>,
    /// QMP socket, for a QEMU that does not name its vCPU threads.
    pub qmp: Option<PathBuf>,
    /// Class of the vCPU threads, as a level.
    pub level: Option<Level>,
    /// Class of the vCPU threads, with parameters.
    pub class: Option<Class>,
    /// Class of the other threads (emulator, iothreads, vhost).
    pub helpers: Option<Class>,
    /// Permits wider CPU masks for a reservation; `"widen"`.
    pub affinity: Affinity,
    /// CPU to which vCPUs with a deadline move.
    pub home: Option<u32>,
    /// Spare CPU time beyond the reservation of vCPU threads.
    pub excess: ExcessKind,
    /// Longest wait of threads without a reservation for this guest; required with `"reclaim"`.
    pub longest_excess: Option<Nanos>,
}

/// Spare CPU time beyond the reservation of vCPU threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExcessKind {
    /// No spare CPU time.
    #[default]
    None,
    /// The unused time of other reservations, before all threads without a reservation.
    Reclaim,
}

/// The selection of guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Guest's name, with `*`.
    Name(String),
    /// Guest's UUID.
    Uuid(Uuid),
    /// Guest's VMID.
    Vmid(Vmid),
    /// Number of a process.
    Pid(u32),
    /// Control group.
    Group(String),
    /// Beginning of a container's id.
    Container(String),
    /// UID of a pod.
    Pod(String),
}

impl GuestRule {
    /// Returns how it picks; `None` where it names no way, or several.
    pub fn target(&self) -> Option<Target> {
        let mut found = [
            self.name.clone().map(Target::Name),
            self.uuid.map(Target::Uuid),
            self.vmid.map(Target::Vmid),
            self.pid.map(Target::Pid),
            self.cgroup.clone().map(Target::Group),
            self.container.clone().map(Target::Container),
            self.pod.clone().map(Target::Pod),
        ]
        .into_iter()
        .flatten();
        found.next().filter(|_| found.next().is_none())
    }

    /// Returns the class of vCPUs.
    pub fn class(&self) -> Class {
        let level = self.level.map(Level::class);
        self.class.or(level).unwrap_or(Class::Normal)
    }

    /// Returns true if the rule is for the host's own packet path, not for a guest.
    pub(crate) fn is_path(&self) -> bool {
        self.class() == Class::RealTime
    }

    /// Returns the class of a thread of a guest that it picks.
    pub(crate) fn class_of(&self, thread: &GuestThread) -> Class {
        match thread.role {
            Role::PacketLoop => self.class(),
            Role::Claim(_) => Class::Normal,
            role if role.is_vcpu() && !self.is_path() => self.class(),
            _ => self.helpers(),
        }
    }

    /// Returns the class of the other threads.
    pub fn helpers(&self) -> Class {
        self.helpers.unwrap_or_else(|| self.class().for_helpers())
    }

    /// Returns true if the rule selects `guest`. If the rule is in the guest's list of rules, more
    /// than the name has matched.
    fn picks(&self, index: usize, guest: &Guest) -> bool {
        let origin = &guest.origin;
        let user = self.uid.is_none_or(|uid| origin.uid == Some(uid));
        let named = match self.target() {
            Some(Target::Name(_) | Target::Uuid(_) | Target::Vmid(_)) => {
                self.is_claimed_by(guest) && self.accepts_claim_of(guest)
            }
            Some(_) => guest.rules.contains(&index),
            None => false,
        };
        named && user && !guest.other_executable.contains(&index)
    }

    /// Returns true if the rule would select `guest` by the guest's own claims.
    fn is_claimed_by(&self, guest: &Guest) -> bool {
        match self.target() {
            Some(Target::Name(pattern)) => fits(&pattern, guest),
            Some(Target::Uuid(uuid)) => guest.uuid == Some(uuid),
            Some(Target::Vmid(vmid)) => guest.vmid == Some(vmid),
            _ => false,
        }
    }

    /// True if a name, UUID or VMID of `guest` counts for the rule, by the user that started the
    /// guest.
    fn accepts_claim_of(&self, guest: &Guest) -> bool {
        let origin = &guest.origin;
        match (&origin.place, self.target()) {
            // A user ID inside a container does not identify its starter.
            (None, _) => !origin.nested && (self.uid.is_some() || origin.own),
            (Some(_), Some(Target::Name(_)))
            | (Some((Manager::Libvirt(_), _)), Some(Target::Uuid(_))) => true,
            // The other managers' groups do not vouch for arguments.
            (Some(_), _) => false,
        }
    }

    /// True if the rule picks one guest alone: by a UUID, a VMID, or a name without `*`.
    fn means_one(&self) -> bool {
        match self.target() {
            Some(Target::Name(name)) => !name.contains('*'),
            Some(Target::Uuid(_) | Target::Vmid(_)) => true,
            _ => false,
        }
    }

    /// Returns everything wrong with it; `at` is its path in the document.
    pub(crate) fn check(&self, at: &[Step]) -> Vec<Problem> {
        let mut wrong = Vec::new();
        let mut say = |steps: &[Step], message: String| {
            wrong.push(Problem {
                path: [at, steps].concat(),
                message,
            });
        };
        if self.target().is_none() {
            say(
                &[],
                "the rule matches no guest: set one of `name`, `uuid`, `vmid`, `pid`, `cgroup`, \
                    `container` and `pod`"
                    .into(),
            );
        }
        if let Some(container) = &self.container
            && (container.len() < 4 || !container.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            let message = format!(
                "{container:?} is not the beginning of a container's id; use at least 4 of its \
                 hexadecimal digits"
            );
            say(&[Step::Key("container")], message);
        }
        if let Some(pod) = &self.pod
            && (pod.is_empty() || !pod.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
        {
            let message = format!(
                "{pod:?} is not a pod's UID; use what `kubectl get pod NAME -o \
                 jsonpath={{.metadata.uid}}` prints"
            );
            say(&[Step::Key("pod")], message);
        }
        if self.max_threads == Some(0) {
            let message = "no thread would get a class; use at least 1".to_owned();
            say(&[Step::Key("max_threads")], message);
        }
        match (self.excess, self.longest_excess, self.class()) {
            (ExcessKind::None, None, _) | (ExcessKind::Reclaim, Some(_), Class::Periodic(_)) => {}
            (ExcessKind::None, Some(_), _) => {
                let message = "`longest_excess` has no effect without `excess = \"reclaim\"`; \
                    add that key, or remove this one";
                say(&[Step::Key("longest_excess")], message.to_owned());
            }
            (ExcessKind::Reclaim, None, _) => {
                let message = "`longest_excess` is missing: the longest time that other threads \
                    may wait for this guest; the plan shows the necessary value";
                say(&[Step::Key("excess")], message.to_owned());
            }
            (ExcessKind::Reclaim, Some(_), class) => {
                let message =
                    format!("{class} has no reservation to go beyond; use a periodic class");
                say(&[Step::Key("excess")], message);
            }
        }
        if self.level.is_some() == self.class.is_some() {
            say(
                &[],
                "use either `level` (normal, high, top) or `class`".into(),
            );
        }
        for (key, class) in [("class", &self.class), ("helpers", &self.helpers)] {
            for (parameter, message) in class.iter().flat_map(Class::mistakes) {
                say(&[Step::Key(key), Step::Key(parameter)], message);
            }
        }
        wrong
    }
}

/// Returns true if a rule's name is a guest's. libvirt's group contains only the characters of a
/// domain's name that are valid in a host's name, so other characters of the rule's name do not
/// count.
fn fits(pattern: &str, guest: &Guest) -> bool {
    match &guest.origin.place {
        Some((Manager::Libvirt(_), _)) => {
            let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '*');
            matches(
                &pattern.chars().filter(is_allowed).collect::<String>(),
                &guest.name,
            )
        }
        _ => matches(pattern, &guest.name),
    }
}

/// Finds the rule that counts for each of `guests`, the first that picks it, and notes at
/// guests why none does that they claim. Returns what is wrong with rules: a name that is
/// meant for one guest and fits several picks none of them.
pub fn assign(rules: &[GuestRule], guests: &mut [Guest]) -> Vec<String> {
    for guest in guests.iter_mut() {
        let mut indexed = rules.iter().enumerate();
        let picked = indexed.find(|(index, rule)| rule.picks(*index, guest));
        guest.rule = picked.map(|(index, _)| index);
        let claimed = rules.iter().find(|rule| rule.is_claimed_by(guest));
        if let (None, Some(rule)) = (picked, claimed) {
            guest.notes.push(why_not(rule, guest));
        }
    }
    let mut wrong = Vec::new();
    for (index, rule) in rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.means_one())
    {
        let mut picked: Vec<_> = guests
            .iter_mut()
            .filter(|g| g.rule == Some(index))
            .collect();
        if picked.len() > 1 {
            for guest in &mut picked {
                guest.rule = None;
            }
            wrong.push(fits_several(rule, &picked));
        }
    }
    wrong
}

/// The keys by which a rule picks guests, in words.
struct Pick<'r>(&'r GuestRule);

impl fmt::Display for Pick<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.target() {
            Some(Target::Uuid(uuid)) => write!(f, "UUID {uuid}"),
            Some(Target::Vmid(vmid)) => write!(f, "VMID {vmid}"),
            _ => write!(f, "{:?}", self.0.name.as_deref().unwrap_or_default()),
        }
    }
}

/// Returns the reason why a rule for one guest selects none of several, and a way to distinguish
/// them.
fn fits_several(rule: &GuestRule, picked: &[&mut Guest]) -> String {
    let pids: Vec<_> = picked.iter().map(|guest| guest.pid.to_string()).collect();
    let domain = |guest: &&mut Guest| match &guest.origin.place {
        Some((Manager::Libvirt(_), _)) => Some((guest.uuid?, guest.pid)),
        _ => None,
    };
    let domains: Option<Vec<_>> = picked.iter().map(domain).collect();
    let advice = match (rule.target(), domains) {
        (Some(Target::Uuid(_) | Target::Vmid(_)), _) => {
            "only one of them is the machine that has it; find the others by their processes, or \
             pick it by cgroup or pid"
                .to_owned()
        }
        (_, Some(domains)) => {
            let uuids = domains
                .iter()
                .map(|(uuid, pid)| format!("uuid = \"{uuid}\" ({pid})"));
            let uuids: Vec<_> = uuids.collect();
            format!(
                "libvirt's control groups have one name for all; pick each by its UUID: {}",
                uuids.join(", ")
            )
        }
        _ => "distinguish them by uid, cgroup or pid, or match all by a name with *".to_owned(),
    };
    format!(
        "the rule for {} fits {} guests (processes {}), and none of them gets its class; {advice}",
        Pick(rule),
        pids.len(),
        pids.join(", ")
    )
}

/// Returns the reason why a rule does not select a guest with its name, UUID or VMID.
fn why_not(rule: &GuestRule, guest: &Guest) -> String {
    let origin = &guest.origin;
    let user = match origin.uid {
        Some(uid) => format!("user {uid}"),
        None => "several users".to_owned(),
    };
    let pick = Pick(rule);
    let property = match rule.target() {
        Some(Target::Uuid(_)) => "UUID",
        Some(Target::Vmid(_)) => "VMID",
        _ => "name",
    };
    match rule.uid {
        Some(uid) if origin.uid != Some(uid) => {
            format!("the rule for {pick} does not count for it: it runs as {user}, not {uid}")
        }
        _ if guest.other_executable.is_empty() => format!(
            "the rule for {pick} does not count for it: it gave itself that {property}, {}as \
             {user}; a rule for what that user starts has `uid`",
            if origin.nested {
                "in a container, "
            } else {
                ""
            },
        ),
        _ => format!(
            "the rule for {pick} does not count for it: it does not run the rule's `exe` \
             (or this process may not see what it runs: CAP_SYS_PTRACE)"
        ),
    }
}

/// Returns the rule that counts for a guest.
pub fn rule_for<'r>(rules: &'r [GuestRule], guest: &Guest) -> Option<&'r GuestRule> {
    rules.get(guest.rule?)
}

/// Returns the desired state of one thread of a guest by its rule; `None` if it stays as it is.
pub(crate) fn desired_of(rule: &GuestRule, guest: &Guest, thread: &GuestThread) -> Option<Desired> {
    let vcpu = thread.role.is_vcpu();
    let mut class = rule.class_of(thread);
    // A class of vCPUs that cannot be had is refused; of helpers the slice is left.
    if let (false, WeightBearer::Nothing { .. }, Class::Aperiodic(aperiodic)) =
        (vcpu, &guest.weighed, &mut class)
    {
        aperiodic.weight = 1;
    }
    (class != Class::Normal).then(|| Desired {
        thread: thread.id,
        name: thread_name(guest, thread),
        class,
        affinity: rule.affinity,
        home: rule
            .home
            .filter(|_| vcpu && matches!(class, Class::Periodic(_))),
        weighed: guest.weighed.clone(),
        excess: match (rule.excess, rule.longest_excess, class) {
            (ExcessKind::Reclaim, Some(longest), Class::Periodic(_)) if vcpu => {
                Excess::Reclaim { longest }
            }
            _ => Excess::None,
        },
    })
}

/// Returns a thread's name for people: its guest, and what it does there.
pub fn thread_name(guest: &Guest, thread: &GuestThread) -> String {
    format!("{} {}", guest.name, thread.role)
}
