//! Waits for descriptors, with deadlines in nanoseconds.

use crate::wake::Signals;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tailbound_switch::Interest;
use tailbound_switch::port::Port;
use tailbound_units::Nanos;

/// A ready descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// A waker woke the loop.
    Woken,
    /// Datagrams with rates arrived from other hosts.
    Hose,
    /// Another daemon requests a takeover.
    Successor,
    /// A port.
    Port {
        index: usize,
        readable: bool,
        writable: bool,
    },
}

/// Marks the wake-up among the ports' indices.
const WAKE: u64 = u64::MAX;

/// Marks the socket of other hosts' datagrams.
pub(super) const HOSE: u64 = u64::MAX - 1;

/// Marks the socket of takeovers.
pub(super) const SUCCESSOR: u64 = u64::MAX - 2;

/// An epoll instance (level-triggered), and the watched events of each port.
///
/// The kernel identifies a port by its mark, which stays when the port changes its place.
pub(super) struct Poller {
    epoll: OwnedFd,
    /// The watched events, by port index.
    watched: Vec<WatchedPort>,
    /// The port index of each mark; `None` for a free mark.
    places: Vec<Option<usize>>,
    /// The free marks.
    free: Vec<Mark>,
    events: Vec<Event>,
}

/// The kernel's identifier of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(usize);

/// The watched events of a port.
#[derive(Debug, Clone, Copy)]
struct WatchedPort {
    mark: Mark,
    /// `None` for a port that is not watched.
    flags: Option<EventFlags>,
}

/// Interest in received frames.
const READABLE: Interest = Interest {
    receive: true,
    transmit: false,
};

impl Poller {
    /// Watches the waker, and each open port for something to receive.
    pub(super) fn new<'p>(
        signals: &Signals,
        ports: impl IntoIterator<Item = &'p Option<Box<dyn Port>>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut poller = Self {
            epoll,
            watched: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
        };
        poller.add(WAKE, signals.as_fd())?;
        for (index, port) in ports.into_iter().enumerate() {
            let mark = poller.mark(index);
            poller.watched.push(WatchedPort { mark, flags: None });
            if let Some(descriptor) = port.as_ref().and_then(|port| port.descriptor()) {
                poller.watch(index, descriptor, READABLE)?;
            }
        }
        poller.events.reserve(poller.watched.len() + 3);
        Ok(poller)
    }

    /// Watches a descriptor that is no port, by its mark, for something to receive.
    pub(super) fn add(&self, mark: u64, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let data = EventData::new_u64(mark);
        Ok(epoll::add(&self.epoll, descriptor, data, EventFlags::IN)?)
    }

    /// Returns a new mark for the port at a place.
    fn mark(&mut self, index: usize) -> Mark {
        let mark = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            Mark(self.places.len() - 1)
        });
        self.places[mark.0] = Some(index);
        mark
    }

    /// Watches a port for something to receive, for room to transmit, both, or only for errors. A
    /// system call is made only for a change.
    pub(super) fn watch(
        &mut self,
        index: usize,
        port: BorrowedFd<'_>,
        interest: Interest,
    ) -> io::Result<()> {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, interest.receive);
        wanted.set(EventFlags::OUT, interest.transmit);
        let WatchedPort { mark, flags } = self.watched[index];
        let data = EventData::new_u64(mark.0 as u64);
        match flags {
            Some(known) if known == wanted => return Ok(()),
            Some(_) => epoll::modify(&self.epoll, port, data, wanted)?,
            None => epoll::add(&self.epoll, port, data, wanted)?,
        }
        self.watched[index].flags = Some(wanted);
        Ok(())
    }

    /// Stops watching a port, before it is closed.
    pub(super) fn forget(&mut self, index: usize, port: Option<BorrowedFd<'_>>) {
        if self.watched[index].flags.take().is_some() {
            self.delete(port);
        }
    }

    /// Moves ports to other places: `former_indices` has the former place of each. Returns the former marks
    /// of all ports, with which the caller retires those that do not stay.
    pub(super) fn rearrange(
        &mut self,
        former_indices: impl IntoIterator<Item = Option<usize>>,
    ) -> Vec<Mark> {
        let before = std::mem::take(&mut self.watched);
        for watched in &before {
            self.places[watched.mark.0] = None;
        }
        for (index, old) in former_indices.into_iter().enumerate() {
            let watched = match old {
                Some(old) => before[old],
                None => WatchedPort {
                    mark: self.mark(index),
                    flags: None,
                },
            };
            self.places[watched.mark.0] = Some(index);
            self.watched.push(watched);
        }
        self.events.clear();
        self.events.reserve(self.watched.len() + 3);
        before.into_iter().map(|watched| watched.mark).collect()
    }

    /// Stops watching a port without a place, before it is closed.
    pub(super) fn retire(&mut self, mark: Mark, port: Option<BorrowedFd<'_>>) {
        self.delete(port);
        self.free.push(mark);
    }

    /// Removes a descriptor. While another process also has it, the kernel would otherwise watch it
    /// even after it is closed here.
    fn delete(&self, port: Option<BorrowedFd<'_>>) {
        if let Some(port) = port {
            // It may never have been watched.
            let _ = epoll::delete(&self.epoll, port);
        }
    }

    /// Waits for at most `timeout`, or without a limit, and returns the ready descriptors.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Nanos>,
    ) -> io::Result<impl Iterator<Item = Ready> + '_> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (timeout.0 % 1_000_000_000).cast_signed(),
        });
        self.events.clear();
        let events = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let places = &self.places;
        Ok(self.events.iter().filter_map(|event| {
            // Packed: a copy, not a reference.
            let (data, flags) = ({ event.data }.u64(), event.flags);
            if data == WAKE {
                return Some(Ready::Woken);
            }
            if data == HOSE {
                return Some(Ready::Hose);
            }
            if data == SUCCESSOR {
                return Some(Ready::Successor);
            }
            // The next read finds an error or a hang-up.
            let closed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Some(Ready::Port {
                index: places.get(data as usize).copied().flatten()?,
                readable: closed || flags.contains(EventFlags::IN),
                writable: flags.contains(EventFlags::OUT),
            })
        }))
    }
}
