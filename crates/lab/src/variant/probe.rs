//! The probe and the neighbours it is to find: starts them, and reads what the
//! probe said.

use super::{Load, Measured, MeasuredSeries, Output, Role, Run, Source};
use crate::LabError;
use crate::experiment::{Duty, Probe, Surroundings};
use crate::guest::{Outcome, ProbeReport, ProbedCpu, Work};
use crate::vm;
use std::path::{Path, PathBuf};
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// The class of a neighbour that nobody interrupts.
pub(super) const UNINTERRUPTED: Policy = Policy::Fifo(1);

impl<'a> Run<'a> {
    pub(super) fn start_probes(&mut self) -> Result<(), LabError> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        let probes = experiment.probe.iter();
        for probe in probes.filter(|load| variant.runs(&load.name)) {
            self.start_probe(probe)?;
        }
        let duties = experiment.duty.iter();
        for duty in duties.filter(|load| variant.runs(&load.name)) {
            self.start_duty(duty)?;
        }
        Ok(())
    }

    /// How long the probes of this variant may take.
    pub(super) fn probes_limit(&self) -> Nanos {
        let probes = self.context.experiment.probe.iter();
        let limits = probes
            .filter(|probe| self.runs(&probe.name))
            .map(|probe| probe.time_limit);
        limits.max().unwrap_or(Nanos::ZERO)
    }

    fn start_probe(&mut self, probe: &'a Probe) -> Result<(), LabError> {
        let guest = self.guest(&probe.guest)?;
        let work = Work::Probe { args: probe.args() };
        let outcome = match probe.place {
            Surroundings::Process => self.start_task(guest, "probe", work, Role::Measures)?.1,
            Surroundings::Machine => {
                let kernel = self.context.kernel.clone().unwrap_or_default();
                // Inside of the machine, not here.
                let (task, outcome) = self.write_task(work, Some("/outcome.json".into()))?;
                let tree = task.with_extension("cpio");
                vm::write_tree(&self.context.program, &task, &tree)
                    .map_err(LabError::file("writing", &tree))?;
                let args = vm::args(&kernel, &tree, &outcome);
                self.start(guest, "machine", vm::QEMU.into(), args, Role::Measures)?;
                outcome
            }
        };
        self.loads.push(Load {
            output: Output::Probe(probe.series.clone()),
            source: Source::Own(vec![outcome]),
            on_path: Vec::new(),
        });
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
                Role::Computes
            };
            outcomes.push(self.start_task(guest, "duty", work, role)?.1);
        }
        self.loads.push(Load {
            output: Output::Value(duty.value.clone(), "%"),
            source: Source::Own(outcomes),
            on_path: Vec::new(),
        });
        Ok(())
    }

    pub(super) fn collect_probe(
        series: &str,
        outcomes: &[PathBuf],
        measured: &mut Measured,
    ) -> Result<(), LabError> {
        for path in outcomes {
            let report = Outcome::read(path)?.probe.ok_or_else(|| LabError::Child {
                who: "the probe".into(),
                what: "said nothing".into(),
                stderr: String::new(),
            })?;
            take(report, series, path, measured)?;
        }
        Ok(())
    }
}

fn take(
    report: ProbeReport,
    series: &str,
    path: &Path,
    measured: &mut Measured,
) -> Result<(), LabError> {
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
        measured.values.insert(name.to_owned(), (unit, value));
    }
    let mut counted = tailbound_report::empty_histogram();
    for cpu in &report.cpus {
        let sleeps = cpu.sleep_ns.histogram().map_err(std::io::Error::other);
        let sleeps = sleeps.map_err(LabError::file("reading the histogram in", path))?;
        // Both grow as needed, so what one holds fits the other.
        let _ = counted.add(&sleeps);
    }
    let kept = MeasuredSeries {
        counted: Some(counted),
        ..MeasuredSeries::default()
    };
    measured.series.insert(series.to_owned(), kept);
    measured.line = Some(report.line);
    Ok(())
}
