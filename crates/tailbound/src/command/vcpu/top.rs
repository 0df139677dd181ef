//! `tailbound vcpu top`.

use super::super::output::{self, Output, paint};
use crate::command::interval;
use crate::command::screen::{self, Open, Screen, View};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::io::{IsTerminal as _, stdin, stdout};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tailbound_agent::live::{Live, Reading};
use tailbound_agent::rule::GuestRule;
use tailbound_top::End;
use tailbound_top::vcpu::{Column, Look, Tails, watch};
use tailbound_units::Nanos;

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// The usual interval between two updates.
const INTERVAL: Nanos = Nanos::from_secs(1);
/// The longest one.
const MAX_INTERVAL: Nanos = Nanos::from_secs(3_600);

/// The usual duration from which a wait is late.
const LATE_WAIT: Nanos = Nanos::from_millis(1);

/// Interval of reading late waits.
const SAMPLE: Duration = Duration::from_millis(100);

/// Arguments of `tailbound vcpu top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns: waits of guests' threads for a CPU since the start of this command: \
    all waits, and the 99.9th percentile of waits after a wake-up and after a preemption. \
    Below the table: the causes of late waits, and the threads that ran instead. BPF measures \
    each wait; if that is not possible, the reason is shown and there are no percentiles. \
    Keys: n, w, 5, 9, t, l sort by a column; up and down move; Tab shows the other views of \
    `tailbound watch`; q quits. Exit code: 0 shown; 2 \
    this computer cannot be examined, or there is no terminal."
)]
pub(super) struct Top {
    /// A further process to show, beside the recognised guests
    #[arg(long)]
    pid: Vec<u32>,
    /// The interval between two updates; with --once, the duration of the measurement
    #[arg(long, value_name = "TIME", default_value_t = INTERVAL, value_parser = interval)]
    interval: Nanos,
    /// The duration from which a wait is late and its cause is shown
    #[arg(long, value_name = "TIME", default_value_t = LATE_WAIT)]
    late: Nanos,
    /// The column to sort threads by
    #[arg(long, value_enum, default_value_t = Column::P999)]
    sort: Column,
    /// Print one table after one interval, then exit
    #[arg(long)]
    once: bool,
    /// The output format; json implies --once
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

fn interval(text: &str) -> Result<Nanos, String> {
    interval::interval(text, MAX_INTERVAL)
}

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    interval_ns: u64,
    #[serde(flatten)]
    reading: &'a Reading,
}

impl Top {
    pub(super) fn run(self, open: Open) -> Result<Exit, Failure> {
        super::all_run(&self.pid)?;
        if self.late < Nanos::from_micros(100) {
            return Err(Failure::wrong_arguments("--late: use at least 100us"));
        }
        let rule = |pid: &u32| GuestRule {
            pid: Some(*pid),
            ..GuestRule::default()
        };
        let is_seen = stdin().is_terminal() && stdout().is_terminal();
        let once = self.once || self.output == Output::Json;
        if !once && !is_seen {
            return Err(Failure::new(
                "there is no terminal; use --once, or --output json",
            ));
        }
        let mut live = Live::open(self.late, self.pid.iter().map(rule).collect())?;
        live.look()?;
        if !once {
            let threads = Threads::new(live, self.interval, self.sort);
            return screen::show(View::Threads, Box::new(threads), open);
        }
        let mut tails = Tails::new(self.sort);
        wait(&mut live, self.interval);
        live.look()?;
        let reading = live.reading();
        match self.output {
            Output::Json => output::print(&output::json(
                "vcpu-top",
                SCHEMA,
                &Document {
                    interval_ns: self.interval.0,
                    reading: &reading,
                },
            )),
            Output::Text => {
                tails.update(reading);
                output::print(&tails.text(paint()));
            }
        }
        Ok(Exit::Holds)
    }
}

/// The view of guests' threads.
#[derive(Debug)]
pub(in super::super) struct Threads {
    tails: Tails,
    looks: Receiver<Look>,
}

impl Threads {
    fn new(live: Live, interval: Nanos, sort: Column) -> Self {
        Self {
            tails: Tails::new(sort),
            looks: looks(live, interval),
        }
    }

    /// The view with the usual options.
    pub(in super::super) fn usual() -> Result<Self, Failure> {
        let mut live = Live::open(LATE_WAIT, Vec::new())?;
        live.look()?;
        Ok(Self::new(live, INTERVAL, Column::P999))
    }
}

impl Screen for Threads {
    fn show(&mut self) -> Result<End, Failure> {
        Ok(watch(&mut self.tails, &self.looks)?)
    }
}

/// Waits, and reads late waits meanwhile, before the kernel drops them.
fn wait(live: &mut Live, interval: Nanos) {
    let end = Instant::now() + Duration::from(interval);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(SAMPLE));
        live.sample();
    }
}

/// Reads waits repeatedly, on a thread of its own, so that a slow computer does not delay key
/// presses.
fn looks(mut live: Live, interval: Nanos) -> Receiver<Look> {
    let (tell, looks) = channel();
    thread::spawn(move || {
        loop {
            wait(&mut live, interval);
            let looked = live.look().map_err(|error| error.to_string());
            let look = looked.map(|()| Box::new(live.reading()));
            if tell.send(look).is_err() {
                return;
            }
        }
    });
    looks
}
