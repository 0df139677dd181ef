//! `AF_XDP` sockets on an interface, past the host's stack: the uplink, at a lower cost per frame.
//!
//! Frames for guests arrive by `AF_XDP` sockets, one for each receive queue. Frames to the
//! interface's own address stay with the host's stack. Broadcast and multicast frames do so, too,
//! and a packet socket receives a copy: if only one of the two received them, the other could not
//! answer.
//!
//! Sent frames leave by one queue, in order, past the interface's queueing discipline.

use crate::AfPacketPort;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Packet, Pool, VoidFrame};
use tailbound_switch::port::{BURST, Burst, More, Outgoing, Port, Received, TransmitResult};
use tailbound_sys::packet::PacketError;
use tailbound_sys::xdp::{AttachPreference, Losses, NicClock, Queue, SendRefusal, Xdp, XdpError};
use tailbound_units::Nanos;

/// Copy mode of the sockets: the NIC reads and writes their memory, or the kernel copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfXdpMode {
    /// Zero-copy if the NIC's driver supports it.
    #[default]
    Auto,
    /// Zero-copy, or an error.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

/// Pause before a busy device gets the rejected frames again: meanwhile it sends a frame of 1500 B
/// at 60 Mbit/s.
const BUSY: Nanos = Nanos::from_micros(200);

/// Reason why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// The sockets or their program failed.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The packet socket for broadcast and multicast failed.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The sockets cannot be waited for together.
    #[error("cannot wait for the sockets of {interface:?}: {source}")]
    Wait {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
}

/// `AF_XDP` sockets for guests' frames, and a packet socket for groups.
#[derive(Debug)]
pub struct AfXdpPort {
    /// The sockets; the first one also sends.
    sockets: Xdp,
    groups: AfPacketPort,
    /// Ready when one of the sockets is ready; also when the first one has room, if that is
    /// requested.
    epoll: OwnedFd,
    waits_for_room: bool,
    /// The index of the socket that is read next; the packet socket follows the last one.
    next: usize,
    launch: Option<Launch>,
    lost: Losses,
    /// The time of the next wake-up of the kernel for frames that it has not sent yet.
    wake_at: Option<Nanos>,
}

impl AfXdpPort {
    /// Opens `interface` in `netns`; it must exist and be up. Reads its first
    /// `queues` receive queues, or all.
    pub fn open(
        interface: &str,
        netns: Option<&Path>,
        mode: AfXdpMode,
        queues: Option<u32>,
    ) -> Result<Self, AfXdpError> {
        // First: without the permission for a packet socket, its error is the clearer one.
        let groups = AfPacketPort::open_for_groups(interface, netns)?;
        let preference = match mode {
            AfXdpMode::Auto => AttachPreference::Any,
            AfXdpMode::ZeroCopy => AttachPreference::ZeroCopy,
            AfXdpMode::Copy => AttachPreference::Copy,
        };
        let mut sockets = Xdp::open(interface, netns, preference, queues)?;
        tell(interface, &sockets);
        let voids = VoidFrame::new(sockets.address);
        if let Some(queue) = sockets.queues.first_mut() {
            queue.set_void(voids.bytes(void::MAX_VOID));
        }
        let epoll = watch(&sockets.queues, &groups).map_err(|source| AfXdpError::Wait {
            interface: interface.to_owned(),
            source,
        })?;
        Ok(Self {
            launch: sockets.clock.take().map(Launch::new),
            sockets,
            groups,
            epoll,
            waits_for_room: false,
            next: 0,
            lost: Losses::default(),
            wake_at: None,
        })
    }

    /// Wakes the kernel for the queued frames, and checks whether it sends them. In copy mode it
    /// stops when the device is busy, and continues only at another call.
    fn flush(&mut self, now: Nanos) -> io::Result<()> {
        if let Some(queue) = self.sockets.queues.first_mut() {
            queue.flush()?;
            self.wake_at = queue.is_stuck().then(|| now + BUSY);
        }
        Ok(())
    }

    /// Starts or stops waiting for room.
    fn wait_for_room(&mut self, wait: bool) -> io::Result<()> {
        if let Some(first) = self.sockets.queues.first()
            && self.waits_for_room != wait
        {
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, wait);
            epoll::modify(&self.epoll, first, EventData::new_u64(0), flags)?;
            self.waits_for_room = wait;
        }
        Ok(())
    }
}

/// Logs the mode of the interface, with warnings about slower modes.
fn tell(interface: &str, sockets: &Xdp) {
    for (mode, error) in &sockets.failed {
        tracing::warn!(interface, %mode, %error, "AF_XDP cannot attach in this mode here");
    }
    let queues = sockets.queues.len();
    let launch_times = sockets.clock.is_some();
    tracing::info!(interface, mode = %sockets.mode, queues, launch_times, "AF_XDP");
    if queues < sockets.receive_queues as usize {
        tracing::warn!(
            interface,
            receive_queues = sockets.receive_queues,
            read = queues,
            "frames on the other queues do not reach guests; remove `queues`, or set the \
                interface to as many queues by `ethtool -L`"
        );
    }
    if sockets.loses_tags {
        tracing::warn!(
            interface,
            "the interface takes 802.1Q tags out of received frames, and AF_XDP does not see \
             them; where tags matter: ethtool -K {interface} rxvlan off"
        );
    }
}

/// Makes an epoll instance for all sockets.
fn watch(queues: &[Queue], groups: &AfPacketPort) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let descriptors = queues.iter().map(AsFd::as_fd).chain(groups.descriptor());
    for (index, descriptor) in (0..).zip(descriptors) {
        let data = EventData::new_u64(index);
        epoll::add(&epoll, descriptor, data, EventFlags::IN)?;
    }
    Ok(epoll)
}

/// Converts the daemon's clock to the NIC's.
#[derive(Debug)]
struct Launch {
    nic: NicClock,
    /// The instant at which the daemon's clock was zero. `now` is always slightly in the past here;
    /// the earliest estimate is the closest.
    zero: Option<Instant>,
}

impl Launch {
    const fn new(nic: NicClock) -> Self {
        Self { nic, zero: None }
    }

    /// Returns the NIC's time of `at`.
    fn time(&mut self, now: Nanos, at: Nanos) -> Option<u64> {
        let meant = Instant::now().checked_sub(now.into())?;
        let zero = self.zero.map_or(meant, |zero| zero.min(meant));
        self.zero = Some(zero);
        self.nic.at(at, || {
            Nanos(u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
        })
    }
}

impl Port for AfXdpPort {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        // One of them has the burst; there is no more once all were empty.
        let sources = self.sockets.queues.len() + 1;
        let before = burst.frames.len();
        for _ in 0..sources {
            let source = self.next;
            self.next = (source + 1) % sources;
            match self.sockets.queues.get_mut(source) {
                None => {
                    self.groups.receive(now, pool, burst)?;
                }
                Some(queue) => {
                    queue.receive(BURST, |frame| {
                        let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
                        buffer[Packet::HEADROOM..][..frame.len()].copy_from_slice(frame);
                        burst.frames.push(Received {
                            buffer,
                            start: Packet::HEADROOM,
                            len: frame.len(),
                            virtio: None,
                        });
                    });
                }
            }
            if burst.frames.len() > before {
                return Ok(More::Maybe);
            }
        }
        Ok(More::No)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        let Some(queue) = self.sockets.queues.first_mut() else {
            return Ok(sent);
        };
        queue.reap();
        let mut flushed = false;
        while let Some(next) = outgoing.front_mut() {
            let entered = match next {
                Outgoing::Frame { frame, launch_at } => {
                    frame.complete_checksum();
                    let launch = launch_at
                        .zip(self.launch.as_mut())
                        .and_then(|(at, launch)| launch.time(now, at));
                    queue.send(frame.bytes(), launch)
                }
                Outgoing::Void { wire } => {
                    let wire = (*wire).clamp(void::SHORTEST, void::MAX_VOID);
                    queue.send_void((wire - void::OVERHEAD).0 as usize)
                }
            };
            match entered {
                Ok(()) => sent.add(next),
                Err(SendRefusal::TooLong) => sent.refused += 1,
                // The kernel may empty the ring at once.
                Err(SendRefusal::Full) if !flushed => {
                    queue.flush()?;
                    flushed = true;
                    continue;
                }
                Err(SendRefusal::Full) => {
                    sent.full = true;
                    break;
                }
            }
            flushed = false;
            outgoing.pop_front();
        }
        self.flush(now)?;
        self.wait_for_room(sent.full)?;
        Ok(sent)
    }

    fn flush(&mut self, now: Nanos) -> io::Result<()> {
        if self.wake_at.is_some_and(|at| at <= now) {
            self.flush(now)?;
        }
        Ok(())
    }

    fn flush_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn readable_may_be_writable(&self) -> bool {
        self.waits_for_room
    }

    fn launch_times(&self) -> bool {
        self.launch.is_some()
    }

    fn take_overruns(&mut self) -> u64 {
        let mut lost = Losses::default();
        for queue in &self.sockets.queues {
            let losses = queue.losses();
            lost.overruns += losses.overruns;
            lost.invalid += losses.invalid;
        }
        if lost.invalid > self.lost.invalid {
            let count = lost.invalid - self.lost.invalid;
            tracing::warn!(
                count,
                "AF_XDP descriptors were wrong: a fault of the driver"
            );
        }
        let new = lost.overruns.saturating_sub(self.lost.overruns);
        self.lost = lost;
        new + self.groups.take_overruns()
    }
}
