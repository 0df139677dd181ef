//! Endless TCP and UDP, as in figure 21.

use super::limiter::{FULL, Limiter};
use super::rig::{PORT, RECEIVER, Rig};
use crate::LabError;
use crate::guest::{Flood, Work};
use crate::measurement::Measurement;
use tailbound_units::{Bytes, Rate};

/// The limits in Mbit/s, the paper's.
const LIMITS: [u64; 4] = [4, 8, 16, 32];
/// Datagrams of full frames, and the TCP payload of a full frame.
const DATAGRAM: Bytes = Bytes(1472);
const SEGMENT: Bytes = Bytes(1448);
/// The paper's samples, in seconds.
const SAMPLE: usize = 2;

/// Figures in percent of the limit: the mean, the maximum of a second, the minima of two and of ten
/// seconds, and the largest deviation of ten seconds from the limit.
const FIGURES: [&str; 5] = [
    "mean",
    "most_in_a_second",
    "least_in_a_sample",
    "least_in_10s",
    "off_in_10s",
];

/// Returns the names of all measured figures.
pub(super) fn figures() -> Vec<String> {
    let loads = LIMITS
        .iter()
        .flat_map(|mbit| ["tcp", "udp"].map(|kind| format!("{kind}_{mbit}")));
    let names = loads.flat_map(|load| FIGURES.map(|figure| format!("{load}_{figure}")));
    names.collect()
}

pub(super) fn measure(rig: &Rig<'_>, limiter: Limiter) -> Result<Measurement, LabError> {
    let mut measured = Measurement::default();
    for mbit in LIMITS {
        let limit = Rate::from_mbit(mbit);
        let sender = Work::BulkSender { to: RECEIVER };
        let tcp = limiter.load(rig, limit, sender, Work::BulkReceiver { port: PORT })?;
        let load = format!("tcp_{mbit}");
        add(&mut measured, &load, limit, &tcp.windows.bytes, SEGMENT);
        let sender = Work::Flood(Flood {
            to: RECEIVER,
            payload: DATAGRAM,
            // Twice the limit.
            offered: Some((2 * limit.0 / 8 / FULL.0) as u32),
            segment: None,
        });
        let udp = limiter.load(rig, limit, sender, Work::Sink { port: PORT })?;
        let load = format!("udp_{mbit}");
        add(&mut measured, &load, limit, &udp.windows.bytes, DATAGRAM);
    }
    Ok(measured)
}

/// Adds the figures of the bytes received in each second, as full frames with `payload` bytes of
/// payload.
fn add(measured: &mut Measurement, load: &str, limit: Rate, seconds: &[u64], payload: Bytes) {
    let full = limit.0 as f64 / 8.0 * payload.0 as f64 / FULL.0 as f64;
    let parts: Vec<f64> = seconds
        .iter()
        .map(|bytes| 100.0 * *bytes as f64 / full)
        .collect();
    for (name, figure) in FIGURES.iter().zip(rates(&parts)) {
        measured.value(format!("{load}_{name}"), "%", figure);
    }
    let samples = parts.chunks_exact(SAMPLE).map(mean).enumerate();
    let points = samples.map(|(i, part)| (((i * SAMPLE) as f64 + 1.0), part));
    measured.lines.insert(load.to_owned(), points.collect());
}

fn mean(parts: &[f64]) -> f64 {
    parts.iter().sum::<f64>() / parts.len() as f64
}

/// Returns the figures of the rates of each second, in percent.
fn rates(parts: &[f64]) -> [f64; 5] {
    let tens: Vec<_> = parts.windows(parts.len().clamp(1, 10)).map(mean).collect();
    let least = |parts: &[f64]| parts.iter().copied().fold(f64::NAN, f64::min);
    let samples: Vec<_> = parts.chunks_exact(SAMPLE).map(mean).collect();
    let off = tens.iter().map(|part| (part - 100.0).abs());
    [
        mean(parts),
        parts.iter().copied().fold(f64::NAN, f64::max),
        least(&samples),
        least(&tens),
        off.fold(f64::NAN, f64::max),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parts_of_the_limit() {
        let mut parts = [100.0; 20];
        (parts[4], parts[5]) = (80.0, 110.0);
        let expected = [99.5, 110.0, 95.0, 99.0, 1.0];
        for (rate, expected) in rates(&parts).into_iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-9, "{rate} {expected}");
        }
        let mut measured = Measurement::default();
        let seconds = [500_000 / 1514 * 1472; 4];
        add(
            &mut measured,
            "udp_4",
            Rate::from_mbit(4),
            &seconds,
            DATAGRAM,
        );
        let mean = measured.values["udp_4_mean"].1;
        assert!((mean - 100.0).abs() < 0.1, "{mean}");
        assert_eq!(measured.lines["udp_4"].len(), 2);
    }
}
