//! Waiting for descriptors, with deadlines in nanoseconds.

use crate::wake::Signals;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tailbound_switch::Interest;
use tailbound_switch::port::Port;
use tailbound_units::Nanos;

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Somebody woke the loop.
    Woken,
    /// Rates came from other hosts.
    Hose,
    /// Another daemon asks to take over.
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

/// Marks what other hosts send.
pub(super) const HOSE: u64 = u64::MAX - 1;

/// Marks what another daemon sends.
pub(super) const SUCCESSOR: u64 = u64::MAX - 2;

/// An epoll instance (level-triggered), and what it watches each port for.
pub(super) struct Poller {
    epoll: OwnedFd,
    /// By port index; `None` for a port that is not watched.
    watched: Vec<Option<EventFlags>>,
    events: Vec<Event>,
}

impl Poller {
    /// Watches the wake-up, `others` by their marks, and each port that is there for
    /// something to receive.
    pub(super) fn new<'p, 'o>(
        signals: &Signals,
        others: impl IntoIterator<Item = (u64, BorrowedFd<'o>)>,
        ports: impl IntoIterator<Item = &'p Option<Box<dyn Port>>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            signals.as_fd(),
            EventData::new_u64(WAKE),
            EventFlags::IN,
        )?;
        for (mark, other) in others {
            epoll::add(&epoll, other, EventData::new_u64(mark), EventFlags::IN)?;
        }
        let mut poller = Self {
            epoll,
            watched: Vec::new(),
            events: Vec::new(),
        };
        for (index, port) in ports.into_iter().enumerate() {
            poller.watched.push(None);
            if let Some(descriptor) = port.as_ref().and_then(|port| port.descriptor()) {
                let interest = Interest {
                    receive: true,
                    transmit: false,
                };
                poller.watch(index, descriptor, interest)?;
            }
        }
        poller.events = Vec::with_capacity(poller.watched.len() + 3);
        Ok(poller)
    }

    /// Watches a port for something to receive, for room to transmit, both, or
    /// only for errors. A system call only where that changes.
    pub(super) fn watch(
        &mut self,
        index: usize,
        port: BorrowedFd<'_>,
        interest: Interest,
    ) -> io::Result<()> {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, interest.receive);
        wanted.set(EventFlags::OUT, interest.transmit);
        let data = EventData::new_u64(index as u64);
        match self.watched[index] {
            Some(known) if known == wanted => return Ok(()),
            Some(_) => epoll::modify(&self.epoll, port, data, wanted)?,
            None => epoll::add(&self.epoll, port, data, wanted)?,
        }
        self.watched[index] = Some(wanted);
        Ok(())
    }

    /// The port's descriptor was closed: the kernel watches it no more.
    pub(super) fn forget(&mut self, index: usize) {
        self.watched[index] = None;
    }

    /// Waits for at most `timeout`, or for ever, and returns what is ready.
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
        Ok(self.events.iter().map(|event| {
            // Packed: a copy, not a reference.
            let (data, flags) = ({ event.data }.u64(), event.flags);
            if data == WAKE {
                return Ready::Woken;
            }
            if data == HOSE {
                return Ready::Hose;
            }
            if data == SUCCESSOR {
                return Ready::Successor;
            }
            // An error or hang-up is found by whoever reads.
            let closed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Ready::Port {
                index: data as usize,
                readable: closed || flags.contains(EventFlags::IN),
                writable: flags.contains(EventFlags::OUT),
            }
        }))
    }
}
