//! The resulting rate, for several rates, buckets and sizes.

use super::harness::{Host, LINK, check_wire, conform, frame, packet};
use super::*;

/// Returns the traffic of a backlogged guest: bits per second from the first frame after its burst
/// (whose tokens came before) to the last one, the longest pause in that time, and the time of one
/// frame at the rate, in bytes of the wire.
fn backlogged(rate: Rate, burst: u64, len: usize, frames: u64) -> (f64, u64, u64) {
    let config = PacerConfig::strict(LINK);
    let guarantee = Guarantee::new(rate, Bytes(burst), LINK);
    let mut host = Host::new(&config, &[guarantee]);
    let start = host.now;
    let segments = packet(0, 0, len).segments() as u64;
    for id in 0..frames.div_ceil(segments) {
        host.ring(0, start, packet(id, 0, len));
    }
    host.run_until(Nanos::from_secs(1000));
    check_wire(&host.sent);
    let frames: Vec<_> = host.of(0).map(|(sent, _)| (sent.at, sent.wire)).collect();
    let departures: Vec<_> = host
        .of(0)
        .map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire))
        .collect();
    conform(&config, &guarantee, &departures);
    let start = frames[0].0 + burst_time(rate, burst + 2 * void::MAX_VOID.0);
    let steady: Vec<_> = frames.into_iter().filter(|(at, _)| *at > start).collect();
    let pause = steady
        .windows(2)
        .map(|w| w[1].0 - w[0].0)
        .max()
        .expect("two frames");
    let (first, last) = (steady[0].0, steady[steady.len() - 1].0);
    let bytes: u64 = steady[1..].iter().map(|(_, wire)| wire).sum();
    let got = bytes as f64 * LINK.0 as f64 / (last - first) as f64;
    let longest = steady.iter().map(|(_, wire)| wire).max().expect("some");
    (got, pause, longest * LINK.0 / rate.0)
}

/// Duration of a burst at the link's rate, in bytes of the wire: longer than its own length,
/// because tokens continue to arrive.
fn burst_time(rate: Rate, burst: u64) -> u64 {
    let rest = u128::from(LINK.0 - rate.0);
    let time = (u128::from(burst) * u128::from(LINK.0)).checked_div(rest);
    // At the link's own rate a burst is not visible.
    time.map_or(0, |time| time as u64)
}

/// Every rate, bucket and size, for a second or `most` frames.
fn table(most: u64) {
    for mbit in [10, 33, 100, 1000, 3333, 9000, 10_000] {
        for burst in [30_000, 100_000, 1_250_000] {
            for len in [100, 576, 1448, 1514, 9000, 65_226] {
                let rate = Rate::from_mbit(mbit);
                let wire = void::on_the_wire(len.min(1514)).0;
                let in_burst = burst_time(rate, burst + 2 * void::MAX_VOID.0) / wire;
                if in_burst > most {
                    continue;
                }
                let second = rate.bytes_in(Nanos::from_secs(1)).0 / wire;
                let frames = in_burst + second.min(most / 10).max(100);
                let (got, pause, packet) = backlogged(rate, burst, len, frames);
                let case = format!("{rate}, {burst} B, {len} B");
                // A short run ends within a frame.
                let frame = 1.0 / (frames - in_burst) as f64;
                let error = (got / rate.0 as f64 - 1.0).abs();
                assert!(error < frame.max(0.001), "{case}: {got} bit/s");
                assert!(pause <= 2 * packet, "{case}: a pause of {pause} B");
            }
        }
    }
}

#[test]
fn the_rate_is_the_configured_one_from_10_mbit_s_to_10_gbit_s() {
    table(6000);
}

/// `cargo test --release -p tailbound-dataplane --lib -- --ignored over_a_second`
#[test]
#[ignore = "minutes without optimisation"]
fn the_rate_is_the_configured_one_over_a_second() {
    table(200_000_000);
}

#[test]
fn a_host_that_is_late_by_less_than_half_a_batch_delays_nothing() {
    let config = PacerConfig::strict(LINK);
    let guarantee = Guarantee::new(Rate::from_mbit(1000), Bytes(1538), LINK);
    let run = |late| {
        let mut host = Host::new(&config, &[guarantee]);
        host.late = late;
        for id in 0..2000 {
            host.ring(0, Nanos::from_millis(1), packet(id, 0, 1000));
        }
        host.run_until(Nanos::from_secs(1));
        assert_eq!(host.pacer.stats().frozen, Nanos::ZERO);
        let departures: Vec<_> = host
            .of(0)
            .map(|(sent, _)| sent.at - host.sent[0].at)
            .collect();
        departures
    };
    assert_eq!(run(Nanos::ZERO), run(Nanos::from_micros(24)));
}

/// Silo's figure 9: 2 and 1 Gbit/s of 10 are every fifth and every tenth frame on the wire.
#[test]
fn of_forty_full_frames_twelve_are_data_and_the_rest_voids() {
    const FULL: u64 = 1538;
    let guarantee = |mbit| {
        let rate = Rate::from_mbit(mbit);
        Guarantee::new(rate, Bytes(FULL), rate)
    };
    let mut host = Host::new(
        &PacerConfig::strict(LINK),
        &[guarantee(2000), guarantee(1000)],
    );
    for id in 0..30 {
        host.ring(0, host.now, frame(id, 0, FULL));
        host.ring(1, host.now, frame(100 + id, 1, FULL));
    }
    host.run_until(host.now + Nanos::from_micros(150));
    check_wire(&host.sent);
    for forty in host.sent.chunks_exact(40).take(2) {
        assert!(forty.iter().all(|sent| sent.wire == FULL), "{forty:?}");
        let of = |guest| {
            let frames = forty.iter().filter_map(|sent| sent.frame);
            frames.filter(|frame| frame.guest == guest).count()
        };
        assert_eq!([of(0), of(1)], [8, 4]);
        let voids = forty.iter().filter(|sent| sent.frame.is_none());
        assert_eq!(voids.count(), 28);
    }
}
