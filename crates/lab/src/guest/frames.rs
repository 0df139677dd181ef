//! Ethernet frames that a guest composes itself and sends at its full speed, past its own kernel's
//! rules, like a hostile guest.

use super::GUEST_INTERFACE;
use super::packet::{End, Manner, frame};
use super::{Outcome, Starter, now};
use serde::{Deserialize, Serialize};
use std::io;
use tailbound_sys::packet::{Batch, Socket};

/// Configuration of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// The sender's own addresses.
    pub from: End,
    /// The receiver's addresses.
    pub to: End,
    /// The length of each IP packet in bytes. A packet above 1500 is a TCP packet that the host
    /// segments, like one of a guest with a virtio NIC.
    pub packet: u16,
    /// Peculiarity of the frames.
    pub manner: Manner,
}

const NO_BUFFERS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// Number of stored frames if all of them differ. More would not fit the caches.
const DIFFERENT: u32 = 2048;

pub(super) fn send(starter: &Starter<'_>, frames: &Frames) -> io::Result<()> {
    let socket = Socket::open(GUEST_INTERFACE, None).map_err(io::Error::other)?;
    let mut batch = Batch::new();
    let make = |number| frame(frames.manner, frames.from, frames.to, frames.packet, number);
    let alike = matches!(frames.manner, Manner::Plain | Manner::Tagged);
    let mut ring: Vec<Vec<u8>> = (0..if alike { Batch::LEN as u32 } else { DIFFERENT })
        .map(make)
        .collect();
    let schedule = starter.ready()?;
    super::sleep_until(schedule.start);
    let mut outcome = Outcome::default();
    let (mut place, mut number) = (0, ring.len() as u32);
    let mut done = false;
    loop {
        let at = now();
        let burst = &ring[place..place + Batch::LEN];
        let sent = match socket.transmit(&mut batch, burst.iter().map(Vec::as_slice)) {
            Ok(sent) => sent,
            // The interface accepts no more frames at present.
            Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => 0,
            Err(error) if super::events::is_retry(&error) => 0,
            Err(error) => return Err(error),
        };
        if !alike {
            for slot in &mut ring[place..place + Batch::LEN] {
                *slot = make(number);
                number = number.wrapping_add(1);
            }
        }
        place = (place + Batch::LEN) % ring.len();
        if schedule.counts(at) {
            outcome.amount += sent as u64;
        } else if at >= schedule.to && !done {
            done = true;
            outcome.time = schedule.to.since(schedule.from);
            starter.finish(&outcome)?;
        }
    }
}
