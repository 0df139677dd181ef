//! `tailbound trace`: how long threads of guests wait for a CPU, and who ran meanwhile, one by one, in
//! a file that Perfetto shows.

mod events;

use super::output;
use crate::exit::{Exit, Failure};
use events::Events;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tailbound_agent::guest::Guest;
use tailbound_agent::rule::GuestRule;
use tailbound_agent::scan::Scanner;
use tailbound_agent::tail::Tail;
use tailbound_units::Nanos;

/// How often waits are taken: the kernel keeps some hundred.
const SAMPLE: Duration = Duration::from_millis(20);
/// How often it is looked for new threads.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest waits that can be told one by one.
const LEAST: Nanos = Nanos::from_micros(10);
/// The longest that a trace can take.
const LONGEST: Nanos = Nanos::from_secs(600);

/// Arguments of `tailbound trace`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each wait of a guest's thread for a CPU is a slice of that thread: from when it was \
    woken, or lost its CPU, until it ran. In it is who ran on that CPU meanwhile. Each is measured in \
    the kernel (BPF). Open the file at https://ui.perfetto.dev or chrome://tracing, or ask it with \
    trace_processor: docs/vcpu.md. Exit code: 0 written; 2 waits cannot be measured one by one here, \
    there is no such guest, or the file cannot be written."
)]
pub(crate) struct Args {
    /// Guests of this name alone
    #[arg(long, value_name = "NAME")]
    guest: Vec<String>,
    /// A process to look at besides the guests that are recognised
    #[arg(long)]
    pid: Vec<u32>,
    /// How long to look
    #[arg(long, value_name = "TIME", default_value = "5s")]
    duration: Nanos,
    /// Leave out waits that are shorter
    #[arg(long, value_name = "TIME", default_value = "50us")]
    least: Nanos,
    /// Where the trace goes
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        super::vcpu::all_run(&self.pid)?;
        if self.least < LEAST {
            return Err(Failure::wrong_arguments(format!(
                "--least: use at least {LEAST}"
            )));
        }
        if self.duration > LONGEST || self.duration == Nanos::ZERO {
            return Err(Failure::wrong_arguments(format!(
                "--duration: use up to {LONGEST}"
            )));
        }
        let rules: Vec<_> = self.pid.iter().map(|pid| rule(*pid)).collect();
        let mut scanner = Scanner::new().map_err(Failure::new)?;
        let mut tail = Tail::open(self.least).map_err(Failure::new)?;
        let cannot = |error: io::Error| {
            let out = self.out.display();
            Failure::new(format!("{out}: cannot be written: {error}"))
        };
        // A file of that name stays where there is nothing to look at; and none that cannot be
        // written is waited for.
        self.guests(&mut scanner, &rules)?;
        let file = File::create(&self.out).map_err(cannot)?;
        let mut events = Events::begin(BufWriter::new(file)).map_err(cannot)?;
        let begin = Instant::now();
        let end = begin + Duration::from(self.duration);
        let mut look = begin;
        let mut beyond = 0;
        while Instant::now() < end {
            if Instant::now() >= look {
                let guests = self.guests(&mut scanner, &rules)?;
                events.name(&guests).map_err(cannot)?;
                let threads = guests.iter().flat_map(|guest| &guest.threads);
                let threads: BTreeSet<_> = threads.map(|thread| thread.id).collect();
                beyond = tail.follow(&threads).map_err(Failure::new)?;
                look += LOOK;
            }
            events.take(tail.late_waits()).map_err(cannot)?;
            thread::sleep(SAMPLE.min(end.saturating_duration_since(Instant::now())));
        }
        events.take(tail.late_waits()).map_err(cannot)?;
        let lost: u64 = tail.read().iter().map(|(_, new)| new.lost).sum();
        let (_, summary) = events.end(self.least, lost).map_err(cannot)?;
        let mut said = format!("{}\n{summary}\n", self.out.display());
        // Writing to a String does not fail.
        if lost > 0 {
            let _ = writeln!(
                said,
                "{lost} waits were lost: more came than could be read; raise --least"
            );
        }
        if beyond > 0 {
            let _ = writeln!(
                said,
                "{beyond} threads are too many to be followed; say --guest"
            );
        }
        output::print(&said);
        Ok(Exit::Holds)
    }

    /// The guests that are looked at.
    fn guests(&self, scanner: &mut Scanner, rules: &[GuestRule]) -> Result<Vec<Guest>, Failure> {
        let mut guests = scanner.scan(rules).map_err(Failure::new)?;
        if let Some(name) = self
            .guest
            .iter()
            .find(|name| guests.iter().all(|it| it.name != **name))
        {
            let known: Vec<_> = guests.iter().map(|guest| guest.name.as_str()).collect();
            let known = match known.as_slice() {
                [] => "none is recognised; pick a process with --pid".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            return Err(Failure::new(format!(
                "there is no guest {name:?} here; {known}"
            )));
        }
        if !self.guest.is_empty() {
            guests.retain(|guest| self.guest.contains(&guest.name));
        }
        if guests.is_empty() {
            return Err(Failure::new(
                "no guest is running here that can be recognised; pick a process with --pid",
            ));
        }
        Ok(guests)
    }
}

fn rule(pid: u32) -> GuestRule {
    GuestRule {
        pid: Some(pid),
        ..GuestRule::default()
    }
}
