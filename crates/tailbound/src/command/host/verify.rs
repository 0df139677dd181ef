//! `tailbound host verify`: whether a guest gets its guarantee, from the counters of two daemons.
//!
//! Passive, except with `--send`: no packet is sent and no setting is changed. The status of each
//! daemon is read twice; [`tailbound_host::verify`] derives the result.

use super::daemon_args::{DaemonArgs, failure};
use crate::command::output::{self, Output, paint};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::io::{IsTerminal as _, stdin};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use tailbound_host::socket::{ClientError, HostStatus, Outcome, Request};
use tailbound_host::verify::{
    Check, CheckOutcome, Readings, VerifyError, excuse, guest_of, is_guaranteed, judge,
};
use tailbound_report::{Paint, Table};
use tailbound_units::{Nanos, Rate};

/// Warm-up before the measurement, after which the queue is full.
const WARM_UP: Nanos = Nanos::from_millis(500);
/// Time of sending after the measurement: the receiving host may be slow to answer.
const MARGIN: Nanos = Nanos::from_secs(5);
/// Longest trial.
const LONGEST_TRIAL: Nanos = Nanos::from_secs(60);

/// Arguments of `tailbound host verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads the counters of both hosts' daemons twice and compares them: whether \
    the guarantee is in force, whether the guest's packets are delayed although it sends less, \
    losses between the hosts, and drops in front of the receiving guest. No traffic is sent, \
    except with --send, which requires confirmation. Exit code: 0 all that could be judged \
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
    /// Skip the confirmation
    #[arg(long, requires = "send")]
    yes: bool,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Debug, Serialize)]
struct Document<'c> {
    guest: &'c str,
    looked_ns: u64,
    checks: &'c [Check],
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
        let sender = Readings { before, after };
        let receiver = match (there, &self.receiver) {
            (Some(before), Some(command)) => Some(Readings {
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
                    looked_ns: sender.elapsed().0,
                    checks: &checks,
                },
            ),
            Output::Text => text(&checks, paint()),
        });
        if checks
            .iter()
            .any(|check| check.found == CheckOutcome::Broken)
        {
            return Ok(Exit::DoesNotHold);
        }
        if checks
            .iter()
            .all(|check| check.found == CheckOutcome::NotJudged)
        {
            return Err(Failure::new("nothing could be judged"));
        }
        Ok(Exit::Holds)
    }

    /// Starts the daemon's test traffic after the user's confirmation. Returns once its queue is
    /// full.
    fn begin_trial(&self, there: &HostStatus) -> Result<Trial, Failure> {
        let to = guest_of(there, self.to.as_deref().unwrap_or_default())?;
        let here = self.show()?;
        let own = guest_of(&here, &self.guest)?;
        let Some(guarantee) = own.guarantee else {
            return Err(VerifyError::NoGuarantee(self.guest.clone()).into());
        };
        let Some((address, mac)) = to.ipv4.zip(to.mac) else {
            return Err(Failure::new(format!(
                "the daemon there does not report an IPv4 address of {}",
                to.port.name
            )));
        };
        let bandwidth = Rate(guarantee.bandwidth_bit_s);
        let question = format!(
            "For {} all that {} is guaranteed, {bandwidth}, goes to {}; what it sends itself waits \
             behind that.",
            self.duration + MARGIN,
            self.guest,
            to.port.name
        );
        if !self.yes {
            agreed(&question)?;
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
            return Err(Failure::new("the daemon ended immediately"));
        }
        Ok(trial)
    }

    fn show(&self) -> Result<HostStatus, Failure> {
        match self.daemon.ask(&Request::Show {})? {
            Outcome::Shown { host } => Ok(*host),
            other => Err(failure(other, Path::new(""))),
        }
    }
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
fn agreed(question: &str) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::wrong_arguments(format!(
            "{question} Use --yes: there is no terminal for the question"
        )));
    }
    eprint!("{question} Go on? [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(Failure::new)?;
    if answer.trim().eq_ignore_ascii_case("y") {
        return Ok(());
    }
    Err(Failure::new("nothing was sent"))
}

/// Returns the status of the other host's daemon, by the user's command.
fn ask_there(command: &str) -> Result<HostStatus, Failure> {
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

fn text(checks: &[Check], paint: Paint) -> String {
    let mut broken: Vec<_> = Vec::new();
    for check in checks
        .iter()
        .filter(|check| check.found == CheckOutcome::Broken)
    {
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
        let outcome = match check.found {
            CheckOutcome::Holds => "holds",
            CheckOutcome::Broken => "broken",
            CheckOutcome::NotJudged => "not judged",
        };
        table.row([check.side.words(), check.what, outcome, &check.why]);
    }
    format!("{verdict}\n\n{}", table.render(paint))
}
