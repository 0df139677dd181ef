//! The guidance for this kernel's scheduler, for `doctor vcpu`.

use serde::Serialize;
use tailbound_agent::guidance::{Advice, Guidance, SliceEnd};
use tailbound_agent::observer::Observer;

/// The 99th percentile of wake-up latency by class, measured on this kernel or the next older one.
#[derive(Debug, Serialize)]
pub(super) struct ClassesRow {
    kernel: String,
    timers: bool,
    default_ns: u64,
    high_ns: u64,
    periodic_ns: u64,
    class: &'static str,
    #[serde(skip)]
    text: String,
}

impl ClassesRow {
    fn of(guidance: &Guidance) -> Self {
        let (end, timers) = match guidance.ends {
            SliceEnd::Tick => ("a tick", false),
            SliceEnd::Timer => ("a timer", true),
        };
        let advice = guidance.advice();
        Self {
            kernel: guidance.kernel.to_string(),
            timers,
            default_ns: guidance.default.0,
            high_ns: guidance.high.0,
            periodic_ns: guidance.periodic.0,
            class: match advice {
                Advice::Normal => "normal",
                Advice::High => "aperiodic",
                Advice::Periodic => "periodic",
            },
            text: format!("this host: {end} ends time slices; {guidance}: {advice}\n"),
        }
    }

    /// Reads it; `None` if the kernel does not show its scheduler.
    pub(super) fn read() -> Option<Self> {
        let machine = Observer::new().and_then(|observer| observer.machine());
        machine.ok().map(|machine| Self::of(machine.guidance()))
    }

    /// Returns it as a line.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_agent::guidance::KernelVersion;

    #[test]
    fn the_row_names_the_class_for_this_kernel() {
        let row = |ends| ClassesRow::of(Guidance::of(KernelVersion::new(6, 18), ends));
        let ticks = row(SliceEnd::Tick);
        assert_eq!((ticks.class, ticks.timers), ("periodic", false));
        assert!(
            ticks
                .text()
                .starts_with("this host: a tick ends time slices; beside five threads"),
            "{}",
            ticks.text()
        );
        assert!(ticks.text().ends_with("need a reservation (periodic)\n"));
    }
}
