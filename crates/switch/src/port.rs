//! Ports, which receive and send frames: one file for each kind.
//!
//! A [`Port`] receives and transmits bursts and never blocks. Its user decides when: the daemon
//! when the descriptor is ready, a test at any time. The items to transmit are [`Outgoing`]:
//! frames, and on a paced uplink voids between them, for which a port has its own bytes.

mod captured;
mod memory;
mod pcap;

pub use captured::CapturedPort;
pub use memory::{MemoryPort, Wire, WireEnd};
pub use pcap::{PcapError, PcapPort};

use crate::reason::Reason;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tailbound_dataplane::{Buffer, Frame, Packet, Pool, VIRTIO_HEADER};
use tailbound_units::Nanos;

/// Most frames in one burst.
pub const BURST: usize = 32;

/// A burst ends with the frame that brings it to this many bytes: the frames of a few large packets
/// are still in the cache when they are forwarded.
pub const BURST_BYTES: usize = 256 * 1024;

/// A frame as received from a port, unchecked.
#[derive(Debug)]
pub struct Received {
    /// The buffer that contains the frame.
    pub buffer: Buffer,
    /// The offset of its first byte.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// The offloads that the sender left to the NIC.
    pub virtio: Option<[u8; VIRTIO_HEADER]>,
}

/// A received burst.
#[derive(Debug, Default)]
pub struct Burst {
    /// The frames, in order.
    pub frames: Vec<Received>,
    /// Frames that were lost since they were longer than any buffer.
    pub truncated: u64,
    /// Descriptors of a ring that the port looked at for these frames.
    pub pieces: usize,
    /// Buffers to receive into.
    pub spare: Spare,
}

/// Buffers to receive into, one set for all ports: a burst is received by one at a time.
#[derive(Debug, Default)]
pub struct Spare {
    /// Small buffers.
    pub heads: Vec<Buffer>,
    /// Large buffers, for frames beyond a small one.
    pub tails: Vec<Buffer>,
}

/// State of a port after a burst: it may have more to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// The port is empty until it is readable again.
    No,
    /// The burst ended before the port was seen empty.
    Maybe,
}

/// The place of a port's guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The guest is here since this arrival. Another arrival must be announced.
    Here(Arrival),
    /// The guest is on another host, or not running: the port cannot send.
    Away,
}

/// The number of an arrival, which distinguishes arrivals at the same port: 0 if the port does not
/// report arrivals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival(pub u32);

impl Default for Presence {
    fn default() -> Self {
        Self::Here(Arrival::default())
    }
}

/// The state of a port behind a turn that served it: [`Port::outlook`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// See [`Port::receive_at`].
    pub receive_at: Option<Nanos>,
    /// See [`Port::flush_at`].
    pub flush_at: Option<Nanos>,
    /// See [`Port::presence`].
    pub presence: Presence,
}

/// An item that a port puts on its wire next.
pub type Outgoing = tailbound_dataplane::Outgoing<Packet>;

/// The state with which another process continues a port that is more than a descriptor.
#[derive(Debug)]
pub struct Estate {
    /// The port's state, in the port's own format.
    pub state: String,
    /// Descriptors, in the port's own order.
    pub descriptors: Vec<OwnedFd>,
}

/// The result of [`Port::transmit`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TransmitResult {
    /// Frames sent, without voids.
    pub packets: u64,
    /// The bytes of these frames.
    pub bytes: u64,
    /// Voids sent.
    pub voids: u64,
    /// The length of these voids on the wire, in bytes.
    pub void_bytes: u64,
    /// True if the port is full: the remaining frames must be offered again when it is writable.
    pub full: bool,
    /// Frames lost because the interface is down.
    pub link_down: u64,
    /// Frames lost in the full queue of the interface.
    pub device_full: u64,
    /// Frames that the kernel refused, or that did not fit into the guest's buffers.
    pub refused: u64,
    /// Descriptors of a ring that the port looked at for these frames.
    pub pieces: usize,
}

impl TransmitResult {
    /// Counts one sent frame or void.
    pub fn add(&mut self, outgoing: &Outgoing) {
        match outgoing {
            Outgoing::Frame { frame, .. } => {
                self.packets += 1;
                self.bytes += frame.len() as u64;
            }
            Outgoing::Void { wire } => {
                self.voids += 1;
                self.void_bytes += wire.0;
            }
        }
    }

    /// Returns the number of lost frames.
    pub fn lost(&self) -> u64 {
        self.losses().iter().map(|(_, count)| count).sum()
    }

    /// Returns the losses by reason.
    pub fn losses(&self) -> [(Reason, u64); 3] {
        [
            (Reason::LinkDown, self.link_down),
            (Reason::DeviceFull, self.device_full),
            (Reason::Refused, self.refused),
        ]
    }
}

/// A port, which receives and sends frames.
///
/// An error of either method means that the port is unusable: its interface vanished, or its file
/// cannot be read. Errors of single frames are counted instead.
///
/// Another thread than the port's user may open or close it: closing some ports takes as long as
/// ten thousand packets.
pub trait Port: Send {
    /// Appends a burst of frames to `burst`: at most [`BURST`], about
    /// [`BURST_BYTES`].
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More>;

    /// Sends from the front of `outgoing`, in order, and removes sent and lost items. The remaining
    /// ones found no room, or, if the port is not full, would have made the burst too long. A lost
    /// void is not counted.
    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult>;

    /// Returns the descriptor that is ready when the port can receive or transmit; `None` if
    /// [`Port::receive_at`] applies instead.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns true if the port accesses memory of another process, which can make an access wait.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Returns true if the descriptor may be readable when the port is only writable, as a
    /// descriptor for several others is.
    fn readable_may_be_writable(&self) -> bool {
        false
    }

    /// Resets the descriptor's readiness, for a descriptor that stays ready until then.
    fn note_ready(&mut self) {}

    /// Returns the longest frame that the port carries without segmentation at present, in bytes
    /// from the Ethernet header on, without a VLAN tag; `None` without such a limit.
    fn longest(&self) -> Option<usize> {
        None
    }

    /// Returns the place of the port's guest: away for a card that no VM uses. The method is called
    /// after each turn with work for the port, and must be cheap. The descriptor is ready after a
    /// change.
    fn presence(&self) -> Presence {
        Presence::default()
    }

    /// Returns the progress of the port's receiver: a number that changes when the receiver takes
    /// frames, as far as the port can see that.
    fn progress(&self) -> u64 {
        0
    }

    /// Returns the bytes of a guest's memory that are charged to this process, because it touched
    /// them first.
    fn borrowed(&self) -> u64 {
        0
    }

    /// Returns true if the port implements launch times ([`Outgoing::Frame`]).
    fn launch_times(&self) -> bool {
        false
    }

    /// Returns the time of the next received frame, for a port without a descriptor.
    fn receive_at(&self) -> Option<Nanos> {
        None
    }

    /// Continues with frames that the port has taken and could not send yet. Called at
    /// [`Port::flush_at`], since no descriptor reports when that works.
    fn flush(&mut self, _now: Nanos) -> io::Result<()> {
        Ok(())
    }

    /// Returns the time at which [`Port::flush`] must be called.
    fn flush_at(&self) -> Option<Nanos> {
        None
    }

    /// Returns all that the switch needs to know of the port behind each turn that served it, in one
    /// call.
    fn outlook(&self) -> Outlook {
        Outlook {
            receive_at: self.receive_at(),
            flush_at: self.flush_at(),
            presence: self.presence(),
        }
    }

    /// Pauses the port, so that another process may continue with it; returns the state for that,
    /// if it is more than the descriptor. Until [`Port::resume`] no frames are received or
    /// transmitted. If the port is dropped before that, it belongs to the other process.
    fn pause(&mut self) -> Option<Estate> {
        None
    }

    /// Continues after a pause: no other process has the port.
    fn resume(&mut self) {}

    /// Returns the number of frames lost before they could be received, since the last call.
    fn take_overruns(&mut self) -> u64 {
        0
    }
}
