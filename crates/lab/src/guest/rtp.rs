//! A stream of MPEG-TS in RTP (RFC 3550, RFC 2250): its sender, and its receiver, which measures
//! the jitter.
//!
//! The payload begins with the time when the sender passed the packet to the kernel, so that the
//! receiver knows the sender's own jitter: a program does not wake at the exact microsecond.

use super::duty::compute;
use super::{Outcome, Sample, Starter, now, sleep_until};
use crate::percentile::percentile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

/// The header of RTP: version 2, and MPEG-2 transport streams (RFC 3551).
const HEADER: usize = 12;
const VERSION: u8 = 2 << 6;
const MP2T: u8 = 33;
/// The shortest packet, in bytes: the header and the sending time.
const MIN_PACKET: usize = HEADER + 8;

/// Configuration of the sender, see [`super::Work::RtpSender`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// The receiver.
    pub to: SocketAddrV4,
    /// Bytes of the stream in each packet.
    pub payload: Bytes,
    /// Sending times of packets, from the stream's beginning; after the last one the stream starts
    /// again. Packets with the same time are one picture.
    pub moments: Vec<Nanos>,
    /// Length of the stream.
    pub length: Nanos,
    /// Producer of the packets; `None` if the packets exist before.
    pub encoder: Option<Encoder>,
}

/// A sender that computes the packets of a stream with equal intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoder {
    /// The CPU time of a packet, from its time on,
    pub compute: Nanos,
    /// divided into this number of equal pieces in equal intervals. The packet is sent after the
    /// last piece.
    pub pieces: u32,
    /// Interval in which an idle sender runs again, as under a hypervisor that does not know when
    /// the sender has work; by default the sender runs when it has work.
    pub reactivated: Option<Nanos>,
}

impl Encoder {
    /// Computes a packet from its time on, with a distance of `gap` between two packets.
    fn encode(&self, moment: Nanos, gap: Nanos) {
        let pieces = u64::from(self.pieces.max(1));
        for piece in 0..pieces {
            self.idle_until(moment + Nanos(gap.0 * piece / pieces));
            compute(Nanos(self.compute.0 / pieces));
        }
    }

    fn idle_until(&self, due: Nanos) {
        match self.reactivated {
            None => sleep_until(due),
            Some(time) => {
                while now() < due {
                    sleep_until(now() + time);
                }
            }
        }
    }
}

/// Returns the time in units of 90 kHz (RFC 3551).
fn timestamp(at: Nanos) -> u32 {
    (u128::from(at.as_nanos()) * 90_000 / 1_000_000_000) as u32
}

pub(super) fn send(starter: &Starter<'_>, stream: &Stream) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(stream.to)?;
    let mut packet = vec![0x47; HEADER + stream.payload.as_u64() as usize];
    packet[0] = VERSION;
    packet[1] = MP2T;
    packet[8..HEADER].copy_from_slice(b"tail");
    let schedule = starter.ready()?;
    let mut outcome = Outcome::default();
    let gap = Nanos(stream.length.0 / stream.moments.len().max(1) as u64);
    let start = match stream.encoder {
        None => schedule.start,
        // In the middle of the warm-up the sender's class is set. With a backlog of work it would
        // use up a reservation immediately.
        Some(_) => schedule
            .from
            .saturating_sub(Nanos(schedule.from.since(schedule.start).0 / 4)),
    };
    let rounds = (0..).map(|round| Nanos(round * stream.length.as_nanos()));
    let moments = rounds.flat_map(|round| stream.moments.iter().map(move |at| round + *at));
    for (number, at) in (0_u16..=u16::MAX).cycle().zip(moments) {
        let due = start + at;
        if due >= schedule.to {
            break;
        }
        match &stream.encoder {
            None => sleep_until(due),
            Some(encoder) => {
                encoder.encode(due, gap);
                let cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX);
                *outcome.served.entry(cpu).or_default() += 1;
            }
        }
        packet[2..4].copy_from_slice(&number.to_be_bytes());
        packet[4..8].copy_from_slice(&timestamp(at).to_be_bytes());
        packet[HEADER..MIN_PACKET].copy_from_slice(&now().as_nanos().to_be_bytes());
        match socket.send(&packet) {
            Ok(_) => outcome.amount += u64::from(schedule.counts(due)),
            Err(error) if super::events::is_retry(&error) => {}
            // The receiver has finished, and this guest did not run until then.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
            Err(error) => return Err(error),
        }
    }
    outcome.time = schedule.to.since(schedule.from);
    starter.finish(&outcome)
}

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ReceivedPacket {
    number: u16,
    /// Timestamp of the stream, in milliseconds.
    timestamp: f64,
    sent: Nanos,
    at: Nanos,
}

fn read(packet: &[u8], at: Nanos) -> Option<ReceivedPacket> {
    let head = packet.first_chunk::<MIN_PACKET>()?;
    if head[0] != VERSION || head[1] != MP2T {
        return None;
    }
    let [.., s0, s1, s2, s3, s4, s5, s6, s7] = *head;
    let timestamp = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    Some(ReceivedPacket {
        number: u16::from_be_bytes([head[2], head[3]]),
        timestamp: f64::from(timestamp) / 90.0,
        sent: Nanos(u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7])),
        at,
    })
}

pub(super) fn receive(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // Silence must not delay the outcome.
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let schedule = starter.ready()?;
    let mut buffer = [0; 2048];
    let mut packets = Vec::new();
    while now() < schedule.give_up {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let packet = read(&buffer[..length], now());
                packets.extend(packet.filter(|it| schedule.counts(it.sent)));
            }
            Err(error) if super::events::is_retry(&error) => {}
            Err(error) => return Err(error),
        }
    }
    starter.finish(&Outcome {
        samples: gaps(&packets),
        unanswered: lost(&packets),
        amount: packets.len() as u64,
        figures: figures(&packets),
        lines: lines(&packets, schedule.from),
        time: schedule.to.since(schedule.from),
        ..Outcome::default()
    })
}

/// Returns the gaps between arrivals, each with the number of the packet that ends it.
fn gaps(packets: &[ReceivedPacket]) -> Vec<Sample> {
    let gaps = packets.windows(2).map(|pair| Sample {
        arrival: u32::from(pair[1].number),
        start: pair[0].at,
        end: pair[1].at,
    });
    gaps.collect()
}

/// Returns the interarrival jitter after each packet except the first (RFC 3550, 6.4.1), in
/// milliseconds, of packets with these timestamps and arrivals.
fn jitters(packets: &[(f64, f64)]) -> impl Iterator<Item = f64> {
    let apart = packets
        .windows(2)
        .map(|pair| (pair[1].1 - pair[0].1) - (pair[1].0 - pair[0].0));
    smoothed(apart)
}

/// Returns the jitter of packets, from the differences between the distances of their arrivals and
/// of their timestamps.
fn smoothed(apart: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    apart.scan(0.0, |jitter, apart: f64| {
        *jitter += (apart.abs() - *jitter) / 16.0;
        Some(*jitter)
    })
}

/// Returns the interarrival jitter, in milliseconds, of a stream whose packets are sent `apart`,
/// from the gaps between arrivals. Gaps that `counts` excludes are skipped, and also the gaps after
/// them, which are too short by the same time.
pub(crate) fn jitter_of(
    samples: &[Sample],
    apart: Nanos,
    counts: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let mut before = samples
        .first()
        .map_or(0, |first| first.arrival.wrapping_sub(1));
    let steps = samples.iter().map(|sample| {
        let packets = sample.arrival.wrapping_sub(before) as u16;
        before = sample.arrival;
        sample.latency().as_millis_f64() - f64::from(packets) * apart.as_millis_f64()
    });
    let counted = |place: &usize| counts(*place) && place.checked_sub(1).is_none_or(&counts);
    let counted = steps
        .enumerate()
        .filter(|(place, _)| counted(place))
        .map(|(_, apart)| apart);
    smoothed(counted).collect()
}

/// Returns the delay of a packet in milliseconds.
fn delay(packet: &ReceivedPacket) -> f64 {
    packet.at.since(packet.sent).as_millis_f64()
}

/// Returns the smallest delay in each second from `from` on, by the number of the second. Packets
/// are in order.
fn least_delays(packets: &[ReceivedPacket], from: Nanos) -> BTreeMap<u64, f64> {
    let mut least = BTreeMap::new();
    for packet in packets {
        let delay = delay(packet);
        let known = least.entry(second(packet, from)).or_insert(delay);
        *known = known.min(delay);
    }
    least
}

/// Returns the second from `from` on in which a packet was sent.
fn second(packet: &ReceivedPacket, from: Nanos) -> u64 {
    packet.sent.since(from).as_nanos() / 1_000_000_000
}

/// Returns the number of lost packets between the first and the last received one. Numbers wrap.
fn lost(packets: &[ReceivedPacket]) -> u64 {
    let gaps = packets.windows(2);
    let gaps = gaps.map(|pair| u64::from(pair[1].number.wrapping_sub(pair[0].number)));
    // A late or duplicate packet is a step back.
    let steps = gaps.map(|gap| gap.cast_signed() - if gap > 1 << 15 { 1 << 16 } else { 0 });
    let there = u64::try_from(steps.sum::<i64>() + 1).unwrap_or(0);
    there.saturating_sub(packets.len().max(1) as u64)
}

/// Returns the lines of charts over the seconds from `from` on, in milliseconds: the jitter, and
/// the smallest delay in each second, where a smooth window begins.
fn lines(packets: &[ReceivedPacket], from: Nanos) -> BTreeMap<String, Vec<(f64, f64)>> {
    let arrived: Vec<_> = packets
        .iter()
        .map(|it| (it.timestamp, it.at.as_millis_f64()))
        .collect();
    let jitters = jitters(&arrived).zip(packets.iter().skip(1)).step_by(20);
    let jitters = jitters.map(|(jitter, it)| (it.at.since(from).as_secs_f64(), jitter));
    let least = least_delays(packets, from).into_iter();
    let least = least.map(|(second, delay)| (second as f64, delay));
    [
        ("jitter".to_owned(), jitters.collect()),
        ("least_delay".to_owned(), least.collect()),
    ]
    .into()
}

/// Returns the share of delays that exceed the smallest delay of their second by at most `width`
/// milliseconds.
fn inside(packets: &[ReceivedPacket], width: f64) -> f64 {
    let from = packets.first().map_or(Nanos::ZERO, |first| first.sent);
    let least = least_delays(packets, from);
    let inside = packets.iter();
    let inside = inside.filter(|it| delay(it) <= least[&second(it, from)] + width);
    100.0 * inside.count() as f64 / packets.len() as f64
}

/// The width of a smooth window in milliseconds, the paper's.
const WIDTH: f64 = 3.0;

/// Returns in milliseconds: jitter at the receiver and at the sender, gaps between arrivals
/// ("delta") and between sends, the largest excess of the former over the latter, and delays. Also
/// returns the share of delays inside a window in percent, and the number of lost packets. The map
/// is empty for a stream without two received packets.
fn figures(received: &[ReceivedPacket]) -> BTreeMap<String, f64> {
    if received.len() < 2 {
        return BTreeMap::new();
    }
    let by = |moment: fn(&ReceivedPacket) -> Nanos| -> Vec<_> {
        let packets = received.iter();
        packets
            .map(|it| (it.timestamp, moment(it).as_millis_f64()))
            .collect()
    };
    let arrived: Vec<_> = jitters(&by(|it| it.at)).collect();
    let sent: Vec<_> = jitters(&by(|it| it.sent)).collect();
    let gaps = |moment: fn(&ReceivedPacket) -> Nanos| -> Vec<_> {
        let pairs = received.windows(2);
        pairs
            .map(|pair| moment(&pair[1]).since(moment(&pair[0])).as_millis_f64())
            .collect()
    };
    let (arrivals, sends) = (gaps(|it| it.at), gaps(|it| it.sent));
    // The growth of gaps between sender and receiver.
    let stretched = arrivals.iter().zip(&sends);
    let stretched: Vec<_> = stretched.map(|(came, sent)| came - sent).collect();
    let delays: Vec<_> = received.iter().map(delay).collect();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let figures = [
        ("jitter_mean", mean(&arrived)),
        ("jitter_p99", percentile(&arrived, 99.0)),
        ("jitter_max", percentile(&arrived, 100.0)),
        ("sender_jitter_mean", mean(&sent)),
        ("sender_jitter_p99", percentile(&sent, 99.0)),
        ("delta_p99", percentile(&arrivals, 99.0)),
        ("delta_max", percentile(&arrivals, 100.0)),
        ("sender_delta_max", percentile(&sends, 100.0)),
        ("stretched_max", percentile(&stretched, 100.0)),
        ("delay_p50", percentile(&delays, 50.0)),
        ("delay_p99", percentile(&delays, 99.0)),
        ("inside_3ms", inside(received, WIDTH)),
        ("lost", lost(received) as f64),
    ];
    figures
        .map(|(name, figure)| (name.to_owned(), figure))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(gaps: &[u64]) -> Vec<ReceivedPacket> {
        let mut at = Nanos::from_secs(1);
        let mut all = Vec::new();
        for (number, gap) in (0_u16..).zip(gaps) {
            at += Nanos::from_millis(*gap);
            let sent = Nanos::from_millis(u64::from(number) * 5);
            all.push(ReceivedPacket {
                number,
                timestamp: f64::from(number) * 5.0,
                sent,
                at,
            });
        }
        all
    }

    /// By hand: J += (|D| - J) / 16.
    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let even = figures(&packets(&[5; 100]));
        assert!(even["jitter_mean"].abs() < 1e-9 && even["sender_jitter_mean"].abs() < 1e-9);
        assert!((even["delta_max"] - 5.0).abs() < 1e-9);
        // D is 0, then 3 and -3 ms.
        let uneven = packets(&[5, 5, 8, 2]);
        let of = |it: &ReceivedPacket| (it.timestamp, it.at.as_millis_f64());
        let timed: Vec<_> = uneven.iter().map(of).collect();
        let jitters: Vec<_> = jitters(&timed).collect();
        assert_eq!(
            jitters,
            [0.0, 3.0 / 16.0, 3.0 / 16.0 + (3.0 - 3.0 / 16.0) / 16.0]
        );
        let figures = figures(&uneven);
        assert!((figures["delta_max"] - 8.0).abs() < 1e-9);
        assert!((figures["sender_delta_max"] - 5.0).abs() < 1e-9);
        assert!((figures["stretched_max"] - 3.0).abs() < 1e-9);
    }

    #[test]
    fn jitter_by_gaps_equals_packet_jitter_and_skips_spoiled_gaps() {
        let uneven = packets(&[5, 5, 8, 2, 5, 25, 0, 0, 5]);
        let of = |it: &ReceivedPacket| (it.timestamp, it.at.as_millis_f64());
        let timed: Vec<_> = uneven.iter().map(of).collect();
        let by_packets: Vec<_> = jitters(&timed).collect();
        let samples = gaps(&uneven);
        let apart = Nanos::from_millis(5);
        let all = jitter_of(&samples, apart, |_| true);
        assert_eq!(all.len(), by_packets.len());
        for (one, other) in all.iter().zip(&by_packets) {
            assert!((one - other).abs() < 1e-9, "{all:?} {by_packets:?}");
        }
        // The gap of 25 ms and the next one do not count.
        assert_eq!(jitter_of(&samples, apart, |place| place != 4).len(), 6);
        // A packet that did not come, and the number after the highest.
        let mut gone = packets(&[5, 5, 5, 5]);
        gone.remove(2);
        (gone[0].number, gone[1].number, gone[2].number) = (65_534, 65_535, 1);
        assert!(jitter_of(&gaps(&gone), apart, |_| true)[1].abs() < 1e-9);
    }

    #[test]
    fn a_guest_that_is_run_again_late_finds_its_work_waiting() {
        let encoder = |reactivated| Encoder {
            compute: Nanos::ZERO,
            pieces: 4,
            reactivated,
        };
        let late = Nanos::from_millis(30);
        let begun = now();
        encoder(Some(late)).encode(begun + Nanos(1), Nanos::from_millis(1));
        assert!(now() >= begun + late);
        // What was due before does not wait.
        let due = now();
        encoder(Some(Nanos::from_secs(60))).encode(Nanos::ZERO, Nanos::from_millis(1));
        assert!(now().since(due) < Nanos::from_secs(60));
    }

    #[test]
    fn a_stream_that_did_not_come_has_no_figures() {
        assert!(figures(&[]).is_empty() && figures(&packets(&[5])).is_empty());
        assert!(!figures(&packets(&[5, 5])).is_empty());
    }

    #[test]
    fn packets_that_did_not_come_are_lost_and_those_in_disorder_are_not() {
        let mut came = packets(&[5; 10]);
        assert_eq!(lost(&came), 0);
        came.swap(3, 4);
        assert_eq!(lost(&came), 0);
        came.remove(6);
        assert_eq!(lost(&came), 1);
        for (packet, number) in came
            .iter_mut()
            .zip([65_533, 65_534, 65_535, 0, 1, 2, 5, 6, 7])
        {
            packet.number = number;
        }
        assert_eq!(lost(&came), 2);
        assert_eq!(lost(&[]), 0);
    }

    #[test]
    fn a_smooth_window_shows_in_each_seconds_least_delay() {
        // One second without and one with 20 ms of delay, and one packet that is 4 ms late.
        let mut came = packets(&[5; 400]);
        let late = |packet: &mut ReceivedPacket, millis| packet.at += Nanos::from_millis(millis);
        came[200..].iter_mut().for_each(|packet| late(packet, 20));
        late(&mut came[100], 4);
        let begun = came[0].sent;
        let lines = lines(&came, begun);
        let least = &lines["least_delay"];
        assert_eq!(least.len(), 2);
        assert!((least[1].1 - least[0].1 - 20.0).abs() < 1e-6, "{least:?}");
        let share = inside(&came, WIDTH);
        assert!((share - 100.0 * 399.0 / 400.0).abs() < 1e-6, "{share}");
    }

    #[test]
    fn packets_that_are_not_rtp_are_skipped() {
        let mut packet = vec![0; MIN_PACKET];
        assert_eq!(read(&packet, Nanos(9)), None);
        packet[..2].copy_from_slice(&[VERSION, MP2T]);
        packet[2..4].copy_from_slice(&7_u16.to_be_bytes());
        packet[4..8].copy_from_slice(&90_u32.to_be_bytes());
        packet[HEADER..].copy_from_slice(&5_u64.to_be_bytes());
        let came = ReceivedPacket {
            number: 7,
            timestamp: 1.0,
            sent: Nanos(5),
            at: Nanos(9),
        };
        assert_eq!(read(&packet, Nanos(9)), Some(came));
        assert_eq!(read(&packet[..MIN_PACKET - 1], Nanos(9)), None);
    }
}
