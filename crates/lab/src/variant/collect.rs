//! Converts the outcomes of a variant's processes to series and values.

use super::{
    FOREIGN_SHARE, Measurement, MeasuredSeries, Output, Run, SHARED_CORE_SHARE, Source, probe, traffic,
};
use crate::LabError;
use crate::experiment::VcpuMode;
use crate::guest::{Outcome, now};
use crate::monitor::{CPUS_EVERY, Record, THREADS_EVERY};
use crate::noise::{Losses, judge};
use crate::tools;
use std::path::PathBuf;
use tailbound_units::Nanos;

impl Run<'_> {
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &PathBuf> {
        let of_loads = self.loads.iter().flat_map(|load| match &load.source {
            Source::Own(outcomes) => outcomes.iter().collect(),
            Source::Messages { sent, received, .. } => sent.iter().chain(received).collect(),
            Source::Metered(path, _)
            | Source::Rtp(path, _)
            | Source::Watched(path)
            | Source::Pauses(path)
            | Source::Probed(path) => vec![path],
            Source::Daemon(_) | Source::Iperf3(_) | Source::Ping(..) => Vec::new(),
        });
        of_loads.chain(self.servers.values().flatten())
    }

    pub(super) fn collect(&self, record: &Record) -> Result<Measurement, LabError> {
        let stolen = Losses {
            lost: record.stolen.values().collect(),
            margin: CPUS_EVERY,
            passages: None,
        };
        let mut measured = Measurement {
            stolen: Nanos(stolen.lost.iter().map(|lost| lost.total().as_nanos()).sum()),
            promises: self.promises.clone(),
            taken: record.taken,
            cpus_taken: self.cpus_taken,
            ..Measurement::default()
        };
        for load in &self.loads {
            match &load.output {
                Output::Series(name) => {
                    let pids = load
                        .on_path
                        .iter()
                        .map(|place| self.supervisor.member(*place).child.id());
                    let ours = Losses {
                        lost: pids
                            .filter_map(|pid| record.waited.get(&pid))
                            .flatten()
                            .collect(),
                        margin: THREADS_EVERY,
                        passages: load.passages,
                    };
                    let series = self.samples(&load.source, &mut measured, [&stolen, &ours])?;
                    let judged = |series: MeasuredSeries| MeasuredSeries {
                        classes: judge(&series.samples, &stolen, &ours),
                        ..series
                    };
                    let series = judged(series);
                    if let Source::Messages { rings, .. } = &load.source {
                        for (name, series) in self.ring_series(rings, &series, record)? {
                            measured.series.insert(name, judged(series));
                        }
                    }
                    if let Source::Rtp(_, apart) = &load.source {
                        traffic::add_jitter(&series, *apart, &mut measured);
                    }
                    measured.series.insert(name.clone(), series);
                }
                Output::Value(name, unit) => {
                    let value = self.value(&load.source, unit)?;
                    measured.value(name, unit, value);
                }
            }
        }
        self.add_selection(&mut measured)?;
        if let Some(error) = self.clock_error() {
            measured.value("machine_clock_error", "ms", error.as_secs_f64() * 1e3);
        }
        if let Some(time) = self.throttled {
            measured.value("throttled", "s", time.as_secs_f64());
        }
        if let Some(share) = self.foreign_share {
            measured.value(FOREIGN_SHARE, "", share);
        }
        if self.variant.vcpu == VcpuMode::Periodic {
            self.check_shared_core(&mut measured)?;
        }
        Ok(measured)
    }

    fn samples(
        &self,
        source: &Source,
        measured: &mut Measurement,
        lost: [&Losses<'_>; 2],
    ) -> Result<MeasuredSeries, LabError> {
        let mut series = MeasuredSeries::default();
        match source {
            Source::Own(outcomes) => {
                for path in outcomes {
                    let outcome = Outcome::read(path)?;
                    series.samples.extend(outcome.samples);
                    series.unanswered += outcome.unanswered;
                }
            }
            Source::Messages { sent, received, .. } => {
                return traffic::take_messages(sent, received, measured);
            }
            Source::Metered(path, rate) => {
                return traffic::take_metered(path, *rate, measured, lost);
            }
            Source::Rtp(path, _) => {
                let outcome = Outcome::read(path)?;
                series.samples = outcome.samples;
                series.unanswered = outcome.unanswered;
            }
            Source::Pauses(path) => series.samples = Outcome::read(path)?.pauses,
            Source::Watched(path) => return traffic::take_watched(path, measured),
            Source::Probed(path) => return probe::take(path, measured),
            Source::Ping(place, counted) => {
                let output = self.output(*place)?;
                series.samples = tools::ping_samples(&output, clocks_apart());
                // The first samples belong to the warm-up.
                let all = series.samples.len() as u64;
                series
                    .samples
                    .drain(..all.saturating_sub(*counted) as usize);
                series.unanswered = counted.saturating_sub(series.samples.len() as u64);
            }
            Source::Daemon(_) | Source::Iperf3(_) => {}
        }
        Ok(series)
    }

    fn value(&self, source: &Source, unit: &str) -> Result<f64, LabError> {
        match source {
            Source::Own(outcomes) => {
                let mut sum = 0.0;
                for path in outcomes {
                    let outcome = Outcome::read(path)?;
                    sum += match unit {
                        "%" => outcome.cpu_percent(),
                        "bit/s" => outcome.rate() * 8.0,
                        _ => outcome.rate(),
                    };
                }
                Ok(sum)
            }
            Source::Daemon(host) => {
                let share = self.daemon_cpu.get(host.as_str());
                Ok(share.copied().unwrap_or(f64::NAN))
            }
            Source::Iperf3(place) => {
                let output = self.output(*place)?;
                let figure = match unit {
                    "ms" => tools::iperf3_jitter(&output),
                    _ => tools::iperf3_rate(&output),
                };
                figure.ok_or_else(|| LabError::Child {
                    who: "iperf3".into(),
                    what: "does not report what it is asked for".into(),
                    stderr: output,
                })
            }
            _ => Ok(0.0),
        }
    }

    fn output(&self, place: usize) -> Result<String, LabError> {
        let path = &self.supervisor.member(place).stdout;
        std::fs::read_to_string(path).map_err(LabError::file("reading", path))
    }

    /// Adds the share of the reserved guests' work that was done on the shared core.
    fn check_shared_core(&self, measured: &mut Measurement) -> Result<(), LabError> {
        let shared_core = self.context.session.cpus.shared_core;
        let (mut there, mut all) = (0, 0);
        let periodic = self.context.experiment.shared_core.iter();
        for guest in periodic.flat_map(|shared| &shared.periodic.guests) {
            let outcomes = self.servers.get(guest.get_ref().as_str());
            for path in outcomes.into_iter().flatten() {
                let served = Outcome::read(path)?.served;
                there += served.get(&shared_core).copied().unwrap_or(0);
                all += served.values().sum::<u64>();
            }
        }
        if all == 0 {
            return Ok(());
        }
        let share = there as f64 / all as f64;
        measured.value("shared_core_share", "", share);
        measured.value("reservation_overruns", "", self.brought_back as f64);
        if share < SHARED_CORE_SHARE {
            measured.flaw = Some(format!(
                "the kernel ran the guest with the reservation elsewhere: only {:.1} % of its work was done on the shared core",
                share * 100.0
            ));
        }
        Ok(())
    }
}

/// Returns the lead of the wall clock over the monotonic one.
fn clocks_apart() -> Nanos {
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(Nanos::ZERO, Nanos::from);
    wall.since(now())
}
