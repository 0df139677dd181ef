//! Where frames come from and go to: one file a kind of port.
//!
//! A [`Port`] receives and transmits bursts and never waits. What it is used in
//! decides when: the daemon when the descriptor is ready, a test when it likes.
//! What goes out is [`Outgoing`]: frames, and on a paced uplink voids between them,
//! for which a port keeps bytes of its own.

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

/// A burst ends with the frame that brings it to this many bytes: a few large
/// packets, so that they are still in the cache when they are sent on.
pub const BURST_BYTES: usize = 256 * 1024;

/// A frame as it came from a port, not yet looked at.
#[derive(Debug)]
pub struct Received {
    /// Where the frame is.
    pub buffer: Buffer,
    /// Its first byte's place.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// What the sender left to the NIC.
    pub virtio: Option<[u8; VIRTIO_HEADER]>,
}

/// What a port received.
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
    /// Small ones.
    pub heads: Vec<Buffer>,
    /// For what does not fit a small one.
    pub tails: Vec<Buffer>,
}

/// Whether a port may have more to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// There is no more until the port is readable again.
    No,
    /// The burst ended before the port was seen empty.
    Maybe,
}

/// Where whoever a port is for is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Here, since an arrival. Another one is to be announced.
    Here(Arrival),
    /// On another host, or nowhere: there is nobody to send to.
    Away,
}

/// The number of an arrival, which tells it from others at the same port: 0 where nobody was
/// seen to come, as the port does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival(pub u32);

impl Default for Presence {
    fn default() -> Self {
        Self::Here(Arrival::default())
    }
}

/// What a port is to put on its wire next.
pub type Outgoing = tailbound_dataplane::Outgoing<Packet>;

/// What another process needs to go on with a port that is more than a descriptor.
#[derive(Debug)]
pub struct Estate {
    /// What the port alone understands.
    pub state: String,
    /// Descriptors, in the order that it knows.
    pub descriptors: Vec<OwnedFd>,
}

/// What became of what was given to [`Port::transmit`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Frames sent, without voids.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Voids sent.
    pub voids: u64,
    /// What they take of the wire, in bytes.
    pub void_bytes: u64,
    /// The port is full: what it left is to be offered again when it is
    /// writable.
    pub full: bool,
    /// Frames lost since the interface is down.
    pub link_down: u64,
    /// Frames lost in the full queue of the interface.
    pub device_full: u64,
    /// Frames that the kernel refused, or that did not fit into the guest's buffers.
    pub refused: u64,
    /// Descriptors of a ring that the port looked at for these frames.
    pub pieces: usize,
}

impl Sent {
    /// Counts one frame or void that was sent.
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

    /// The losses by reason.
    pub fn losses(&self) -> [(Reason, u64); 3] {
        [
            (Reason::LinkDown, self.link_down),
            (Reason::DeviceFull, self.device_full),
            (Reason::Refused, self.refused),
        ]
    }
}

/// A place that frames come from and go to.
///
/// An error of either method means that the port is of no use any more: its
/// interface vanished, its file cannot be read. What concerns single frames is
/// counted instead.
///
/// One thread may open or close it for the one that uses it: closing some takes as long as
/// ten thousand packets.
pub trait Port: Send {
    /// Appends a burst of frames to `burst`: at most [`BURST`], about
    /// [`BURST_BYTES`].
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More>;

    /// Sends from the front of `outgoing`, in order, and removes what was sent or
    /// lost; what stays is what there was no room for, or, where the port is not full, what
    /// would have made the burst too long. A lost void is not counted.
    fn transmit(&mut self, now: Nanos, outgoing: &mut VecDeque<Outgoing>) -> io::Result<Sent>;

    /// The descriptor that tells when the port can receive and transmit; `None`
    /// where [`Port::receive_at`] does.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the descriptor may say readable where it is writable: one that stands
    /// for several others does.
    fn readable_may_be_writable(&self) -> bool {
        false
    }

    /// Takes note that the descriptor was ready, for one that says so until then.
    fn note_ready(&mut self) {}

    /// The longest frame that it carries uncut, as of now, in bytes from the Ethernet
    /// header on, without a VLAN tag; `None` where it does not matter.
    fn longest(&self) -> Option<usize> {
        None
    }

    /// Whether whoever it is for is here: not at a card that no machine uses. Asked after
    /// each turn in which something was done with the port, so it costs next to nothing;
    /// the descriptor is ready when it has changed.
    fn presence(&self) -> Presence {
        Presence::default()
    }

    /// How far whoever is at the other end is with taking what it was sent: a number that
    /// changes whenever it took something, as far as the port can see that.
    fn progress(&self) -> u64 {
        0
    }

    /// The bytes of a guest's memory that are charged to this process, since it was the first
    /// to touch them.
    fn borrowed(&self) -> u64 {
        0
    }

    /// Whether the port sees to launch times ([`Outgoing::Frame`]).
    fn launch_times(&self) -> bool {
        false
    }

    /// When there is something to receive, for a port without a descriptor.
    fn receive_at(&self) -> Option<Nanos> {
        None
    }

    /// Hands on what the port has taken and could not hand on at once. Called at
    /// [`Port::flush_at`], since no descriptor tells when that works.
    fn flush(&mut self, _now: Nanos) -> io::Result<()> {
        Ok(())
    }

    /// When [`Port::flush`] is to be called.
    fn flush_at(&self) -> Option<Nanos> {
        None
    }

    /// Leaves the port alone, so that another process may go on with it; returns what
    /// that needs, where it is more than the descriptor. Until [`Port::resume`] nothing is
    /// received or transmitted; dropped before that, the port is that process's.
    fn pause(&mut self) -> Option<Estate> {
        None
    }

    /// Goes on after a pause: no other process does.
    fn resume(&mut self) {}

    /// How many frames were lost before they could be received, since the last
    /// call.
    fn take_overruns(&mut self) -> u64 {
        0
    }
}
