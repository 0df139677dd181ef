//! The probe and the neighbours that it must detect: starts them, and reads the probe's report.

use super::traffic::read_histogram;
use super::{Measurement, MeasuredSeries, Output, Role, Run, Source};
use crate::LabError;
use crate::experiment::{Duty, Probe, Surroundings};
use crate::guest::{Outcome, ProbedCpu, Work};
use std::path::Path;
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// The class of a neighbour that is never preempted.
pub(super) const UNINTERRUPTED: Policy = Policy::Fifo(1);

impl<'a> Run<'a> {
    pub(super) fn start_probes(&mut self) -> Result<(), LabError> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        for probe in variant.running(&experiment.probe) {
            self.start_probe(probe)?;
        }
        for duty in variant.running(&experiment.duty) {
            self.start_duty(duty)?;
        }
        Ok(())
    }

    /// Returns the longest time limit of this variant's probes.
    pub(super) fn probes_limit(&self) -> Nanos {
        let probes = self.variant.running(&self.context.experiment.probe);
        let limits = probes.map(|probe| probe.time_limit);
        limits.max().unwrap_or(Nanos::ZERO)
    }

    fn start_probe(&mut self, probe: &'a Probe) -> Result<(), LabError> {
        let guest = self.guest(&probe.guest)?;
        let work = Work::Probe {
            args: probe.args(),
            after: Nanos::ZERO,
            result: None,
        };
        let outcome = match probe.place {
            Surroundings::Process => self.start_task(guest, "probe", work, Role::Measures)?.1,
            Surroundings::Machine => {
                self.start_machine(guest, None)?;
                self.finish_boots()?;
                self.start_task(guest, "probe", work, Role::Measures)?.1
            }
        };
        let series = Output::Series(probe.series.clone());
        self.load(series, Source::Probed(outcome), Vec::new());
        Ok(())
    }

    fn start_duty(&mut self, duty: &'a Duty) -> Result<(), LabError> {
        let mut outcomes = Vec::new();
        for name in &duty.guests {
            let guest = self.guest(name)?;
            let work = Work::Duty {
                busy: duty.busy,
                period: duty.period,
            };
            let role = if duty.uninterrupted {
                Role::Monopolizes
            } else {
                Role::Computes { nice: 0 }
            };
            outcomes.push(self.start_task(guest, "duty", work, role)?.1);
        }
        let share = Output::Value(duty.value.clone(), "%");
        self.load(share, Source::Own(outcomes), Vec::new());
        Ok(())
    }
}

/// Reads a probe's report.
pub(super) fn take(path: &Path, measured: &mut Measurement) -> Result<MeasuredSeries, LabError> {
    let report = Outcome::read(path)?.probe.ok_or_else(|| LabError::Child {
        who: "the probe".into(),
        what: "said nothing".into(),
        stderr: String::new(),
    })?;
    let is = |verdict| f64::from(u8::from(report.verdict == verdict));
    let sum = |of: fn(&ProbedCpu) -> u64| report.cpus.iter().map(of).sum::<u64>();
    let most = |of: fn(&ProbedCpu) -> f64| report.cpus.iter().map(of).fold(0.0, f64::max);
    let values = [
        ("good", "", is("GOOD")),
        ("bad", "", is("BAD")),
        ("late", "", sum(|cpu| cpu.late) as f64),
        ("ours", "", sum(|cpu| cpu.ours) as f64),
        ("stolen", "", sum(|cpu| cpu.stolen) as f64),
        ("unexplained", "", sum(|cpu| cpu.unexplained) as f64),
        (
            "time_to_verdict",
            "s",
            most(|cpu| cpu.elapsed_ns as f64 / 1e9),
        ),
        ("probe_cpu", "%", most(|cpu| cpu.cost * 100.0)),
    ];
    for (name, unit, value) in values {
        measured.value(name, unit, value);
    }
    let mut counted = tailbound_report::empty_histogram();
    for cpu in &report.cpus {
        // Both histograms grow as needed, so the values of one fit the other.
        let _ = counted.add(&read_histogram(&cpu.sleep_ns, path)?);
    }
    measured.line = Some(report.line);
    Ok(MeasuredSeries {
        counted: Some(counted),
        ..MeasuredSeries::default()
    })
}
