//! A port whose wire is a pair of queues in memory: for tests and benchmarks in
//! virtual time.

use super::{BURST, Burst, More, Outgoing, Port, Presence, Received, TransmitResult};
use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tailbound_dataplane::{Packet, Pool, VIRTIO_HEADER, VoidFrame};
use tailbound_units::Nanos;

/// The other side of a [`MemoryPort`].
#[derive(Debug, Default)]
pub struct Wire {
    /// Frames for the port to receive, each with its virtio header, if any.
    pub to_port: VecDeque<(Vec<u8>, Option<[u8; VIRTIO_HEADER]>)>,
    /// Sent frames, voids of [`Wire::STATION`] included, with their times.
    pub from_port: Vec<(Nanos, Vec<u8>)>,
    /// The number of frames that the port takes before it is full; `None`: unlimited.
    pub room: Option<usize>,
    /// True if the interface vanished: the port returns errors.
    pub gone: bool,
    /// True if the port finishes no checksums and does not segment: frames leave as they are, as on
    /// a TAP.
    pub offload: bool,
    /// The place of the port's guest.
    pub presence: Presence,
    /// The progress of the port's receiver.
    pub progress: u64,
    /// The longest frame that the port carries; `None`: unlimited.
    pub longest: Option<usize>,
}

impl Wire {
    /// The station address of the port.
    pub const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
}

/// The port's side of a [`Wire`].
#[derive(Debug, Default, Clone)]
pub struct MemoryPort(WireEnd);

/// A handle on a [`Wire`].
#[derive(Debug, Default, Clone)]
pub struct WireEnd(Arc<Mutex<Wire>>);

impl WireEnd {
    /// Returns the wire for reading.
    pub fn borrow(&self) -> impl Deref<Target = Wire> {
        self.borrow_mut()
    }

    /// Returns the wire for changes.
    pub fn borrow_mut(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryPort {
    /// Makes a port and the handle on its wire.
    pub fn new() -> (Self, WireEnd) {
        let wire = WireEnd::default();
        (Self(wire.clone()), wire)
    }
}

fn gone(wire: &Wire) -> io::Result<()> {
    if wire.gone {
        return Err(io::Error::other("the interface vanished"));
    }
    Ok(())
}

impl Port for MemoryPort {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let mut wire = self.0.borrow_mut();
        gone(&wire)?;
        for _ in 0..BURST {
            let Some((bytes, virtio)) = wire.to_port.pop_front() else {
                return Ok(More::No);
            };
            let end = Packet::HEADROOM + bytes.len();
            let mut buffer = pool.buffer(end);
            buffer[Packet::HEADROOM..end].copy_from_slice(&bytes);
            burst.frames.push(Received {
                buffer,
                start: Packet::HEADROOM,
                len: bytes.len(),
                virtio,
            });
        }
        Ok(More::Maybe)
    }

    fn progress(&self) -> u64 {
        self.0.borrow().progress
    }

    fn longest(&self) -> Option<usize> {
        self.0.borrow().longest
    }

    fn presence(&self) -> Presence {
        self.0.borrow().presence
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut wire = self.0.borrow_mut();
        gone(&wire)?;
        let mut sent = TransmitResult::default();
        while !outgoing.is_empty() {
            if wire.room == Some(0) {
                sent.full = true;
                break;
            }
            wire.room = wire.room.map(|room| room - 1);
            let Some(mut next) = outgoing.pop_front() else {
                break;
            };
            let bytes = match &mut next {
                Outgoing::Frame { frame, .. } => {
                    if !wire.offload {
                        frame.complete_checksum();
                    }
                    frame.bytes().to_vec()
                }
                Outgoing::Void { wire } => VoidFrame::new(Wire::STATION).bytes(*wire).to_vec(),
            };
            wire.from_port.push((now, bytes));
            sent.add(&next);
        }
        Ok(sent)
    }
}
