//! TCP transfers of a fixed size, each on a connection of its own that was opened before, and their
//! receiver.
//!
//! The sender's sample ends with the application's answer; the receiver's sample lasts from the
//! first byte that its application reads to the last.

use super::{GUEST_INTERFACE, Outcome, Sample, Starter, now, sleep_until};
use crate::arrivals::poisson;
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_congestion};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

/// Length of the transfer's number in front of each transfer.
const HEADER: usize = 4;
/// Timeout of a receiver's wait for a connection or bytes, after which it reads the clock.
const CLOCK_INTERVAL: Duration = Duration::from_millis(200);
/// Time after the measured time in which a transfer may still begin to arrive.
const DRAIN: Nanos = Nanos::from_secs(1);

/// Configuration of the sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// The receiver.
    pub to: SocketAddrV4,
    /// The size of each transfer.
    pub size: Bytes,
    /// The mean time between two transfers.
    pub mean_gap: Nanos,
    /// Seed of the times.
    pub seed: u64,
    /// The congestion control, by name.
    pub congestion: String,
    /// The initial window of a connection, in segments.
    pub initial_window: u32,
    /// The sender closes the connection after the last byte.
    pub closes: bool,
    /// Its kernel leaves segmentation to its NIC.
    pub offload: bool,
}

/// Sends each transfer at its time, after the answer to the previous one.
pub(super) fn send(starter: &Starter<'_>, span: Nanos, transfers: &Transfers) -> io::Result<()> {
    begin_with(transfers)?;
    let mut stream = open(transfers)?;
    let moments = poisson(transfers.seed, transfers.mean_gap, span, 1);
    let mut bytes = vec![0x5a; transfers.size.as_u64() as usize];
    let schedule = starter.ready()?;
    let mut outcome = Outcome::default();
    for (number, moment) in (0_u32..).zip(moments) {
        sleep_until(schedule.start + moment.at);
        let start = now();
        let left = schedule.give_up.since(start);
        if start >= schedule.to || left == Nanos::ZERO {
            break;
        }
        bytes[..HEADER].copy_from_slice(&number.to_be_bytes());
        stream.set_read_timeout(Some(left.into()))?;
        stream.write_all(&bytes)?;
        if transfers.closes {
            stream.shutdown(Shutdown::Write)?;
        }
        let answered = stream.read_exact(&mut [0]);
        let sample = Sample {
            arrival: number,
            start,
            end: now(),
        };
        match answered {
            Ok(()) if schedule.counts(start) => outcome.samples.push(sample),
            Ok(()) => {}
            Err(error) if super::events::is_retry(&error) => {
                outcome.unanswered += u64::from(schedule.counts(start));
                break;
            }
            Err(error) => return Err(error),
        }
        stream = open(transfers)?;
    }
    starter.finish(&outcome)
}

/// Sets the initial window of connections from this guest, independently of earlier connections'
/// metrics.
fn begin_with(transfers: &Transfers) -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?;
    let (to, window) = (transfers.to.ip(), transfers.initial_window);
    // One segment in each packet, or Linux's own maximum.
    let segments = if transfers.offload { 65_535 } else { 1 };
    for words in [
        format!("route replace {to}/32 dev {GUEST_INTERFACE} initcwnd {window}"),
        format!("link set dev {GUEST_INTERFACE} gso_max_segs {segments}"),
    ] {
        let status = Command::new("ip").args(words.split(' ')).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("ip {words}: {status}")));
        }
    }
    Ok(())
}

fn open(transfers: &Transfers) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&transfers.to.into(), Duration::from_secs(5))?;
    stream.set_nodelay(true)?;
    let name = &transfers.congestion;
    set_tcp_congestion(&stream, name).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("congestion control {name}: {error}"))
    })?;
    Ok(stream)
}

/// Receives transfers one after the other, and answers each with a byte; if senders close the
/// connection, after the close.
pub(super) fn receive(
    starter: &Starter<'_>,
    port: u16,
    size: Bytes,
    closes: bool,
) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    set_socket_timeout(&listener, Timeout::Recv, Some(CLOCK_INTERVAL))?;
    let schedule = starter.ready()?;
    let mut outcome = Outcome::default();
    while now() < schedule.to + DRAIN {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if super::events::is_retry(&error) => continue,
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(CLOCK_INTERVAL))?;
        stream.set_nodelay(true)?;
        if let Some([sample, pause]) = take(&mut stream, size, closes, schedule.give_up)?
            && schedule.counts(sample.start)
        {
            outcome.samples.push(sample);
            outcome.pauses.push(pause);
        }
    }
    starter.finish(&outcome)
}

/// Reads one transfer: returns its sample, and the longest time in it without a byte, the end of
/// the stream included; `None` if the transfer does not arrive in time.
fn take(
    stream: &mut TcpStream,
    size: Bytes,
    closes: bool,
    give_up: Nanos,
) -> io::Result<Option<[Sample; 2]>> {
    let mut bytes = vec![0; size.as_u64() as usize + usize::from(closes)];
    let wanted = size.as_u64() as usize;
    let (mut there, mut span, mut last) = (0, [Nanos::ZERO; 2], Nanos::ZERO);
    let mut pause = [Nanos::ZERO; 2];
    let mut is_over = !closes;
    while there < wanted || !is_over {
        match stream.read(&mut bytes[there..]) {
            Ok(0) if there == wanted => is_over = true,
            Ok(0) => return Ok(None),
            Ok(length) => {
                if there == 0 {
                    span[0] = now();
                    last = span[0];
                }
                there += length;
                span[1] = now();
            }
            Err(error) if super::events::is_retry(&error) && now() < give_up => continue,
            Err(error) if super::events::is_retry(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let at = now();
        if at.since(last) > pause[1].since(pause[0]) {
            pause = [last, at];
        }
        last = at;
    }
    stream.write_all(&[1])?;
    let number = bytes.first_chunk().copied().map(u32::from_be_bytes);
    let sample = |arrival, [start, end]: [Nanos; 2]| Sample {
        arrival,
        start,
        end,
    };
    Ok(number.map(|arrival| [sample(arrival, span), sample(arrival, pause)]))
}
