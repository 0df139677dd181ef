//! `tailbound top`: live table of a daemon's guests.

use super::host::DaemonArgs;
use super::interval;
use super::output::{paint, print};
use super::screen::{self, Open, Screen, View};
use crate::exit::{Exit, Failure};
use std::io::{IsTerminal as _, stdin, stdout};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use tailbound_host::socket::{Outcome, Request};
use tailbound_top::{Column, End, Look, State, watch};
use tailbound_units::Nanos;

/// The usual interval between two updates.
const INTERVAL: Nanos = Nanos::from_secs(1);
/// The longest one.
const MAX_INTERVAL: Nanos = Nanos::from_secs(60);

/// Arguments of `tailbound top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns: the guest's traffic in both directions, its guarantee, queued \
    packets (to the guest, and of the guest behind its guarantee), the 99th percentile of the \
    delay in software queues, and drops, each over the last interval. Keys: n, s, r, g, b, w, \
    d sort by a column, the same key again reverses the order; up and down move; Tab shows \
    the other views of `tailbound watch`; q quits. Exit \
    code: 0 shown; 2 no daemon answers, or there is no terminal."
)]
pub(crate) struct Args {
    /// The interval between two updates
    #[arg(long, value_name = "TIME", default_value_t = INTERVAL, value_parser = interval)]
    interval: Nanos,
    /// The column to sort guests by
    #[arg(long, value_enum, default_value_t = Column::Sends)]
    sort: Column,
    /// Print one table after one interval, then exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

fn interval(text: &str) -> Result<Nanos, String> {
    interval::interval(text, MAX_INTERVAL)
}

impl Args {
    pub(crate) fn run(self, open: Open) -> Result<Exit, Failure> {
        let is_seen = stdin().is_terminal() && stdout().is_terminal();
        // A missing daemon is reported before a missing terminal.
        let mut ports = Ports::open(self.daemon, self.interval, self.sort)?;
        if self.once {
            let look = ports
                .looks
                .recv()
                .map_err(|_| Failure::new("the thread that queries the daemon has ended"))?;
            ports.state.update(*look.map_err(Failure::new)?);
            print(&ports.state.text(paint()));
            return Ok(Exit::Holds);
        }
        if !is_seen {
            return Err(Failure::new("there is no terminal; use --once"));
        }
        screen::show(View::Ports, Box::new(ports), open)
    }
}

/// The view of a daemon's ports.
#[derive(Debug)]
pub(super) struct Ports {
    state: State,
    looks: Receiver<Look>,
}

impl Ports {
    /// Queries a daemon once, so that a missing one is reported before the screen changes.
    fn open(daemon: DaemonArgs, interval: Nanos, sort: Column) -> Result<Self, Failure> {
        let mut state = State::new(sort);
        let look = shown(daemon.connect()?.ask(&Request::Show {})?);
        state.update(*look.map_err(Failure::new)?);
        let looks = looks(daemon, interval);
        Ok(Self { state, looks })
    }

    /// The view of the daemon with the usual configuration.
    pub(super) fn usual() -> Result<Self, Failure> {
        Self::open(DaemonArgs::default(), INTERVAL, Column::Sends)
    }
}

impl Screen for Ports {
    fn show(&mut self) -> Result<End, Failure> {
        Ok(watch(&mut self.state, &self.looks)?)
    }
}

/// Queries a daemon after each interval, on a thread of its own, so that a silent daemon does not
/// delay key presses. A lost connection is opened again.
fn looks(daemon: DaemonArgs, interval: Nanos) -> Receiver<Look> {
    let (tell, looks) = channel();
    thread::spawn(move || {
        let mut client = None;
        loop {
            thread::sleep(Duration::from_nanos(interval.0));
            let connected = client.take().map_or_else(|| daemon.connect(), Ok);
            let reply = connected.and_then(|mut connected| {
                let outcome = connected.ask(&Request::Show {})?;
                client = Some(connected);
                Ok(outcome)
            });
            let look = reply.map_err(|error| error.to_string()).and_then(shown);
            if tell.send(look).is_err() {
                return;
            }
        }
    });
    looks
}

fn shown(outcome: Outcome) -> Look {
    match outcome {
        Outcome::Shown { host } => Ok(host),
        _ => Err("the daemon answers something else than it was asked".to_owned()),
    }
}
