//! Traffic across a cut: all frames of some senders to some receivers. Each sender has a host and a
//! pacer of its own, and the rates to each receiver add up to at most its bandwidth.

use super::harness::{Host, LINK, Record, check_books, excess, frame};
use super::*;

/// B, S and Bmax of each sender.
const B: Rate = Rate::from_mbit(900);
const S: u64 = 4 * FRAME;
const FRAME: u64 = 1538;

/// Creates senders, each with the limit `rate` to each of `destinations`.
fn senders(count: u64, destinations: u64, rate: Rate) -> Vec<Host> {
    let guarantee = Guarantee {
        mark: None,
        ..Guarantee::new(B, Bytes(S), LINK)
    };
    let config = PacerConfig::strict(LINK);
    (0..count)
        .map(|_| {
            let mut host = Host::new(&config, &[guarantee]);
            for destination in 0..destinations {
                host.pacer
                    .set_destination(host.now, GuestId::first(0), destination.into(), Some(rate))
                    .expect("sound");
            }
            host
        })
        .collect()
}

/// Adds frames to a destination to the sender's ring.
fn send(host: &mut Host, destination: u64, count: u64, at: Nanos) {
    for id in 0..count {
        let frame = Record {
            destination: destination.into(),
            ..frame(id, 0, FRAME)
        };
        host.ring(0, at, frame);
    }
}

/// Departures of all senders to destinations below `receivers`, in order.
fn across(senders: &[Host], receivers: u64) -> Vec<(u64, u64)> {
    let mut departures = Vec::new();
    for host in senders {
        let mine = host.of(0).filter(|(_, f)| f.destination < receivers.into());
        departures.extend(mine.map(|(sent, _)| (sent.departure.expect("guaranteed"), sent.wire)));
    }
    departures.sort_unstable();
    departures
}

/// Three senders, two receivers, and eight other destinations that keep each sender's {B, S} busy
/// first: the frames to the receivers wait for their turn longer than their buckets need to fill.
#[test]
fn a_cut_of_senders_and_receivers_passes_a_burst_for_each_pair_and_no_frame_more() {
    let (m, n, others) = (3_u64, 2, 8);
    let mut senders = senders(m, n + others, Rate(B.0 / m));
    for host in &mut senders {
        let now = host.now;
        for _ in 0..40 {
            for destination in 0..n + others {
                send(host, destination, 1, now);
            }
        }
        for _ in 0..150 {
            for destination in 0..n {
                send(host, destination, 1, now);
            }
        }
        host.run_until(Nanos::from_millis(40));
        check_books(&host.pacer);
        assert_eq!(host.dropped(), 0);
    }
    let departures = across(&senders, n);
    assert!(departures.len() > 1000, "{}", departures.len());
    let (rate, burst) = (Rate(B.0 * n), m * n * S);
    let over = excess(LINK, rate, burst, departures.iter().copied());
    // Each bucket rounds a departure up to a byte.
    let rounding = i128::from(m * n * LINK.0);
    assert!(over < rounding, "{} B over", over / i128::from(LINK.0));
    // The curve is reached, up to a frame that is not yet due for each pair.
    let slack = i128::from(m * n) * i128::from(FRAME * LINK.0);
    assert!(over > -slack, "{} B below", -over / i128::from(LINK.0));
}
