//! Waits of guests' threads for a CPU, as reported by the kernel.

use super::events::Events;
use super::{Plan, TraceError};
use std::collections::BTreeSet;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};
use tailbound_agent::guest::Guest;
use tailbound_agent::rule::GuestRule;
use tailbound_agent::scan::Scanner;
use tailbound_agent::tail::Tail;

/// Interval of reading waits: the kernel stores some hundred.
const READ_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of the search for new threads.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// State of the recording.
pub(super) struct Vcpus {
    scanner: Scanner,
    rules: Vec<GuestRule>,
    tail: Tail,
}

impl Vcpus {
    /// Checks that there are guests and that their waits can be recorded.
    pub(super) fn open(plan: &Plan) -> Result<Self, TraceError> {
        let rule = |pid: &u32| GuestRule {
            pid: Some(*pid),
            ..GuestRule::default()
        };
        let mut vcpus = Self {
            scanner: Scanner::new().map_err(TraceError::Scan)?,
            rules: plan.pids.iter().map(rule).collect(),
            tail: Tail::open(plan.least)?,
        };
        vcpus.guests(plan)?;
        Ok(vcpus)
    }

    /// Records for the requested duration. Returns remarks.
    pub(super) fn look<W: Write>(
        mut self,
        plan: &Plan,
        events: &mut Events<W>,
    ) -> Result<Vec<String>, TraceError> {
        let begin = Instant::now();
        let end = begin + Duration::from(plan.duration);
        let mut look = begin;
        let mut beyond = 0;
        while Instant::now() < end {
            if Instant::now() >= look {
                let guests = self.guests(plan)?;
                events.name(&guests).map_err(|error| plan.cannot(error))?;
                let threads = guests.iter().flat_map(|guest| &guest.threads);
                let threads: BTreeSet<_> = threads.map(|thread| thread.id).collect();
                beyond = self.tail.follow(&threads)?;
                look += SCAN_INTERVAL;
            }
            let waits = self.tail.late_waits();
            events.take(waits).map_err(|error| plan.cannot(error))?;
            thread::sleep(READ_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
        let waits = self.tail.late_waits();
        events.take(waits).map_err(|error| plan.cannot(error))?;
        let lost: u64 = self.tail.read().iter().map(|(_, new)| new.lost).sum();
        events.end_vcpus(plan.least, lost);
        let mut remarks = Vec::new();
        if lost > 0 {
            remarks.push(format!(
                "{lost} waits were lost: more came than could be read; raise --least"
            ));
        }
        if beyond > 0 {
            remarks.push(format!(
                // words: allow P7, the command prints it.
                "{beyond} threads are too many to be followed; say --guest"
            ));
        }
        Ok(remarks)
    }

    /// Returns the guests to record.
    fn guests(&mut self, plan: &Plan) -> Result<Vec<Guest>, TraceError> {
        let mut guests = self.scanner.scan(&self.rules).map_err(TraceError::Scan)?;
        if let Some(name) = plan
            .guests
            .iter()
            .find(|name| guests.iter().all(|it| it.name != **name))
        {
            let known: Vec<_> = guests.iter().map(|guest| guest.name.as_str()).collect();
            let known = match known.as_slice() {
                [] => "none is recognised; pick a process with --pid".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            return Err(TraceError::OtherGuests {
                name: name.clone(),
                known,
            });
        }
        if !plan.guests.is_empty() {
            guests.retain(|guest| plan.guests.contains(&guest.name));
        }
        if guests.is_empty() {
            return Err(TraceError::NoGuest);
        }
        Ok(guests)
    }
}
