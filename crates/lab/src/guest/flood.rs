//! UDP datagrams at the sender's full speed or at a fixed rate, and their receiver.

use super::{Outcome, Starter, now};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use tailbound_units::{Bytes, Nanos};

/// Number of datagrams between two readings of the clock.
const STRIDE: u64 = 32;

const NO_BUFFERS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// Configuration of the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flood {
    /// The receiver.
    pub to: SocketAddrV4,
    /// The size of each datagram, without headers.
    pub payload: Bytes,
    /// Datagrams per second; `None` is the sender's full speed.
    pub offered: Option<u32>,
    /// Size in bytes of the datagrams into which the kernel segments each send (`UDP_SEGMENT`).
    pub segment: Option<u16>,
}

pub(super) fn send(starter: &Starter<'_>, flood: &Flood) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(flood.to)?;
    if let Some(size) = flood.segment {
        tailbound_sys::udp::segment(&socket, size)?;
    }
    let datagram = vec![0x5a; flood.payload.as_u64() as usize];
    let schedule = starter.ready()?;
    super::sleep_until(schedule.start);
    let mut outcome = Outcome::default();
    for stride in 1.. {
        let at = now();
        let mut sent = 0;
        for _ in 0..STRIDE {
            match socket.send(&datagram) {
                Ok(_) => sent += 1,
                // The interface's queue is full: a refused datagram was not sent.
                Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => {}
                Err(error) if super::events::is_retry(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if schedule.counts(at) {
            outcome.amount += sent;
        } else if at >= schedule.to {
            break;
        }
        if let Some(offered) = flood.offered {
            let due = stride * STRIDE * 1_000_000_000 / u64::from(offered);
            super::sleep_until(schedule.start + Nanos(due));
        }
    }
    outcome.time = schedule.to.since(schedule.from);
    starter.finish(&outcome)
}

pub(super) fn receive(starter: &Starter<'_>, port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    // Silence must not delay the outcome.
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let schedule = starter.ready_to_listen()?;
    let mut buffer = [0; 2048];
    let mut outcome = Outcome {
        windows: schedule.windows(),
        ..Outcome::default()
    };
    let mut done = false;
    loop {
        let (received, bytes) = match socket.recv(&mut buffer) {
            Ok(length) => (1, length as u64),
            Err(error) if super::events::is_retry(&error) => (0, 0),
            Err(error) => return Err(error),
        };
        let at = now();
        if schedule.counts(at) {
            outcome.amount += received;
            outcome.windows.add(at, bytes);
        } else if at >= schedule.to && !done {
            // The receiver continues: an unreachable port would stop the sender.
            done = true;
            outcome.time = schedule.to.since(schedule.from);
            starter.finish(&outcome)?;
        }
    }
}
