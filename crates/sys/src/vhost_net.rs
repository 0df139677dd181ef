//! A driver of vhost-net (`drivers/vhost/net.c`): it holds a TAP as a VMM with `vhost=on` does,
//! and sends and receives Ethernet frames by two virtio rings, without a virtual machine.
//!
//! The kernel does the same for it as for a guest: its thread of vhost copies frames between the
//! rings and the TAP. Frames have no offloads: the kernel segments and checksums before the ring.
//! [`Driver::open`] first, then [`Driver::send`], [`Driver::receive`] and [`Driver::wait`]. Nothing
//! here waits but `wait`.

mod memory;
mod queue;

use crate::tap::{Tap, TapError, VIRTIO_HEADER_LEN};
use memory::Memory;
use queue::Queue;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use tailbound_units::Nanos;

/// Entries of each ring, and frames that it holds.
pub const RING_LEN: u16 = 256;
/// Longest frame, in bytes, with its Ethernet header.
pub const MAX_FRAME: usize = queue::BUFFER_LEN - VIRTIO_HEADER_LEN;

// linux/vhost.h
const SET_FEATURES: libc::c_ulong = 0x4008_af00;
const SET_OWNER: libc::c_ulong = 0xaf01;
const SET_MEM_TABLE: libc::c_ulong = 0x4008_af03;
const SET_VRING_NUM: libc::c_ulong = 0x4008_af10;
const SET_VRING_ADDR: libc::c_ulong = 0x4028_af11;
const SET_VRING_BASE: libc::c_ulong = 0x4008_af12;
const SET_VRING_KICK: libc::c_ulong = 0x4008_af20;
const SET_VRING_CALL: libc::c_ulong = 0x4008_af21;
const NET_SET_BACKEND: libc::c_ulong = 0x4008_af30;

/// Positions of the rings in vhost-net.
const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;

/// `struct vhost_vring_state`.
#[repr(C)]
struct VringState {
    index: u32,
    value: u32,
}

/// `struct vhost_vring_file`.
#[repr(C)]
struct VringFile {
    index: u32,
    fd: i32,
}

/// `struct vhost_vring_addr`.
#[repr(C)]
struct VringAddress {
    index: u32,
    flags: u32,
    descriptors: u64,
    used: u64,
    available: u64,
    log: u64,
}

/// `struct vhost_memory` with one region.
#[repr(C)]
struct MemoryTable {
    regions: u32,
    padding: u32,
    guest_address: u64,
    len: u64,
    user_address: u64,
    flags: u64,
}

/// Reason why there is no driver.
#[derive(Debug, thiserror::Error)]
pub enum VhostNetError {
    /// The TAP cannot be held.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// There is no vhost-net, or it may not be opened.
    #[error("cannot open /dev/vhost-net: {0}; `modprobe vhost_net` loads its driver")]
    NoDriver(#[source] io::Error),
    /// A step of the set-up failed.
    #[error("vhost-net refuses {step}: {source}")]
    Refused {
        /// The request, by its name in `linux/vhost.h`.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A TAP that is held by vhost-net, with both rings. Dropping it detaches both.
#[derive(Debug)]
pub struct Driver {
    // Dropped first: with it the kernel's thread ends, which uses all that follows.
    vhost: OwnedFd,
    tap: Tap,
    receive: Ring,
    transmit: Ring,
    memory: Memory,
}

#[derive(Debug)]
struct Ring {
    queue: Queue,
    kick: OwnedFd,
    call: OwnedFd,
}

impl Ring {
    fn new(queue: Queue) -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self {
            queue,
            kick: event()?,
            call: event()?,
        })
    }

    /// Notifies vhost of new entries, unless it polls the ring anyway.
    fn notify(&self, memory: &Memory) -> io::Result<()> {
        if self.queue.wants_notification(memory) {
            match rustix::io::write(&self.kick, &1_u64.to_ne_bytes()) {
                // A full counter is a notification, too.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Driver {
    /// Attaches to the TAP `interface` of the caller's network namespace, which is made if there is
    /// none, and starts both rings. The interface still has to be set up.
    pub fn open(interface: &str) -> Result<Self, VhostNetError> {
        let refused = |step| move |source: io::Error| VhostNetError::Refused { step, source };
        let tap = Tap::open(interface, None)?;
        tap.leave_offloads().map_err(refused("TUNSETOFFLOAD"))?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let vhost = rustix::fs::open("/dev/vhost-net", flags, Mode::empty())
            .map_err(|errno| VhostNetError::NoDriver(errno.into()))?;
        let memory = Memory::new(2 * Queue::LEN).map_err(refused("memory"))?;
        let receive = Ring::new(Queue::for_receiving(&memory, 0)).map_err(refused("eventfd"))?;
        let transmit = Ring::new(Queue::for_sending(&memory, Queue::LEN));
        let driver = Self {
            vhost,
            tap,
            receive,
            transmit: transmit.map_err(refused("eventfd"))?,
            memory,
        };
        driver
            .start()
            .map_err(|(step, source)| VhostNetError::Refused { step, source })?;
        driver
            .receive
            .notify(&driver.memory)
            .map_err(refused("eventfd"))?;
        Ok(driver)
    }

    fn start(&self) -> Result<(), (&'static str, io::Error)> {
        let at = |step| move |error| (step, error);
        // It reads no argument.
        self.request(SET_OWNER, &0_u64)
            .map_err(at("VHOST_SET_OWNER"))?;
        self.request(SET_FEATURES, &0_u64)
            .map_err(at("VHOST_SET_FEATURES"))?;
        let table = MemoryTable {
            regions: 1,
            padding: 0,
            guest_address: self.memory.address(0),
            len: self.memory.len() as u64,
            user_address: self.memory.address(0),
            flags: 0,
        };
        self.request(SET_MEM_TABLE, &table)
            .map_err(at("VHOST_SET_MEM_TABLE"))?;
        self.start_ring(RECEIVE, &self.receive)?;
        self.start_ring(TRANSMIT, &self.transmit)
    }

    fn start_ring(&self, index: u32, ring: &Ring) -> Result<(), (&'static str, io::Error)> {
        let at = |step| move |error| (step, error);
        let value = |value| VringState { index, value };
        let file = |fd| VringFile { index, fd };
        self.request(SET_VRING_NUM, &value(RING_LEN.into()))
            .map_err(at("VHOST_SET_VRING_NUM"))?;
        self.request(SET_VRING_BASE, &value(0))
            .map_err(at("VHOST_SET_VRING_BASE"))?;
        let [descriptors, available, used] =
            ring.queue.parts().map(|part| self.memory.address(part));
        let address = VringAddress {
            index,
            flags: 0,
            descriptors,
            used,
            available,
            log: 0,
        };
        self.request(SET_VRING_ADDR, &address)
            .map_err(at("VHOST_SET_VRING_ADDR"))?;
        self.request(SET_VRING_KICK, &file(ring.kick.as_raw_fd()))
            .map_err(at("VHOST_SET_VRING_KICK"))?;
        self.request(SET_VRING_CALL, &file(ring.call.as_raw_fd()))
            .map_err(at("VHOST_SET_VRING_CALL"))?;
        self.request(NET_SET_BACKEND, &file(self.tap.as_fd().as_raw_fd()))
            .map_err(at("VHOST_NET_SET_BACKEND"))
    }

    fn request<A>(&self, number: libc::c_ulong, argument: &A) -> io::Result<()> {
        // SAFETY: each caller pairs a request with the struct that it reads; addresses in there are
        // those of `memory`, which outlives the descriptor, and of nothing else.
        let result = unsafe {
            libc::ioctl(
                self.vhost.as_raw_fd(),
                number as libc::Ioctl,
                std::ptr::from_ref(argument),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Puts a frame, of at most [`MAX_FRAME`] bytes, into the transmit ring. Returns `false` if the
    /// ring is full.
    ///
    /// # Errors
    /// The frame is too long, or vhost cannot be notified.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        if frame.len() > MAX_FRAME {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let Self {
            transmit, memory, ..
        } = self;
        let sent = transmit.queue.push(memory, frame)?;
        if sent {
            transmit.notify(memory)?;
        }
        Ok(sent)
    }

    /// Counts the frames that were put into the transmit ring and not taken by vhost yet.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn unsent(&mut self) -> io::Result<u16> {
        self.transmit.queue.reclaim(&self.memory)?;
        Ok(self.transmit.queue.outstanding())
    }

    /// Passes each frame that has arrived to `handle`, and returns their number.
    ///
    /// # Errors
    /// The ring is damaged, or vhost cannot be notified.
    pub fn receive(&mut self, mut handle: impl FnMut(&[u8])) -> io::Result<usize> {
        let Self {
            receive, memory, ..
        } = self;
        let mut frames = 0;
        while receive.queue.take(memory, &mut handle)? {
            frames += 1;
        }
        if frames > 0 {
            receive.notify(memory)?;
        }
        Ok(frames)
    }

    /// Waits until vhost reports a received frame, at most for `timeout`. Returns `false` after a
    /// time-out.
    ///
    /// # Errors
    /// The errors of `poll(2)`.
    pub fn wait(&self, timeout: Nanos) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.receive.call, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: (timeout.0 / 1_000_000_000).cast_signed(),
            tv_nsec: (timeout.0 % 1_000_000_000).cast_signed(),
        };
        let ready = poll(&mut polled, Some(&timeout))? > 0;
        if ready {
            let mut counter = [0; 8];
            // It is above zero, or another call has just read it.
            let _ = rustix::io::read(&self.receive.call, &mut counter);
        }
        Ok(ready)
    }
}
