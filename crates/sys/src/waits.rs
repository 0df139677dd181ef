//! Times that threads wait for a CPU, and the threads that ran meanwhile: measured in the kernel,
//! at each wake-up and each switch between threads, by a BPF program (`waits/waits.bpf.c`).
//!
//! The program measures the threads that the caller [follows](Tracer::follow), each in a place of
//! its own. It is unloaded when the [`Tracer`] is dropped, or the process ends for any reason.

mod parts;

use crate::bpf::{remove, update};
use crate::bpf_program::{self, LoadError, ProgramCost, kernel_types, lacks, refused};
use crate::thread::PolicyNumber;
use crate::timer::now as monotonic;
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::{ProgramError, RawTracePoint};
use aya::{Ebpf, EbpfLoader, Pod};
use parts::{Parts, SOFTIRQS, WAITS};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use tailbound_units::Nanos;

/// Number of buckets of a histogram: the last one has no bound.
pub const BUCKETS: usize = 466;
/// Number of cells: 16 for each power of two.
pub const CELLS: usize = 1024;
/// Largest number of runs that are reported with a late wait.
pub const RUNS: usize = 128;

/// The compiled program; `scripts/bpf` makes it.
static PROGRAM: &[u8] = aya::include_bytes_aligned!("waits/waits.bpf.o");

/// The shortest lost time for which a run of a followed thread is reported.
const MIN_INTERRUPTION: Nanos = Nanos::from_micros(100);

/// The part that records threads that enter a guest, and its tracepoint, which belongs to the
/// module kvm.
const ENTRY: (&str, &str) = ("on_entry", "kvm_entry");

/// Settings of the measurement.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// Most followed threads.
    pub threads: u32,
    /// The length from which on a wait is late.
    pub late: Nanos,
    /// The longest time of each bucket, in nanoseconds, ascending.
    pub bounds: &'a [u64; BUCKETS - 1],
    /// The bucket of the shortest time of each cell: a power of two, and the four bits after the
    /// first; none of the cell's times is more than two buckets further.
    pub cells: &'a [u32; CELLS],
    /// True if soft interrupts are timed by this program, as the kernel does not time interrupts.
    pub times_softirqs: bool,
    /// True if all waits are counted in [`ThreadWaits`]; false if only late ones are reported, which costs
    /// less.
    pub histograms: bool,
    /// True if threads that enter a guest are [recorded](Tracer::has_entered), which costs a call of the program
    /// at each entry.
    pub entries: bool,
}

/// Reason why waits cannot be measured in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum WaitsError {
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A thread cannot be followed, or a place cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reason for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The thread was woken.
    Woken,
    /// The thread had a CPU and lost it.
    Preempted,
}

/// Data of a histogram of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The sum of the waits, in nanoseconds.
    pub sum: u64,
    /// The longest one, in nanoseconds.
    pub longest: u64,
    /// The number of waits in each bucket, modulo 2^32.
    pub counts: [u32; BUCKETS],
}

/// Measurements of a thread since it is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadWaits {
    /// Waits from a wake-up on.
    pub woken: Waits,
    /// Waits after another thread got its CPU.
    pub preempted: Waits,
    /// The number of times that it got a CPU after a wait of unknown begin.
    pub unknown: u64,
    /// The number of lost late waits, which were not read in time.
    pub lost: u64,
}

/// A run of a thread on a CPU, from its begin to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The begin, by the monotonic clock.
    pub from: Nanos,
    /// The end.
    pub until: Nanos,
    /// The thread's number; 0 while the CPU was idle.
    pub tid: u32,
    /// The thread's name, which it chose itself.
    pub name: String,
    /// The inode of its control group for the CPU, which stays known after the thread has exited;
    /// 0 if it is not known.
    pub group: u64,
    /// The thread's policy when it left the CPU.
    pub policy: PolicyNumber,
    /// The part of it that the hypervisor took, as far as it reports that.
    pub stolen: Nanos,
    /// The part of it that interrupts took: all of them if the kernel times them
    /// (`CONFIG_IRQ_TIME_ACCOUNTING`), else the soft ones.
    pub interrupted: Nanos,
}

/// A run of a followed thread of which interrupts or the hypervisor took much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption {
    /// The thread's place.
    pub place: u32,
    /// The begin of the run, by the monotonic clock.
    pub from: Nanos,
    /// Its end.
    pub until: Nanos,
    /// The part of it that the hypervisor took.
    pub stolen: Nanos,
    /// The part of it that interrupts took.
    pub interrupted: Nanos,
}

/// A late wait, with the runs on its CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateWait {
    /// The place of the thread that waited.
    pub place: u32,
    /// The reason for the wait.
    pub kind: Kind,
    /// The begin, by the monotonic clock.
    pub from: Nanos,
    /// The end.
    pub until: Nanos,
    /// The time from its begin for which the thread's own reservation was used up.
    pub reservation: Nanos,
    /// The time for which a CPU quota throttled its control group.
    pub quota: Nanos,
    /// The runs on that CPU, in order. Those before the first are unknown.
    pub runs: Vec<Run>,
}

/// `struct thread`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawThread {
    woken: u64,
    left: u64,
    quota: u64,
    task_group: u64,
    group: u64,
    throttled: u32,
    queue: u32,
    slot: u32,
    preempted: u8,
    limited: u8,
    entered: u8,
    unused: u8,
}

/// `struct meter`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawMeter {
    sum: [u64; 2],
    longest: [u64; 2],
    unknown: u64,
    lost: u64,
    entered: u64,
    counts: [[u32; BUCKETS]; 2],
}

/// `struct run`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawRun {
    until: u64,
    group: u64,
    tid: u32,
    stolen: u32,
    interrupted: u32,
    policy: u32,
    name: [u8; 16],
}

/// `struct cpu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawLate {
    since: u64,
    until: u64,
    reservation: u64,
    quota: u64,
    slot: u32,
    kind: u32,
    stolen: u64,
    interrupted: u64,
    softirq: u64,
    softirq_since: u64,
    count: u64,
    runs: [RawRun; RUNS],
}

/// `struct interruption`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawInterruption {
    since: u64,
    until: u64,
    slot: u32,
    stolen: u32,
    interrupted: u32,
    unused: u32,
}

// SAFETY: whole numbers alone, without padding: 5 times 8, 3 times 4 and 4 times 1 bytes.
unsafe impl Pod for RawThread {}
// SAFETY: whole numbers alone, without padding: 7 times 8 and 2 times 466 times 4 bytes.
unsafe impl Pod for RawMeter {}

impl RawMeter {
    const EMPTY: Self = Self {
        sum: [0; 2],
        longest: [0; 2],
        unknown: 0,
        lost: 0,
        entered: 0,
        counts: [[0; BUCKETS]; 2],
    };

    fn waits(&self, kind: usize) -> Waits {
        Waits {
            sum: self.sum[kind],
            longest: self.longest[kind],
            counts: self.counts[kind],
        }
    }
}

/// The key of threads in the kernel.
enum ThreadKeys {
    /// By a descriptor: the state is stored with the thread itself.
    Threads(MapData),
    /// By its number, before Linux 6.9.
    Numbers(HashMap<MapData, u32, RawThread>),
}

/// Measures the waits of threads.
pub struct Tracer {
    followed: ThreadKeys,
    meters: Array<MapData, RawMeter>,
    losses: Array<MapData, u64>,
    late: RingBuf<MapData>,
    interruptions: RingBuf<MapData>,
    /// The moment at which the program was attached, by the monotonic clock, in nanoseconds.
    attached_at: Array<MapData, u64>,
    waits: Parts,
    softirqs: Parts,
    /// Attached as long as this value lives.
    programs: Ebpf,
    /// The reason why entries into guests are not recorded; `None` while they are.
    no_entries: Option<String>,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Tracer {
    /// Loads the program and attaches it; no thread is followed yet.
    ///
    /// # Errors
    /// [`WaitsError`] describes the missing part of this computer.
    pub fn load(settings: &Settings<'_>) -> Result<Self, WaitsError> {
        let by_number = open_thread(rustix::thread::gettid()).is_err();
        Self::load_as(settings, by_number)
    }

    /// Loads the program, with threads known by their numbers, or by descriptors.
    fn load_as(settings: &Settings<'_>, by_number: bool) -> Result<Self, WaitsError> {
        let btf = kernel_types()?;
        let by_number = u32::from(by_number);
        let late = settings.late.0;
        let times_softirqs = u32::from(settings.times_softirqs);
        let histograms = u32::from(settings.histograms);
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .allow_unsupported_maps()
            .map_max_entries("meters", settings.threads)
            .map_max_entries("numbers", if by_number == 0 { 1 } else { settings.threads })
            .override_global("by_number", &by_number, true)
            .override_global("late", &late, true)
            .override_global("long_interruption", &MIN_INTERRUPTION.0, true)
            .override_global("times_softirqs", &times_softirqs, true)
            .override_global("histograms", &histograms, true)
            .override_global("bounds", settings.bounds, true)
            .override_global("cells", settings.cells, true)
            .load(PROGRAM)
            .map_err(|error| refused(&error))?;
        let waits = Parts::load(WAITS, &mut programs, &btf)?;
        let softirqs = if settings.times_softirqs {
            Parts::load(SOFTIRQS, &mut programs, &btf)
                .unwrap_or_else(|error| Parts::none(Some(error.to_string())))
        } else {
            Parts::none(None)
        };
        // While it has its maps. Without it waits are measured all the same.
        let loaded = if settings.entries {
            load_entry(&mut programs).map_err(|error| error.to_string())
        } else {
            Err("entries into guests are not recorded".to_owned())
        };
        let mut take = |name| programs.take_map(name).ok_or_else(|| lacks(name));
        let followed = match take("threads")? {
            Map::Unsupported(map) if by_number == 0 => ThreadKeys::Threads(map),
            _ => ThreadKeys::Numbers(take("numbers")?.try_into().map_err(|e| refused(&e))?),
        };
        let mut tracer = Self {
            followed,
            meters: take("meters")?.try_into().map_err(|e| refused(&e))?,
            losses: take("losses")?.try_into().map_err(|e| refused(&e))?,
            late: take("late_waits")?.try_into().map_err(|e| refused(&e))?,
            interruptions: take("interruptions")?.try_into().map_err(|e| refused(&e))?,
            attached_at: take("attached_at")?.try_into().map_err(|e| refused(&e))?,
            waits,
            softirqs,
            programs,
            no_entries: None,
        };
        tracer.no_entries = loaded.and_then(|()| tracer.begin_entries()).err();
        Ok(tracer)
    }

    /// Attaches the part that records entries into guests.
    fn begin_entries(&mut self) -> Result<(), String> {
        let (_, tracepoint) = ENTRY;
        let program = entry_program(&mut self.programs).map_err(|error| error.to_string())?;
        match program.attach(tracepoint) {
            Ok(_) => Ok(()),
            Err(ProgramError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::NotFound =>
            {
                Err(format!(
                    "the kernel has no tracepoint {tracepoint}: the module kvm is not loaded"
                ))
            }
            Err(error) => Err(refused(&error).to_string()),
        }
    }

    /// Records entries into guests from now on, if that was impossible before: the module kvm may
    /// be loaded at any time. It cannot be unloaded while this lives.
    ///
    /// # Errors
    /// The reason why it is still impossible, as text.
    pub fn note_entries(&mut self) -> Result<(), &str> {
        let loaded = entry_program(&mut self.programs).is_ok_and(|it| it.fd().is_ok());
        if loaded && self.no_entries.is_some() {
            self.no_entries = self.begin_entries().err();
        }
        self.no_entries.as_deref().map_or(Ok(()), Err)
    }

    /// Returns true if the thread of a place has entered a guest since it is followed.
    ///
    /// # Errors
    /// There is no such place.
    pub fn has_entered(&self, place: u32) -> Result<bool, WaitsError> {
        let meter = self.meters.get(&place, 0).map_err(|e| refused(&e))?;
        Ok(meter.entered != 0)
    }

    /// Loads the program only to check that it works.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn try_load() -> Result<Self, WaitsError> {
        Self::load(&Settings {
            threads: 1,
            late: Nanos(u64::MAX),
            bounds: &[0; BUCKETS - 1],
            cells: &[0; CELLS],
            times_softirqs: true,
            histograms: true,
            entries: true,
        })
    }

    /// Describes how threads are identified, and which of them run vCPUs.
    pub fn way(&self) -> String {
        let threads = match self.followed {
            ThreadKeys::Threads(_) => "threads are known by descriptors",
            ThreadKeys::Numbers(_) => "threads are known by their numbers (before Linux 6.9)",
        };
        match &self.no_entries {
            None => format!("{threads}; those that run vCPUs by kvm_entry"),
            Some(why) => format!("{threads}; those that run vCPUs by their names alone: {why}"),
        }
    }

    /// Measures the thread `tid` from now on, in a place that no other thread has and that starts
    /// empty.
    ///
    /// # Errors
    /// The thread or the place does not exist.
    pub fn follow(&mut self, tid: u32, place: u32) -> Result<(), WaitsError> {
        let value = RawThread {
            slot: place,
            ..RawThread::default()
        };
        self.meters
            .set(place, RawMeter::EMPTY, 0)
            .map_err(|error| refused(&error))?;
        match &mut self.followed {
            ThreadKeys::Threads(map) => {
                let thread = open_thread(number(tid)?)?;
                // SAFETY: the map was made with an `int` and a `struct thread`.
                unsafe { update(map.fd().as_fd(), &thread.as_raw_fd(), &value) }?;
            }
            ThreadKeys::Numbers(map) => {
                map.insert(tid, value, 0).map_err(|error| refused(&error))?;
            }
        }
        Ok(())
    }

    /// Stops measuring the thread `tid`. A thread that has exited needs this if threads are known
    /// by their numbers.
    pub fn leave(&mut self, tid: u32) {
        // Whoever has exited is not there.
        match &mut self.followed {
            ThreadKeys::Threads(map) => {
                let thread = number(tid).and_then(open_thread);
                if let Ok(thread) = thread {
                    // SAFETY: the map was made with an `int`.
                    let _ = unsafe { remove(map.fd().as_fd(), &thread.as_raw_fd()) };
                }
            }
            ThreadKeys::Numbers(map) => {
                let _ = map.remove(&tid);
            }
        }
    }

    /// Reads the measurements of a place.
    ///
    /// # Errors
    /// There is no such place.
    pub fn read(&self, place: u32) -> Result<ThreadWaits, WaitsError> {
        let meter = self.meters.get(&place, 0).map_err(|e| refused(&e))?;
        Ok(ThreadWaits {
            woken: meter.waits(0),
            preempted: meter.waits(1),
            unknown: meter.unknown,
            lost: meter.lost,
        })
    }

    /// Returns the number of late waits that were lost, of all threads.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn lost(&self) -> Result<u64, WaitsError> {
        Ok(self.losses.get(&0, 0).map_err(|e| refused(&e))?)
    }

    /// Returns the running time and the number of runs of each of the program's parts, by name,
    /// counted while a [`count_cost`](bpf_program::count_cost) exists.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn cost(&self) -> Result<Vec<ProgramCost>, WaitsError> {
        let parts = self.waits.loaded().iter().chain(self.softirqs.loaded());
        let entry = self.no_entries.is_none().then_some(ENTRY);
        Ok(bpf_program::cost(
            &self.programs,
            parts.copied().chain(entry),
        )?)
    }

    /// Checks that the time of soft interrupts is known.
    ///
    /// # Errors
    /// The reason why it is not, as text.
    pub fn interrupts(&self) -> Result<(), &str> {
        self.softirqs.refusal().map_or(Ok(()), Err)
    }

    /// Stops or starts timing soft interrupts, if that was set when the program was loaded. The
    /// times of a run or wait that is not within one such interval are too short.
    pub fn time_softirqs(&mut self, is_timed: bool) {
        if is_timed {
            self.softirqs.attach(&mut self.programs);
        } else {
            self.softirqs.detach();
        }
    }

    /// Returns true while soft interrupts are timed by the program.
    pub const fn times_softirqs(&self) -> bool {
        self.softirqs.are_attached()
    }

    /// Returns true while waits are measured.
    pub const fn traces_waits(&self) -> bool {
        self.waits.are_attached()
    }

    /// Stops or starts to measure waits. A wait that began before the start is not reported.
    ///
    /// # Errors
    /// The reason why they are not measured, as text.
    pub fn trace_waits(&mut self, is_traced: bool) -> Result<(), &str> {
        if !is_traced {
            self.waits.detach();
            return Ok(());
        }
        if !self.waits.are_attached() {
            // First: what is known of threads is older.
            let noted = self.attached_at.set(0, monotonic().0, 0);
            if noted.is_ok() {
                self.waits.attach(&mut self.programs);
            }
        }
        if self.waits.are_attached() {
            return Ok(());
        }
        Err(self.waits.refusal().unwrap_or("the kernel refuses a table"))
    }

    /// Returns the next interruption of a followed thread's run.
    pub fn next_interruption(&mut self) -> Option<Interruption> {
        let item = self.interruptions.next()?;
        if item.len() < size_of::<RawInterruption>() {
            return None;
        }
        // SAFETY: there are as many bytes, and any bytes are whole numbers.
        let raw: RawInterruption = unsafe { std::ptr::read_unaligned(item.as_ptr().cast()) };
        Some(Interruption {
            place: raw.slot,
            from: Nanos(raw.since),
            until: Nanos(raw.until),
            stolen: Nanos(raw.stolen.into()),
            interrupted: Nanos(raw.interrupted.into()),
        })
    }

    /// Returns the next late wait.
    pub fn next_late(&mut self) -> Option<LateWait> {
        let item = self.late.next()?;
        if item.len() < size_of::<RawLate>() {
            return None;
        }
        // SAFETY: there are as many bytes, and any bytes are whole numbers.
        let raw: RawLate = unsafe { std::ptr::read_unaligned(item.as_ptr().cast()) };
        Some(LateWait::from(&raw))
    }
}

impl From<&RawLate> for LateWait {
    fn from(raw: &RawLate) -> Self {
        let kept = raw.count.min(RUNS as u64);
        let at = |index: u64| &raw.runs[(index % RUNS as u64) as usize];
        let oldest = raw.count - kept;
        // A run began where the one before ended, and of the oldest that is not known.
        let runs = (oldest + 1..raw.count).map(|index| (at(index - 1).until, at(index)));
        let runs = runs
            .filter(|(_, run)| run.until > raw.since)
            .map(|(from, run)| {
                let name = run.name.split(|byte| *byte == 0).next().unwrap_or_default();
                Run {
                    from: Nanos(from),
                    until: Nanos(run.until),
                    tid: run.tid,
                    name: String::from_utf8_lossy(name).into_owned(),
                    stolen: Nanos(run.stolen.into()),
                    interrupted: Nanos(run.interrupted.into()),
                    group: run.group,
                    policy: PolicyNumber(run.policy),
                }
            });
        Self {
            place: raw.slot,
            kind: if raw.kind == 0 {
                Kind::Woken
            } else {
                Kind::Preempted
            },
            from: Nanos(raw.since),
            until: Nanos(raw.until),
            reservation: Nanos(raw.reservation),
            quota: Nanos(raw.quota),
            runs: runs.collect(),
        }
    }
}

fn number(tid: u32) -> io::Result<Pid> {
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    tid.ok_or_else(|| io::Error::from(rustix::io::Errno::SRCH))
}

/// Opens a thread, also one that is not its process's first (Linux 6.9).
fn open_thread(tid: Pid) -> io::Result<OwnedFd> {
    /// `PIDFD_THREAD`.
    const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
    Ok(pidfd_open(tid, THREAD)?)
}

fn load_entry(programs: &mut Ebpf) -> Result<(), LoadError> {
    let program = entry_program(programs)?;
    program.load().map_err(|error| refused(&error))
}

fn entry_program(programs: &mut Ebpf) -> Result<&mut RawTracePoint, LoadError> {
    let (name, _) = ENTRY;
    let program = programs.program_mut(name).ok_or_else(|| lacks(name))?;
    program.try_into().map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests;
