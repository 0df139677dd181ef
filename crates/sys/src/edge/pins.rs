//! The files of programs, maps and links below a directory of a bpffs.

use super::raw::{
    Choice, Choices, Drops, Interface, LAYOUT, Line, LineKey, LineSide, Plain, Port, RawLateness,
    RawLease, RawOffload, RawUplink, RawWay, Rules, Side,
};
use super::rules::Queue;
use super::{EdgeError, queue, step};
use crate::bpf_program::{LoadError, kernel_types, lacks, patiently, refused};
use crate::struct_ops;
use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::{BtfTracePoint, FEntry, SchedClassifier};
use aya::{Ebpf, EbpfLoader};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The programs as they were built; `scripts/bpf` makes them.
pub(super) static PROGRAM: &[u8] = aya::include_bytes_aligned!("edge.bpf.o");

/// The programs of interfaces.
pub(super) const PROGRAMS: [&str; 7] = [
    "from_guest",
    "to_guest",
    "to_uplink",
    "to_queue",
    "to_splitter",
    "from_splitter",
    SETTLE,
];
/// The program that userspace runs itself.
pub(super) const SETTLE: &str = "settle_line";
/// The program that measures lateness, and the kernel's function that it precedes.
const LATENESS: (&str, &str) = ("on_start", "sch_direct_xmit");
/// The program for kernels that refuse this, and its tracepoint.
const LATENESS_OF_ANY: (&str, &str) = ("on_start_of_any", "net_dev_start_xmit");
/// The pin of the link of either.
const LATENESS_LINK: &str = "link-on_start";

/// The maps.
pub(super) struct Maps {
    pub(super) guests: HashMap<MapData, u32, Rules>,
    pub(super) dropped: HashMap<MapData, u32, Drops>,
    pub(super) marks: HashMap<MapData, u32, u32>,
    pub(super) uplinks: HashMap<MapData, u32, RawUplink>,
    pub(super) interfaces: HashMap<MapData, u32, Interface>,
    pub(super) stations: HashMap<MapData, u64, u32>,
    pub(super) configured: LpmTrie<MapData, [u8; 16], u32>,
    pub(super) lateness: PerCpuArray<MapData, RawLateness>,
    pub(super) offloads: HashMap<MapData, u32, RawOffload>,
    pub(super) choices: ChoiceMaps,
    pub(super) quick: QuickMaps,
    pub(super) split: SplitMaps,
}

/// Buckets, copies of rules for plain frames, and ways past a bridge.
pub(super) struct QuickMaps {
    pub(super) sides: Array<MapData, Side>,
    pub(super) ports: Array<MapData, Port>,
    pub(super) plains: Array<MapData, Plain>,
    pub(super) generations: Array<MapData, u32>,
    pub(super) ways: Array<MapData, RawWay>,
}

/// IPv6 addresses that guests chose, and those of each guest.
pub(super) struct ChoiceMaps {
    pub(super) by_address: HashMap<MapData, [u8; 16], Choice>,
    pub(super) by_guest: HashMap<MapData, u32, Choices>,
}

/// Destinations with buckets of their own.
pub(super) struct SplitMaps {
    pub(super) lines: HashMap<MapData, LineKey, Line>,
    pub(super) sides: Array<MapData, LineSide>,
    pub(super) splitter: Array<MapData, u32>,
    pub(super) lease: Array<MapData, RawLease>,
}

/// Returns true if a directory is in a BPF file system.
fn is_bpffs(path: &Path) -> io::Result<bool> {
    /// `BPF_FS_MAGIC`.
    const BPFFS: u64 = 0xcafe_4a11;
    let kind = rustix::fs::statfs(path)?.f_type;
    Ok(kind as u64 & 0xffff_ffff == BPFFS)
}

/// Returns true if a directory, which may not exist yet, is in a BPF file system.
pub fn is_in_bpffs(path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.exists());
    there.is_some_and(|path| is_bpffs(path).unwrap_or(false))
}

/// The clock by which frames arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// The kernel's.
    Monotonic,
    /// Each frame's `tstamp`.
    #[cfg(test)]
    OfTests,
}

/// A directory of pins.
#[derive(Debug)]
pub(super) struct Pins(PathBuf);

/// Excludes other processes from changes, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "open, and locked")] File);

impl Pins {
    /// Makes the directory if it is missing.
    pub(super) fn at(path: &Path) -> Result<Self, EdgeError> {
        std::fs::create_dir_all(path)
            .map_err(|error| step(format!("make {}", path.display()), error))?;
        let is_bpffs =
            is_bpffs(path).map_err(|error| step(format!("look at {}", path.display()), error))?;
        if !is_bpffs {
            let path = path.display();
            let _ = std::fs::remove_dir(path.to_string());
            return Err(EdgeError::NoBpffs(path.to_string()));
        }
        Ok(Self(path.into()))
    }

    /// Waits until no other process changes anything.
    pub(super) fn lock(&self) -> Result<Lock, EdgeError> {
        let open = || {
            let directory = File::open(&self.0)?;
            flock(&directory, FlockOperation::LockExclusive)?;
            io::Result::Ok(directory)
        };
        let directory =
            open().map_err(|error| step(format!("lock {}", self.0.display()), error))?;
        Ok(Lock(directory))
    }

    /// Loads and pins everything unless that is done. A load that was interrupted is undone first.
    pub(super) fn fill(&self) -> Result<(), EdgeError> {
        match self.layout()? {
            Some(LAYOUT) => return Ok(()),
            None | Some(0) => self.clear()?,
            Some(found) => {
                return Err(EdgeError::Layout {
                    path: self.0.clone(),
                    found,
                    own: LAYOUT,
                });
            }
        }
        let filled = self.load(Clock::Monotonic);
        if filled.is_err() {
            let _ = self.clear();
        }
        filled
    }

    fn layout(&self) -> Result<Option<u64>, EdgeError> {
        if !self.0.join("layout").exists() {
            return Ok(None);
        }
        let map: Array<MapData, u64> = self.map("layout")?.try_into().map_err(map_error)?;
        Ok(Some(map.get(&0, 0).map_err(map_error)?))
    }

    /// Loads and pins everything, into an empty directory.
    pub(super) fn load(&self, clock: Clock) -> Result<(), EdgeError> {
        let types = kernel_types()?;
        let netns = std::fs::metadata("/proc/thread-self/ns/net");
        let netns = netns.map_err(|error| step("look at /proc".to_owned(), error))?;
        let netns = netns.ino() as u32;
        let mut programs = EbpfLoader::new()
            .btf(Some(&types))
            .default_map_pin_directory(&self.0)
            .override_global("host_netns", &netns, true)
            .override_global(
                "clock_of_tests",
                &u32::from(clock != Clock::Monotonic),
                true,
            )
            .load(PROGRAM)
            .map_err(|error| refused(&error))?;
        for name in PROGRAMS {
            let program = classifier(&mut programs, name)?;
            patiently(|| program.load()).map_err(|error| refused(&error))?;
            program
                .pin(self.0.join(name))
                .map_err(|error| refused(&error))?;
        }
        // A kernel may refuse both: then lateness is not measured.
        if self.load_lateness(&mut programs, &types).is_err() {
            let _ = self.load_lateness_of_any(&mut programs, &types);
        }
        let map: Map = programs.take_map("layout").ok_or_else(|| lacks("layout"))?;
        let mut layout: Array<MapData, u64> = map.try_into().map_err(map_error)?;
        layout.set(0, LAYOUT, 0).map_err(map_error)?;
        Ok(())
    }

    fn load_lateness(&self, programs: &mut Ebpf, types: &aya::Btf) -> Result<(), LoadError> {
        let (name, function) = LATENESS;
        let program = programs.program_mut(name).ok_or_else(|| lacks(name))?;
        let measure: &mut FEntry = program.try_into().map_err(|error| refused(&error))?;
        patiently(|| measure.load(function, types)).map_err(|error| refused(&error))?;
        let pinned = program.pin(self.0.join(name));
        pinned.map_err(|error| refused(&error))
    }

    fn load_lateness_of_any(&self, programs: &mut Ebpf, types: &aya::Btf) -> Result<(), LoadError> {
        let (name, tracepoint) = LATENESS_OF_ANY;
        let program = programs.program_mut(name).ok_or_else(|| lacks(name))?;
        let measure: &mut BtfTracePoint = program.try_into().map_err(|error| refused(&error))?;
        patiently(|| measure.load(tracepoint, types)).map_err(|error| refused(&error))?;
        let pinned = program.pin(self.0.join(name));
        pinned.map_err(|error| refused(&error))
    }

    /// Measures lateness from now on, if frames wait in this queue. It costs some 100 instructions
    /// each time that any interface sends. A kernel that refuses it does not measure.
    pub(super) fn measure(&self, queue: Queue) {
        let link = self.0.join(LATENESS_LINK);
        if queue == Queue::Untouched || link.exists() {
            return;
        }
        let attach = || {
            let mut program = FEntry::from_pin(self.0.join(LATENESS.0)).ok()?;
            let attached = program.attach().ok()?;
            let attached = FdLink::from(program.take_link(attached).ok()?);
            attached.pin(&link).ok()
        };
        let attach_to_any = || {
            let mut program = BtfTracePoint::from_pin(self.0.join(LATENESS_OF_ANY.0)).ok()?;
            let attached = program.attach().ok()?;
            let attached = FdLink::from(program.take_link(attached).ok()?);
            attached.pin(&link).ok()
        };
        let _ = attach().or_else(attach_to_any);
    }

    /// Returns true if lateness can be measured.
    pub(super) fn measures(&self) -> bool {
        [LATENESS.0, LATENESS_OF_ANY.0]
            .iter()
            .any(|name| self.0.join(name).exists())
    }

    fn map(&self, name: &str) -> Result<Map, EdgeError> {
        let data = MapData::from_pin(self.0.join(name)).map_err(map_error)?;
        Map::from_map_data(data).map_err(map_error)
    }

    pub(super) fn maps(&self) -> Result<Maps, EdgeError> {
        let of = |name| self.map(name);
        Ok(Maps {
            guests: of("guests")?.try_into().map_err(map_error)?,
            dropped: of("dropped")?.try_into().map_err(map_error)?,
            marks: of("marks")?.try_into().map_err(map_error)?,
            uplinks: of("uplinks")?.try_into().map_err(map_error)?,
            interfaces: of("interfaces")?.try_into().map_err(map_error)?,
            stations: of("stations")?.try_into().map_err(map_error)?,
            configured: of("configured")?.try_into().map_err(map_error)?,
            lateness: of("lateness")?.try_into().map_err(map_error)?,
            offloads: of("offloads")?.try_into().map_err(map_error)?,
            choices: ChoiceMaps {
                by_address: of("chosen")?.try_into().map_err(map_error)?,
                by_guest: of("choices_of")?.try_into().map_err(map_error)?,
            },
            quick: QuickMaps {
                sides: of("sides")?.try_into().map_err(map_error)?,
                ports: of("ports")?.try_into().map_err(map_error)?,
                plains: of("plains")?.try_into().map_err(map_error)?,
                generations: of("generations")?.try_into().map_err(map_error)?,
                ways: of("ways")?.try_into().map_err(map_error)?,
            },
            split: SplitMaps {
                lines: of("lines")?.try_into().map_err(map_error)?,
                sides: of("line_sides")?.try_into().map_err(map_error)?,
                splitter: of("splitter")?.try_into().map_err(map_error)?,
                lease: of("lease")?.try_into().map_err(map_error)?,
            },
        })
    }

    /// Returns a program of interfaces.
    pub(super) fn program(&self, name: &str) -> Result<SchedClassifier, EdgeError> {
        let program = SchedClassifier::from_pin(self.0.join(name));
        Ok(program.map_err(|error| refused(&error))?)
    }

    /// Registers the qdisc of an uplink, as [`queue::kind`] names it.
    pub(super) fn register_queue(&self, ifindex: u32) -> Result<(), EdgeError> {
        Ok(queue::register(
            &self.0,
            ifindex,
            &self.queue_path(ifindex),
        )?)
    }

    /// Removes the registration again, if it is there.
    pub(super) fn unregister_queue(&self, ifindex: u32) -> Result<(), EdgeError> {
        let done = struct_ops::unregister(&self.queue_path(ifindex));
        done.map_err(|error| step(format!("remove the qdisc of interface {ifindex}"), error))
    }

    fn queue_path(&self, ifindex: u32) -> PathBuf {
        self.0.join(format!("queue-{ifindex}"))
    }

    fn link_path(&self, ifindex: u32, name: &str) -> PathBuf {
        self.0.join(format!("link-{ifindex}-{name}"))
    }

    pub(super) fn pin_link(&self, ifindex: u32, name: &str, link: FdLink) -> Result<(), EdgeError> {
        let pinned = link.pin(self.link_path(ifindex, name));
        pinned.map_err(|error| refused(&error))?;
        Ok(())
    }

    /// Detaches a link, if it is pinned.
    pub(super) fn remove_link(&self, ifindex: u32, name: &str) -> Result<(), EdgeError> {
        let path = self.link_path(ifindex, name);
        if !path.exists() {
            return Ok(());
        }
        let link = PinnedLink::from_pin(&path).map_err(|error| refused(&error))?;
        let unpinned = link.unpin();
        unpinned.map_err(|error| step(format!("remove {}", path.display()), error))?;
        Ok(())
    }

    /// Removes all pins, but not the directory.
    pub(super) fn clear(&self) -> Result<(), EdgeError> {
        let failed = |error| step(format!("empty {}", self.0.display()), error);
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            std::fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes all pins and the directory.
    pub(super) fn remove(&self) -> Result<(), EdgeError> {
        self.clear()?;
        let removed = std::fs::remove_dir(&self.0);
        removed.map_err(|error| step(format!("remove {}", self.0.display()), error))
    }
}

pub(super) fn classifier<'p>(
    programs: &'p mut Ebpf,
    name: &str,
) -> Result<&'p mut SchedClassifier, LoadError> {
    let program = programs.program_mut(name).ok_or_else(|| lacks(name))?;
    program.try_into().map_err(|error| refused(&error))
}

/// Converts an error of a map.
#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
pub(super) fn map_error(error: aya::maps::MapError) -> EdgeError {
    EdgeError::Load(refused(&error))
}
