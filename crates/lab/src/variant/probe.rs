//! The probe and the neighbours that it must detect: starts them, and reads the probe's report.

use super::crew::{Crew, Role};
use super::load::Load;
use super::traffic::read_histogram;
use crate::LabError;
use crate::experiment::{Duty, Probe, Surroundings};
use crate::guest::{Outcome, ProbeReport, ProbedCpu, Work};
use crate::measurement::{MeasuredSeries, Measurement};
use tailbound_units::Nanos;

pub(super) fn probe<'a>(crew: &mut Crew<'a>, probe: &'a Probe) -> Result<Load<'a>, LabError> {
    let guest = crew.guest(&probe.guest)?;
    let work = Work::Probe {
        args: probe.args(),
        after: Nanos::ZERO,
        result: None,
    };
    if probe.place == Surroundings::Machine {
        crew.start_machine(guest, None)?;
        crew.finish_boots()?;
    }
    let (_, outcome) = crew.start_task(guest, "probe", work, Role::Measures)?;
    Ok(Load::new(vec![outcome], move |_, outcomes, measured| {
        let mut reports = outcomes.into_iter().filter_map(|it| it.probe);
        let report = reports.next().ok_or_else(|| LabError::Child {
            who: "the probe".into(),
            what: "said nothing".into(),
            stderr: String::new(),
        })?;
        let series = take(report, measured)?;
        measured.series.insert(probe.series.clone(), series);
        Ok(())
    }))
}

pub(super) fn duty<'a>(crew: &mut Crew<'a>, duty: &'a Duty) -> Result<Load<'a>, LabError> {
    let mut outcomes = Vec::new();
    for name in &duty.guests {
        let guest = crew.guest(name)?;
        let work = Work::Duty {
            busy: duty.busy,
            period: duty.period,
        };
        let role = if duty.uninterrupted {
            Role::Monopolizes
        } else {
            Role::Computes { nice: 0 }
        };
        outcomes.push(crew.start_task(guest, "duty", work, role)?.1);
    }
    Ok(Load::sum(&duty.value, "%", outcomes, Outcome::cpu_percent))
}

/// Reads a probe's report.
fn take(report: ProbeReport, measured: &mut Measurement) -> Result<MeasuredSeries, LabError> {
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
        let _ = counted.add(&read_histogram(&cpu.sleep_ns)?);
    }
    measured.line = Some(report.line);
    Ok(MeasuredSeries {
        counted: Some(counted),
        ..MeasuredSeries::default()
    })
}
