//! The words of a verdict: a sentence, three lines of evidence, and the command that would help.

use crate::cause::{Cause, Kind};
use crate::judge::{Basis, Doubt, Finding, Verdict};
use std::fmt::Write as _;
use std::sync::Arc;
use tailbound_units::Nanos;

/// Causes that a line lists.
const MAX_LISTED: usize = 4;
/// A name is worth a word if it has this part of its kind's time.
const NAMED_PART: u64 = 10;

/// A command that would help, and its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The command; `None` if no command on this host helps.
    pub command: Option<String>,
    /// Its cost; or where to look instead.
    pub cost: String,
}

/// A part of a whole as a percentage with one digit, rounded down: never above `100.0 %`.
pub fn percent(part: Nanos, whole: Nanos) -> String {
    let permille = u128::from(part.0) * 1_000 / u128::from(whole.0.max(1));
    format!("{}.{} %", permille / 10, permille % 10)
}

/// A time with the unit that fits it.
pub(crate) fn time(time: Nanos) -> String {
    match time.0 {
        0..1_000_000 => format!("{} µs", time.0 / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} ms", time.as_millis_f64()),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}

/// `60 s`, or `minute`.
fn window(window: Nanos) -> String {
    match window.0.div_ceil(1_000_000_000) {
        60 => "minute".to_owned(),
        seconds => format!("{seconds} s"),
    }
}

/// A cause as the object of a share: `the CPU time of web-7`.
pub(crate) fn noun(cause: &Cause) -> String {
    let by = cause.by.as_deref();
    let of = |noun: &str, other: &str| match by {
        None => other.to_owned(),
        // Several that had no room for their names.
        Some(by) if by.starts_with("other ") => by.to_owned(),
        Some(by) => format!("{noun} {by}"),
    };
    match cause.kind {
        Kind::NeighbourCpu => of("the guest", "another guest"),
        Kind::ProgramCpu => of("the host's program", "a program of the host"),
        Kind::BusyHost => "other guests and programs".to_owned(),
        Kind::RealTime => of("a real-time thread of", "a real-time thread"),
        Kind::Hypervisor => "steal by the hypervisor below".to_owned(),
        Kind::Interrupts => "interrupts".to_owned(),
        Kind::Quota => "its own CPU quota".to_owned(),
        Kind::Reservation => "its own CPU reservation".to_owned(),
        Kind::HostQueue => of("the host's queue behind", "the host's queue"),
        Kind::OwnLimit => of("its own limit", "its own limit"),
        Kind::Loss => of("loss beyond the host, towards", "loss beyond the host"),
        Kind::Delay => of("beyond the host, up to", "beyond the host"),
        Kind::PeerGuest => of("the guest that answers,", "the guest that answers"),
        Kind::SlowReceiver => of("the receiver", "its receiver"),
        Kind::GuestItself => "the guest itself".to_owned(),
        Kind::Scheduler => "a CPU that was idle or waking up".to_owned(),
        Kind::Unknown => "unknown".to_owned(),
    }
}

impl Verdict {
    /// The verdict on the last window in one sentence.
    pub fn sentence(&self) -> String {
        self.sentence_in(&format!("in the last {}", window(self.window)))
    }

    /// The verdict in one sentence; `when` is the window in words.
    pub fn sentence_in(&self, when: &str) -> String {
        let guest = &self.guest;
        match &self.finding {
            Finding::NothingSlow => self.quiet(when),
            Finding::Unknown(doubt) => {
                let question = match doubt {
                    Doubt::SmallSample => "whether",
                    _ => "why",
                };
                format!(
                    "{guest}: I do not know {question} it was slow {when}: {}.",
                    self.doubt(*doubt)
                )
            }
            Finding::Because(cause) => {
                let periods = match self.basis {
                    Basis::Requests => "slowest requests",
                    Basis::Packets => "slowest frames",
                    Basis::Windows => "longest waits for a receiver",
                    Basis::Waits => "longest waits for a CPU",
                };
                format!(
                    "{guest}: {} of its {} {periods} {when} {}.",
                    self.affected,
                    self.judged,
                    self.because(cause.kind)
                )
            }
        }
    }

    fn quiet(&self, when: &str) -> String {
        let guest = &self.guest;
        let seen = match self.basis {
            Basis::Requests if self.slow > 0 => format!(
                "{} of its {} requests took longer than 1 ms, the longest {}",
                self.slow,
                self.answered,
                time(self.longest)
            ),
            Basis::Requests => format!("none of its {} requests was slow", self.answered),
            Basis::Packets | Basis::Windows => "no frame waited long".to_owned(),
            Basis::Waits if self.slow > 0 => format!(
                "its threads waited {} for a CPU in all, at most {} at a time",
                time(self.delay),
                time(self.longest)
            ),
            Basis::Waits => "no thread waited long for a CPU".to_owned(),
        };
        let network = self.unexamined.iter().any(|(part, _)| *part == "packets");
        let rest = if network {
            " Its packets were not measured, so the network is not ruled out.".to_owned()
        } else {
            self.examined.map_or(String::new(), |examined| {
                let examined = percent(examined, self.window);
                format!(" Its packets were examined in {examined} of that time.")
            })
        };
        format!("{guest}: nothing was slow {when}: {seen}.{rest}")
    }

    fn doubt(&self, doubt: Doubt) -> String {
        let whole = self.judged_delay;
        match doubt {
            Doubt::Nothing => "neither waits for a CPU nor packets could be measured".to_owned(),
            Doubt::Lost => format!(
                "{} of its waits for a CPU came faster than they could be read",
                self.lost_waits
            ),
            Doubt::SmallSample => format!(
                "none of {} sampled requests was slow, but interrupts had {} % of its CPUs, and fewer than 300 do not rule out one slow request in a hundred",
                self.answered,
                self.interrupts_permille.unwrap_or(0) / 10
            ),
            Doubt::TooFew => format!(
                "{} of {} slow periods have the same cause, and fewer than three, or two of a second in all, prove nothing",
                self.affected, self.judged
            ),
            Doubt::Mixed => match self.shares.first() {
                Some(share) => format!(
                    "no cause explains half of the delay; the largest is {} with {}",
                    noun(&share.cause),
                    percent(share.time, whole),
                ),
                None => "no cause explains half of the delay".to_owned(),
            },
            Doubt::NoCause => format!(
                "{} of the delay has no cause that was measured",
                percent(self.time(Kind::Unknown), whole)
            ),
        }
    }

    /// The names of a kind of cause: the first, and how many others.
    fn by(&self, kind: Kind, otherwise: &str) -> String {
        let mut names = self.names(kind);
        let least = self.time(kind).0 / NAMED_PART;
        names.retain(|(_, time)| time.0 >= least);
        match names.as_slice() {
            [] => otherwise.to_owned(),
            [(name, _)] => name.to_string(),
            [(name, _), rest @ ..] => {
                let others = if rest.len() == 1 { "other" } else { "others" };
                format!("{name} and {} {others}", rest.len())
            }
        }
    }

    fn because(&self, kind: Kind) -> String {
        let waited = match self.basis {
            Basis::Waits => "were for",
            Basis::Requests | Basis::Packets | Basis::Windows => "waited for",
        };
        let by = |otherwise| self.by(kind, otherwise);
        match kind {
            Kind::NeighbourCpu => format!("{waited} a CPU that {} had", by("another guest")),
            Kind::ProgramCpu => {
                format!(
                    "{waited} a CPU that the host's program {} had",
                    by("(unnamed)")
                )
            }
            Kind::RealTime => {
                format!(
                    "{waited} a CPU that a real-time thread of {} had",
                    by("the host")
                )
            }
            Kind::BusyHost => {
                format!("{waited} a CPU that other guests and programs of the host had by turns")
            }
            Kind::Hypervisor => {
                format!("{waited} a CPU that the hypervisor below this host gave to others")
            }
            Kind::Interrupts => format!("{waited} a CPU that interrupts had"),
            Kind::Quota => format!("{waited} its own CPU quota, which was used up"),
            Kind::Reservation => format!("{waited} its own CPU reservation, which was used up"),
            Kind::HostQueue => {
                format!("waited in a queue of this host behind {}", by("others"))
            }
            Kind::OwnLimit => format!("waited for its own limit: {}", by("on its interface")),
            Kind::Loss => format!("lost packets beyond this host, towards {}", by("its peer")),
            Kind::Delay => format!("waited for {}, beyond this host", by("its peer")),
            Kind::PeerGuest => format!("waited for {}, a guest of this host", by("its peer")),
            Kind::SlowReceiver => {
                let waited = match self.basis {
                    Basis::Windows => "were for",
                    _ => "waited for",
                };
                format!("{waited} {}, which took no more data", by("its peer"))
            }
            Kind::GuestItself if self.basis == Basis::Waits => {
                format!("{waited} a CPU that its own threads had")
            }
            Kind::GuestItself => "spent their time in the guest itself".to_owned(),
            Kind::Scheduler => format!("{waited} a CPU that was idle or waking up"),
            Kind::Unknown => "have no known cause".to_owned(),
        }
    }

    /// The evidence in three lines: the delay by cause, the guest's own limits, and the parts that
    /// were not examined.
    pub fn evidence(&self) -> [String; 3] {
        [self.delay_line(), self.limit_line(), self.examined_line()]
    }

    fn delay_line(&self) -> String {
        if self.judged == 0 {
            return "Delay: none.".to_owned();
        }
        let mut line = format!(
            "Delay: {} in {} periods, the longest {}:",
            time(self.judged_delay),
            self.judged,
            time(self.longest)
        );
        // A thousandth is not shown as such.
        let least = self.judged_delay.0.div_ceil(1_000);
        let shown = self.shares.iter().take_while(|share| share.time.0 >= least);
        let shown: Vec<_> = shown.take(MAX_LISTED).collect();
        for (index, share) in shown.iter().enumerate() {
            // Writing to a String does not fail.
            let _ = write!(
                line,
                "{} {} {}",
                if index == 0 { "" } else { "," },
                percent(share.time, self.judged_delay),
                noun(&share.cause)
            );
        }
        let rest = self
            .shares
            .iter()
            .skip(MAX_LISTED)
            .map(|share| share.time.0);
        let rest = Nanos(rest.sum());
        if rest > Nanos::ZERO {
            let _ = write!(line, ", {} others", percent(rest, self.judged_delay));
        }
        line += ".";
        if let Some(part) = self.interrupts_permille {
            let part = percent(Nanos(part), Nanos(1_000));
            let _ = write!(
                line,
                " Interrupts had {part} of its CPUs in all of that time."
            );
        }
        line
    }

    fn limit_line(&self) -> String {
        let limits = &self.limits;
        let mut line = match &limits.quota {
            None => "Its own limits: no CPU quota".to_owned(),
            Some(quota) if limits.throttled_periods == 0 => {
                format!("Its own limits: CPU quota {quota}, not used up")
            }
            Some(quota) => format!(
                "Its own limits: CPU quota {quota}, used up in {} periods for {} of CPU time",
                limits.throttled_periods,
                time(limits.throttled)
            ),
        };
        for limit in &limits.interfaces {
            let reached = if limit.was_reached {
                "reached"
            } else {
                "not reached"
            };
            let _ = write!(line, "; {} {reached}", limit.text);
        }
        line + "."
    }

    fn examined_line(&self) -> String {
        let part = self.examined_part();
        if self.unexamined.is_empty() {
            return format!("Examined: CPU waits, quota, steal, interrupts, packets.{part}");
        }
        let parts = self.unexamined.iter();
        let parts: Vec<_> = parts.map(|(part, why)| format!("{part} ({why})")).collect();
        format!("Not examined: {}.{part}", parts.join("; "))
    }

    /// The part of the time in which packets and interrupts were examined, if not all of it.
    fn examined_part(&self) -> String {
        let part = |time| percent(time, self.window);
        let parts = match (self.examined, self.interrupts_examined) {
            (None, None) => return String::new(),
            (Some(packets), None) => format!("Packets: in {}", part(packets)),
            (None, Some(waits)) => format!("Interrupts and CPU waits: in {}", part(waits)),
            (Some(packets), Some(waits)) if part(packets) == part(waits) => {
                format!("Packets and interrupts: in {}", part(packets))
            }
            (Some(packets), Some(waits)) => format!(
                "Packets: in {}, interrupts and CPU waits in {}",
                part(packets),
                part(waits)
            ),
        };
        format!(" {parts} of the time, to bound the cost.")
    }

    /// The command that would help, and its cost.
    pub fn remedy(&self) -> Option<Remedy> {
        let Finding::Because(cause) = &self.finding else {
            return None;
        };
        let handles = &self.handles;
        let apply = |level: &str| {
            let select = handles.select.as_ref()?;
            Some(format!("tailbound vcpu apply {select} --level {level}"))
        };
        let by = cause.by.as_ref().map_or("each of the others", Arc::as_ref);
        let (command, cost) = match cause.kind {
            Kind::NeighbourCpu | Kind::ProgramCpu | Kind::BusyHost => (
                apply("high"),
                format!(
                    "{by} gets the CPU later and for a smaller share; undo: `tailbound vcpu restore`"
                ),
            ),
            Kind::RealTime => (
                apply("top"),
                "reserves 1 ms in 4 ms of a CPU for each thread, also ahead of real-time threads; \
                 undo: `tailbound vcpu restore`"
                    .to_owned(),
            ),
            Kind::Quota => (
                handles.quota.clone(),
                "other guests have less CPU while this one uses more".to_owned(),
            ),
            Kind::OwnLimit => (
                handles.limit.clone(),
                "other guests have less of the link while this one uses more".to_owned(),
            ),
            Kind::HostQueue => match cause.by.as_deref().filter(|by| !by.starts_with("other ")) {
                Some(by) => (
                    Some(format!("tailbound adopt {} --limit-out RATE", quoted(by))),
                    format!("{by} sends at most RATE; undo: `tailbound release`"),
                ),
                None => (
                    handles.queue.clone(),
                    "each guest waits for its turn; frames in that queue are dropped once"
                        .to_owned(),
                ),
            },
            _ => (None, elsewhere(cause)),
        };
        let by_class = matches!(
            cause.kind,
            Kind::NeighbourCpu | Kind::ProgramCpu | Kind::BusyHost | Kind::RealTime
        );
        let cost = if command.is_none() && by_class {
            "name the guest to `tailbound vcpu apply` by --pid or --cgroup".to_owned()
        } else {
            cost
        };
        Some(Remedy { command, cost })
    }
}

/// Returns a guest's name as one word of a shell.
fn quoted(name: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-/:@".contains(it);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

/// The place to look at when no command on this host helps.
fn elsewhere(cause: &Cause) -> String {
    let peer = cause.by.as_ref().map_or("the peer", Arc::as_ref);
    match cause.kind {
        Kind::Hypervisor => {
            "no command on this host helps: move the host or the guest to another machine"
                .to_owned()
        }
        Kind::Interrupts => {
            "spread the NIC's interrupts over more CPUs (irqbalance, RPS), or keep the guest off \
             that CPU"
                .to_owned()
        }
        Kind::Reservation => "raise the guest's reservation, or remove it".to_owned(),
        Kind::Loss | Kind::Delay => {
            format!("no command on this host helps: look at {peer} and the network up to it")
        }
        Kind::PeerGuest => format!("look at that guest next: tailbound why {peer}"),
        Kind::SlowReceiver => format!("no command on this host helps: look at {peer}"),
        Kind::GuestItself => "no command on this host helps: look inside the guest".to_owned(),
        Kind::Scheduler => {
            "deep sleep of CPUs costs this: `cpupower idle-set` bounds it, for more power"
                .to_owned()
        }
        _ => "no command is known that helps".to_owned(),
    }
}

#[cfg(test)]
mod tests;
