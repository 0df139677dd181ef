//! Starts messages, floods and their measurements, and reads their outcomes.

use super::{Late, Measurement, MeasuredSeries, Output, Rings, Role, Run, Source};
use crate::LabError;
use crate::arrivals::seed_for;
use crate::experiment::{Flood, Iperf, Message, Meter, Rtp, Transfer, Watch};
use crate::guest::{
    self, Encoder, Frames, Messages, Moments, Outcome, Stream, Transfers, Work, jitter_of,
};
use crate::noise::Losses;
use crate::percentile::percentile;
use crate::processes::{Rank, Ready, Start};
use crate::tools;
use crate::topology::{Guest, SWITCH, UPLINK, namespace_path, switch_port};
use crate::vm::Asked;
use hdrhistogram::Histogram;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use tailbound_report::Stats;
use tailbound_units::{Nanos, Rate};

impl<'a> Run<'a> {
    /// Starts the measuring tasks, then the measured ones.
    pub(super) fn start_traffic(&mut self) -> Result<(), LabError> {
        let (experiment, variant) = (self.context.experiment, self.variant);
        for watch in variant.running(&experiment.watch) {
            self.start_watch(watch)?;
        }
        for meter in variant.running(&experiment.meter) {
            self.start_meter(meter)?;
        }
        for message in variant.running(&experiment.message) {
            self.start_message(message)?;
        }
        for transfer in variant.running(&experiment.transfer) {
            self.start_transfer(transfer)?;
        }
        for rtp in variant.running(&experiment.rtp) {
            self.start_rtp(rtp)?;
        }
        for iperf in variant.running(&experiment.iperf) {
            self.start_iperf(iperf)?;
        }
        for flood in variant.running(&experiment.flood) {
            self.start_flood(flood)?;
        }
        Ok(())
    }

    fn start_rtp(&mut self, rtp: &'a Rtp) -> Result<(), LabError> {
        let (from, to) = (self.guest(&rtp.from)?, self.guest(&rtp.to)?);
        let port = self.port();
        let work = Work::RtpReceiver { port };
        let (place, outcome) = self.start_task(to, "receiver", work, Role::Measures)?;
        let mut on_path = self.daemons_of([&rtp.from, &rtp.to].into_iter());
        on_path.extend(self.unless_tested(to, place));
        let sender = Work::RtpSender(Stream {
            to: SocketAddrV4::new(to.ip, port),
            payload: rtp.payload,
            moments: vec![Nanos::ZERO],
            length: rtp.every,
            encoder: Some(Encoder {
                compute: rtp.compute,
                pieces: rtp.pieces,
                reactivated: rtp.reactivated,
            }),
        });
        let (place, sent) = self.start_task(from, "stream", sender, Role::Measures)?;
        on_path.extend(self.unless_tested(from, place));
        self.servers.entry(&from.name).or_default().push(sent);
        let series = Output::Series(rtp.series.clone());
        self.load(series, Source::Rtp(outcome, rtp.every), on_path);
        Ok(())
    }

    fn start_iperf(&mut self, iperf: &'a Iperf) -> Result<(), LabError> {
        let (from, to) = (self.guest(&iperf.from)?, self.guest(&iperf.to)?);
        let port = self.port();
        let server = Asked::Program(tools::iperf3_datagram_server(port));
        let role = Role::Foreign { ends: true };
        self.start(to, "iperf3 server", server, role)?;
        let (warmup, duration) = (
            self.context.experiment.warmup,
            self.context.experiment.duration,
        );
        self.late.push(Late {
            load: self.loads.len(),
            guest: from,
            program: "iperf3",
            args: tools::iperf3_datagrams(to, port, iperf, warmup, duration),
        });
        let jitter = Output::Value(iperf.value.clone(), "ms");
        self.load(jitter, Source::Iperf3(usize::MAX), Vec::new());
        Ok(())
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
        let series = Output::Series(message.series.clone());
        let ends = message.from.iter().chain(&message.to);
        let rings = Rings {
            ring: message.ring.clone(),
            vcpu_wait: message.vcpu_wait.clone(),
            ends: ends.map(|name| name.get_ref().clone()).collect(),
        };
        let source = Source::Messages {
            sent,
            received,
            rings,
        };
        self.load(series, source, on_path);
        Ok(())
    }

    fn start_transfer(&mut self, transfer: &'a Transfer) -> Result<(), LabError> {
        let (from, to) = (self.guest(&transfer.from)?, self.guest(&transfer.to)?);
        let port = self.port();
        let sink = Work::TransferSink {
            port,
            size: transfer.size,
            closes: transfer.closes,
        };
        let first = self.supervisor.len();
        let (place, received) = self.start_task(to, "transfer sink", sink, Role::Measures)?;
        let mut on_path = self.daemons_of([&transfer.from, &transfer.to].into_iter());
        on_path.extend(self.unless_tested(to, place));
        // The sender opens a connection before it is ready.
        self.supervisor.wait_ready(first)?;
        let work = Work::Transfers(Transfers {
            to: SocketAddrV4::new(to.ip, port),
            size: transfer.size,
            mean_gap: transfer.mean_gap,
            seed: seed_for(self.context.seed, transfer.name.get_ref()),
            congestion: transfer.congestion.clone(),
            initial_window: transfer.initial_window,
            closes: transfer.closes,
            offload: transfer.offload,
        });
        let (place, sent) = self.start_task(from, "transfers", work, Role::Measures)?;
        on_path.extend(self.unless_tested(from, place));
        if let Some(series) = &transfer.pause {
            let source = Source::Pauses(received.clone());
            self.load(Output::Series(series.clone()), source, on_path.clone());
        }
        for (series, outcome) in [(&transfer.series, sent), (&transfer.received, received)] {
            let source = Source::Own(vec![outcome]);
            self.load(Output::Series(series.clone()), source, on_path.clone());
        }
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
        let frames = Output::Value(flood.value.clone(), "frames/s");
        self.load(frames, Source::Own(vec![outcome]), Vec::new());
        Ok(())
    }

    fn start_meter(&mut self, meter: &'a Meter) -> Result<(), LabError> {
        let (from, to) = (self.guest(&meter.from)?, self.guest(&meter.to)?);
        let work = Work::Meter { from: from.ip };
        let (_, outcome) = self.start_task(to, "meter", work, Role::Watches)?;
        let series = Output::Series(meter.series.clone());
        let daemons = self.daemons_of([&meter.from, &meter.to].into_iter());
        self.load(series, Source::Metered(outcome, meter.rate), daemons);
        Ok(())
    }

    fn start_watch(&mut self, watch: &'a Watch) -> Result<(), LabError> {
        let host = watch.host.get_ref();
        let hosts = self.context.topology.hosts.iter();
        let others = hosts.filter(|other| *other != host);
        let work = Work::Watch(guest::Watch {
            enter: others.map(|other| switch_port(other)).collect(),
            port: switch_port(host),
            behind: (UPLINK.to_owned(), namespace_path(host)),
        });
        let (path, outcome) = self.write_task(work)?;
        self.supervisor.start(Start {
            name: format!("the watch on the switch's port to {host}"),
            program: self.context.session.program.clone(),
            args: guest::command(&path),
            netns: SWITCH,
            cpus: self.context.session.cpus.shared(),
            policy: self.context.session.policy(Rank::Monitor),
            ready: Ready::Stdout(guest::READY),
            ends: true,
        })?;
        let series = Output::Series(watch.series.clone());
        self.load(series, Source::Watched(outcome), Vec::new());
        Ok(())
    }
}

/// Reads the outcomes of both ends of messages; incomplete messages count as lost.
pub(super) fn take_messages(
    sent: &[PathBuf],
    received: &[PathBuf],
    measured: &mut Measurement,
) -> Result<MeasuredSeries, LabError> {
    let mut series = MeasuredSeries::default();
    let mut all = 0;
    for path in sent {
        all += Outcome::read(path)?.amount;
    }
    for path in received {
        series.samples.extend(Outcome::read(path)?.samples);
    }
    series.unanswered = all.saturating_sub(series.samples.len() as u64);
    measured.value("messages_lost", "", series.unanswered as f64);
    Ok(series)
}

/// Adds the jitter of a stream from its gaps: without disturbed ones, and of all.
pub(super) fn add_jitter(series: &MeasuredSeries, apart: Nanos, measured: &mut Measurement) {
    let is_whole = |place: usize| !series.classes[place].is_hit();
    let whole = jitter_of(&series.samples, apart, is_whole);
    let all = jitter_of(&series.samples, apart, |_| true);
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let figures = [
        mean(&whole),
        percentile(&whole, 99.0),
        percentile(&whole, 100.0),
        mean(&all),
    ];
    for (name, figure) in Rtp::VALUES.iter().zip(figures) {
        measured.value(name, "ms", figure);
    }
}

/// Time without CPU for the hosts' daemons, from which a second is not judged: it is half a percent
/// of a second, which is the tolerance of a rate.
const WITHOUT_CPU: Nanos = Nanos::from_millis(5);

/// The value of a rate's deviation.
const RATE_ERROR: &str = "rate_error";

/// Reads a meter's outcome and adds its largest deviations from `wanted`, among the seconds in
/// which the daemons had their CPU, and among all. Without such a second all are judged, and the
/// true error can only be smaller. `lost` is the CPU time that the daemons lost to this computer's
/// other load and to its kernel, which keeps real-time threads from filling a core.
pub(super) fn take_metered(
    path: &Path,
    wanted: Rate,
    measured: &mut Measurement,
    lost: [&Losses<'_>; 2],
) -> Result<MeasuredSeries, LabError> {
    const SECOND: Nanos = Nanos::from_secs(1);
    let outcome = Outcome::read(path)?;
    let wanted = wanted.as_bit_s() as f64;
    let rates = outcome.windows.iter().map(|bytes| *bytes as f64 * 8.0);
    let mean = rates.clone().sum::<f64>() / outcome.windows.len() as f64;
    let errors: Vec<f64> = rates.map(|rate| (rate / wanted - 1.0).abs()).collect();
    let starts = (0..).map(|second| outcome.windows_from + Nanos(second * SECOND.0));
    let had_cpu = starts.map(|from| {
        // Bytes missing at the end of the previous second arrive in this one.
        let from = from.saturating_sub(WITHOUT_CPU);
        let to = from + WITHOUT_CPU + SECOND;
        lost.iter().all(|lost| lost.between(from, to) < WITHOUT_CPU)
    });
    let kept: Vec<f64> = errors
        .iter()
        .zip(had_cpu)
        .filter_map(|(error, kept)| kept.then_some(*error))
        .collect();
    let worst = |errors: &[f64]| errors.iter().copied().reduce(f64::max).unwrap_or(f64::NAN);
    measured.value("rate_bit_s", "bit/s", mean);
    let judged = if kept.is_empty() { &errors } else { &kept };
    measured.value(RATE_ERROR, "%", worst(judged) * 100.0);
    measured.value("rate_error_of_all", "%", worst(&errors) * 100.0);
    let apart = errors.len() - kept.len();
    if kept.is_empty() {
        let why = format!("the hosts' daemons were without a CPU for {WITHOUT_CPU} in each second");
        measured.spoiled = Some((RATE_ERROR, why));
    }
    measured.value("seconds_without_cpu", "", apart as f64);
    Ok(MeasuredSeries {
        counted: outcome
            .gaps
            .map(|gaps| read_histogram(&gaps, path))
            .transpose()?,
        // Frames that the meter itself missed.
        unanswered: outcome.unanswered,
        ..MeasuredSeries::default()
    })
}

/// Reads a watch's outcome.
pub(super) fn take_watched(
    path: &Path,
    measured: &mut Measurement,
) -> Result<MeasuredSeries, LabError> {
    let outcome = Outcome::read(path)?;
    for (name, figure) in outcome.figures {
        let unit = if name == "backlog_peak" { "B" } else { "" };
        measured.value(&name, unit, figure);
    }
    Ok(MeasuredSeries {
        samples: outcome.samples,
        ..MeasuredSeries::default()
    })
}

/// Decodes the histogram in an outcome.
pub(super) fn read_histogram(stats: &Stats, path: &Path) -> Result<Histogram<u64>, LabError> {
    let histogram = stats.histogram().map_err(std::io::Error::other);
    histogram.map_err(LabError::file("reading the histogram in", path))
}
