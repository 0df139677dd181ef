//! Departures of frames from interfaces, logged in the kernel where it passes a frame to a driver
//! (`net_dev_start_xmit`), by a BPF program (`departures/departures.bpf.c`).
//!
//! The log is for measurements of some 100,000 frames: each departure is an entry of a table, read
//! afterwards. It ends when the [`Log`] is dropped, or the process ends.

use crate::bpf_program::{LoadError, attach, kernel_types, lacks, refused};
use aya::maps::{Array, HashMap, MapData};
use aya::{Ebpf, EbpfLoader, Pod};
use tailbound_units::{Bytes, Nanos};

/// The program as it was built; `scripts/bpf` makes it.
static PROGRAM: &[u8] = aya::include_bytes_aligned!("departures/departures.bpf.o");

/// A frame, or a packet of GSO, that was given to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// Index of the interface, in its own network namespace.
    pub interface: u32,
    /// Time of the departure, by the monotonic clock.
    pub time: Nanos,
    /// Departure time that the frame was given (EDT), by the clock that its queue uses.
    pub due: Option<Nanos>,
    /// Length with the Ethernet header, without check sequence, preamble and gap.
    pub len: Bytes,
    /// Frames on the wire that it becomes: 1, or more for a packet of GSO.
    pub frames: u32,
}

/// `struct departure`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawDeparture {
    time: u64,
    due: u64,
    len: u32,
    ifindex: u32,
    segments: u32,
    unused: u32,
}

// SAFETY: whole numbers alone, without padding: 2 times 8 and 4 times 4 bytes.
unsafe impl Pod for RawDeparture {}

/// A log of departures.
pub struct Log {
    interfaces: HashMap<MapData, u32, u32>,
    departures: Array<MapData, RawDeparture>,
    count: Array<MapData, u64>,
    /// The program is attached until this is dropped.
    _programs: Ebpf,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    /// Loads the program with room for `capacity` departures; no interface is logged yet.
    pub fn load(capacity: u32) -> Result<Self, LoadError> {
        let types = kernel_types()?;
        let mut programs = EbpfLoader::new()
            .btf(Some(&types))
            .map_max_entries("departures", capacity.max(1))
            .load(PROGRAM)
            .map_err(|error| refused(&error))?;
        attach(&mut programs, "on_departure", "net_dev_start_xmit", &types)?;
        let mut take = |name| programs.take_map(name).ok_or_else(|| lacks(name));
        Ok(Self {
            interfaces: take("interfaces")?.try_into().map_err(|e| refused(&e))?,
            departures: take("departures")?.try_into().map_err(|e| refused(&e))?,
            count: take("count")?.try_into().map_err(|e| refused(&e))?,
            _programs: programs,
        })
    }

    /// Logs the interface of this index from now on; up to 16 can be logged at a time. An index
    /// counts in all network namespaces, where several interfaces may have it.
    pub fn watch(&mut self, interface: u32) -> Result<(), LoadError> {
        self.interfaces
            .insert(interface, 0, 0)
            .map_err(|error| refused(&error))
    }

    /// Clears the log. Departures during the call may be in either log.
    pub fn clear(&mut self) -> Result<(), LoadError> {
        self.count.set(0, 0, 0).map_err(|error| refused(&error))
    }

    /// Number of departures since the log began, also of those that it had no room for.
    pub fn count(&self) -> Result<u64, LoadError> {
        self.count.get(&0, 0).map_err(|error| refused(&error))
    }

    /// Reads the log, in the order of departures on one CPU.
    pub fn read(&self) -> Result<Vec<Departure>, LoadError> {
        let logged = self.count()?.min(self.departures.len().into());
        let entries = (0..logged as u32).map(|at| {
            let raw = self.departures.get(&at, 0).map_err(|e| refused(&e))?;
            Ok(Departure {
                interface: raw.ifindex,
                time: Nanos(raw.time),
                due: (raw.due != 0).then_some(Nanos(raw.due)),
                len: Bytes(raw.len.into()),
                frames: raw.segments.max(1),
            })
        });
        entries.collect()
    }
}
