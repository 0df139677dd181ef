//! What a machine's monitor asks of the card.

use crate::device::{Device, LARGEST, Parts, RingIndex, Shared, StartError, State};
use crate::features::{FeatureError, Features};
use crate::memory::{MOST_REGIONS, Memory, MemoryError, Place};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use tailbound_sys::guest_memory::Region;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
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
    #[error("ring {0} is to be polled: a descriptor to kick is wanted")]
    NoKick(RingIndex),
    #[error("what is to wake for ring {0} is no eventfd")]
    NoEvent(RingIndex),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the log of pages: {0}")]
    Log(tailbound_sys::guest_memory::MapError),
    #[error("protocol features {0:#x} were never offered")]
    Protocol(u64),
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::ReqHandlerError(io::Error::other(refusal))
    }
}

/// Answers to a monitor for as long as it is connected.
#[derive(Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    pairs: usize,
    acknowledges: bool,
}

impl Handler {
    pub(crate) fn new(shared: Arc<Shared>, pairs: usize) -> Self {
        Self {
            shared,
            pairs,
            acknowledges: false,
        }
    }

    /// Whether requests are acknowledged, where that is asked for.
    pub(crate) const fn acknowledges(&self) -> bool {
        self.acknowledges
    }

    fn ring(&self, index: u64) -> std::result::Result<RingIndex, Refusal> {
        let number = usize::try_from(index).unwrap_or(usize::MAX);
        if number >= 2 * self.pairs {
            return Err(Refusal::NoRing(index, self.pairs));
        }
        Ok(number)
    }

    /// Changes what a stopped ring will start with.
    fn prepare(
        &self,
        index: u32,
        change: impl FnOnce(&mut crate::device::Vring),
    ) -> std::result::Result<(), Refusal> {
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

    /// A descriptor that is written to by the packet loop.
    fn event(
        &self,
        index: u8,
        file: Option<File>,
    ) -> std::result::Result<(RingIndex, Option<File>), Refusal> {
        let index = self.ring(index.into())?;
        let file = file.map(|file| check_event(index, file)).transpose()?;
        Ok((index, file))
    }
}

/// Sees that a descriptor is an eventfd, whose writer never waits.
fn check_event(index: RingIndex, file: File) -> std::result::Result<File, Refusal> {
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

/// Offered: several queues, the log as a file, memory that comes and goes.
fn protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::LOG_SHMFD
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::RESET_DEVICE
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
}

impl VhostUserBackendReqHandlerMut for Handler {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        // Obsolete: as a device that is reset (vhost-user specification).
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
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
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(Features::offered())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let chosen = Features::choose(features).map_err(Refusal::from)?;
        self.shared.change(|device| {
            let running = |ring: &crate::device::Vring| matches!(ring.state, State::Running(_));
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

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let regions = regions.iter().map(place).zip(files);
        let memory = Memory::map(regions, &self.shared.log).map_err(Refusal::from)?;
        self.set_memory(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        if !num.is_power_of_two() || num > LARGEST {
            return Err(Refusal::Size(self.ring(index.into())?, num).into());
        }
        Ok(self.prepare(index, |ring| ring.size = num)?)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let parts = Parts {
            descriptors,
            available,
            used,
        };
        let number = self.ring(index.into())?;
        // Told again when the log begins. The used part is in the guest's memory, and
        // logged as that.
        let known = self
            .shared
            .change(|device| device.rings[number].parts == Some(parts));
        if known {
            return Ok(());
        }
        Ok(self.prepare(index, |ring| ring.parts = Some(parts))?)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        // The ring itself knows better: it starts where its used part is.
        Ok(self.prepare(index, |ring| ring.index = base as u16)?)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let number = self.ring(index.into())?;
        let (kick, base) = self.shared.change(|device| {
            let ring = &mut device.rings[number];
            (ring.stop(), ring.index())
        });
        drop(kick);
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let (number, file) = self.event(index, fd)?;
        let file = file.ok_or(Refusal::NoKick(number))?;
        let kick = self.shared.watch(file);
        let kick = kick.map_err(|error| Refusal::System("watch a ring's kicks", error))?;
        let started = self.shared.change(|device| {
            let before = device.rings[number].kick.replace(kick);
            let started = match device.rings[number].state {
                State::Running(_) => Ok(()),
                State::Stopped | State::Broken => device.start(number),
            };
            (before, started)
        });
        let (before, started) = started;
        drop(before);
        Ok(started.map_err(|error| Refusal::Start(number, error))?)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let (number, file) = self.event(index, fd)?;
        let before = self.shared.change(|device| {
            let ring = &mut device.rings[number];
            let before = std::mem::replace(&mut ring.call, file);
            // What was given back before may have been told to nobody.
            ring.call();
            before
        });
        drop(before);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let (number, file) = self.event(index, fd)?;
        let replace =
            |device: &mut Device| std::mem::replace(&mut device.rings[number].error, file);
        drop(self.shared.change(replace));
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !protocol_features().bits();
        if unknown != 0 {
            return Err(Refusal::Protocol(unknown).into());
        }
        self.acknowledges = features & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.pairs as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let number = self.ring(index.into())?;
        self.shared
            .change(|device| device.rings[number].is_enabled = enable);
        Ok(())
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation(
            "the monitor has the configuration space",
        ))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation(
            "the monitor has the configuration space",
        ))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("a network card has no display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("no objects are shared"))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("no chain is in flight"))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("no chain is in flight"))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MOST_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        let memory = self.memory();
        let memory = memory.with(place(region), file, &self.shared.log);
        self.set_memory(memory.map_err(Refusal::from)?);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let place = place(region);
        let memory = self.memory().without(place.guest, place.len);
        self.set_memory(memory.map_err(Refusal::from)?);
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("the rings are all of its state"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("the rings are all of its state"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("no memory is shared by this side"))
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let len = usize::try_from(log.mmap_size).unwrap_or(usize::MAX);
        let pages = Region::map(file, log.mmap_offset, len, 0, ()).map_err(Refusal::Log)?;
        self.shared.log.set_pages(Some(pages));
        Ok(())
    }
}
