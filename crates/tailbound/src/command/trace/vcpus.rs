//! Waits of guests' threads for a CPU, as reported by the kernel.

use super::Args;
use super::events::Events;
use crate::exit::Failure;
use std::collections::BTreeSet;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};
use tailbound_agent::guest::Guest;
use tailbound_agent::rule::GuestRule;
use tailbound_agent::scan::Scanner;
use tailbound_agent::tail::Tail;

/// Interval of reading waits: the kernel stores some hundred.
const SAMPLE: Duration = Duration::from_millis(20);
/// Interval of the search for new threads.
const LOOK: Duration = Duration::from_secs(1);

/// State of the recording.
pub(super) struct Vcpus {
    scanner: Scanner,
    rules: Vec<GuestRule>,
    tail: Tail,
}

impl Vcpus {
    /// Checks that there are guests and that their waits can be recorded.
    pub(super) fn open(args: &Args) -> Result<Self, Failure> {
        let rule = |pid: &u32| GuestRule {
            pid: Some(*pid),
            ..GuestRule::default()
        };
        let mut vcpus = Self {
            scanner: Scanner::new().map_err(Failure::new)?,
            rules: args.pid.iter().map(rule).collect(),
            tail: Tail::open(args.least).map_err(Failure::new)?,
        };
        vcpus.guests(args)?;
        Ok(vcpus)
    }

    /// Records for the requested duration. Returns remarks.
    pub(super) fn look<W: Write>(
        mut self,
        args: &Args,
        events: &mut Events<W>,
    ) -> Result<Vec<String>, Failure> {
        let begin = Instant::now();
        let end = begin + Duration::from(args.duration);
        let mut look = begin;
        let mut beyond = 0;
        while Instant::now() < end {
            if Instant::now() >= look {
                let guests = self.guests(args)?;
                events.name(&guests).map_err(|error| args.cannot(&error))?;
                let threads = guests.iter().flat_map(|guest| &guest.threads);
                let threads: BTreeSet<_> = threads.map(|thread| thread.id).collect();
                beyond = self.tail.follow(&threads).map_err(Failure::new)?;
                look += LOOK;
            }
            let waits = self.tail.late_waits();
            events.take(waits).map_err(|error| args.cannot(&error))?;
            thread::sleep(SAMPLE.min(end.saturating_duration_since(Instant::now())));
        }
        let waits = self.tail.late_waits();
        events.take(waits).map_err(|error| args.cannot(&error))?;
        let lost: u64 = self.tail.read().iter().map(|(_, new)| new.lost).sum();
        events.end_vcpus(args.least, lost);
        let mut remarks = Vec::new();
        if lost > 0 {
            remarks.push(format!(
                "{lost} waits were lost: more came than could be read; raise --least"
            ));
        }
        if beyond > 0 {
            remarks.push(format!(
                "{beyond} threads are too many to be followed; say --guest"
            ));
        }
        Ok(remarks)
    }

    /// Returns the guests to record.
    fn guests(&mut self, args: &Args) -> Result<Vec<Guest>, Failure> {
        let mut guests = self.scanner.scan(&self.rules).map_err(Failure::new)?;
        if let Some(name) = args
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
        if !args.guest.is_empty() {
            guests.retain(|guest| args.guest.contains(&guest.name));
        }
        if guests.is_empty() {
            return Err(Failure::new(
                "no guest is running here that can be recognised; pick a process with --pid",
            ));
        }
        Ok(guests)
    }
}
