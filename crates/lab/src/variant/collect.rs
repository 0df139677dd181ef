//! What the processes of a variant left, as series and values.

use super::{FOREIGN_SHARE, Measured, MeasuredSeries, Output, Run, SHARED_CORE_SHARE, Source};
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
            Source::Left(left) => left.outcomes(),
            Source::Iperf3(_) | Source::Ping(..) => Vec::new(),
        });
        of_loads.chain(self.servers.values().flatten())
    }

    pub(super) fn collect(&self, record: &Record) -> Result<Measured, LabError> {
        let stolen = Losses {
            lost: record.stolen.values().collect(),
            margin: CPUS_EVERY,
        };
        let mut measured = Measured {
            stolen: Nanos(stolen.lost.iter().map(|lost| lost.total().as_nanos()).sum()),
            ..Measured::default()
        };
        for load in &self.loads {
            match &load.output {
                Output::Series(name) | Output::Left(name) => {
                    let MeasuredSeries {
                        samples,
                        unanswered,
                        counted,
                        ..
                    } = self.samples(&load.source, &mut measured)?;
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
                    };
                    let classes = judge(&samples, &stolen, &ours);
                    let series = MeasuredSeries {
                        samples,
                        classes,
                        unanswered,
                        counted,
                    };
                    measured.series.insert(name.clone(), series);
                }
                Output::Probe(series) => {
                    if let Source::Own(outcomes) = &load.source {
                        Self::collect_probe(series, outcomes, &mut measured)?;
                    }
                }
                Output::Value(name, unit) => {
                    let value = self.value(&load.source, unit)?;
                    measured.values.insert(name.clone(), (unit, value));
                }
            }
        }
        if let Some(share) = self.foreign_share {
            measured.values.insert(FOREIGN_SHARE.into(), ("", share));
        }
        if self.variant.vcpu == VcpuMode::Periodic {
            self.check_shared_core(&mut measured)?;
        }
        Ok(measured)
    }

    fn samples(
        &self,
        source: &Source,
        measured: &mut Measured,
    ) -> Result<MeasuredSeries, LabError> {
        let (samples, unanswered) = match source {
            Source::Left(left) => return super::traffic::take(left, measured),
            Source::Own(outcomes) => {
                let (mut samples, mut unanswered) = (Vec::new(), 0);
                for path in outcomes {
                    let outcome = Outcome::read(path)?;
                    samples.extend(outcome.samples);
                    unanswered += outcome.unanswered;
                }
                (samples, unanswered)
            }
            Source::Ping(place, counted) => {
                let output = self.output(*place)?;
                let mut samples = tools::ping_samples(&output, clocks_apart());
                // The first ones are the warm-up's.
                let all = samples.len() as u64;
                samples.drain(..all.saturating_sub(*counted) as usize);
                let unanswered = counted.saturating_sub(samples.len() as u64);
                (samples, unanswered)
            }
            Source::Iperf3(_) => (Vec::new(), 0),
        };
        Ok(MeasuredSeries {
            samples,
            unanswered,
            ..MeasuredSeries::default()
        })
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
            Source::Iperf3(place) => {
                let output = self.output(*place)?;
                tools::iperf3_rate(&output).ok_or_else(|| LabError::Child {
                    who: "iperf3".into(),
                    what: "reports no rate".into(),
                    stderr: output,
                })
            }
            Source::Ping(..) | Source::Left(_) => Ok(0.0),
        }
    }

    fn output(&self, place: usize) -> Result<String, LabError> {
        let path = &self.supervisor.member(place).stdout;
        std::fs::read_to_string(path).map_err(LabError::file("reading", path))
    }

    /// How much of the reserved guests' work was done on the core they share.
    fn check_shared_core(&self, measured: &mut Measured) -> Result<(), LabError> {
        let shared_core = self.context.cpus.shared_core;
        let (mut there, mut all) = (0, 0);
        let periodic = self.context.experiment.shared_core.iter();
        for guest in periodic.flat_map(|shared| &shared.periodic.guests) {
            for path in self
                .servers
                .get(guest.get_ref().as_str())
                .into_iter()
                .flatten()
            {
                let served = Outcome::read(path)?.served;
                there += served.get(&shared_core).copied().unwrap_or(0);
                all += served.values().sum::<u64>();
            }
        }
        if all == 0 {
            return Ok(());
        }
        let share = there as f64 / all as f64;
        measured
            .values
            .insert("shared_core_share".into(), ("", share));
        let overruns = self.brought_back as f64;
        measured
            .values
            .insert("reservation_overruns".into(), ("", overruns));
        if share < SHARED_CORE_SHARE {
            measured.flaw = Some(format!(
                "the kernel ran the guest with the reservation elsewhere: only {:.1} % of its work was done on the shared core",
                share * 100.0
            ));
        }
        Ok(())
    }
}

/// How far the wall clock is ahead of the monotonic one.
fn clocks_apart() -> Nanos {
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(Nanos::ZERO, Nanos::from);
    wall.since(now())
}
