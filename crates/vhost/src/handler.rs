//! Handler of the VMM's requests.

use crate::caller::Event;
use crate::device::{Device, LARGEST, Parts, RingIndex, Shared, StartError, State, Vring};
use crate::features::{FeatureError, Features};
use crate::memory::{MOST_REGIONS, Memory, MemoryError, Place};
use crate::message::{LengthError, Request, message};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use tailbound_sys::guest_memory::MapError;
use vhost::vhost_user::message::{
    FrontendReq, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures as Protocol,
    VhostUserSingleMemoryRegion, VhostUserVringAddr, VhostUserVringState,
};
use vm_memory::ByteValued as _;

/// Offered protocol features: several queues, the log as a file, announcements, acknowledgements,
/// device reset, dynamic memory.
const PROTOCOL_FEATURES: u64 = Protocol::MQ
    .union(Protocol::LOG_SHMFD)
    .union(Protocol::RARP)
    .union(Protocol::REPLY_ACK)
    .union(Protocol::RESET_DEVICE)
    .union(Protocol::CONFIGURE_MEM_SLOTS)
    .bits();

/// Reason for the refusal of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no request {0}, or it was never offered")]
    Unknown(u32),
    #[error(transparent)]
    Length(#[from] LengthError),
    #[error("request {0} comes with {1} descriptors, which it cannot have")]
    Files(u32, usize),
    #[error("a ring is enabled or disabled by 1 or 0, and not by {0}")]
    Enable(u32),
    #[error("there is no ring {0}: the card has {1} pairs of them (`queues`)")]
    NoRing(u64, usize),
    #[error(transparent)]
    Features(#[from] FeatureError),
    #[error("ring {0} runs: it is stopped before it changes")]
    Runs(RingIndex),
    #[error("ring {0} cannot start: {1}")]
    Start(RingIndex, StartError),
    #[error("ring {0} has {1} entries, and may have {LARGEST}, a power of 2")]
    Size(RingIndex, u32),
    #[error("ring {0} has no kick descriptor, and polling is not supported")]
    NoKick(RingIndex),
    #[error("the call or kick descriptor of ring {0} is not an eventfd")]
    NoEvent(RingIndex),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the log of pages: {0}")]
    Log(MapError),
    #[error("protocol features {0:#x} were never offered")]
    Protocol(u64),
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// Answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No answer, or an acknowledgement if the VMM requested one.
    Done,
    /// An answer with this body, in bytes.
    Body(Vec<u8>),
}

type AnswerResult = Result<Answer, Refusal>;

fn number(number: u64) -> Answer {
    Answer::Body(number.to_le_bytes().into())
}

/// Request handler of one connection to a VMM.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    pairs: usize,
    /// Protocol features that were agreed on.
    agreed: u64,
}

impl Handler {
    /// One that has agreed on protocol features before; at first on none.
    pub(crate) const fn new(shared: Arc<Shared>, pairs: usize, agreed: u64) -> Self {
        Self {
            shared,
            pairs,
            agreed,
        }
    }

    /// The protocol features that were agreed on.
    pub(crate) const fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Returns whether requests are acknowledged on demand.
    pub(crate) const fn acknowledges(&self) -> bool {
        self.agreed & Protocol::REPLY_ACK.bits() != 0
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// The request is invalid; no state has changed.
    pub(crate) fn carry_out(&mut self, request: Request) -> AnswerResult {
        let Ok(code) = FrontendReq::try_from(request.code) else {
            return Err(Refusal::Unknown(request.code));
        };
        match code {
            FrontendReq::GET_FEATURES => return Ok(number(Features::offered())),
            FrontendReq::SET_FEATURES => self.set_features(request.number()?)?,
            FrontendReq::GET_PROTOCOL_FEATURES => return Ok(number(PROTOCOL_FEATURES)),
            FrontendReq::SET_PROTOCOL_FEATURES => self.set_protocol_features(request.number()?)?,
            FrontendReq::GET_QUEUE_NUM => return Ok(number(self.pairs as u64)),
            FrontendReq::GET_MAX_MEM_SLOTS => return Ok(number(MOST_REGIONS as u64)),
            FrontendReq::SET_OWNER => {}
            // Obsolete: as a device that is reset.
            FrontendReq::RESET_OWNER | FrontendReq::RESET_DEVICE => self.reset_device(),
            FrontendReq::SET_MEM_TABLE => self.set_memory_table(request)?,
            FrontendReq::ADD_MEM_REG => self.add_region(request)?,
            FrontendReq::REM_MEM_REG => self.remove_region(&request.message()?)?,
            FrontendReq::SET_LOG_BASE => return self.set_log(request),
            FrontendReq::SET_VRING_NUM => self.set_size(request.message()?)?,
            FrontendReq::SET_VRING_ADDR => self.set_addresses(request.message()?)?,
            FrontendReq::SET_VRING_BASE => {
                let VhostUserVringState { index, num } = request.message()?;
                // The ring itself knows better: it starts where its used part is.
                self.prepare(index, |ring| ring.index = num as u16)?;
            }
            FrontendReq::GET_VRING_BASE => return self.stop(request.message()?),
            FrontendReq::SET_VRING_KICK => self.set_kick(request)?,
            FrontendReq::SET_VRING_CALL => self.set_call(request)?,
            FrontendReq::SET_VRING_ERR => {
                let (number, file) = self.event(request)?;
                let replace =
                    |device: &mut Device| device.caller.replace(Event::Error, number, file);
                drop(self.shared.change(replace));
            }
            FrontendReq::SET_VRING_ENABLE => self.enable(request.message()?)?,
            FrontendReq::SEND_RARP => {
                // The station that it names is the one that the guest was given.
                request.number()?;
                self.shared.announce();
            }
            _ => return Err(Refusal::Unknown(request.code)),
        }
        Ok(Answer::Done)
    }

    fn ring(&self, index: u64) -> Result<RingIndex, Refusal> {
        let number = usize::try_from(index).unwrap_or(usize::MAX);
        if number >= 2 * self.pairs {
            return Err(Refusal::NoRing(index, self.pairs));
        }
        Ok(number)
    }

    /// Changes what a stopped ring will start with.
    fn prepare(&self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<(), Refusal> {
        let index = self.ring(index.into())?;
        self.shared.change(|device| {
            let ring = &mut device.rings[index];
            if matches!(ring.state, State::Running(_)) {
                return Err(Refusal::Runs(index));
            }
            change(ring);
            Ok(())
        })
    }

    fn set_memory(&self, memory: Memory) {
        let memory = Some(Arc::new(memory));
        let before = self.shared.change(|device| device.set_memory(memory));
        drop(before);
    }

    fn memory(&self) -> Arc<Memory> {
        let memory = self.shared.change(|device| device.memory.clone());
        memory.unwrap_or_else(|| {
            let empty = Memory::map([], &self.shared.log);
            Arc::new(empty.unwrap_or_else(|_| unreachable!("no region is none too many")))
        })
    }

    /// A descriptor that wakes the packet loop, or is written to by the card's caller, and its
    /// ring.
    fn event(&self, request: Request) -> Result<(RingIndex, Option<File>), Refusal> {
        /// In the number of the ring: no descriptor comes with it.
        const NONE: u64 = 1 << 8;
        let word = request.number()?;
        let index = self.ring(word & 0xff)?;
        let count = request.files.len();
        if count != usize::from(word & NONE == 0) {
            return Err(Refusal::Files(request.code, count));
        }
        let file = request.files.into_iter().next();
        let file = file.map(|file| check_event(index, file)).transpose()?;
        Ok((index, file))
    }

    fn reset_device(&self) {
        self.shared.log.switch(false);
        let kicks: Vec<_> = self.shared.change(|device| {
            device.features = Features::default();
            let rings = device.rings.iter_mut();
            rings
                .map(|ring| {
                    ring.is_enabled = false;
                    ring.stop()
                })
                .collect()
        });
        drop(kicks);
    }

    fn set_features(&self, features: u64) -> Result<(), Refusal> {
        let chosen = Features::choose(features)?;
        self.shared.change(|device| {
            let running = |ring: &Vring| matches!(ring.state, State::Running(_));
            let first = device.rings.iter().position(running);
            match first {
                Some(ring) if !chosen.differs_in_log_alone(device.features) => {
                    Err(Refusal::Runs(ring))
                }
                _ => {
                    device.features = chosen;
                    Ok(())
                }
            }
        })?;
        self.shared.log.switch(chosen.log_all());
        Ok(())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<(), Refusal> {
        let unknown = features & !PROTOCOL_FEATURES;
        if unknown != 0 {
            return Err(Refusal::Protocol(unknown));
        }
        self.agreed = features;
        Ok(())
    }

    fn set_memory_table(&self, request: Request) -> Result<(), Refusal> {
        /// The number of regions, and each of them.
        const COUNT: usize = 8;
        const REGION: usize = 32;
        let (count, regions) = request
            .body
            .split_first_chunk::<COUNT>()
            .ok_or_else(|| request.wrong_length())?;
        let count = u32::from_le_bytes([count[0], count[1], count[2], count[3]]) as usize;
        let (regions, rest) = regions.as_chunks::<REGION>();
        if regions.len() != count || count == 0 || !rest.is_empty() {
            return Err(request.wrong_length().into());
        }
        if request.files.len() != count {
            return Err(Refusal::Files(request.code, request.files.len()));
        }
        let regions = regions.iter().filter_map(|region| message(region));
        let places = regions.map(|region| place(&region)).zip(request.files);
        let memory = Memory::map(places, &self.shared.log)?;
        self.set_memory(memory);
        Ok(())
    }

    fn add_region(&self, mut request: Request) -> Result<(), Refusal> {
        let region: VhostUserSingleMemoryRegion = request.message()?;
        let (Some(file), true) = (request.files.pop(), request.files.is_empty()) else {
            return Err(Refusal::Files(request.code, request.files.len()));
        };
        let memory = self.memory();
        let memory = memory.with(place(&region), file, &self.shared.log)?;
        self.set_memory(memory);
        Ok(())
    }

    fn remove_region(&self, region: &VhostUserSingleMemoryRegion) -> Result<(), Refusal> {
        let place = place(region);
        let memory = self.memory().without(place.guest, place.len)?;
        self.set_memory(memory);
        Ok(())
    }

    fn set_log(&self, mut request: Request) -> AnswerResult {
        let VhostUserLog {
            mmap_size,
            mmap_offset,
        } = request.message()?;
        let (Some(file), true) = (request.files.pop(), request.files.is_empty()) else {
            return Err(Refusal::Files(request.code, request.files.len()));
        };
        let len = usize::try_from(mmap_size).unwrap_or(usize::MAX);
        let begun = self.shared.log.begin(file, mmap_offset, len);
        begun.map_err(Refusal::Log)?;
        Ok(Answer::Body(request.body))
    }

    fn set_size(&self, state: VhostUserVringState) -> Result<(), Refusal> {
        let (index, size) = (state.index, state.num);
        if !size.is_power_of_two() || size > LARGEST {
            return Err(Refusal::Size(self.ring(index.into())?, size));
        }
        self.prepare(index, |ring| ring.size = size)
    }

    fn set_addresses(&self, addresses: VhostUserVringAddr) -> Result<(), Refusal> {
        // Nothing here depends on the flags.
        let parts = Parts {
            descriptors: addresses.descriptor,
            available: addresses.available,
            used: addresses.used,
        };
        let index = addresses.index;
        let number = self.ring(index.into())?;
        // Told again when the log begins. The used part is in the guest's memory, and
        // logged as that.
        let known = self
            .shared
            .change(|device| device.rings[number].parts == Some(parts));
        if known {
            return Ok(());
        }
        self.prepare(index, |ring| ring.parts = Some(parts))
    }

    fn stop(&self, state: VhostUserVringState) -> AnswerResult {
        let index = state.index;
        let number = self.ring(index.into())?;
        let (kick, base) = self.shared.change(|device| {
            let ring = &mut device.rings[number];
            (ring.stop(), ring.index())
        });
        drop(kick);
        let state = VhostUserVringState::new(index, base.into());
        Ok(Answer::Body(state.as_slice().into()))
    }

    fn set_kick(&self, request: Request) -> Result<(), Refusal> {
        let (number, file) = self.event(request)?;
        let file = file.ok_or(Refusal::NoKick(number))?;
        let kick = self.shared.watch(file);
        let kick = kick.map_err(|error| Refusal::System("watch a ring's kicks", error))?;
        let (before, started) = self.shared.change(|device| {
            let before = device.rings[number].kick.replace(kick);
            let started = match device.rings[number].state {
                State::Running(_) => Ok(()),
                State::Stopped | State::Broken => device.start(number),
            };
            (before, started)
        });
        drop(before);
        started.map_err(|error| Refusal::Start(number, error))
    }

    fn set_call(&self, request: Request) -> Result<(), Refusal> {
        let (number, file) = self.event(request)?;
        let before = self.shared.change(|device| {
            let before = device.caller.replace(Event::Call, number, file);
            // What was given back before may have been told to nobody.
            device.caller.post(Event::Call, number);
            device.caller.wake();
            before
        });
        drop(before);
        Ok(())
    }

    /// Enables a ring. QEMU requests this before it negotiates features (`vhost_net_start`).
    fn enable(&self, state: VhostUserVringState) -> Result<(), Refusal> {
        let (index, on) = (state.index, state.num);
        let number = self.ring(index.into())?;
        if on > 1 {
            return Err(Refusal::Enable(on));
        }
        self.shared
            .change(|device| device.rings[number].is_enabled = on == 1);
        Ok(())
    }
}

/// Checks that a descriptor is an eventfd and makes it non-blocking. A VMM that clears the flag
/// again blocks only the caller of its own NIC.
fn check_event(index: RingIndex, file: File) -> Result<File, Refusal> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let link = link.map_err(|error| Refusal::System("see what a descriptor is", error))?;
    if link.to_str() != Some("anon_inode:[eventfd]") {
        return Err(Refusal::NoEvent(index));
    }
    let flags = fcntl_getfl(file.as_fd());
    let set = flags.and_then(|flags| fcntl_setfl(file.as_fd(), flags | OFlags::NONBLOCK));
    set.map_err(|error| Refusal::System("have a descriptor not wait", error.into()))?;
    Ok(file)
}

fn place(region: &VhostUserMemoryRegion) -> Place {
    Place {
        guest: region.guest_phys_addr,
        monitor: region.user_addr,
        len: region.memory_size,
        offset: region.mmap_offset,
    }
}
