//! A stream of MPEG-TS in RTP (RFC 3550, RFC 2250), and who measures its jitter.
//!
//! The payload begins with when the packet was given to the kernel, so that the receiver knows
//! the jitter that the sender itself had: a program is not woken to the microsecond.

use super::{Outcome, Starter, now};
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
/// Header and when it was sent.
const LEAST: usize = HEADER + 8;

/// What is sent: see [`super::Work::RtpSender`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// To whom.
    pub to: SocketAddrV4,
    /// What of the stream is in each packet.
    pub payload: Bytes,
    /// When packets are sent, from the stream's beginning; then it begins anew. Packets that
    /// are sent at one moment are one picture.
    pub moments: Vec<Nanos>,
    /// How long it is.
    pub length: Nanos,
}

/// The moments of a stream at a constant rate: one.
pub(crate) fn constant(gap: Nanos) -> (Vec<Nanos>, Nanos) {
    (vec![Nanos::ZERO], gap)
}

/// 90 kHz (RFC 3551).
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
    let rounds = (0..).map(|round| Nanos(round * stream.length.as_nanos()));
    let moments = rounds.flat_map(|round| stream.moments.iter().map(move |at| round + *at));
    for (number, at) in (0_u16..=u16::MAX).cycle().zip(moments) {
        let due = schedule.start + at;
        if due >= schedule.to {
            break;
        }
        super::sleep_until(due);
        packet[2..4].copy_from_slice(&number.to_be_bytes());
        packet[4..8].copy_from_slice(&timestamp(at).to_be_bytes());
        packet[HEADER..LEAST].copy_from_slice(&now().as_nanos().to_be_bytes());
        match socket.send(&packet) {
            Ok(_) => outcome.amount += u64::from(schedule.counts(due)),
            Err(error) if super::events::is_retry(&error) => {}
            Err(error) => return Err(error),
        }
    }
    outcome.time = schedule.to.since(schedule.from);
    starter.finish(&outcome)
}

/// What is known of a packet that came.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Came {
    number: u16,
    /// Of the stream, in milliseconds.
    timestamp: f64,
    sent: Nanos,
    at: Nanos,
}

fn read(packet: &[u8], at: Nanos) -> Option<Came> {
    let head = packet.first_chunk::<LEAST>()?;
    if head[0] != VERSION || head[1] != MP2T {
        return None;
    }
    let [.., s0, s1, s2, s3, s4, s5, s6, s7] = *head;
    let timestamp = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    Some(Came {
        number: u16::from_be_bytes([head[2], head[3]]),
        timestamp: f64::from(timestamp) / 90.0,
        sent: Nanos(u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7])),
        at,
    })
}

pub(super) fn receive(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // Silence must not keep the outcome back.
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let schedule = starter.ready()?;
    let mut buffer = [0; 2048];
    let mut came = Vec::new();
    while now() < schedule.give_up {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let packet = read(&buffer[..length], now());
                came.extend(packet.filter(|it| schedule.counts(it.sent)));
            }
            Err(error) if super::events::is_retry(&error) => {}
            Err(error) => return Err(error),
        }
    }
    starter.finish(&Outcome {
        amount: came.len() as u64,
        figures: figures(&came),
        time: schedule.to.since(schedule.from),
        ..Outcome::default()
    })
}

/// The interarrival jitter after each packet but the first (RFC 3550, 6.4.1), in
/// milliseconds, of packets with so long timestamps.
fn jitters(packets: &[(f64, f64)]) -> impl Iterator<Item = f64> {
    let mut jitter = 0.0;
    packets.windows(2).map(move |pair| {
        let apart = (pair[1].1 - pair[0].1) - (pair[1].0 - pair[0].0);
        jitter += (apart.abs() - jitter) / 16.0;
        jitter
    })
}

fn percentile(mut figures: Vec<f64>, percent: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1);
    let place = (percent / 100.0 * last as f64).round() as usize;
    figures.get(place).copied().unwrap_or(f64::NAN)
}

/// In milliseconds: jitter at the receiver and at the sender, gaps between arrivals ("delta"),
/// and delays.
fn figures(came: &[Came]) -> BTreeMap<String, f64> {
    let by = |moment: fn(&Came) -> Nanos| -> Vec<_> {
        let packets = came.iter();
        packets
            .map(|it| (it.timestamp, moment(it).as_millis_f64()))
            .collect()
    };
    let arrived: Vec<_> = jitters(&by(|it| it.at)).collect();
    let sent: Vec<_> = jitters(&by(|it| it.sent)).collect();
    let gaps = came.windows(2);
    let gaps: Vec<_> = gaps
        .map(|pair| pair[1].at.since(pair[0].at).as_millis_f64())
        .collect();
    let delays: Vec<_> = came
        .iter()
        .map(|it| it.at.since(it.sent).as_millis_f64())
        .collect();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let figures = [
        ("jitter_mean", mean(&arrived)),
        ("jitter_p99", percentile(arrived, 99.0)),
        ("sender_jitter_mean", mean(&sent)),
        ("sender_jitter_p99", percentile(sent, 99.0)),
        ("delta_p99", percentile(gaps.clone(), 99.0)),
        ("delta_max", percentile(gaps, 100.0)),
        ("delay_p50", percentile(delays.clone(), 50.0)),
        ("delay_p99", percentile(delays, 99.0)),
    ];
    figures
        .map(|(name, figure)| (name.to_owned(), figure))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(gaps: &[u64]) -> Vec<Came> {
        let mut at = Nanos::from_secs(1);
        let mut all = Vec::new();
        for (number, gap) in (0_u16..).zip(gaps) {
            at += Nanos::from_millis(*gap);
            let sent = Nanos::from_millis(u64::from(number) * 5);
            all.push(Came {
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
        let of = |it: &Came| (it.timestamp, it.at.as_millis_f64());
        let timed: Vec<_> = uneven.iter().map(of).collect();
        let jitters: Vec<_> = jitters(&timed).collect();
        assert_eq!(
            jitters,
            [0.0, 3.0 / 16.0, 3.0 / 16.0 + (3.0 - 3.0 / 16.0) / 16.0]
        );
        assert!((figures(&uneven)["delta_max"] - 8.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_rtp_is_passed_over() {
        let mut packet = vec![0; LEAST];
        assert_eq!(read(&packet, Nanos(9)), None);
        packet[..2].copy_from_slice(&[VERSION, MP2T]);
        packet[2..4].copy_from_slice(&7_u16.to_be_bytes());
        packet[4..8].copy_from_slice(&90_u32.to_be_bytes());
        packet[HEADER..].copy_from_slice(&5_u64.to_be_bytes());
        let came = Came {
            number: 7,
            timestamp: 1.0,
            sent: Nanos(5),
            at: Nanos(9),
        };
        assert_eq!(read(&packet, Nanos(9)), Some(came));
        assert_eq!(read(&packet[..LEAST - 1], Nanos(9)), None);
    }
}
