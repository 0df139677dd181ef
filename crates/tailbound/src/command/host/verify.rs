//! `tailbound host verify`: whether a guest gets its guarantee, from the counters of two daemons.
//!
//! Passive, except with `--send`: no packet is sent and no setting is changed. The status of each
//! daemon is read twice; [`judge`] derives the result, without a clock.

use super::which::{Which, failure};
use crate::command::figures::{size, time};
use crate::command::output::{self, Output, paint};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stdin};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use tailbound_host::socket::{ClientError, Guest, Outcome, Request, Shown};
use tailbound_report::{Paint, Table};
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
/// Warm-up before the measurement, after which the queue is full.
const WARM_UP: Nanos = Nanos::from_millis(500);
/// Time of sending after the measurement: the receiving host may be slow to answer.
const MARGIN: Nanos = Nanos::from_secs(5);
/// Longest trial.
const LONGEST_TRIAL: Nanos = Nanos::from_secs(60);
/// Name of the check for a guest with queued packets.
const ALWAYS: &str = "a guest that always has something to send gets its guarantee";
/// Smallest number of packets for which a share is reported.
const ENOUGH: u64 = 100;

/// Arguments of `tailbound host verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads the counters of both hosts' daemons twice and compares them: whether \
    the guarantee is in force, whether the guest's packets are delayed although it sends less, \
    losses between the hosts, and drops in front of the receiving guest. No traffic is sent, \
    except with --send, which asks for confirmation. Exit code: 0 all that could be judged \
    holds; 1 something is broken, with the side at fault; 2 nothing could be judged, the guest \
    has no guarantee, or a daemon does not answer."
)]
pub(super) struct Verify {
    /// The sending guest, at the queried daemon
    guest: String,
    /// A command that prints the status of the receiving host's daemon, such as 'ssh h2 tailbound
    /// host show --output json'
    #[arg(long, value_name = "COMMAND", requires = "to")]
    receiver: Option<String>,
    /// The receiving guest, at the other host
    #[arg(long, value_name = "GUEST", requires = "receiver")]
    to: Option<String>,
    /// The duration of the measurement
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Nanos,
    /// The queueing delay that at most one in a hundred packets may exceed at a host
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    within: Nanos,
    /// The sending host's daemon sends test traffic to the receiver in the guest's name, at the
    /// guaranteed rate; the guest's own packets queue behind it
    #[arg(long, requires = "receiver")]
    send: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "send")]
    yes: bool,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    daemon: Which,
}

/// Side that is responsible for a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Side {
    SendingHost,
    Between,
    ReceivingHost,
}

impl Side {
    const fn words(self) -> &'static str {
        match self {
            Self::SendingHost => "the sending host",
            Self::Between => "between the hosts",
            Self::ReceivingHost => "the receiving host",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Found {
    Holds,
    Broken,
    NotJudged,
}

/// A check, its side and its result.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Check {
    side: Side,
    what: &'static str,
    found: Found,
    why: String,
}

#[derive(Debug, Serialize)]
struct Document<'c> {
    guest: &'c str,
    looked_ns: u64,
    checks: &'c [Check],
}

/// Status of a daemon at the begin and at the end.
struct Looked {
    before: Shown,
    after: Shown,
}

impl Verify {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if self.send && self.duration > LONGEST_TRIAL {
            return Err(Failure::wrong_arguments(format!(
                "--duration: with --send use up to {LONGEST_TRIAL}"
            )));
        }
        // The receiving host first at the begin and last at the end, so that sent packets have time
        // to be counted as received.
        let there = self.receiver.as_deref().map(ask_there).transpose()?;
        let target = there.as_ref().filter(|_| self.send);
        let trial = target.map(|there| self.begin_trial(there)).transpose()?;
        let there = match (&trial, &self.receiver) {
            // Packets that were received before the trial do not count.
            (Some(_), Some(command)) => Some(ask_there(command)?),
            _ => there,
        };
        let before = self.show()?;
        is_guaranteed(guest_of(&before, &self.guest)?)?;
        std::thread::sleep(self.duration.into());
        let after = self.show()?;
        let sender = Looked { before, after };
        let receiver = match (there, &self.receiver) {
            (Some(before), Some(command)) => Some(Looked {
                before,
                after: ask_there(command)?,
            }),
            _ => None,
        };
        if let Some(trial) = trial {
            ended(trial)?;
        }
        let receiver = receiver.as_ref().zip(self.to.as_deref());
        let mut checks = judge(&sender, &self.guest, receiver, self.within)?;
        if self.send {
            excuse(&mut checks);
        }
        output::print(&match self.output {
            Output::Json => output::json(
                "host-verify",
                1,
                &Document {
                    guest: &self.guest,
                    looked_ns: sender
                        .after
                        .uptime_ns
                        .saturating_sub(sender.before.uptime_ns),
                    checks: &checks,
                },
            ),
            Output::Text => text(&checks, paint()),
        });
        if checks.iter().any(|check| check.found == Found::Broken) {
            return Ok(Exit::DoesNotHold);
        }
        if checks.iter().all(|check| check.found == Found::NotJudged) {
            return Err(Failure::new("nothing could be judged"));
        }
        Ok(Exit::Holds)
    }

    /// Starts the daemon's test traffic after the user's confirmation. Returns once its queue is
    /// full.
    fn begin_trial(&self, there: &Shown) -> Result<Trial, Failure> {
        let to = guest_of(there, self.to.as_deref().unwrap_or_default())?;
        let here = self.show()?;
        let own = guest_of(&here, &self.guest)?;
        let Some(guarantee) = own.guarantee else {
            return Err(nothing_guaranteed(&self.guest));
        };
        let Some((address, mac)) = to.ipv4.zip(to.mac) else {
            return Err(Failure::new(format!(
                "the daemon there does not report an IPv4 address of {}",
                to.port.name
            )));
        };
        let bandwidth = Rate(guarantee.bandwidth_bit_s);
        let what = format!(
            "For {} all that {} is guaranteed, {bandwidth}, goes to {}; what it sends itself waits \
             behind that.",
            self.duration + MARGIN,
            self.guest,
            to.port.name
        );
        if !self.yes {
            agreed(&what)?;
        }
        let request = Request::Send {
            guest: self.guest.clone(),
            mac,
            to: address,
            patience_ms: (self.duration + MARGIN).0 / 1_000_000,
        };
        let mut daemon = self.daemon.connect()?;
        let trial = std::thread::spawn(move || daemon.ask(&request));
        // A refusal arrives immediately.
        std::thread::sleep(WARM_UP.into());
        if trial.is_finished() {
            ended(trial)?;
            return Err(Failure::new("the daemon has ended at once"));
        }
        Ok(trial)
    }

    fn show(&self) -> Result<Shown, Failure> {
        match self.daemon.ask(&Request::Show {})? {
            Outcome::Shown { host } => Ok(*host),
            other => Err(failure(other, Path::new(""))),
        }
    }
}

/// Checks that a guest has a guarantee, which its host may refuse.
fn is_guaranteed(guest: &Guest) -> Result<(), Failure> {
    if guest.guarantee.is_some() || guest.guarantee_refused {
        Ok(())
    } else {
        Err(nothing_guaranteed(&guest.port.name))
    }
}

fn nothing_guaranteed(guest: &str) -> Failure {
    Failure::new(format!(
        "nothing is guaranteed to {guest}, so there is nothing to verify; add a `guarantee` to \
         its section, or a `vm` with a guarantee of the placement service"
    ))
}

/// The thread that waits for the daemon's trial.
type Trial = JoinHandle<Result<Outcome, ClientError>>;

/// Waits for the end of the trial.
fn ended(trial: Trial) -> Result<(), Failure> {
    let outcome = trial.join();
    match outcome.map_err(|_| Failure::new("the daemon could not be asked"))?? {
        Outcome::Sent { .. } => Ok(()),
        other => Err(failure(other, Path::new(""))),
    }
}

/// Requests confirmation from the user at the terminal.
fn agreed(what: &str) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::wrong_arguments(format!(
            "{what} Say --yes: nobody is there to be asked"
        )));
    }
    eprint!("{what} Go on? [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(Failure::new)?;
    if answer.trim().eq_ignore_ascii_case("y") {
        return Ok(());
    }
    Err(Failure::new("nothing was sent"))
}

/// Returns the status of the other host's daemon, by the user's command.
fn ask_there(command: &str) -> Result<Shown, Failure> {
    let run = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let failed = |why: &dyn std::fmt::Display| Failure::new(format!("{command}: {why}"));
    let output = run.map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| {
        failed(&format_args!(
            "this is not what `tailbound host show --output json` prints: {error}"
        ))
    })
}

fn guest_of<'s>(shown: &'s Shown, name: &str) -> Result<&'s Guest, Failure> {
    let mut guests = shown.guests.iter();
    guests.find(|guest| guest.port.name == name).ok_or_else(|| {
        let known: Vec<_> = shown
            .guests
            .iter()
            .map(|it| it.port.name.as_str())
            .collect();
        Failure::new(format!(
            "the daemon of {} has no guest {name:?}; it has: {}",
            shown.config.display(),
            known.join(", ")
        ))
    })
}

/// A guest at the begin and at the end, and the time in between.
struct Span<'s> {
    before: &'s Guest,
    after: &'s Guest,
    took: Nanos,
}

impl<'s> Span<'s> {
    fn new(looked: &'s Looked, name: &str) -> Result<Self, Failure> {
        let Looked { before, after } = looked;
        if before.pid != after.pid || after.uptime_ns <= before.uptime_ns {
            return Err(Failure::new(format!(
                "the daemon of {} was started again meanwhile; look again",
                after.config.display()
            )));
        }
        Ok(Self {
            before: guest_of(before, name)?,
            after: guest_of(after, name)?,
            took: Nanos(after.uptime_ns - before.uptime_ns),
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
fn excuse(checks: &mut [Check]) {
    let is_pace = |check: &&mut Check| check.what == ALWAYS && check.found == Found::Broken;
    for check in checks.iter_mut().filter(is_pace) {
        check.found = Found::NotJudged;
        check.why += "; the trial may have been late";
    }
}

/// Derives all checks from the counters.
fn judge(
    sender: &Looked,
    name: &str,
    receiver: Option<(&Looked, &str)>,
    within: Nanos,
) -> Result<Vec<Check>, Failure> {
    let span = Span::new(sender, name)?;
    is_guaranteed(span.after)?;
    let mut checks = vec![guaranteed(&span)];
    if checks[0].found == Found::Holds {
        checks.push(pace(&span, within));
    }
    checks.extend(timely(sender, span.took));
    checks.push(dropped(
        &span,
        Side::SendingHost,
        "nothing that the guest sent is dropped by its host",
    ));
    if let Some((looked, to)) = receiver {
        let there = Span::new(looked, to)?;
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
            "what came does not wait at the receiving host",
        ));
    }
    Ok(checks)
}

/// Checks the time for which the sending host's wire stood.
fn timely(looked: &Looked, took: Nanos) -> Option<Check> {
    let (before, after) = looked.before.packet_loop.zip(looked.after.packet_loop)?;
    let stood = Nanos(after.frozen_ns.saturating_sub(before.frozen_ns));
    let share = stood.0 as f64 / took.0.max(1) as f64;
    let mut why = format!(
        "the clock of the wire stood for {} of {}",
        time(stood.0),
        time(took.0)
    );
    let found = if share <= STANDS {
        Found::Holds
    } else {
        why += if after.real_time {
            ", though the loop has a real-time class: it needs a CPU (`cpu`), or its uplink more room"
        } else {
            ": the loop has no real-time class (`loop_class`, `tailbound doctor`)"
        };
        Found::Broken
    };
    Some(Check {
        side: Side::SendingHost,
        what: "the packet loop is there when packets are due",
        found,
        why,
    })
}

fn guaranteed(span: &Span<'_>) -> Check {
    let (found, why) = match &span.after.guarantee {
        _ if span.after.guarantee_refused => (
            Found::Broken,
            "the host refuses its guarantee, which breaks a rule of its pacer".to_owned(),
        ),
        None => (Found::NotJudged, "nothing is guaranteed to it".to_owned()),
        Some(guarantee) => (
            Found::Holds,
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
        found,
        why,
    }
}

/// Checks that a guest below its guarantee does not wait, or that a guest with queued packets gets
/// it.
fn pace(span: &Span<'_>, within: Nanos) -> Check {
    let bandwidth = span.after.guarantee.map_or(0, |it| it.bandwidth_bit_s) as f64;
    let seconds = span.took.0 as f64 / 1e9;
    let came = span
        .after
        .port
        .received
        .bytes
        .saturating_sub(span.before.port.received.bytes);
    let rate = came as f64 * 8.0 / seconds;
    if rate < USES_ALL * bandwidth && span.after.paced_bytes == 0 {
        let what = "what it sends below its guarantee does not wait";
        return waits(
            span,
            Side::SendingHost,
            "sent",
            Some("guaranteed"),
            within,
            what,
        );
    }
    let what = ALWAYS;
    let always = span.before.paced_bytes > 0 && span.after.paced_bytes > 0;
    let said = format!("{} of {}", Rate(rate as u64), Rate(bandwidth as u64));
    let (found, why) = if rate >= GETS * bandwidth {
        (Found::Holds, said)
    } else if always {
        (
            Found::Broken,
            format!("something waits all the time, and it got {said}"),
        )
    } else {
        (
            Found::NotJudged,
            format!("it did not always have something to send; it got {said}"),
        )
    };
    Check {
        side: Side::SendingHost,
        what,
        found,
        why,
    }
}

fn waits(
    span: &Span<'_>,
    side: Side,
    direction: &str,
    class: Option<&str>,
    within: Nanos,
    what: &'static str,
) -> Check {
    let (all, late) = span.waits(direction, class, within);
    let limit = time(within.0);
    let (found, why) = if all < ENOUGH {
        (
            Found::NotJudged,
            format!("{all} packets are too few to tell"),
        )
    } else if late * 100 > all {
        (
            Found::Broken,
            format!("{late} of {all} packets waited longer than {limit}"),
        )
    } else {
        (
            Found::Holds,
            format!("{late} of {all} packets waited longer than {limit}"),
        )
    };
    Check {
        side,
        what,
        found,
        why,
    }
}

fn dropped(span: &Span<'_>, side: Side, what: &'static str) -> Check {
    let drops = span.drops();
    let said: Vec<_> = drops
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    let (found, why) = if drops.is_empty() {
        (Found::Holds, "none".to_owned())
    } else {
        (Found::Broken, said.join(", "))
    };
    Check {
        side,
        what,
        found,
        why,
    }
}

/// Compares sent and received bytes, because packets are segmented and merged on the way.
fn arrives(sent: &Span<'_>, there: &Span<'_>) -> Check {
    let count =
        |span: &Span<'_>, of: fn(&Guest) -> u64| of(span.after).saturating_sub(of(span.before));
    let left = count(sent, |guest| guest.port.received.bytes);
    let came = count(there, |guest| guest.port.sent.bytes);
    let held = there.after.port.backlog.bytes + sent.after.paced_bytes;
    let missing = left.saturating_sub(came + held);
    let dropped = !there.drops().is_empty() || !sent.drops().is_empty();
    let said = format!("{} left, {} came", size(left), size(came));
    let (found, why) = if left == 0 {
        (Found::NotJudged, "it sent nothing".to_owned())
    } else if missing * 1000 <= left * ON_ITS_WAY {
        (Found::Holds, said)
    } else if dropped {
        (
            Found::NotJudged,
            format!("{said}; a host dropped some of it"),
        )
    } else {
        (
            Found::Broken,
            format!(
                "{said}: {} are missing, or went to somebody else",
                size(missing)
            ),
        )
    };
    Check {
        side: Side::Between,
        what: "what left arrives",
        found,
        why,
    }
}

fn text(checks: &[Check], paint: Paint) -> String {
    let mut broken: Vec<_> = Vec::new();
    for check in checks.iter().filter(|check| check.found == Found::Broken) {
        if !broken.contains(&check.side.words()) {
            broken.push(check.side.words());
        }
    }
    let verdict = if broken.is_empty() {
        paint.good("HOLDS")
    } else {
        format!("{}  {}", paint.bad("BROKEN"), broken.join(", "))
    };
    let mut table = Table::new(&["where", "what", "found", "why"], &[1, 2, 3]);
    for check in checks {
        let found = match check.found {
            Found::Holds => "holds",
            Found::Broken => "broken",
            Found::NotJudged => "not judged",
        };
        table.row([check.side.words(), check.what, found, &check.why]);
    }
    format!("{verdict}\n\n{}", table.render(paint))
}

#[cfg(test)]
mod tests;
