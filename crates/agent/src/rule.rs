//! Rules: which guests get which class.

use super::class::{Class, Level};
use super::desired::{Affinity, Desired};
use super::guest::{Guest, GuestThread, matches};
use serde::Deserialize;
use std::path::PathBuf;
use tailbound_document::{Problem, Step};

/// Which guests, and what they get.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestRule {
    /// Guests of this name; `*` stands for any text.
    pub name: Option<String>,
    /// The process of this number.
    pub pid: Option<u32>,
    /// The processes of this control group.
    pub cgroup: Option<String>,
    /// The container whose id begins so.
    pub container: Option<String>,
    /// The name of a guest that is not picked by its name.
    pub label: Option<String>,
    /// A QMP socket of its own, for a QEMU that does not name its vCPUs.
    pub qmp: Option<PathBuf>,
    /// The class of its vCPUs, as a level.
    pub level: Option<Level>,
    /// The class of its vCPUs, in numbers.
    pub class: Option<Class>,
    /// The class of its other threads: emulator, iothreads, vhost.
    pub helpers: Option<Class>,
    /// Whether CPU masks may be widened.
    pub affinity: Affinity,
    /// A CPU to bring its vCPUs to.
    pub home: Option<u32>,
}

/// How a rule picks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By the guest's name, with `*`.
    Name(String),
    /// By a process.
    Pid(u32),
    /// By a control group.
    Group(String),
    /// By the beginning of a container's id.
    Container(String),
}

impl GuestRule {
    /// Returns how it picks; `None` where it names no way, or several.
    pub fn target(&self) -> Option<Target> {
        let mut found = [
            self.name.clone().map(Target::Name),
            self.pid.map(Target::Pid),
            self.cgroup.clone().map(Target::Group),
            self.container.clone().map(Target::Container),
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

    /// Returns the class of the other threads.
    pub fn helpers(&self) -> Class {
        self.helpers.unwrap_or_else(|| self.class().for_helpers())
    }

    /// Whether it picks `guest`; `members` says so of a group or a container.
    fn picks(&self, guest: &Guest, members: impl Fn(&Target) -> bool) -> bool {
        match self.target() {
            Some(Target::Name(pattern)) => matches(&pattern, &guest.name),
            Some(Target::Pid(pid)) => guest.threads.iter().any(|thread| thread.id.pid == pid),
            Some(other) => members(&other),
            None => false,
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
                "which guest is meant? Say one of `name`, `pid`, `cgroup` and `container`".into(),
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
        if self.level.is_some() == self.class.is_some() {
            say(
                &[],
                "say either `level` (normal, high, top) or `class` for it".into(),
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

/// Returns the rule for a guest: the first that picks it.
pub fn rule_for<'r>(rules: &'r [GuestRule], guest: &Guest) -> Option<&'r GuestRule> {
    rules
        .iter()
        .enumerate()
        .find(|(index, rule)| rule.picks(guest, |_| guest.rules.contains(index)))
        .map(|(_, rule)| rule)
}

/// Returns the desired states of the threads of `guests`. Guests without a rule, and
/// threads whose class is [`Class::Normal`], have none: they stay as they are.
pub fn desired(rules: &[GuestRule], guests: &[Guest]) -> Vec<Desired> {
    let mut desired = Vec::new();
    for guest in guests {
        let Some(rule) = rule_for(rules, guest) else {
            continue;
        };
        for thread in &guest.threads {
            let vcpu = thread.role.is_vcpu();
            let class = if vcpu { rule.class() } else { rule.helpers() };
            if class == Class::Normal {
                continue;
            }
            desired.push(Desired {
                thread: thread.id,
                name: thread_name(guest, thread),
                class,
                affinity: rule.affinity,
                home: rule
                    .home
                    .filter(|_| vcpu && matches!(class, Class::Periodic(_))),
                group: guest.group.clone(),
            });
        }
    }
    desired
}

/// Returns a thread's name for people: its guest, and what it does there.
pub fn thread_name(guest: &Guest, thread: &GuestThread) -> String {
    format!("{} {}", guest.name, thread.role)
}
