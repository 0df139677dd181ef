//! Keeps the CPU budget of the BPF programs and of this process: attaches and detaches the programs as
//! [`Budget`] decides.

use super::cpu_time;
use super::packets::Packets;
use std::os::fd::OwnedFd;
use tailbound_agent::tail::Tail;
use tailbound_look::budget::{Budget, Cost, Spans, Step};
use tailbound_sys::bpf_program::{ProgramCost, count_cost};
use tailbound_units::Nanos;

/// The CPU time in a second of all programs and of this process. A tenth less than 1 % of a core, which is the
/// promise: the budget believes the smaller of two counts, and is exceeded by that much.
const LIMIT: Nanos = Nanos::from_millis(9);

/// The part of a counted run that is the kernel's own for counting (measured on an AMD EPYC).
const COUNTING: Nanos = Nanos(48);
/// The time that the kernel takes to call a program, which it does not count: 110 instructions.
const CALL: Nanos = Nanos(30);

/// A count of the run time, while the kernel counts it.
#[derive(Debug)]
struct Count {
    _counted: OwnedFd,
    began: Nanos,
    before: RunTime,
}

/// The run time of programs until a moment.
#[derive(Debug, Clone, Copy, Default)]
struct RunTime {
    /// Programs of waits for a CPU.
    waits: Nanos,
    /// Programs that time soft interrupts.
    interrupts: Nanos,
    /// Programs of packets.
    packets: Nanos,
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
        self.budget.spend(Nanos::from(cpu_time()), now);
        while let Some(step) = self.budget.poll(now) {
            // Soft interrupts are timed for as long as requests are measured: else a request at an end of the
            // interval would have their time as the guest's.
            let mut refusal = None;
            if let (Step::Attach, Ok(tail)) = (step, &mut *tail) {
                refusal = tail.trace_waits(true).err().map(str::to_owned);
                tail.time_softirqs(true);
            }
            match step {
                Step::Attach => self.note = packets.resume().err().or(refusal),
                Step::Detach => packets.pause(),
                Step::DetachInterrupts | Step::DetachWaits => {}
                Step::BeginCount => {
                    let counted = count_cost().map_err(|error| error.to_string());
                    let begun = counted.and_then(|counted| {
                        let count = Count {
                            _counted: counted,
                            began: now,
                            before: run_time(packets, tail)?,
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
                        let (after, before) = (run_time(packets, tail).ok()?, count.before);
                        Some(Cost {
                            time: now.since(count.began),
                            waits: after.waits.since(before.waits),
                            interrupts: after.interrupts.since(before.interrupts),
                            packets: after.packets.since(before.packets),
                        })
                    });
                    self.budget.report(cost, now);
                }
            }
            let drops_interrupts = match step {
                Step::Detach => !self.budget.keeps_interrupts(),
                Step::DetachInterrupts | Step::DetachWaits => true,
                _ => false,
            };
            if let (true, Ok(tail)) = (drops_interrupts, &mut *tail) {
                tail.time_softirqs(false);
            }
            if let (Step::DetachWaits, Ok(tail)) = (step, &mut *tail) {
                // There is no error in detaching.
                let _ = tail.trace_waits(false);
            }
        }
    }

    /// The reason why the budget is not kept.
    pub(super) fn note(&self) -> Option<&String> {
        self.note.as_ref()
    }

    /// Returns true if waits for a CPU were examined in all of an interval, with the time of soft interrupts
    /// if the programs measure that.
    pub(super) fn examines_waits(&self, times_softirqs: bool, from: Nanos, until: Nanos) -> bool {
        let spans = self.spans_of_waits(times_softirqs);
        spans.covers(from.max(self.began), until)
    }

    /// Soft interrupts are timed at most while waits are examined.
    const fn spans_of_waits(&self, times_softirqs: bool) -> &Spans {
        if times_softirqs {
            self.budget.interrupts()
        } else {
            self.budget.waits()
        }
    }

    /// The time since `from` in which packets were examined; `None` if all of it.
    pub(super) fn packets_time(&self, from: Nanos, now: Nanos) -> Option<Nanos> {
        self.part(self.budget.packets(), from, now)
    }

    /// The time since `from` in which waits were [examined](Self::examines_waits); `None` if all of it.
    pub(super) fn waits_time(
        &self,
        times_softirqs: bool,
        from: Nanos,
        now: Nanos,
    ) -> Option<Nanos> {
        self.part(self.spans_of_waits(times_softirqs), from, now)
    }

    fn part(&self, spans: &Spans, from: Nanos, now: Nanos) -> Option<Nanos> {
        let from = from.max(self.began);
        let attached = spans.attached(from, now);
        (attached < now.since(from)).then_some(attached)
    }

    pub(super) fn forget(&mut self, from: Nanos) {
        self.budget.forget(from);
    }
}

/// The run time of all programs until now.
fn run_time(packets: &Packets, tail: &Result<Tail, String>) -> Result<RunTime, String> {
    let waits = match tail {
        Ok(tail) => tail.tracer().cost().map_err(|error| error.to_string())?,
        Err(_) => Vec::new(),
    };
    let mut sum = RunTime::default();
    for cost in waits {
        let part = if cost.name.starts_with("softirq") {
            &mut sum.interrupts
        } else {
            &mut sum.waits
        };
        *part = part.saturating_add(uncounted(&cost));
    }
    for cost in packets.cost()? {
        sum.packets = sum.packets.saturating_add(uncounted(&cost));
    }
    Ok(sum)
}

/// The cost of a program without that of counting.
fn uncounted(cost: &ProgramCost) -> Nanos {
    let counting = cost.runs.saturating_mul(COUNTING.0 - CALL.0);
    cost.time.saturating_sub(Nanos(counting))
}
