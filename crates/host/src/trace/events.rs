//! Waits of threads and of frames as trace events: the format of Chrome's tracing, in JSON, which
//! Perfetto reads.
//!
//! Events are written to the file immediately: only names are in memory, and a bounded number of
//! them.

use super::lanes::Lanes;
use crate::socket::{TraceFrame, Wait};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};
use tailbound_agent::guest::Guest;
use tailbound_sys::thread::ThreadId;
use tailbound_sys::waits::{Kind, LateWait};
use tailbound_units::{Nanos, rounded_up};

/// Largest number of events, some 200 MB; further ones are only counted.
const MAX_EVENTS: u64 = 1_000_000;
/// Largest number of guests and threads with names, so that a guest that starts threads all the
/// time does not exhaust memory.
const MAX_NAMES: usize = 16_384;

/// Process number of a guest's frames: no process of the system has this number, nor a thread the
/// next one.
const FRAMES: u32 = 1 << 22;

/// Summary of a guest's frames.
#[derive(Debug)]
struct FramesSummary {
    guest: String,
    frames: u64,
    longest: Nanos,
    missed: u64,
}

/// The trace of some guests, during writing.
#[derive(Debug)]
pub(super) struct Events<W> {
    out: W,
    /// Names of guests, by process.
    guests: BTreeMap<u32, String>,
    /// Process and name of each thread, by thread.
    threads: BTreeMap<u32, (u32, String)>,
    written: u64,
    waits: u64,
    longest: Nanos,
    /// Shortest recorded wait of a thread, and number of lost waits; `None` if waits were not
    /// recorded.
    vcpus: Option<(Nanos, u64)>,
    frames: Option<FramesSummary>,
    left_out: u64,
}

/// Returns microseconds, the unit of a trace's times.
fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

impl<W: Write> Events<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"traceEvents\":[\n")?;
        Ok(Self {
            out,
            guests: BTreeMap::new(),
            threads: BTreeMap::new(),
            written: 0,
            waits: 0,
            longest: Nanos::ZERO,
            vcpus: None,
            frames: None,
            left_out: 0,
        })
    }

    /// Adds the names of threads.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn name(&mut self, guests: &[Guest]) -> io::Result<()> {
        for guest in guests {
            self.name_guest(guest.pid, &guest.name)?;
            for thread in &guest.threads {
                let name = format!("{} ({})", thread.role, thread.name);
                self.name_thread(thread.id.tid, guest.pid, name)?;
            }
        }
        Ok(())
    }

    fn name_guest(&mut self, pid: u32, name: &str) -> io::Result<()> {
        if self.guests.len() < MAX_NAMES && self.guests.insert(pid, name.to_owned()).is_none() {
            self.write(&named("process_name", pid, pid, name))?;
        }
        Ok(())
    }

    fn name_thread(&mut self, tid: u32, pid: u32, name: String) -> io::Result<()> {
        if self.threads.len() >= MAX_NAMES || self.threads.contains_key(&tid) {
            return Ok(());
        }
        self.write(&named("thread_name", pid, tid, &name))?;
        self.threads.insert(tid, (pid, name));
        Ok(())
    }

    fn write(&mut self, event: &Value) -> io::Result<()> {
        if self.written > 0 {
            self.out.write_all(b",\n")?;
        }
        self.written += 1;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    /// Adds waits, each with the threads that ran meanwhile.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn take(&mut self, waits: Vec<(ThreadId, LateWait)>) -> io::Result<()> {
        for (thread, wait) in waits {
            self.waits += 1;
            self.longest = self.longest.max(wait.until.since(wait.from));
            if self.written + wait.runs.len() as u64 >= MAX_EVENTS {
                self.left_out += 1;
                continue;
            }
            let pid = self
                .threads
                .get(&thread.tid)
                .map_or(thread.pid, |known| known.0);
            let slice = |name: &str, from: Nanos, until: Nanos, about: Value| {
                json!({
                    "ph": "X", "name": name, "cat": "vcpu", "pid": pid, "tid": thread.tid,
                    "ts": micros(from), "dur": micros(until.since(from)), "args": about,
                })
            };
            let name = match wait.kind {
                Kind::Woken => "waits after a wake-up",
                Kind::Preempted => "waits after losing its CPU",
            };
            let about = json!({
                "reservation_used_up_ns": wait.reservation.0, "quota_ns": wait.quota.0,
            });
            self.write(&slice(name, wait.from, wait.until, about))?;
            for run in &wait.runs {
                // Runs are cut to the time of the wait.
                let (from, until) = (run.from.max(wait.from), run.until.min(wait.until));
                if from >= until {
                    continue;
                }
                let name = match (run.tid, self.threads.get(&run.tid)) {
                    (0, _) => "idle".to_owned(),
                    (_, Some((pid, name))) => {
                        let guest = self.guests.get(pid).map_or("", String::as_str);
                        format!("{guest} {name} runs")
                    }
                    (_, None) => format!("{} runs", run.name),
                };
                let about = json!({
                    "tid": run.tid, "stolen_ns": run.stolen.0, "interrupted_ns": run.interrupted.0,
                });
                self.write(&slice(&name, from, until, about))?;
            }
        }
        Ok(())
    }

    /// Sets the summary of threads' waits: waits of at least `least` were recorded, and `lost`
    /// waits were lost.
    pub(super) fn end_vcpus(&mut self, least: Nanos, lost: u64) {
        self.vcpus = Some((least, lost));
    }

    /// Adds the frames of a guest: tracks for each cause of waits, one for each frame that waits for
    /// it in parallel. `missed` is the number of frames that the daemon had no room for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add_frames(
        &mut self,
        guest: &str,
        frames: &[TraceFrame],
        missed: u64,
    ) -> io::Result<()> {
        self.write(&named(
            "process_name",
            FRAMES,
            FRAMES,
            &format!("frames of {guest}"),
        ))?;
        let mut order: Vec<_> = frames.iter().collect();
        order.sort_by_key(|frame| frame.enqueued_ns);
        let mut kinds: BTreeMap<&str, Lanes> = BTreeMap::new();
        let mut tracks: BTreeMap<(&str, usize), u32> = BTreeMap::new();
        let mut longest = 0;
        for frame in order {
            let (from, until) = (frame.enqueued_ns, ends(frame));
            longest = longest.max(until.saturating_sub(from));
            let kind = waits(frame.wait);
            let lane = kinds.entry(kind).or_default().place(from, until);
            // A frame, its parts, and the name of a track.
            let Some(lane) = lane.filter(|_| self.written + 5 <= MAX_EVENTS) else {
                self.left_out += 1;
                continue;
            };
            let next = FRAMES + 1 + tracks.len() as u32;
            let track = match tracks.entry((kind, lane)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let name = format!("{kind} ({})", lane + 1);
                    self.write(&named("thread_name", FRAMES, next, &name))?;
                    *new.insert(next)
                }
            };
            for slice in slices(frame, track) {
                self.write(&slice)?;
            }
        }
        self.frames = Some(FramesSummary {
            guest: guest.to_owned(),
            frames: frames.len() as u64,
            longest: Nanos(longest),
            missed,
        });
        Ok(())
    }

    /// Ends the file, and returns it with a summary in a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn end(mut self) -> io::Result<(W, String)> {
        let mut about = json!({
            "tool": format!("tailbound {}", env!("CARGO_PKG_VERSION")),
            "left_out": self.left_out,
        });
        if let Some((least, lost)) = self.vcpus {
            about["least_ns"] = least.0.into();
            about["lost"] = lost.into();
        }
        if let Some(frames) = &self.frames {
            about["frames"] = frames.frames.into();
            about["frames_missed"] = frames.missed.into();
        }
        write!(
            self.out,
            "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{about}}}\n"
        )?;
        self.out.flush()?;
        let summary = self.summary();
        Ok((self.out, summary))
    }

    fn summary(&self) -> String {
        let longest = |many: u64, longest: Nanos| match many {
            0 => String::new(),
            _ => format!(", the longest {}", rounded_up::time(longest.0)),
        };
        let mut parts = Vec::new();
        if self.vcpus.is_some() {
            let (waits, threads) = (self.waits, self.threads.len());
            let longest = longest(waits, self.longest);
            parts.push(format!("{waits} waits of {threads} threads{longest}"));
        }
        if let Some(of) = &self.frames {
            let (frames, guest) = (of.frames, &of.guest);
            let longest = longest(frames, of.longest);
            parts.push(format!("{frames} waits of frames of {guest}{longest}"));
        }
        if self.left_out > 0 {
            let many = self.left_out;
            parts.push(format!("{many} are left out, as there is no room"));
        }
        parts.join("; ")
    }
}

/// Returns the name of a frame's track.
const fn waits(wait: Wait) -> &'static str {
    match wait {
        Wait::Limit => "waits for the limit",
        Wait::Uplink => "to the uplink",
        Wait::Local => "to a guest here, in the pacer",
        Wait::Port => "to a guest here, at its port",
        Wait::Inward => "comes in",
    }
}

/// Returns the last known time of a frame.
fn ends(frame: &TraceFrame) -> u64 {
    let known = [frame.begins_ns, frame.taken_ns].into_iter().flatten();
    known.fold(frame.released_ns, u64::max)
}

/// Returns a frame's slice, and in it the parts of its wait, one after the other.
fn slices(frame: &TraceFrame, track: u32) -> Vec<Value> {
    let end = ends(frame);
    let taken_at = frame.taken_ns.unwrap_or(frame.released_ns);
    let parts = [
        ("waits", frame.enqueued_ns, frame.released_ns),
        ("waits for the port", frame.released_ns, taken_at),
        ("waits for its place on the wire", taken_at, end),
    ];
    let slice = |name: &str, from: u64, until: u64, about: Value| {
        json!({
            "ph": "X", "name": name, "cat": "packets", "pid": FRAMES, "tid": track,
            "ts": micros(Nanos(from)), "dur": micros(Nanos(until - from)), "args": about,
        })
    };
    let mut about = json!({
        "class": frame.class, "bytes": frame.bytes, "enqueued_ns": frame.enqueued_ns,
        "released_ns": frame.released_ns,
    });
    let known = [
        ("peer", frame.peer.map(|peer| peer.to_string().into())),
        ("begins_ns", frame.begins_ns.map(Value::from)),
        ("taken_ns", frame.taken_ns.map(Value::from)),
    ];
    for (key, value) in known {
        if let Some(value) = value {
            about[key] = value;
        }
    }
    let name = format!("{} B, {}", frame.bytes, frame.class);
    let mut slices = vec![slice(&name, frame.enqueued_ns, end, about)];
    let parts = parts.into_iter().filter(|(_, from, until)| from < until);
    slices.extend(parts.map(|(name, from, until)| slice(name, from, until, json!({}))));
    slices
}

fn named(kind: &str, pid: u32, tid: u32, name: &str) -> Value {
    json!({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_sys::thread::PolicyNumber;
    use tailbound_sys::waits::Run;

    fn run(tid: u32, name: &str, from: u64, until: u64) -> Run {
        Run {
            from: Nanos(from),
            until: Nanos(until),
            tid,
            name: name.to_owned(),
            stolen: Nanos(0),
            interrupted: Nanos(0),
            group: 0,
            policy: PolicyNumber::NORMAL,
        }
    }

    #[test]
    fn a_trace_shows_a_wait_and_the_threads_that_ran_during_it() {
        let mut events = Events::begin(Vec::new()).unwrap();
        events.name_guest(7, "web").unwrap();
        let name = "vCPU 0 (CPU 0/KVM)".to_owned();
        events.name_thread(8, 7, name).unwrap();
        let wait = LateWait {
            place: 0,
            kind: Kind::Woken,
            from: Nanos(1_000_500),
            until: Nanos(1_300_000),
            reservation: Nanos(0),
            quota: Nanos(0),
            // The first began before it, the last is the thread itself, after it.
            runs: vec![
                run(99, "hog", 900_000, 1_200_000),
                run(0, "swapper", 1_200_000, 1_300_000),
                run(8, "CPU 0/KVM", 1_300_000, 1_400_000),
            ],
        };
        let id = ThreadId {
            pid: 7,
            tid: 8,
            start: 0,
        };
        events.take(vec![(id, wait)]).unwrap();
        events.end_vcpus(Nanos(50_000), 3);
        let (file, summary) = events.end().unwrap();
        assert_eq!(summary, "1 waits of 1 threads, the longest 299.500 us");
        let file: Value = serde_json::from_slice(&file).unwrap();
        let slices: Vec<_> = file["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                let number = |key: &str| event[key].as_f64().unwrap();
                (event["name"].as_str().unwrap(), number("ts"), number("dur"))
            })
            .collect();
        let expected = [
            ("waits after a wake-up", 1_000.5, 299.5),
            ("hog runs", 1_000.5, 199.5),
            ("idle", 1_200.0, 100.0),
        ];
        assert_eq!(slices, expected);
        let names = file["traceEvents"].as_array().unwrap().iter();
        let names: Vec<_> = names
            .filter(|event| event["ph"] == "M")
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["web", "vCPU 0 (CPU 0/KVM)"]);
        assert_eq!(file["otherData"]["lost"], 3);
    }
    /// Counts the written bytes, and discards them.
    #[derive(Default)]
    struct ByteCounter(u64);

    impl Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_storm_of_threads_and_waits_fills_neither_the_memory_nor_the_disk() {
        let mut events = Events::begin(ByteCounter::default()).unwrap();
        for tid in 0..100_000 {
            events.name_guest(tid, "web").unwrap();
            events.name_thread(tid, tid, "vCPU 0".to_owned()).unwrap();
        }
        assert_eq!(events.threads.len(), MAX_NAMES);
        assert_eq!(events.guests.len(), MAX_NAMES);
        let wait = LateWait {
            place: 0,
            kind: Kind::Woken,
            from: Nanos(0),
            until: Nanos(1_000),
            reservation: Nanos(0),
            quota: Nanos(0),
            runs: vec![run(99, "hog", 0, 1_000); 9],
        };
        let id = ThreadId {
            pid: 7,
            tid: 8,
            start: 0,
        };
        for _ in 0..100 {
            let many = vec![(id, wait.clone()); 1_500];
            events.take(many).unwrap();
        }
        assert!(events.left_out > 40_000, "{}", events.left_out);
        events.end_vcpus(Nanos(1), 0);
        let (file, summary) = events.end().unwrap();
        assert!(file.0 < 300_000_000, "{}", file.0);
        assert!(summary.contains("are left out"), "{summary}");
    }
}
