//! Measures, by a BPF program in the kernel that only reads (`packets/packets.bpf.c`), the waits of
//! guests' packets in the host, whose packets were ahead of them, and the guests' TCP.
//!
//! A guest has a slot, and one or more interfaces of the host: TAPs, veths or netkits, each passed
//! to [`Tracer::follow`]. All of them are in the network namespace of the thread that
//! [loads](Tracer::load) the program. The program is unloaded when the [`Tracer`] is dropped, or
//! its process ends, by any signal.
//!
//! To keep a budget of CPU time, only one flow in 2^n may be [sampled](Tracer::set_sampling):
//! packets, bytes and drops are counted of all flows, times and TCP of the sampled ones. The flows
//! of guests that are only [counted](Tracer::count) are not followed; those guests are still known
//! as senders of the packets that others waited behind. Most of the cost is that of being called at
//! each tracepoint, so a [pause](Tracer::pause) saves more than sampling.
//!
//! Limits: a packet that `bpf_redirect_peer` or XDP puts into a guest passes none of the points
//! where the program looks. Requests are those of connections with one request at a time.

mod measurement;
mod raw;
mod reasons;

pub use measurement::{
    BUCKETS, Both, Delay, Direction, Histogram, Measurement, Occupant, Reason, Requests,
};

use crate::bpf_program::{self, LoadError, ProgramCost, kernel_types, lacks, link, load, refused};
use crate::timer::now;
use aya::maps::{Array, HashMap, MapData, PerCpuArray, PerCpuValues, RingBuf};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::{Ebpf, EbpfLoader};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use tailbound_units::Nanos;

/// The program as it was built; `scripts/bpf` makes it.
static PROGRAM: &[u8] = aya::include_bytes_aligned!("packets/packets.bpf.o");

/// The parts without which nothing is measured, and where each is attached.
const TRACEPOINTS: [(&str, &str); 4] = [
    ("on_receive", "netif_receive_skb"),
    ("on_backlog", "netif_rx"),
    ("on_queue", "net_dev_queue"),
    ("on_start", "net_dev_start_xmit"),
];

/// The parts that a kernel may lack, and their tracepoints.
const OPTIONAL: [(&str, &str); 2] = [("on_drop", "kfree_skb"), ("on_consume", "consume_skb")];

/// The sampling of no flow at all: only packets, bytes and drops are counted.
pub const NO_FLOW: u32 = 32;

/// Limits of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The number of slots, at most 65,000. Slots count from 0.
    pub slots: u32,
    /// From when on a request is slow, and reported as an event.
    pub slow: Nanos,
    /// One flow in 2^`sample_shift` is sampled.
    pub sample_shift: u32,
}

/// Why packets cannot be measured in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum PacketsError {
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The caller named a slot that does not exist.
    #[error("there is no slot {slot}: there are {slots}")]
    NoSlot {
        /// The slot.
        slot: u32,
        /// The number of slots.
        slots: u32,
    },
    /// Too many interfaces have similar indexes.
    #[error(
        "interface {0} cannot be followed: four others whose indexes differ by multiples of \
         4,096 are"
    )]
    Full(u32),
    /// The network namespace cannot be examined.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The side of a request that a guest was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The guest answered it.
    Served,
    /// The guest sent it.
    Made,
}

/// A request that took long: from its first segment to the first segment of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// The guest's side.
    pub kind: Kind,
    /// The guest's slot.
    pub slot: u32,
    /// The guest's own address.
    pub guest: SocketAddr,
    /// The other side's address, as it is at the guest's interface.
    pub peer: SocketAddr,
    /// The first sight of the request's first segment on the host, by the monotonic clock.
    pub began: Nanos,
    /// Five times by the monotonic clock, ascending. A time that is not known is the one before it.
    ///
    /// Of a request served: its last segment was first seen on the host; was put into the guest's
    /// interface; was taken out of it by the VMM, or by the guest's namespace; the answer was sent
    /// by the guest; left the host. Of a request made: its last segment was sent by the guest; left
    /// the host; the answer was first seen on the host; was put into the guest's interface; was
    /// taken out of it.
    pub times: [Nanos; 5],
    /// The waits in queues of its last segment and of the answer, by direction.
    pub waited: Both<Nanos>,
    /// The longest of those waits.
    pub longest_wait: Nanos,
    /// The interface of that queue; 0 if it has no queue.
    pub interface: u32,
    /// The sender of most bytes that this interface sent during the longest wait, apart from the
    /// packet's own sender.
    pub occupant: Occupant,
    /// The bytes of the occupant.
    pub occupant_bytes: u64,
    /// The bytes of the packet's own sender.
    pub own_bytes: u64,
    /// Segments that were retransmitted meanwhile, by direction.
    pub retransmitted: Both<u32>,
    /// Windows that were closed meanwhile, by the sender of that direction.
    pub closed: Both<u32>,
    /// Packets of the connection that the host dropped meanwhile.
    pub lost: u32,
    /// The slot of the guest that the peer's segments came from, by the interface where the host
    /// first saw them; `None` if they came from elsewhere.
    pub neighbour: Option<u32>,
}

/// Something that happened to one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A slow request.
    Slow(SlowRequest),
}

/// A guest's interface.
#[derive(Debug, Clone, Copy)]
struct Interface {
    slot: u32,
    /// True if flows are followed, and not only counted.
    is_followed: bool,
}

/// Measures packets of guests.
pub struct Tracer {
    places: Array<MapData, raw::Place>,
    meters: Array<MapData, raw::Meter>,
    traffics: PerCpuArray<MapData, raw::Traffic>,
    drops: HashMap<MapData, raw::Drop, u64>,
    behinds: HashMap<MapData, raw::Behind, raw::RawDelay>,
    controls: Array<MapData, raw::Control>,
    tags: Array<MapData, [u8; raw::STAMPS]>,
    slow_requests: RingBuf<MapData>,
    slots: u32,
    /// The interfaces that are measured, by index.
    interfaces: BTreeMap<u32, Interface>,
    shift: u32,
    /// The names of reasons for drops; `None` if the kernel has no reasons.
    reasons: Option<BTreeMap<u32, String>>,
    /// The parts that are missing, in words.
    missing: Vec<String>,
    /// The parts that are loaded.
    parts: Vec<&'static str>,
    /// Their links, by which they are attached; none while the measurement pauses.
    links: Vec<BtfTracePointLink>,
    programs: Ebpf,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer")
            .field("interfaces", &self.interfaces)
            .finish_non_exhaustive()
    }
}

impl Tracer {
    /// Loads the program and attaches it; no interface is followed yet.
    ///
    /// # Errors
    /// [`PacketsError`] names the part that this host lacks.
    pub fn load(settings: &Settings) -> Result<Self, PacketsError> {
        let btf = kernel_types()?;
        let netns = std::fs::metadata("/proc/thread-self/ns/net")?.ino() as u32;
        let slots = settings.slots.clamp(1, 65_000);
        let slow = settings.slow.0;
        let seed = seed();
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .map_max_entries("meters", slots)
            .map_max_entries("traffics", slots)
            .override_global("host_netns", &netns, true)
            .override_global("slow", &slow, true)
            .override_global("seed", &seed, true)
            .load(PROGRAM)
            .map_err(|error| refused(&error))?;
        for (name, tracepoint) in TRACEPOINTS {
            load(&mut programs, name, tracepoint, &btf)?;
        }
        let mut parts: Vec<_> = TRACEPOINTS.iter().map(|(name, _)| *name).collect();
        let mut missing = Vec::new();
        for (name, tracepoint) in OPTIONAL {
            match load(&mut programs, name, tracepoint, &btf) {
                Ok(()) => parts.push(name),
                Err(error) => missing.push(format!("{tracepoint}: {error}")),
            }
        }
        let mut take = |name| programs.take_map(name).ok_or_else(|| lacks(name));
        let mut tracer = Self {
            places: take("places")?.try_into().map_err(|e| refused(&e))?,
            meters: take("meters")?.try_into().map_err(|e| refused(&e))?,
            traffics: take("traffics")?.try_into().map_err(|e| refused(&e))?,
            drops: take("drops")?.try_into().map_err(|e| refused(&e))?,
            behinds: take("behinds")?.try_into().map_err(|e| refused(&e))?,
            controls: take("controls")?.try_into().map_err(|e| refused(&e))?,
            tags: take("tags")?.try_into().map_err(|e| refused(&e))?,
            slow_requests: take("slow_requests")?.try_into().map_err(|e| refused(&e))?,
            slots,
            interfaces: BTreeMap::new(),
            shift: settings.sample_shift,
            reasons: reasons::names(&std::fs::read("/sys/kernel/btf/vmlinux")?),
            missing,
            parts,
            links: Vec::new(),
            programs,
        };
        tracer.resume()?;
        Ok(tracer)
    }

    /// Loads the program only to check that it works.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn try_load() -> Result<Self, PacketsError> {
        Self::load(&Settings {
            slots: 1,
            slow: Nanos(u64::MAX),
            sample_shift: NO_FLOW,
        })
    }

    /// Detaches the program until it is [resumed](Self::resume): it costs nothing, and measures
    /// nothing.
    pub fn pause(&mut self) {
        self.links.clear();
    }

    /// Attaches the program again. Packets and requests in progress are not measured.
    ///
    /// # Errors
    /// The kernel refuses it; then nothing is attached.
    pub fn resume(&mut self) -> Result<(), PacketsError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        #[expect(
            clippy::large_stack_arrays,
            reason = "the table's one value is passed whole"
        )]
        self.tags
            .set(0, [0; raw::STAMPS], 0)
            .map_err(|e| refused(&e))?;
        self.set_control(now())?;
        let links = self.parts.iter().map(|part| link(&mut self.programs, part));
        self.links = links.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns true unless the measurement pauses.
    pub fn is_attached(&self) -> bool {
        !self.links.is_empty()
    }

    fn set_control(&mut self, resumed: Nanos) -> Result<(), PacketsError> {
        let mut interfaces = self.interfaces.values();
        let times_all = self.shift == 0 && interfaces.any(|it| it.is_followed);
        let control = raw::Control {
            resumed: resumed.0,
            times_all: times_all.into(),
        };
        Ok(self.controls.set(0, control, 0).map_err(|e| refused(&e))?)
    }

    /// Returns the missing parts of the kernel, each in a line; empty if nothing is missing.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Measures packets of an interface of the host from now on, for the guest of `slot`. A slot
    /// that has no other interface starts empty.
    ///
    /// # Errors
    /// There is no such slot, or no room for the interface.
    pub fn follow(&mut self, ifindex: u32, slot: u32) -> Result<(), PacketsError> {
        self.add(ifindex, slot, true)
    }

    /// Counts packets of an interface of the host from now on, for the guest of `slot`, and follows
    /// none of its flows. It is a sender that others may wait behind.
    ///
    /// # Errors
    /// As of [`follow`](Self::follow).
    pub fn count(&mut self, ifindex: u32, slot: u32) -> Result<(), PacketsError> {
        self.add(ifindex, slot, false)
    }

    fn add(&mut self, ifindex: u32, slot: u32, is_followed: bool) -> Result<(), PacketsError> {
        if slot >= self.slots {
            let slots = self.slots;
            return Err(PacketsError::NoSlot { slot, slots });
        }
        self.forget(ifindex);
        if !self.interfaces.values().any(|other| other.slot == slot) {
            self.clear(slot)?;
        }
        let at = ifindex % raw::PLACES;
        let mut place = self.places.get(&at, 0).map_err(|e| refused(&e))?;
        let free = place.ifindex.iter().position(|other| *other == 0);
        let way = free.ok_or(PacketsError::Full(ifindex))?;
        let interface = Interface { slot, is_followed };
        place.ifindex[way] = ifindex;
        place.guest[way] = self.word(interface);
        self.places.set(at, place, 0).map_err(|e| refused(&e))?;
        self.interfaces.insert(ifindex, interface);
        self.update_control()
    }

    /// The word of an interface, as `struct place` has it.
    fn word(&self, interface: Interface) -> u32 {
        let shift = if interface.is_followed {
            self.shift.min(NO_FLOW)
        } else {
            NO_FLOW
        };
        interface.slot | shift << 16
    }

    /// Updates the times that the program must measure.
    fn update_control(&mut self) -> Result<(), PacketsError> {
        let control = self.controls.get(&0, 0).map_err(|e| refused(&e))?;
        self.set_control(Nanos(control.resumed))
    }

    /// Measures packets of an interface no longer. The measurements of its slot stay.
    pub fn forget(&mut self, ifindex: u32) {
        if self.interfaces.remove(&ifindex).is_none() {
            return;
        }
        let at = ifindex % raw::PLACES;
        if let Ok(mut place) = self.places.get(&at, 0) {
            for other in &mut place.ifindex {
                if *other == ifindex {
                    *other = 0;
                }
            }
            let _ = self.places.set(at, place, 0);
        }
    }

    fn clear(&mut self, slot: u32) -> Result<(), PacketsError> {
        let refused = |error: aya::maps::MapError| refused(&error);
        self.meters
            .set(slot, raw::Meter::EMPTY, 0)
            .map_err(refused)?;
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        let empty = PerCpuValues::try_from(vec![raw::Traffic::default(); cpus])?;
        self.traffics.set(slot, empty, 0).map_err(refused)?;
        let drops: Vec<_> = self.drops.keys().flatten().collect();
        for key in drops.iter().filter(|key| key.slot == slot) {
            let _ = self.drops.remove(key);
        }
        let behinds: Vec<_> = self.behinds.keys().flatten().collect();
        for key in behinds.iter().filter(|key| key.slot == slot) {
            let _ = self.behinds.remove(key);
        }
        Ok(())
    }

    /// Samples one flow in 2^`shift` of the guests that are followed, of which a greater shift
    /// samples some; none from [`NO_FLOW`] on.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_sampling(&mut self, shift: u32) -> Result<(), PacketsError> {
        self.shift = shift;
        for (ifindex, interface) in &self.interfaces {
            let at = ifindex % raw::PLACES;
            let mut place = self.places.get(&at, 0).map_err(|e| refused(&e))?;
            for way in 0..raw::WAYS {
                if place.ifindex[way] == *ifindex {
                    place.guest[way] = self.word(*interface);
                }
            }
            self.places.set(at, place, 0).map_err(|e| refused(&e))?;
        }
        self.update_control()
    }

    /// Reads the measurements of a guest.
    ///
    /// # Errors
    /// There is no such slot.
    pub fn read(&self, slot: u32) -> Result<Measurement, PacketsError> {
        let meter = self.meters.get(&slot, 0).map_err(|e| refused(&e))?;
        let traffic = self.traffics.get(&slot, 0).map_err(|e| refused(&e))?;
        let mut measurement = meter.measurement();
        for cpu in traffic.iter() {
            measurement.packets.inward += cpu.frames[0];
            measurement.packets.outward += cpu.frames[1];
            measurement.bytes.inward += cpu.bytes[0];
            measurement.bytes.outward += cpu.bytes[1];
        }
        for (key, count) in self.drops.iter().flatten().filter(|it| it.0.slot == slot) {
            let reason = if self.reasons.is_some() {
                Reason::Number(key.reason as u32)
            } else {
                Reason::Location(key.reason)
            };
            let key = (direction(key.direction), reason);
            measurement.drops.insert(key, count);
        }
        for (key, delay) in self.behinds.iter().flatten().filter(|it| it.0.slot == slot) {
            let key = (
                direction(key.direction),
                key.ifindex,
                raw::occupant(key.occupant),
            );
            let delay = Delay {
                packets: delay.frames,
                wait: Nanos(delay.wait),
            };
            measurement.behind.insert(key, delay);
        }
        Ok(measurement)
    }

    /// Returns the kernel's name of a reason, such as `qdisc_drop`; in lower case.
    pub fn reason(&self, reason: Reason) -> Option<&str> {
        let Reason::Number(number) = reason else {
            return None;
        };
        self.reasons.as_ref()?.get(&number).map(String::as_str)
    }

    /// Passes all waiting events to `take`.
    pub fn events(&mut self, mut take: impl FnMut(Event)) {
        while let Some(item) = self.slow_requests.next() {
            if let Some(raw) = raw::Event::read(&item) {
                take(Event::Slow(SlowRequest::from(&raw)));
            }
        }
    }

    /// Returns the run time of the program, and how often it ran, while a
    /// [`count_cost`](bpf_program::count_cost) is held: one entry for each of its parts, by
    /// tracepoint. Some 48 ns of each run are the kernel's own for counting (measured on an AMD
    /// EPYC).
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn cost(&self) -> Result<Vec<ProgramCost>, PacketsError> {
        let parts = TRACEPOINTS.into_iter().chain(OPTIONAL);
        Ok(bpf_program::cost(&self.programs, parts)?)
    }
}

/// A number that no guest can guess, so that none can choose its flows' places in tables.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

const fn direction(raw: u32) -> Direction {
    if raw == 0 {
        Direction::In
    } else {
        Direction::Out
    }
}

#[cfg(test)]
mod tests;
