//! Mechanisms of the data path as BPF programs on the interfaces that a host has: the check of
//! guests' frames, tags, limits outward and inward, and guarantees {B, S} with a peak rate.
//!
//! [`Edge::open`] loads and pins the programs, [`Edge::attach_guest`] puts them on the host's end of
//! a guest's interface (TAP, veth, netkit in l2 mode), [`Edge::attach_uplink`] on an interface to the
//! outside. The host's bridge, router or Open vSwitch between them stays. All of it outlives the
//! process: frames are checked and paced by rules in maps, until [`Edge::detach`] or
//! [`Edge::remove`].
//!
//! A frame waits in `fq` by its departure time, which the program of the last interface computes by
//! exact token buckets (`edge/bucket.h`): the uplink's for frames to the outside, the guest's own for
//! frames to it. The charge is the length on the wire, of each frame of a GSO packet. Frames that
//! would wait longer than the horizon are dropped and counted.
//!
//! # Limits
//! - Departures are as exact as `fq`'s timer: [`Edge::lateness`] measures how late they are. Bytes of
//!   a burst are at most S + one frame + B · lateness. With [`UplinkQueue::Bpf`] (Linux 6.16), whose buckets are
//!   charged when frames leave, they are at most S + one frame, and at the peak rate one frame.
//! - A GSO packet leaves whole: with bursts of 15 KB and packets of 64 KiB, the burst is the packet.
//!   [`Guarantee::packet`] limits it: containers then cut longer ones, and the program of the uplink drops
//!   those of VMs. Set `host_tso4=off` for a TAP.
//! - A guest's limit outward holds at the uplink and at other attached guests' interfaces; frames to
//!   the host itself, and to interfaces without programs, pass unlimited. The guarantee holds at the
//!   uplink only.
//! - Destinations of a guest share its buckets, except those of [`Edge::set_destinations`]: their frames
//!   wait for a bucket of their own first, in a pair of interfaces before the bridge. Buckets of subtrees are
//!   missing. The host's own frames to the uplink are not paced.
//! - The uplink knows a guest by the interface that its frames came from. A bridge that routes
//!   (Docker's) hides that interface: such hosts need [`GuestRules::mark`].
//! - Unlike the switch's filter, the check does not know the IPv6 addresses of stations outside, and
//!   refuses more than 32 options of neighbour discovery.
//! - An interface with a root qdisc of its administrator is refused: `fq` would replace it. `fq`
//!   takes 2^20 frames; those that an uplink cannot send as fast as they come wait there, too.
//! - Frames that wait when a queue is removed are dropped.

mod attach;
mod bridge;
mod change;
mod offload;
mod pins;
mod qdisc;
mod queue;
mod rates;
mod raw;
mod rules;
mod splitter;
mod warm;

pub use pins::is_in_bpffs;
pub use queue::supports_bpf_queue;
pub use rates::{EdgeRates, RatePlace};
pub use rules::{
    Attachment, Bucket, Counters, Destination, DropReason, GrantedRate, Guarantee, Guard,
    GuestRules, HORIZON, Lateness, MAX_HORIZON, Prefix, Queue, RateUsage, Role, Roles, Tag,
    UplinkQueue, UplinkRules, Way,
};

use crate::bpf_program::{LoadError, ProgramCost, refused};
use aya::maps::PerCpuValues;
use bridge::Bridge;
use change::{check_queue, guest_queue, plan, root, same_kind};
use pins::{Maps, PROGRAMS, Pins, map_error};
use qdisc::Root;
use raw::{Interface, RawLateness, RawUplink};
use std::io;
use std::path::{Path, PathBuf};

/// The directory of pins by default.
pub const PIN: &str = "/sys/fs/bpf/tailbound";

/// Reason why the kernel's data path cannot be used or changed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The programs cannot be loaded or attached.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The directory of pins is in no bpffs.
    #[error("{0} is in no BPF file system; mount one: mount -t bpf bpf /sys/fs/bpf")]
    NoBpffs(String),
    /// Programs of another version are pinned.
    #[error(
        "{path} holds programs of another version of tailbound (layout {found}, this one has \
         {own}); release all guests with that version first"
    )]
    Layout {
        /// The directory.
        path: PathBuf,
        /// The layout that is pinned.
        found: u64,
        /// The layout of this version.
        own: u64,
    },
    /// Another qdisc stands in the way.
    #[error(
        "interface {ifindex} has the qdisc {kind}, which is not the kernel's default; remove it \
         (tc qdisc del), or leave the interface to it"
    )]
    Qdisc {
        /// The interface.
        ifindex: u32,
        /// The kind of that qdisc.
        kind: String,
    },
    /// The interface is not attached, or it is an uplink.
    #[error("interface {0} is no guest's interface with programs of tailbound")]
    NoGuest(u32),
    /// The interface is attached for another purpose.
    #[error("interface {0} is attached as an uplink; a guest's interface is another one")]
    IsUplink(u32),
    /// The interface is attached for another purpose.
    #[error("interface {0} is attached as a guest's; an uplink is another one")]
    IsGuest(u32),
    /// A rule is out of range.
    #[error("{0}")]
    Rule(String),
    /// The interface is missing, or a call failed.
    #[error("cannot {doing}: {error}")]
    Io {
        /// The step.
        doing: String,
        /// The error.
        error: io::Error,
    },
}

fn step(doing: String, error: io::Error) -> EdgeError {
    EdgeError::Io { doing, error }
}

/// The name of an interface of this thread's network namespace.
fn name_of(ifindex: u32) -> Result<String, EdgeError> {
    let name = || {
        let (family, kind) = (
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
        );
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        Ok(rustix::net::netdevice::index_to_name(socket, ifindex)?)
    };
    name().map_err(|error| step(format!("find interface {ifindex}"), error))
}

/// The programs and maps of a host, pinned below a directory of a bpffs.
pub struct Edge {
    pins: Pins,
    maps: Maps,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge")
            .field("pins", &self.pins)
            .finish_non_exhaustive()
    }
}

impl Edge {
    /// Loads programs and maps and pins them below `pin`, or takes up what is pinned there.
    ///
    /// Programs, links and maps outlive this value and the process. Interfaces are those of the
    /// network namespace of the calling thread. Several processes may use one directory; their
    /// changes exclude each other.
    ///
    /// # Errors
    /// [`EdgeError::Load`], [`EdgeError::Layout`], [`EdgeError::NoBpffs`].
    pub fn open(pin: &Path) -> Result<Self, EdgeError> {
        let pins = Pins::at(pin)?;
        let _lock = pins.lock()?;
        if let Err(error) = pins.fill() {
            let _ = std::fs::remove_dir(pin);
            return Err(error);
        }
        let maps = pins.maps()?;
        Ok(Self { pins, maps })
    }

    /// Returns true if programs are pinned at `pin`, of any version.
    pub fn is_pinned(pin: &Path) -> bool {
        pin.join("layout").exists()
    }

    /// Puts programs on the host's end of a guest's interface (TAP, veth, netkit in l2 mode), and
    /// `fq` if frames to it wait. An interface that is attached already gets the new rules.
    ///
    /// # Errors
    /// Another qdisc stands in the way, a rule is out of range, or the kernel refuses; then nothing
    /// has changed.
    pub fn attach_guest(
        &mut self,
        ifindex: u32,
        rules: &GuestRules,
    ) -> Result<Attachment, EdgeError> {
        let _lock = self.pins.lock()?;
        let raw = self.check(ifindex, rules)?;
        match self.interface(ifindex)? {
            Some(found) if found.is_uplink => return Err(EdgeError::IsUplink(ifindex)),
            Some(found) if self.is_alive(found) => {
                self.replace(ifindex, &raw)?;
                return self.guest(ifindex);
            }
            Some(stale) => self.take_off(stale)?,
            None => {}
        }
        let others = self.queues_for(ifindex, &raw)?;
        let queue = if raw.limits_inward() || self.anyone_waits(&raw)? {
            guest_queue(ifindex)?
        } else {
            Queue::Untouched
        };
        let attachment = plan(ifindex, false, queue)?;
        let done = self
            .note(attachment)
            .and_then(|()| self.write(ifindex, &raw, None))
            .and_then(|()| self.put_on(attachment))
            .and_then(|()| self.limit_offload(ifindex, raw.longest()))
            .and_then(|()| self.add_queues(&others));
        self.or_undo(attachment, done)
    }

    /// Puts a program and `fq` on an interface to the outside: a NIC, a bond's port or a VLAN. Of a
    /// bond, attach the ports.
    ///
    /// # Errors
    /// As of [`Self::attach_guest`].
    pub fn attach_uplink(
        &mut self,
        ifindex: u32,
        rules: &UplinkRules,
    ) -> Result<Attachment, EdgeError> {
        let _lock = self.pins.lock()?;
        match self.interface(ifindex)? {
            Some(found) if !found.is_uplink => return Err(EdgeError::IsGuest(ifindex)),
            Some(found) if self.is_alive(found) => {
                same_kind(found, rules.queue)?;
                self.write_uplink(ifindex, *rules)?;
                return Ok(found);
            }
            Some(stale) => self.take_off(stale)?,
            None => {}
        }
        check_queue(self, rules.queue)?;
        let queue = match root(ifindex)? {
            Root::Default(_) | Root::Own if rules.queue == UplinkQueue::Bpf => Queue::Bpf,
            Root::Default(kind) if kind == "mq" => Queue::MultiFq,
            Root::Default(_) | Root::Own => Queue::Fq,
            Root::Others(kind) => return Err(EdgeError::Qdisc { ifindex, kind }),
        };
        let attachment = plan(ifindex, true, queue)?;
        let done = self.note(attachment).and_then(|()| {
            self.write_uplink(ifindex, *rules)?;
            self.put_on(attachment)
        });
        self.or_undo(attachment, done)
    }

    fn write_uplink(&mut self, ifindex: u32, rules: UplinkRules) -> Result<(), EdgeError> {
        let uplink = RawUplink {
            mark: rules.mark,
            bridge: Bridge::of(ifindex).map_or(0, |bridge| bridge.index),
        };
        let written = self.maps.uplinks.insert(ifindex, uplink, 0);
        written.map_err(map_error)
    }

    /// Replaces the rules of a guest. Tokens of its buckets stay, so that no change grants a burst
    /// twice.
    ///
    /// # Errors
    /// As of [`Self::attach_guest`]; [`EdgeError::NoGuest`].
    pub fn set(&mut self, ifindex: u32, rules: &GuestRules) -> Result<(), EdgeError> {
        let _lock = self.pins.lock()?;
        let raw = self.check(ifindex, rules)?;
        self.guest(ifindex)?;
        self.replace(ifindex, &raw)
    }

    /// Returns all interfaces with programs, those that have gone away included.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn attachments(&self) -> Result<Vec<Attachment>, EdgeError> {
        let entries = self.maps.interfaces.iter();
        let read = |entry: Result<(u32, Interface), _>| {
            let (ifindex, raw) = entry.map_err(map_error)?;
            Ok(raw.attachment(ifindex))
        };
        let mut all: Vec<_> = entries.map(read).collect::<Result<_, EdgeError>>()?;
        all.sort_by_key(|it| it.ifindex);
        Ok(all)
    }

    /// Returns true if the interface is there with all its programs.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn is_attached(&self, ifindex: u32) -> Result<bool, EdgeError> {
        let found = self.interface(ifindex)?;
        Ok(found.is_some_and(|found| self.is_alive(found)))
    }

    /// Reads the counters of a guest's interface.
    ///
    /// # Errors
    /// [`EdgeError::NoGuest`].
    pub fn counters(&self, ifindex: u32) -> Result<Counters, EdgeError> {
        self.guest(ifindex)?;
        let drops = self.maps.dropped.get(&ifindex, 0).map_err(map_error)?;
        let slot = self.maps.guests.get(&ifindex, 0).map_err(map_error)?.slot;
        let [outward, inward] = raw::sides(slot);
        let outward = self.maps.quick.sides.get(&outward, 0).map_err(map_error)?;
        let inward = self.maps.quick.sides.get(&inward, 0).map_err(map_error)?;
        Ok(Counters::new(drops, &outward, &inward))
    }

    /// Reads how late the host is; `None` if this kernel cannot measure it.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn lateness(&self) -> Result<Option<Lateness>, EdgeError> {
        if !self.pins.measures() {
            return Ok(None);
        }
        let cpus = self.maps.lateness.get(&0, 0).map_err(map_error)?;
        Ok(Some(RawLateness::sum(&cpus)))
    }

    /// Forgets the lateness that was measured so far.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn restart_lateness(&mut self) -> Result<(), EdgeError> {
        let nothing = RawLateness {
            buckets: [0; Lateness::BUCKETS],
            max: 0,
        };
        let cpus = aya::util::nr_cpus();
        let cpus = cpus.map_err(|(_, error)| step("count the CPUs".to_owned(), error))?;
        let all = PerCpuValues::try_from(vec![nothing; cpus]);
        let all = all.map_err(|error| step("reset the lateness".to_owned(), error))?;
        self.maps.lateness.set(0, all, 0).map_err(map_error)
    }

    /// Returns the cost of each program of interfaces, while a
    /// [`count_cost`](crate::bpf_program::count_cost) is held.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn cost(&self) -> Result<Vec<ProgramCost>, EdgeError> {
        let cost = PROGRAMS.into_iter().map(|name| {
            let info = self
                .pins
                .program(name)?
                .info()
                .map_err(|error| refused(&error))?;
            Ok(ProgramCost::of(name, &info))
        });
        cost.collect()
    }

    /// Takes programs and queue off an interface, and forgets its rules. An interface that is not
    /// attached, or has gone away, is no error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), EdgeError> {
        let _lock = self.pins.lock()?;
        match self.interface(ifindex)? {
            Some(found) => self.take_off(found),
            None => Ok(()),
        }
    }

    /// Detaches all interfaces and removes all pins; afterwards nothing is left in the kernel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(mut self) -> Result<(), EdgeError> {
        let _lock = self.pins.lock()?;
        for attachment in self.attachments()? {
            self.take_off(attachment)?;
        }
        self.pins.remove()
    }
}

#[cfg(test)]
mod tests;
