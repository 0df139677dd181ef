//! Transfers of some bytes over TCP, each on a connection of its own that was open before, and
//! who receives them.
//!
//! The sender's sample ends with the application's answer; the receiver's goes from the first
//! byte that its application reads to the last.

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

/// In front of each transfer: its number.
const HEADER: usize = 4;
/// How long a receiver looks for a connection or bytes before it asks what time it is.
const LOOK: Duration = Duration::from_millis(200);
/// How long after the measured time a transfer may still begin to arrive.
const DRAIN: Nanos = Nanos::from_secs(1);

/// What is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// To whom.
    pub to: SocketAddrV4,
    /// The size of each.
    pub size: Bytes,
    /// The mean time between two.
    pub mean_gap: Nanos,
    /// Where the moments come from.
    pub seed: u64,
    /// The congestion control, by name.
    pub congestion: String,
    /// The window that a connection begins with, in segments.
    pub initial_window: u32,
    /// The sender closes right behind the last byte.
    pub closes: bool,
    /// Its kernel leaves it to its card to cut segments.
    pub offload: bool,
}

/// Sends each when its moment has come and the one before is answered.
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

/// Has connections from here begin with the window that is asked for, whatever those before
/// them met.
fn begin_with(transfers: &Transfers) -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?;
    let (to, window) = (transfers.to.ip(), transfers.initial_window);
    // One segment in each packet, or as many as Linux puts into one.
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

/// Receives them one after the other, and answers each with a byte; where senders close, once
/// that is known.
pub(super) fn receive(
    starter: &Starter<'_>,
    port: u16,
    size: Bytes,
    closes: bool,
) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    set_socket_timeout(&listener, Timeout::Recv, Some(LOOK))?;
    let schedule = starter.ready()?;
    let mut outcome = Outcome::default();
    while now() < schedule.to + DRAIN {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if super::events::is_retry(&error) => continue,
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(LOOK))?;
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

/// Reads one transfer: that, and the longest time in it without a byte, the end of the stream
/// included; `None` where it does not come, or not in time.
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
