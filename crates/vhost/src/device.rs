//! The virtio NIC: the guest's memory, negotiated features, and rings.
//!
//! The request thread changes the device, the packet loop uses it. Both lock a mutex for some
//! microseconds. Slow operations run before, and drops after the lock is held.

use crate::allowance::{Card, Part};
use crate::caller::{Caller, Event};
use crate::features::Features;
use crate::memory::{Log, Memory};
use crate::ring::{Format, Layout, MAX_RING_ENTRIES, Ring, RingError};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tailbound_switch::port::{Arrival, Presence};

/// Index of a ring. The receive ring of a pair comes first.
pub(crate) type RingIndex = usize;

/// State that both threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    device: Mutex<Device>,
    pub(crate) log: Arc<Log>,
    /// Ready when a ring was kicked, or the device has changed.
    pub(crate) epoll: Arc<OwnedFd>,
    wake: OwnedFd,
    /// Presence of the guest, readable without the device's lock.
    whereabouts: Whereabouts,
    /// The request thread has ended unexpectedly.
    is_dead: AtomicBool,
    /// Its part of the allowance for guests' memory.
    pub(crate) part: Part,
    /// Its [`AllowanceState`].
    allowance_state: AtomicU8,
}

/// State of a NIC with regard to its share of the allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowanceState {
    /// Within its part, or the true charge was less than the count.
    Good,
    /// The system is asked: the card is held.
    Asked,
    /// Its rings were broken for it, which the loop has not noted yet.
    Broken,
}

impl AllowanceState {
    const ALL: [Self; 3] = [Self::Good, Self::Asked, Self::Broken];
}

impl Shared {
    /// Returns a NIC with `pairs` unused pairs of rings.
    pub(crate) fn new(pairs: usize, part: Part) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &wake, EventData::new_u64(0), flags)?;
        Ok(Self {
            device: Mutex::new(Device::new(pairs, Arc::new(Caller::start(2 * pairs)?))),
            log: Arc::new(Log::of(part.counted())),
            part,
            allowance_state: AtomicU8::new(AllowanceState::Good as u8),
            epoll: Arc::new(epoll),
            wake,
            whereabouts: Whereabouts::default(),
            is_dead: AtomicBool::new(false),
        })
    }

    /// The device, for the thread of the requests. The packet loop does without it for as
    /// long, and is woken afterwards.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Device) -> T) -> T {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut device);
        self.note_guest(&device);
        drop(device);
        self.wake();
        result
    }

    /// Notes where the guest is, after its rings have changed.
    pub(crate) fn note_guest(&self, device: &Device) {
        self.whereabouts.note(device.receives());
    }

    /// Records the VMM's report that the guest has migrated to this host.
    pub(crate) fn announce(&self) {
        self.whereabouts.arrive_again();
        self.wake();
    }

    /// Returns the presence of the guest.
    pub(crate) fn presence(&self) -> Presence {
        self.whereabouts.get()
    }

    /// The device, for the packet loop: not while it is being changed.
    pub(crate) fn device(&self) -> Option<MutexGuard<'_, Device>> {
        match self.device.try_lock() {
            Ok(device) => Some(device),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Wakes the packet loop.
    pub(crate) fn wake(&self) {
        // Full after 2^64 wake-ups: then it is awake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The thread has ended that this is for.
    pub(crate) fn set_dead(&self) {
        self.is_dead.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// The standing of the card; requests a judgement if it has touched more than its part.
    /// Never waits.
    pub(crate) fn allowance_state(self: &Arc<Self>) -> AllowanceState {
        let allowance_state = self.allowance_state.load(Ordering::Acquire);
        let allowance_state = AllowanceState::ALL[usize::from(allowance_state)];
        match allowance_state {
            AllowanceState::Good if self.part.is_exceeded() => {
                match self.device().map(|device| device.runs()) {
                    // Held until it can be looked at.
                    None => AllowanceState::Asked,
                    Some(false) => AllowanceState::Good,
                    Some(true) => {
                        self.set_allowance_state(AllowanceState::Asked);
                        let card = Arc::downgrade(self);
                        self.part.ask(card);
                        AllowanceState::Asked
                    }
                }
            }
            AllowanceState::Broken => {
                self.set_allowance_state(AllowanceState::Good);
                AllowanceState::Broken
            }
            AllowanceState::Good | AllowanceState::Asked => allowance_state,
        }
    }

    fn set_allowance_state(&self, allowance_state: AllowanceState) {
        self.allowance_state
            .store(allowance_state as u8, Ordering::Release);
    }

    /// Watches a ring's kick descriptor, edge-triggered. It is never read, because the other end
    /// could block the read.
    pub(crate) fn watch(&self, file: File) -> io::Result<Kick> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &file, EventData::new_u64(0), flags)?;
        Ok(Kick {
            file,
            epoll: Arc::clone(&self.epoll),
        })
    }

    /// Takes note of kicks and changes, so that the descriptor is not ready for them again.
    pub(crate) fn note_ready(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = [MaybeUninit::uninit(); 16];
        // Those that there is no room for are ready again; which they are does not matter.
        let _ = epoll::wait(&self.epoll, &mut events, Some(&now));
    }
}

impl Card for Shared {
    fn part(&self) -> &Part {
        &self.part
    }

    fn pages(&self) -> u64 {
        let memory = self.change(|device| device.memory.clone());
        memory.map_or(0, |memory| memory.recount())
    }

    /// The system was asked; the packet loop goes on with the card.
    fn judged(&self, is_exceeded: bool) {
        if is_exceeded {
            self.change(|device| {
                for index in 0..device.rings.len() {
                    if matches!(device.rings[index].state, State::Running(_)) {
                        device.fail(index);
                    }
                }
            });
        }
        self.set_allowance_state(if is_exceeded {
            AllowanceState::Broken
        } else {
            AllowanceState::Good
        });
        self.wake();
    }
}

/// Presence of the guest in the lowest bit, and the number of its arrivals.
#[derive(Debug, Default)]
struct Whereabouts(AtomicU32);

impl Whereabouts {
    const HERE: u32 = 1;
    const ARRIVAL: u32 = 2;

    fn note(&self, is_here: bool) {
        let next = |known: u32| match (known & Self::HERE == Self::HERE, is_here) {
            (false, true) => Some(known.wrapping_add(Self::ARRIVAL) | Self::HERE),
            (true, false) => Some(known & !Self::HERE),
            (false, false) | (true, true) => None,
        };
        // An error is that nothing changes.
        let _ = (self.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Requests another announcement of the guest.
    fn arrive_again(&self) {
        self.0.fetch_add(Self::ARRIVAL, Ordering::AcqRel);
    }

    fn get(&self) -> Presence {
        let known = self.0.load(Ordering::Acquire);
        if known & Self::HERE == Self::HERE {
            Presence::Here(Arrival(known / Self::ARRIVAL))
        } else {
            Presence::Away
        }
    }
}

/// Kick descriptor of a ring, watched until it is dropped.
#[derive(Debug)]
pub(crate) struct Kick {
    file: File,
    epoll: Arc<OwnedFd>,
}

impl Kick {
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        // The monitor has it open as well, so to close it here is not enough.
        let _ = epoll::delete(&self.epoll, &self.file);
    }
}

/// The NIC.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) features: Features,
    pub(crate) rings: Vec<Vring>,
    /// Reports events of rings to the monitor.
    pub(crate) caller: Arc<Caller>,
}

/// A ring, and the parameters of its start.
#[derive(Debug, Default)]
pub(crate) struct Vring {
    pub(crate) size: u32,
    pub(crate) parts: Option<Parts>,
    pub(crate) kick: Option<Kick>,
    pub(crate) is_enabled: bool,
    pub(crate) state: State,
    /// Next index, for a VMM that queries a stopped ring.
    pub(crate) index: u16,
}

/// Addresses of a ring's parts in the VMM's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// State of a ring.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// The ring was not started.
    #[default]
    Stopped,
    /// The ring runs.
    Running(Box<Ring>),
    /// The driver violated the rules and must start the ring again.
    Broken,
}

impl Vring {
    /// Returns whether the ring is in use.
    pub(crate) fn is_active(&self) -> bool {
        self.is_enabled && matches!(self.state, State::Running(_))
    }

    /// The ring, where frames go through it.
    pub(crate) fn active(&mut self) -> Option<&mut Ring> {
        match &mut self.state {
            State::Running(ring) if self.is_enabled => Some(ring),
            _ => None,
        }
    }

    /// Returns the next index.
    pub(crate) fn index(&self) -> u16 {
        match &self.state {
            State::Running(ring) => ring.index(),
            State::Stopped | State::Broken => self.index,
        }
    }

    /// Ends it; what it was kicked by is returned, to be closed later.
    pub(crate) fn stop(&mut self) -> Option<Kick> {
        self.index = self.index();
        self.state = State::Stopped;
        self.kick.take()
    }

    /// Ends the ring's use.
    fn break_off(&mut self) {
        self.index = self.index();
        self.state = State::Broken;
    }
}

impl Device {
    fn new(pairs: usize, caller: Arc<Caller>) -> Self {
        Self {
            memory: None,
            features: Features::default(),
            rings: (0..2 * pairs).map(|_| Vring::default()).collect(),
            caller,
        }
    }

    /// A ring's driver broke its rules: the ring's use ends, and the monitor gets an event.
    pub(crate) fn fail(&mut self, index: RingIndex) {
        self.rings[index].break_off();
        self.caller.post(Event::Error, index);
        self.caller.wake();
    }

    /// Returns whether the guest has an active receive ring.
    pub(crate) fn receives(&self) -> bool {
        self.rings.iter().step_by(2).any(Vring::is_active)
    }

    /// True if any of its rings has begun.
    fn runs(&self) -> bool {
        let mut rings = self.rings.iter();
        rings.any(|ring| matches!(ring.state, State::Running(_)))
    }

    /// Returns the format of the rings' chains.
    pub(crate) fn format(&self) -> Format {
        Format {
            header: self.features.header_len(),
            mergeable: self.features.mergeable(),
        }
    }

    /// Returns a value that changes with the guest's progress on its receive rings.
    pub(crate) fn progress(&self) -> u64 {
        let Some(memory) = self.memory.as_deref() else {
            return 0;
        };
        let receiving = self.rings.iter().step_by(2);
        let progress = receiving.filter_map(|ring| match &ring.state {
            State::Running(ring) => ring.progress(memory).ok(),
            State::Stopped | State::Broken => None,
        });
        progress.map(u64::from).fold(0, |all, one| {
            all.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(one)
        })
    }

    /// Starts a ring whose parts, memory and kick are known.
    pub(crate) fn start(&mut self, index: RingIndex) -> Result<(), StartError> {
        let features = self.features;
        let ring = &mut self.rings[index];
        let parts = ring.parts.ok_or(StartError::Missing("addresses"))?;
        let memory = self.memory.as_deref();
        let memory = memory.ok_or(StartError::Missing("memory"))?;
        let at = |address| {
            memory
                .guest_address(address)
                .map_err(|_| StartError::Address(address))
        };
        let layout = Layout {
            size: ring.size,
            descriptors: at(parts.descriptors)?,
            available: at(parts.available)?,
            used: at(parts.used)?,
            event_index: features.event_index(),
        };
        ring.state = State::Running(Box::new(Ring::start(layout, memory)?));
        if !features.rings_need_enable() {
            ring.is_enabled = true;
        }
        Ok(())
    }

    /// Puts other memory in force, and returns what was there.
    pub(crate) fn set_memory(&mut self, memory: Option<Arc<Memory>>) -> Option<Arc<Memory>> {
        for index in 0..self.rings.len() {
            if let State::Running(running) = &self.rings[index].state {
                let checked = match memory.as_deref() {
                    Some(memory) => running.check(memory),
                    None => Err(RingError::Place("table of descriptors")),
                };
                if checked.is_err() {
                    self.fail(index);
                }
            }
        }
        std::mem::replace(&mut self.memory, memory)
    }

    /// As it was at first; what ends is returned, to be dropped later.
    pub(crate) fn reset(&mut self) -> Self {
        let pairs = self.rings.len() / 2;
        self.caller.clear();
        let fresh = Self::new(pairs, Arc::clone(&self.caller));
        std::mem::replace(self, fresh)
    }
}

/// Reason why a ring cannot start.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum StartError {
    #[error("its {0} were never told")]
    Missing(&'static str),
    #[error("the address {0:#x} is in none of the memory's regions")]
    Address(u64),
    #[error("{0}")]
    Ring(#[from] RingError),
}

/// Largest ring that is reported to the VMM, in entries.
pub(crate) const LARGEST: u32 = MAX_RING_ENTRIES as u32;
