//! Streams of RTP: at a constant rate, like the paper's, and a video with key frames.

use super::limiter::Limiter;
use super::rig::{PORT, RECEIVER, Rig};
use crate::LabError;
use crate::guest::{Stream, Work};
use crate::measurement::Measurement;
use tailbound_experiment::Trace;
use tailbound_units::{Bytes, Nanos, Rate};

/// The limit of the streams at a constant rate.
const LIMIT: Rate = Rate::from_mbit(2);
/// MPEG-TS in an RTP packet, as in the paper, and its Ethernet frame.
const PAYLOAD: Bytes = Bytes(1370);
const FRAME: Bytes = Bytes(1370 + 12 + 8 + 20 + 14);
/// Rates of the constant streams in percent of their limit.
const LOADS: [u64; 2] = [98, 100];
/// The limits of the video, in percent of its mean.
const MULTIPLES: [u64; 3] = [100, 150, 200];

const FIGURES: [&str; 13] = [
    "jitter_mean",
    "jitter_p99",
    "jitter_max",
    "sender_jitter_mean",
    "sender_jitter_p99",
    "delta_p99",
    "delta_max",
    "sender_delta_max",
    "stretched_max",
    "delay_p50",
    "delay_p99",
    "inside_3ms",
    "lost",
];

/// Returns the names of all measured figures.
pub(super) fn figures() -> Vec<String> {
    let constant = LOADS.map(|load| format!("rtp_{load}"));
    let video = MULTIPLES.map(|part| format!("video_{part}"));
    let streams = constant.into_iter().chain(video);
    let names = streams.flat_map(|stream| FIGURES.map(|name| format!("{stream}_{name}")));
    names.collect()
}

pub(super) fn measure(rig: &Rig<'_>, limiter: Limiter) -> Result<Measurement, LabError> {
    let mut measured = Measurement::default();
    let mut one = |name: String, limit, moments, length| {
        let sender = Work::RtpSender(Stream {
            to: RECEIVER,
            payload: PAYLOAD,
            moments,
            length,
            encoder: None,
        });
        let receiver = Work::RtpReceiver { port: PORT };
        let arrived = limiter.load(rig, limit, sender, receiver)?;
        for (figure, value) in arrived.figures {
            let unit = match figure.as_str() {
                "inside_3ms" => "%",
                "lost" => "",
                _ => "ms",
            };
            measured.value(format!("{name}_{figure}"), unit, value);
        }
        let lines = arrived.lines.into_iter();
        let lines = lines.map(|(line, points)| (format!("{name}_{line}"), points));
        measured.lines.extend(lines);
        Ok::<_, LabError>(())
    };
    for load in LOADS {
        let gap = Nanos(LIMIT.time_for(FRAME).0 * 100 / load);
        one(format!("rtp_{load}"), LIMIT, vec![Nanos::ZERO], gap)?;
    }
    let trace = &rig.options.trace;
    for part in MULTIPLES {
        let limit = Rate(mean(trace).0 * part / 100);
        let packets = trace.packets(PAYLOAD);
        one(format!("video_{part}"), limit, packets, trace.length())?;
    }
    Ok(measured)
}

/// Returns the mean rate of a video, as Ethernet frames.
fn mean(trace: &Trace) -> Rate {
    let packets = trace.packets(PAYLOAD).len() as u64;
    Rate((packets * FRAME.0 * 8 * 1_000_000_000).div_ceil(trace.length().as_nanos()))
}
