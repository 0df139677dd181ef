//! Verification that a guest gets its guarantee, from the counters of two daemons.
//!
//! [`judge`] compares two readings of each daemon's status ([`Readings`]) and returns a [`Check`]
//! with the responsible [`Side`] for each part of the guarantee. It has no clock and no I/O.

use crate::socket::{Guest, HostStatus};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tailbound_units::rounded_up::{size, time};
use tailbound_units::{Nanos, Rate};

/// Share of its guarantee below which a guest does not use all of it, so that its packets should
/// not wait.
const USES_ALL: f64 = 0.9;
/// Smallest share of the guarantee for a guest that always has packets queued.
const GETS: f64 = 0.95;
/// Largest share of the time for which the clock of the wire may stand.
const STANDS: f64 = 0.01;
/// Number of packets in a thousand that may be missing, because they are in flight at a reading.
const ON_ITS_WAY: u64 = 2;
/// Name of the check for a guest with queued packets.
const ALWAYS: &str = "a guest that always has something to send gets its guarantee";
/// Smallest number of packets for which a share is reported.
const MIN_PACKETS: u64 = 100;

/// Side that is responsible for a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The host of the sending guest.
    SendingHost,
    /// The network between the hosts.
    Between,
    /// The host of the receiving guest.
    ReceivingHost,
}

impl Side {
    /// Returns the name of the side.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SendingHost => "the sending host",
            Self::Between => "between the hosts",
            Self::ReceivingHost => "the receiving host",
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// The part of the guarantee holds.
    Holds,
    /// The part of the guarantee does not hold.
    Broken,
    /// The counters do not suffice.
    NotJudged,
}

/// A check, its side and its result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The responsible side.
    pub side: Side,
    /// The checked part of the guarantee.
    pub what: &'static str,
    /// The result.
    pub found: CheckOutcome,
    /// The figures that decide.
    pub why: String,
}

/// Two readings of a daemon's status: at the begin and at the end.
#[derive(Debug)]
pub struct Readings {
    /// The status at the begin.
    pub before: HostStatus,
    /// The status at the end.
    pub after: HostStatus,
}

/// Reason why nothing can be verified.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The guest has no guarantee.
    #[error(
        "nothing is guaranteed to {0}, so there is nothing to verify; add a `guarantee` to its \
         section, or a `vm` with a guarantee of the placement service"
    )]
    NoGuarantee(String),
    /// The daemon has no such guest.
    #[error("the daemon of {} has no guest {name:?}; it has: {}", config.display(), known.join(", "))]
    UnknownGuest {
        /// The configuration of the daemon.
        config: PathBuf,
        /// The name.
        name: String,
        /// The names of the daemon's guests.
        known: Vec<String>,
    },
    /// The daemon was started between the readings: its counters began at zero.
    #[error("the daemon of {} was started again meanwhile; look again", .0.display())]
    Restarted(PathBuf),
}

impl Readings {
    /// Returns the time between the readings.
    pub fn elapsed(&self) -> Nanos {
        Nanos(self.after.uptime_ns.saturating_sub(self.before.uptime_ns))
    }
}

/// Checks that a guest has a guarantee, which its host may refuse.
///
/// # Errors
/// [`VerifyError::NoGuarantee`].
pub fn is_guaranteed(guest: &Guest) -> Result<(), VerifyError> {
    if guest.guarantee.is_some() || guest.guarantee_refused {
        Ok(())
    } else {
        Err(VerifyError::NoGuarantee(guest.port.name.clone()))
    }
}

/// Returns the guest of that name.
///
/// # Errors
/// [`VerifyError::UnknownGuest`].
pub fn guest_of<'s>(shown: &'s HostStatus, name: &str) -> Result<&'s Guest, VerifyError> {
    let mut guests = shown.guests.iter();
    guests
        .find(|guest| guest.port.name == name)
        .ok_or_else(|| VerifyError::UnknownGuest {
            config: shown.config.clone(),
            name: name.to_owned(),
            known: shown.guests.iter().map(|it| it.port.name.clone()).collect(),
        })
}

/// A guest at the begin and at the end, and the time in between.
struct Span<'s> {
    before: &'s Guest,
    after: &'s Guest,
    took: Nanos,
}

impl<'s> Span<'s> {
    fn new(readings: &'s Readings, name: &str) -> Result<Self, VerifyError> {
        let Readings { before, after } = readings;
        if before.pid != after.pid || after.uptime_ns <= before.uptime_ns {
            return Err(VerifyError::Restarted(after.config.clone()));
        }
        Ok(Self {
            before: guest_of(before, name)?,
            after: guest_of(after, name)?,
            took: readings.elapsed(),
        })
    }

    /// Returns the number of dropped packets, by reason.
    fn drops(&self) -> BTreeMap<&'s str, u64> {
        let before = |reason| self.before.port.drops.get(reason).copied().unwrap_or(0);
        let all = self.after.port.drops.iter();
        all.map(|(reason, count)| (reason.as_str(), count - before(reason).min(*count)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Returns the number of packets of this direction and class that left a queue, and the number
    /// of those that certainly waited longer than `within`.
    fn waits(&self, direction: &str, class: Option<&str>, within: Nanos) -> (u64, u64) {
        let count = |guest: &Guest| {
            let mut sums = (0, 0);
            let mut low = 0;
            let waits = guest.waits.iter().filter(|waits| {
                waits.direction == direction && class.is_none_or(|class| waits.class == class)
            });
            for waits in waits {
                for bucket in &waits.buckets {
                    sums.0 += bucket.count;
                    // All packets of a bucket waited longer than the previous bucket's limit.
                    if low >= within.0 {
                        sums.1 += bucket.count;
                    }
                    low = bucket.up_to_ns.unwrap_or(u64::MAX);
                }
                low = 0;
            }
            sums
        };
        let (before, after): ((u64, u64), (u64, u64)) = (count(self.before), count(self.after));
        (
            after.0.saturating_sub(before.0),
            after.1.saturating_sub(before.1),
        )
    }
}

/// Removes the failure of the check for queued packets: a trial that was too late did not always
/// have packets queued, so its host is not at fault.
pub fn excuse(checks: &mut [Check]) {
    let is_pace = |check: &&mut Check| check.what == ALWAYS && check.found == CheckOutcome::Broken;
    for check in checks.iter_mut().filter(is_pace) {
        check.found = CheckOutcome::NotJudged;
        check.why += "; the trial may have been late";
    }
}

/// Derives all checks from the counters: of the guest `name` at the sending host, and of the
/// receiving guest at the other host if both are known. At most one in a hundred packets may wait
/// longer than `within`.
///
/// # Errors
/// Nothing can be verified.
pub fn judge(
    sender: &Readings,
    name: &str,
    receiver: Option<(&Readings, &str)>,
    within: Nanos,
) -> Result<Vec<Check>, VerifyError> {
    let span = Span::new(sender, name)?;
    is_guaranteed(span.after)?;
    let mut checks = vec![guaranteed(&span)];
    if checks[0].found == CheckOutcome::Holds {
        checks.push(pace(&span, within));
    }
    checks.extend(timely(sender, span.took));
    checks.push(dropped(
        &span,
        Side::SendingHost,
        "nothing that the guest sent is dropped by its host",
    ));
    if let Some((readings, to)) = receiver {
        let there = Span::new(readings, to)?;
        checks.push(arrives(&span, &there));
        checks.push(dropped(
            &there,
            Side::ReceivingHost,
            "nothing that came for the guest is dropped before it",
        ));
        checks.push(waits(
            &there,
            Side::ReceivingHost,
            "received",
            None,
            within,
            // words: allow P1, documents print it.
            "what came does not wait at the receiving host",
        ));
    }
    Ok(checks)
}

/// Checks the time for which the sending host's wire stood.
fn timely(readings: &Readings, took: Nanos) -> Option<Check> {
    let (before, after) = readings
        .before
        .packet_loop
        .zip(readings.after.packet_loop)?;
    let stood = Nanos(after.frozen_ns.saturating_sub(before.frozen_ns));
    let share = stood.0 as f64 / took.0.max(1) as f64;
    let mut why = format!(
        "the clock of the wire stood for {} of {}",
        time(stood.0),
        time(took.0)
    );
    let outcome = if share <= STANDS {
        CheckOutcome::Holds
    } else {
        why += if after.real_time {
            ", though the loop has a real-time class: it needs a CPU (`cpu`), or its uplink more room"
        } else {
            ": the loop has no real-time class (`loop_class`, `tailbound doctor`)"
        };
        CheckOutcome::Broken
    };
    Some(Check {
        side: Side::SendingHost,
        what: "the packet loop is there when packets are due",
        found: outcome,
        why,
    })
}

fn guaranteed(span: &Span<'_>) -> Check {
    let (outcome, why) = match &span.after.guarantee {
        _ if span.after.guarantee_refused => (
            CheckOutcome::Broken,
            "the host refuses its guarantee, which breaks a rule of its pacer".to_owned(),
        ),
        None => (
            CheckOutcome::NotJudged,
            "nothing is guaranteed to it".to_owned(),
        ),
        Some(guarantee) => (
            CheckOutcome::Holds,
            format!(
                "{}, burst {}",
                Rate(guarantee.bandwidth_bit_s),
                size(guarantee.burst_bytes)
            ),
        ),
    };
    Check {
        side: Side::SendingHost,
        what: "the guest is guaranteed something",
        found: outcome,
        why,
    }
}

/// Checks that a guest below its guarantee does not wait, or that a guest with queued packets gets
/// it.
fn pace(span: &Span<'_>, within: Nanos) -> Check {
    let bandwidth = span.after.guarantee.map_or(0, |it| it.bandwidth_bit_s) as f64;
    let seconds = span.took.0 as f64 / 1e9;
    let sent_bytes = span
        .after
        .port
        .received
        .bytes
        .saturating_sub(span.before.port.received.bytes);
    let rate = sent_bytes as f64 * 8.0 / seconds;
    if rate < USES_ALL * bandwidth && span.after.paced_bytes == 0 {
        // words: allow P1, documents print it.
        let claim = "what it sends below its guarantee does not wait";
        return waits(
            span,
            Side::SendingHost,
            "sent",
            Some("guaranteed"),
            within,
            claim,
        );
    }
    let claim = ALWAYS;
    let always = span.before.paced_bytes > 0 && span.after.paced_bytes > 0;
    let rate_text = format!("{} of {}", Rate(rate as u64), Rate(bandwidth as u64));
    let (outcome, why) = if rate >= GETS * bandwidth {
        (CheckOutcome::Holds, rate_text)
    } else if always {
        (
            CheckOutcome::Broken,
            format!("something waits all the time, and it got {rate_text}"),
        )
    } else {
        (
            CheckOutcome::NotJudged,
            format!("it did not always have something to send; it got {rate_text}"),
        )
    };
    Check {
        side: Side::SendingHost,
        what: claim,
        found: outcome,
        why,
    }
}

fn waits(
    span: &Span<'_>,
    side: Side,
    direction: &str,
    class: Option<&str>,
    within: Nanos,
    claim: &'static str,
) -> Check {
    let (all, late) = span.waits(direction, class, within);
    let limit = time(within.0);
    let (outcome, why) = if all < MIN_PACKETS {
        (
            CheckOutcome::NotJudged,
            // words: allow P7, documents print it.
            format!("{all} packets are too few to tell"),
        )
    } else if late * 100 > all {
        (
            CheckOutcome::Broken,
            format!("{late} of {all} packets waited longer than {limit}"),
        )
    } else {
        (
            CheckOutcome::Holds,
            format!("{late} of {all} packets waited longer than {limit}"),
        )
    };
    Check {
        side,
        what: claim,
        found: outcome,
        why,
    }
}

fn dropped(span: &Span<'_>, side: Side, claim: &'static str) -> Check {
    let drops = span.drops();
    let counts: Vec<_> = drops
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    let (outcome, why) = if drops.is_empty() {
        (CheckOutcome::Holds, "none".to_owned())
    } else {
        (CheckOutcome::Broken, counts.join(", "))
    };
    Check {
        side,
        what: claim,
        found: outcome,
        why,
    }
}

/// Compares sent and received bytes, because packets are segmented and merged on the way.
fn arrives(sent: &Span<'_>, there: &Span<'_>) -> Check {
    let count =
        |span: &Span<'_>, of: fn(&Guest) -> u64| of(span.after).saturating_sub(of(span.before));
    let left = count(sent, |guest| guest.port.received.bytes);
    let received_bytes = count(there, |guest| guest.port.sent.bytes);
    let queued_bytes = there.after.port.backlog.bytes + sent.after.paced_bytes;
    let missing = left.saturating_sub(received_bytes + queued_bytes);
    let dropped = !there.drops().is_empty() || !sent.drops().is_empty();
    let counts = format!("{} left, {} came", size(left), size(received_bytes));
    let (outcome, why) = if left == 0 {
        (CheckOutcome::NotJudged, "it sent nothing".to_owned())
    } else if missing * 1000 <= left * ON_ITS_WAY {
        (CheckOutcome::Holds, counts)
    } else if dropped {
        (
            CheckOutcome::NotJudged,
            format!("{counts}; a host dropped some of it"),
        )
    } else {
        (
            CheckOutcome::Broken,
            format!(
                "{counts}: {} are missing, or went to another receiver",
                size(missing)
            ),
        )
    };
    Check {
        side: Side::Between,
        // words: allow P1, documents print it.
        what: "what left arrives",
        found: outcome,
        why,
    }
}

#[cfg(test)]
mod tests;
