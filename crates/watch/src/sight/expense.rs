//! Keeps the CPU budget of the BPF programs: attaches and detaches them as [`Budget`] decides.

use super::packets::Packets;
use std::os::fd::OwnedFd;
use tailbound_agent::tail::Tail;
use tailbound_look::budget::{Budget, Cost, Step};
use tailbound_sys::bpf_program::count_cost;
use tailbound_units::Nanos;

/// The run time of all programs in a second: 1 % of a core.
const LIMIT: Nanos = Nanos::from_millis(10);

/// The part of a counted run that is the kernel's own for counting (measured on an AMD EPYC).
const COUNTING: Nanos = Nanos(48);
/// The time that the kernel takes to call a program, which it does not count: 110 instructions.
const CALL: Nanos = Nanos(30);

/// A count of the run time, while the kernel counts it.
#[derive(Debug)]
struct Count {
    _counted: OwnedFd,
    began: Nanos,
    steady: Nanos,
    costly: Nanos,
}

/// The expense of the measurement.
#[derive(Debug)]
pub(super) struct Expense {
    budget: Budget,
    began: Nanos,
    count: Option<Count>,
    /// Why it is not known.
    note: Option<String>,
}

impl Expense {
    /// Begins with all programs attached.
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            budget: Budget::new(LIMIT, now),
            began: now,
            count: None,
            note: None,
        }
    }

    /// Takes the steps that are due.
    pub(super) fn keep(
        &mut self,
        now: Nanos,
        packets: &mut Packets,
        tail: &mut Result<Tail, String>,
    ) {
        while let Some(step) = self.budget.poll(now) {
            // Soft interrupts are timed for as long as requests are measured: else a request at an end of the
            // interval would have their time as the guest's.
            if let (Step::Attach, Ok(tail)) = (step, &mut *tail) {
                tail.time_softirqs(true);
            }
            match step {
                Step::Attach => self.note = packets.resume().err(),
                Step::Detach => packets.pause(),
                Step::BeginCount => {
                    let counted = count_cost().map_err(|error| error.to_string());
                    let begun = counted.and_then(|counted| {
                        let (steady, costly) = run_time(packets, tail)?;
                        let count = Count {
                            _counted: counted,
                            began: now,
                            steady,
                            costly,
                        };
                        Ok(count)
                    });
                    self.note = begun.as_ref().err().map(|error| {
                        format!(
                            "the cost of this measurement is not known, and not bounded: {error}"
                        )
                    });
                    self.count = begun.ok();
                }
                Step::EndCount => {
                    let cost = self.count.take().and_then(|count| {
                        let (steady, costly) = run_time(packets, tail).ok()?;
                        Some(Cost {
                            time: now.since(count.began),
                            steady: steady.since(count.steady),
                            costly: costly.since(count.costly),
                        })
                    });
                    self.budget.report(cost, now);
                }
            }
            if let (Step::Detach, Ok(tail)) = (step, &mut *tail) {
                tail.time_softirqs(false);
            }
        }
    }

    /// The reason why the budget is not kept.
    pub(super) fn note(&self) -> Option<&String> {
        self.note.as_ref()
    }

    /// Returns true if all programs were attached in an interval.
    pub(super) fn covers(&self, from: Nanos, until: Nanos) -> bool {
        self.budget.covers(from.max(self.began), until)
    }

    /// The time since `from` in which all programs were attached; `None` if all of it.
    pub(super) fn examined(&self, from: Nanos, now: Nanos) -> Option<Nanos> {
        let from = from.max(self.began);
        let attached = self.budget.attached(from, now);
        (attached < now.since(from)).then_some(attached)
    }

    pub(super) fn forget(&mut self, from: Nanos) {
        self.budget.forget(from);
    }
}

/// The run time until now of the programs that stay attached, and of the others.
fn run_time(packets: &Packets, tail: &Result<Tail, String>) -> Result<(Nanos, Nanos), String> {
    let (mut steady, mut costly) = (Nanos::ZERO, Nanos::ZERO);
    let waits = match tail {
        Ok(tail) => tail.tracer().cost().map_err(|error| error.to_string())?,
        Err(_) => Vec::new(),
    };
    let packets = packets.cost()?;
    let is_costly = |tracepoint: &str| tracepoint.starts_with("softirq");
    for (_, time, runs) in packets
        .iter()
        .chain(waits.iter().filter(|it| is_costly(it.0)))
    {
        costly = costly.saturating_add(uncounted(*time, *runs));
    }
    for (_, time, runs) in waits.iter().filter(|it| !is_costly(it.0)) {
        steady = steady.saturating_add(uncounted(*time, *runs));
    }
    Ok((steady, costly))
}

/// The cost of runs that are not counted.
fn uncounted(time: Nanos, runs: u64) -> Nanos {
    time.saturating_sub(Nanos(runs.saturating_mul(COUNTING.0 - CALL.0)))
}
