//! Starts messages, floods and their measurements.

use super::crew::{Crew, Role};
use super::load::{Late, Load, Reading, samples};
use super::rings;
use crate::LabError;
use crate::arrivals::seed_for;
use crate::experiment::{Flood, Iperf, Message, Meter, Rtp, Transfer, Watch};
use crate::guest::{
    self, Encoder, Frames, Messages, Moments, Outcome, Stream, Transfers, Work, jitter_of,
};
use crate::measurement::{MeasuredSeries, Measurement};
use crate::percentile::percentile;
use crate::processes::{Rank, Start};
use crate::tools;
use crate::topology::{Guest, SWITCH, UPLINK, namespace_path, switch_port};
use crate::vm::GuestCommand;
use hdrhistogram::Histogram;
use std::net::SocketAddrV4;
use tailbound_report::Stats;
use tailbound_units::{Nanos, Rate};

pub(super) fn rtp<'a>(crew: &mut Crew<'a>, rtp: &'a Rtp) -> Result<Load<'a>, LabError> {
    let (from, to) = (crew.guest(&rtp.from)?, crew.guest(&rtp.to)?);
    let port = crew.port();
    let work = Work::RtpReceiver { port };
    let (child, outcome) = crew.start_task(to, "receiver", work, Role::Measures)?;
    let mut on_path = crew.daemons_of([&rtp.from, &rtp.to]);
    on_path.extend(crew.unless_tested(to, child));
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
    let (child, sent) = crew.start_task(from, "stream", sender, Role::Measures)?;
    on_path.extend(crew.unless_tested(from, child));
    crew.served.entry(&from.name).or_default().push(sent);
    let load = Load::new(vec![outcome], move |reading, outcomes, measured| {
        let series = reading.judged(samples(outcomes));
        add_jitter(&series, rtp.every, measured);
        measured.series.insert(rtp.series.clone(), series);
        Ok(())
    });
    Ok(load.through(on_path, None))
}

pub(super) fn iperf<'a>(crew: &mut Crew<'a>, iperf: &'a Iperf) -> Result<Load<'a>, LabError> {
    let (from, to) = (crew.guest(&iperf.from)?, crew.guest(&iperf.to)?);
    let port = crew.port();
    let server = GuestCommand::Program(tools::iperf3_server(port));
    crew.start(to, "iperf3 server", server, Role::Foreign { ends: true })?;
    let experiment = crew.experiment();
    let (warmup, duration) = (experiment.warmup, experiment.duration);
    let late = Late {
        guest: from,
        words: tools::iperf3_client(to, port, iperf, warmup, duration),
        child: None,
    };
    let load = Load::new(Vec::new(), move |reading, _, measured| {
        let jitter = tools::iperf3_jitter(&reading.output);
        let jitter = jitter.ok_or_else(|| LabError::Child {
            who: "iperf3".into(),
            what: "does not report what it is asked for".into(),
            stderr: reading.output.clone(),
        })?;
        measured.value(&iperf.value, "ms", jitter);
        Ok(())
    });
    Ok(Load {
        late: Some(late),
        ..load
    })
}

pub(super) fn message<'a>(crew: &mut Crew<'a>, message: &'a Message) -> Result<Load<'a>, LabError> {
    let (mut sinks, mut received) = (Vec::new(), Vec::new());
    let mut on_path = crew.daemons_of(message.from.iter().chain(&message.to));
    for name in &message.to {
        let (guest, port) = (crew.guest(name)?, crew.port());
        let work = Work::MessageSink { port };
        let (child, outcome) = crew.start_task(guest, "message sink", work, Role::Measures)?;
        on_path.push(child);
        received.push(outcome);
        sinks.push(SocketAddrV4::new(guest.ip, port));
    }
    let mut outcomes = Vec::new();
    for (index, (name, to)) in message.from.iter().zip(sinks.iter().cycle()).enumerate() {
        let seed = crew.context.seed.wrapping_add(index as u64);
        let work = Work::Messages(Messages {
            to: *to,
            size: message.size,
            moments: match message.every {
                Some(time) => Moments::Every(time),
                None => Moments::Random {
                    mean_gap: message.mean_gap.unwrap_or(Nanos::MAX),
                    seed: seed_for(seed, message.name.get_ref()),
                },
            },
        });
        let guest = crew.guest(name)?;
        let (child, outcome) = crew.start_task(guest, "messages", work, Role::Measures)?;
        on_path.push(child);
        outcomes.push(outcome);
    }
    let senders = outcomes.len();
    outcomes.extend(received);
    let load = Load::new(outcomes, move |reading, mut outcomes, measured| {
        let received = outcomes.split_off(senders);
        let sent: u64 = outcomes.iter().map(|it| it.amount).sum();
        let mut series = samples(received);
        // Incomplete messages count as lost.
        series.unanswered = sent.saturating_sub(series.samples.len() as u64);
        measured.value("messages_lost", "", series.unanswered as f64);
        let series = reading.judged(series);
        for (name, other) in rings::series(reading, message, &series)? {
            measured.series.insert(name, reading.judged(other));
        }
        measured.series.insert(message.series.clone(), series);
        Ok(())
    });
    Ok(load.through(on_path, None))
}

pub(super) fn transfer<'a>(
    crew: &mut Crew<'a>,
    transfer: &'a Transfer,
) -> Result<Load<'a>, LabError> {
    let (from, to) = (crew.guest(&transfer.from)?, crew.guest(&transfer.to)?);
    let port = crew.port();
    let sink = Work::TransferSink {
        port,
        size: transfer.size,
        closes: transfer.closes,
    };
    let first = crew.supervisor.len();
    let (child, received) = crew.start_task(to, "transfer sink", sink, Role::Measures)?;
    let mut on_path = crew.daemons_of([&transfer.from, &transfer.to]);
    on_path.extend(crew.unless_tested(to, child));
    // The sender opens a connection before it is ready.
    crew.supervisor.wait_ready(first)?;
    let work = Work::Transfers(Transfers {
        to: SocketAddrV4::new(to.ip, port),
        size: transfer.size,
        mean_gap: transfer.mean_gap,
        seed: seed_for(crew.context.seed, transfer.name.get_ref()),
        congestion: transfer.congestion.clone(),
        initial_window: transfer.initial_window,
        closes: transfer.closes,
        offload: transfer.offload,
    });
    let (child, sent) = crew.start_task(from, "transfers", work, Role::Measures)?;
    on_path.extend(crew.unless_tested(from, child));
    let load = Load::new(
        vec![sent, received],
        move |reading, mut outcomes, measured| {
            let mut received = outcomes.split_off(1);
            let pauses = received
                .iter_mut()
                .flat_map(|it| std::mem::take(&mut it.pauses));
            let pauses = MeasuredSeries {
                samples: pauses.collect(),
                ..MeasuredSeries::default()
            };
            let mut add = |name: &String, series| {
                let series = reading.judged(series);
                measured.series.insert(name.clone(), series);
            };
            if let Some(name) = &transfer.pause {
                add(name, pauses);
            }
            add(&transfer.series, samples(outcomes));
            add(&transfer.received, samples(received));
            Ok(())
        },
    );
    Ok(load.through(on_path, None))
}

pub(super) fn flood<'a>(crew: &mut Crew<'a>, flood: &'a Flood) -> Result<Load<'a>, LabError> {
    let end = |guest: &Guest| guest::End {
        mac: guest.mac,
        ip: guest.ip,
    };
    let (from, to) = (crew.guest(&flood.from)?, crew.guest(&flood.to)?);
    let work = Work::Frames(Frames {
        from: end(from),
        to: end(to),
        // The experiment's checks allow no more.
        packet: u16::try_from(flood.packet.as_u64()).unwrap_or(u16::MAX),
        manner: flood.manner,
    });
    let (_, outcome) = crew.start_task(from, "flood", work, Role::Floods)?;
    let outcomes = vec![outcome];
    Ok(Load::sum(&flood.value, "frames/s", outcomes, Outcome::rate))
}

pub(super) fn meter<'a>(crew: &mut Crew<'a>, meter: &'a Meter) -> Result<Load<'a>, LabError> {
    let (from, to) = (crew.guest(&meter.from)?, crew.guest(&meter.to)?);
    let work = Work::Meter { from: from.ip };
    let (_, outcome) = crew.start_task(to, "meter", work, Role::Watches)?;
    let load = Load::new(vec![outcome], move |reading, outcomes, measured| {
        for outcome in &outcomes {
            let series = reading.judged(metered(outcome, meter.rate, measured, reading)?);
            measured.series.insert(meter.series.clone(), series);
        }
        Ok(())
    });
    Ok(load.through(crew.daemons_of([&meter.from, &meter.to]), None))
}

pub(super) fn watch<'a>(crew: &mut Crew<'a>, watch: &'a Watch) -> Result<Load<'a>, LabError> {
    let host = watch.host.get_ref();
    let hosts = crew.context.topology.hosts.iter();
    let others = hosts.filter(|other| *other != host);
    let work = Work::Watch(guest::Watch {
        enter: others.map(|other| switch_port(other)).collect(),
        port: switch_port(host),
        behind: (UPLINK.to_owned(), namespace_path(host)),
    });
    let (path, outcome) = crew.write_task(work)?;
    let session = crew.context.session;
    let name = format!("the watch on the switch's port to {host}");
    crew.supervisor.start(Start {
        cpus: session.cpus.shared(),
        policy: session.policy(Rank::Monitor),
        ends: true,
        ..session.task(name, SWITCH, &path)
    })?;
    Ok(Load::new(
        vec![outcome],
        move |reading, outcomes, measured| {
            for (name, figure) in outcomes.iter().flat_map(|it| &it.figures) {
                let unit = if name == "backlog_peak" { "B" } else { "" };
                measured.value(name, unit, *figure);
            }
            let series = reading.judged(samples(outcomes));
            measured.series.insert(watch.series.clone(), series);
            Ok(())
        },
    ))
}

/// Adds the jitter of a stream from its gaps: without disturbed ones, and of all.
fn add_jitter(series: &MeasuredSeries, apart: Nanos, measured: &mut Measurement) {
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
        measured.value(*name, "ms", figure);
    }
}

/// Time without CPU for the hosts' daemons, from which a second is not judged: it is half a percent
/// of a second, which is the tolerance of a rate.
const WITHOUT_CPU: Nanos = Nanos::from_millis(5);

/// The value of a rate's deviation.
const RATE_ERROR: &str = "rate_error";

/// Adds a meter's largest deviations from `wanted`, among the seconds in which the daemons had their
/// CPU, and among all; returns the pauses between arrivals. Without such a second all are judged,
/// and the true error can only be smaller. The daemons lose CPU time to this computer's other load
/// and to its kernel, which keeps real-time threads from filling a core.
fn metered(
    outcome: &Outcome,
    wanted: Rate,
    measured: &mut Measurement,
    reading: &Reading<'_>,
) -> Result<MeasuredSeries, LabError> {
    const SECOND: Nanos = Nanos::from_secs(1);
    let lost = [reading.stolen, reading.ours];
    let wanted = wanted.as_bit_s() as f64;
    let rates = outcome
        .windows
        .bytes
        .iter()
        .map(|bytes| *bytes as f64 * 8.0);
    let mean = rates.clone().sum::<f64>() / outcome.windows.bytes.len() as f64;
    let errors: Vec<f64> = rates.map(|rate| (rate / wanted - 1.0).abs()).collect();
    let starts = (0..).map(|second| outcome.windows.from + Nanos(second * SECOND.0));
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
        counted: outcome.gaps.as_ref().map(read_histogram).transpose()?,
        // Frames that the meter itself missed.
        unanswered: outcome.unanswered,
        ..MeasuredSeries::default()
    })
}

/// Decodes the histogram of an outcome.
pub(super) fn read_histogram(stats: &Stats) -> Result<Histogram<u64>, LabError> {
    let histogram = stats.histogram().map_err(std::io::Error::other);
    histogram.map_err(LabError::io("reading the histogram of an outcome"))
}
