//! A guest behind a TAP.

use crate::join;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use tailbound_dataplane::{Packet, Pool};
use tailbound_switch::Mac;
use tailbound_switch::port::{
    BURST, BURST_BYTES, Burst, More, Outgoing, Port, Received, TransmitResult,
};
use tailbound_sys::tap::{Tap, TapError, VIRTIO_HEADER_LEN, is_gone};
use tailbound_units::Nanos;

/// The place of the virtio header, so that the frame behind it has the headroom of a [`Packet`].
const OFFSET: usize = Packet::HEADROOM - VIRTIO_HEADER_LEN;

/// A TAP with offloads: packets of up to 64 KiB cross it as a whole, in both directions.
#[derive(Debug)]
pub struct TapPort {
    tap: Tap,
}

impl TapPort {
    /// Attaches to the TAP `interface` in `netns`, or creates it. A created TAP gets the MAC
    /// address `mac`: its kernel side is the guest.
    pub fn open(interface: &str, netns: Option<&Path>, mac: Option<Mac>) -> Result<Self, TapError> {
        let tap = Tap::open(interface, netns)?;
        if let Some(mac) = mac
            && !tap.is_persistent()
        {
            tap.set_mac(mac.0).map_err(|source| TapError::Other {
                interface: interface.to_owned(),
                step: "set the MAC address",
                source,
            })?;
        }
        Ok(Self { tap })
    }

    /// Continues with a descriptor that another process opened by [`TapPort::open`].
    ///
    /// # Errors
    /// The descriptor is not that of the interface in the namespace, or the interface is gone.
    pub fn adopt(fd: OwnedFd, interface: &str, netns: Option<&Path>) -> io::Result<Self> {
        let tap = Tap::adopt(fd, interface, netns)?;
        Ok(Self { tap })
    }
}

impl Port for TapPort {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        let Burst { frames, spare, .. } = burst;
        if spare.heads.is_empty() {
            spare.heads.push(pool.buffer(Pool::SMALL));
        }
        if spare.tails.is_empty() {
            spare.tails.push(pool.buffer(Pool::LARGE));
        }
        let (head, tail) = (&mut spare.heads[0], &mut spare.tails[0]);
        let mut bytes = 0;
        for _ in 0..BURST {
            // A small frame fits the small buffer. The rest of a large one is read into its place
            // in the large buffer.
            let rest = head.len();
            let mut parts = [
                IoSliceMut::new(&mut head[OFFSET..]),
                IoSliceMut::new(&mut tail[rest..]),
            ];
            let got = match self.tap.receive(&mut parts) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(More::No),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let buffer = join(pool, head, tail, OFFSET, got);
            let virtio = buffer[OFFSET..].first_chunk().copied();
            frames.push(Received {
                start: Packet::HEADROOM,
                len: got.saturating_sub(VIRTIO_HEADER_LEN),
                virtio,
                buffer,
            });
            bytes += got;
            if bytes >= BURST_BYTES {
                break;
            }
        }
        Ok(More::Maybe)
    }

    fn transmit(
        &mut self,
        _now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        while let Some(next) = outgoing.front_mut() {
            let result = match next {
                Outgoing::Frame { frame, .. } => self.tap.transmit(frame.with_virtio_header()),
                // A TAP has no wire, so voids are dropped.
                Outgoing::Void { .. } => Ok(()),
            };
            match result {
                Ok(()) => sent.add(next),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sent.full = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_gone(&error) => return Err(error),
                // A TAP that is down returns EIO (tun_get_user).
                Err(error) if error.raw_os_error() == Some(EIO) => sent.link_down += 1,
                Err(_) => sent.refused += 1,
            }
            outgoing.pop_front();
        }
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tap.as_fd())
    }
}

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
