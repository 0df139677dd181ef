//! Waits as trace events: the format of Chrome's tracing, in JSON, which Perfetto reads.
//!
//! Events go into the file as they come: what is kept in memory are names, and of these a bounded
//! number.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use tailbound_agent::guest::Guest;
use tailbound_sys::thread::ThreadId;
use tailbound_sys::waits::{Kind, LateWait};
use tailbound_units::Nanos;

/// More events than this are left out, and counted: some 200 MB.
const MOST: u64 = 1_000_000;
/// Guests and threads beyond this have no names: one that starts threads all the time is no
/// reason to keep them all.
const MOST_NAMES: usize = 16_384;

/// The trace of some guests, on its way into a file.
#[derive(Debug)]
pub(super) struct Events<W> {
    out: W,
    /// By process: the guest's name.
    guests: BTreeMap<u32, String>,
    /// By thread: its process, and its name in the guest.
    threads: BTreeMap<u32, (u32, String)>,
    written: u64,
    waits: u64,
    longest: Nanos,
    left_out: u64,
}

/// Microseconds, which a trace's times are in.
fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

impl<W: Write> Events<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"traceEvents\":[\n")?;
        Ok(Self {
            out,
            guests: BTreeMap::new(),
            threads: BTreeMap::new(),
            written: 0,
            waits: 0,
            longest: Nanos::ZERO,
            left_out: 0,
        })
    }

    /// Notes what threads are called.
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
        if self.guests.len() < MOST_NAMES && self.guests.insert(pid, name.to_owned()).is_none() {
            self.write(&named("process_name", pid, pid, name))?;
        }
        Ok(())
    }

    fn name_thread(&mut self, tid: u32, pid: u32, name: String) -> io::Result<()> {
        if self.threads.len() >= MOST_NAMES || self.threads.contains_key(&tid) {
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

    /// Adds waits, each with who ran meanwhile.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn take(&mut self, waits: Vec<(ThreadId, LateWait)>) -> io::Result<()> {
        for (thread, wait) in waits {
            self.waits += 1;
            self.longest = self.longest.max(wait.until.since(wait.from));
            if self.written + wait.runs.len() as u64 >= MOST {
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
                // What ran before the wait and after it is no part of it.
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

    /// Ends the file, and returns it and what there is to see, in a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn end(mut self, least: Nanos, lost: u64) -> io::Result<(W, String)> {
        let about = json!({
            "tool": format!("tailbound {}", env!("CARGO_PKG_VERSION")),
            "least_ns": least.0,
            "lost": lost,
            "left_out": self.left_out,
        });
        write!(
            self.out,
            "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{about}}}\n"
        )?;
        self.out.flush()?;
        let summary = self.summary();
        Ok((self.out, summary))
    }

    fn summary(&self) -> String {
        let (waits, threads, longest) = (self.waits, self.threads.len(), self.longest);
        let longest = if waits == 0 {
            String::new()
        } else {
            format!(", the longest {}", super::super::figures::time(longest.0))
        };
        let left_out = match self.left_out {
            0 => String::new(),
            many => format!("; {many} are left out, as there is no room"),
        };
        format!("{waits} waits of {threads} threads{longest}{left_out}")
    }
}

fn named(what: &str, pid: u32, tid: u32, name: &str) -> Value {
    json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_sys::waits::Run;

    fn run(tid: u32, name: &str, from: u64, until: u64) -> Run {
        Run {
            from: Nanos(from),
            until: Nanos(until),
            tid,
            name: name.to_owned(),
            stolen: Nanos(0),
            interrupted: Nanos(0),
        }
    }

    #[test]
    fn a_wait_is_a_slice_with_those_who_ran_meanwhile_in_it() {
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
        let (file, summary) = events.end(Nanos(50_000), 3).unwrap();
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
    /// Counts what is written, and keeps none of it.
    #[derive(Default)]
    struct Counted(u64);

    impl Write for Counted {
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
        let mut events = Events::begin(Counted::default()).unwrap();
        for tid in 0..100_000 {
            events.name_guest(tid, "web").unwrap();
            events.name_thread(tid, tid, "vCPU 0".to_owned()).unwrap();
        }
        assert_eq!(events.threads.len(), MOST_NAMES);
        assert_eq!(events.guests.len(), MOST_NAMES);
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
        let (file, summary) = events.end(Nanos(1), 0).unwrap();
        assert!(file.0 < 300_000_000, "{}", file.0);
        assert!(summary.contains("are left out"), "{summary}");
    }
}
