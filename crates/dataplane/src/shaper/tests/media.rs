//! A stream of RTP at a constant rate (RFC 3550): MPEG-TS in packets of 1,370 B, the paper's.

use super::harness::{Bench, GuestFrame, ReleasedFrame};
use crate::shaper::{CreditConfig, ShaperConfig, WindowConfig};
use tailbound_units::{Nanos, Rate};

const LIMIT: Rate = Rate::from_mbit(2);
/// RTP, UDP, IPv4 and Ethernet.
const FRAME: usize = 1370 + 12 + 8 + 20 + 14;

struct StreamQuality {
    /// Highest interarrival jitter (RFC 3550, 6.4.1), and highest gap between arrivals.
    jitter: f64,
    delta: f64,
    /// The part of the delays inside the window.
    inside: f64,
}

/// A stream at `percent` of the limit for a minute.
fn stream(config: &ShaperConfig, percent: u64) -> (StreamQuality, Nanos) {
    let gap = LIMIT.time_for(tailbound_units::Bytes(FRAME as u64));
    let gap = Nanos(gap.0 * 100 / percent);
    let frames = (0..60_000_000_000 / gap.0).map(|i| GuestFrame::data(Nanos(i * gap.0), FRAME));
    let mut bench = Bench::new(config);
    bench.run(frames, Nanos::from_secs(62));
    let beyond = bench.shaper.stats().beyond_window as f64;
    let mut measured = measure(&bench.left);
    measured.inside = 1.0 - beyond / bench.left.len() as f64;
    (measured, gap)
}

fn measure(left: &[ReleasedFrame]) -> StreamQuality {
    let (mut jitter, mut worst, mut delta) = (0.0, 0.0f64, 0.0f64);
    for pair in left.windows(2) {
        let arrivals = pair[1].at.since(pair[0].at).as_millis_f64();
        let sent = pair[1].sent.since(pair[0].sent).as_millis_f64();
        jitter += ((arrivals - sent).abs() - jitter) / 16.0;
        worst = worst.max(jitter);
        delta = delta.max(arrivals);
    }
    StreamQuality {
        jitter: worst,
        delta,
        inside: 1.0,
    }
}

fn credit(millis: u64) -> ShaperConfig {
    ShaperConfig::Credit(CreditConfig::new(LIMIT, Nanos::from_millis(millis)))
}

#[test]
fn a_stream_at_its_limit_has_little_jitter() {
    for percent in [98, 100] {
        let window = ShaperConfig::SmoothWindow(WindowConfig::new(LIMIT));
        let (smooth, gap) = stream(&window, percent);
        assert!(smooth.jitter <= 0.5, "{} ms", smooth.jitter);
        assert!(smooth.delta <= gap.as_millis_f64() + 3.0);
        assert!(smooth.inside >= 0.97, "{}", smooth.inside);
        for interval in [30, 5] {
            let (bucket, _) = stream(&credit(interval), percent);
            assert!(
                smooth.jitter <= bucket.jitter / 5.0,
                "{} ms, and {} ms with an interval of {interval} ms",
                smooth.jitter,
                bucket.jitter
            );
        }
    }
}

/// If an interval's credit is less than a packet, its excess is lost: the rate is not reached, a
/// ring fills, and its frames leave in steps of whole intervals.
#[test]
fn credit_below_a_packet_is_lost() {
    let mut bench = Bench::new(&credit(5));
    let gap = LIMIT.time_for(tailbound_units::Bytes(FRAME as u64)).0;
    let frames = (0..3000).map(|i| GuestFrame::data(Nanos(i * gap), FRAME));
    bench.run(frames, Nanos::from_secs(10));
    let seconds = bench.seconds();
    // One packet in two intervals.
    assert!(seconds[3].abs_diff(100 * FRAME as u64) <= FRAME as u64);
}
