//! Messages, floods, and who measures them: starts them, and reads what they left.

use super::{Load, Measured, MeasuredSeries, Output, Role, Run, Source};
use crate::LabError;
use crate::arrivals::seed_for;
use crate::experiment::{Flood, Message, Meter, Watch};
use crate::guest::{self, Frames, Messages, Moments, Outcome, Work};
use crate::processes::{Rank, Ready, Start};
use crate::topology::{Guest, SWITCH, UPLINK, namespace_path, switch_port};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use tailbound_units::{Nanos, Rate};

/// What these loads leave beside a series.
pub(super) enum Left {
    /// Messages: what the senders and what the receivers say.
    Messages {
        sent: Vec<PathBuf>,
        received: Vec<PathBuf>,
    },
    /// A meter's outcome and what it should have found.
    Metered(PathBuf, Rate),
    /// A watch's outcome.
    Watched(PathBuf),
}

impl Left {
    /// The files.
    pub(super) fn outcomes(&self) -> Vec<&PathBuf> {
        match self {
            Self::Messages { sent, received } => sent.iter().chain(received).collect(),
            Self::Metered(outcome, _) | Self::Watched(outcome) => vec![outcome],
        }
    }
}

impl<'a> Run<'a> {
    /// Starts those that measure, then those that they measure.
    pub(super) fn start_traffic(&mut self) -> Result<(), LabError> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        for watch in experiment
            .watch
            .iter()
            .filter(|load| variant.runs(&load.name))
        {
            self.start_watch(watch)?;
        }
        for meter in experiment
            .meter
            .iter()
            .filter(|load| variant.runs(&load.name))
        {
            self.start_meter(meter)?;
        }
        for message in experiment
            .message
            .iter()
            .filter(|load| variant.runs(&load.name))
        {
            self.start_message(message)?;
        }
        for flood in experiment
            .flood
            .iter()
            .filter(|load| variant.runs(&load.name))
        {
            self.start_flood(flood)?;
        }
        Ok(())
    }

    fn left(&mut self, series: &str, left: Left, on_path: Vec<usize>) {
        self.loads.push(Load {
            output: Output::Left(series.to_owned()),
            source: Source::Left(left),
            on_path,
        });
    }

    fn start_message(&mut self, message: &'a Message) -> Result<(), LabError> {
        let mut sinks = Vec::new();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let mut on_path = self.daemons_of(message.from.iter().chain(&message.to));
        for name in &message.to {
            let guest = self.guest(name)?;
            let port = self.port();
            let work = Work::MessageSink { port };
            let (place, outcome) = self.start_task(guest, "message sink", work, Role::Measures)?;
            on_path.push(place);
            received.push(outcome);
            sinks.push(SocketAddrV4::new(guest.ip, port));
        }
        for (place, (name, to)) in message.from.iter().zip(sinks.iter().cycle()).enumerate() {
            let guest = self.guest(name)?;
            let moments = match (message.every, message.mean_gap) {
                (Some(time), _) => Moments::Every(time),
                (None, mean_gap) => Moments::Random {
                    mean_gap: mean_gap.unwrap_or(Nanos::MAX),
                    seed: seed_for(
                        self.context.seed.wrapping_add(place as u64),
                        message.name.get_ref(),
                    ),
                },
            };
            let work = Work::Messages(Messages {
                to: *to,
                size: message.size,
                moments,
            });
            let (place, outcome) = self.start_task(guest, "messages", work, Role::Measures)?;
            on_path.push(place);
            sent.push(outcome);
        }
        self.left(&message.series, Left::Messages { sent, received }, on_path);
        Ok(())
    }

    fn start_flood(&mut self, flood: &'a Flood) -> Result<(), LabError> {
        let end = |guest: &Guest| guest::End {
            mac: guest.mac,
            ip: guest.ip,
        };
        let (from, to) = (self.guest(&flood.from)?, self.guest(&flood.to)?);
        let work = Work::Frames(Frames {
            from: end(from),
            to: end(to),
            // The experiment's checks allow no more.
            packet: u16::try_from(flood.packet.as_u64()).unwrap_or(u16::MAX),
            manner: flood.manner,
        });
        let (_, outcome) = self.start_task(from, "flood", work, Role::Floods)?;
        self.loads.push(Load {
            output: Output::Value(flood.value.clone(), "frames/s"),
            source: Source::Own(vec![outcome]),
            on_path: Vec::new(),
        });
        Ok(())
    }

    fn start_meter(&mut self, meter: &'a Meter) -> Result<(), LabError> {
        let (from, to) = (self.guest(&meter.from)?, self.guest(&meter.to)?);
        let work = Work::Meter { from: from.ip };
        let (_, outcome) = self.start_task(to, "meter", work, Role::Watches)?;
        self.left(
            &meter.series,
            Left::Metered(outcome, meter.rate),
            Vec::new(),
        );
        Ok(())
    }

    fn start_watch(&mut self, watch: &'a Watch) -> Result<(), LabError> {
        let host = watch.host.get_ref();
        let others = self
            .context
            .topology
            .hosts
            .iter()
            .filter(|other| *other != host);
        let work = Work::Watch(guest::Watch {
            enter: others.map(|other| switch_port(other)).collect(),
            port: switch_port(host),
            behind: (UPLINK.to_owned(), namespace_path(host)),
        });
        let (path, outcome) = self.write_task(work, None)?;
        let args = vec!["lab".into(), "guest".into(), path.display().to_string()];
        let program = self.context.program.clone();
        self.supervisor.start(Start {
            name: format!("the watch on the switch's port to {host}"),
            program,
            args,
            netns: &namespace_path(SWITCH),
            cpus: self.context.cpus.shared(),
            policy: self.context.policy(Rank::Monitor),
            ready: Ready::Stdout(guest::READY),
            ends: true,
        })?;
        self.left(&watch.series, Left::Watched(outcome), Vec::new());
        Ok(())
    }
}

/// Reads what one of these loads left.
pub(super) fn take(left: &Left, measured: &mut Measured) -> Result<MeasuredSeries, LabError> {
    let mut series = MeasuredSeries::default();
    match left {
        Left::Messages { sent, received } => {
            let mut lost = 0;
            for path in sent {
                lost += Outcome::read(path)?.amount;
            }
            for path in received {
                series.samples.extend(Outcome::read(path)?.samples);
            }
            series.unanswered = lost.saturating_sub(series.samples.len() as u64);
            let lost = series.unanswered as f64;
            measured.values.insert("messages_lost".into(), ("", lost));
        }
        Left::Metered(path, rate) => {
            let outcome = Outcome::read(path)?;
            let wanted = rate.as_bit_s() as f64;
            let rates: Vec<f64> = outcome
                .windows
                .iter()
                .map(|bytes| *bytes as f64 * 8.0)
                .collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let errors = rates.iter().map(|rate| (rate / wanted - 1.0).abs());
            let worst = errors.fold(0.0, f64::max) * 100.0;
            measured.values.insert("rate_bit_s".into(), ("bit/s", mean));
            measured.values.insert("rate_error".into(), ("%", worst));
            if let Some(gaps) = outcome.gaps {
                let gaps = gaps.histogram().map_err(std::io::Error::other);
                let gaps = gaps.map_err(LabError::file("reading the histogram in", path))?;
                series.counted = Some(gaps);
            }
            // Frames that the meter itself missed.
            series.unanswered = outcome.unanswered;
        }
        Left::Watched(path) => {
            let outcome = Outcome::read(path)?;
            series.samples = outcome.samples;
            for (name, figure) in outcome.figures {
                let unit = if name == "backlog_peak" { "B" } else { "" };
                measured.values.insert(name, (unit, figure));
            }
        }
    }
    Ok(series)
}
