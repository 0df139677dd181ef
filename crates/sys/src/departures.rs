//! Departures of frames from interfaces, logged in the kernel where it passes a frame to a driver
//! (`net_dev_start_xmit`), by a BPF program (`departures/departures.bpf.c`).
//!
//! The log is for measurements of some 100,000 frames: each departure is an entry of a table, read
//! afterwards. It ends when the [`Log`] is dropped, or the process ends.

use aya::maps::{Array, HashMap, MapData};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use tailbound_units::{Bytes, Nanos};

/// The program as it was built; `scripts/bpf` makes it.
static PROGRAM: &[u8] = aya::include_bytes_aligned!("departures/departures.bpf.o");

/// The kernel refuses the program, or one of its tables.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot log departures (requires BTF, CAP_BPF and CAP_PERFMON; tried from Linux 6.1 on): {0}"
)]
pub struct LogError(String);

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
    pub fn load(capacity: u32) -> Result<Self, LogError> {
        let btf = Btf::from_sys_fs().map_err(|error| failed(&error))?;
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .map_max_entries("departures", capacity.max(1))
            .load(PROGRAM)
            .map_err(|error| failed(&error))?;
        let program = programs.program_mut("on_departure").ok_or_else(lacks)?;
        let program: &mut BtfTracePoint = program.try_into().map_err(|e| failed(&e))?;
        program
            .load("net_dev_start_xmit", &btf)
            .map_err(|error| failed(&error))?;
        program.attach().map_err(|error| failed(&error))?;
        let mut take = |name| programs.take_map(name).ok_or_else(lacks);
        Ok(Self {
            interfaces: take("interfaces")?.try_into().map_err(|e| failed(&e))?,
            departures: take("departures")?.try_into().map_err(|e| failed(&e))?,
            count: take("count")?.try_into().map_err(|e| failed(&e))?,
            _programs: programs,
        })
    }

    /// Logs the interface of this index from now on; up to 16 can be logged at a time. An index
    /// counts in all network namespaces, where several interfaces may have it.
    pub fn watch(&mut self, interface: u32) -> Result<(), LogError> {
        self.interfaces
            .insert(interface, 0, 0)
            .map_err(|error| failed(&error))
    }

    /// Begins the log anew. Departures during the call may be in either log.
    pub fn clear(&mut self) -> Result<(), LogError> {
        self.count.set(0, 0, 0).map_err(|error| failed(&error))
    }

    /// Number of departures since the log began, also of those that it had no room for.
    pub fn count(&self) -> Result<u64, LogError> {
        self.count.get(&0, 0).map_err(|error| failed(&error))
    }

    /// Reads the log, in the order of departures on one CPU.
    pub fn read(&self) -> Result<Vec<Departure>, LogError> {
        let logged = self.count()?.min(self.departures.len().into());
        let entries = (0..logged as u32).map(|at| {
            let raw = self.departures.get(&at, 0).map_err(|e| failed(&e))?;
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

/// The object was built of another source.
fn lacks() -> LogError {
    LogError("departures.bpf.o lacks a part".to_owned())
}

/// An error and what led to it, in one line.
fn failed(error: &dyn std::error::Error) -> LogError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    LogError(text.lines().next().unwrap_or_default().to_owned())
}
