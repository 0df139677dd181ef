//! Waits as trace events: the format of Chrome's tracing, in JSON, which Perfetto reads.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use tailbound_agent::guest::Guest;
use tailbound_sys::thread::ThreadId;
use tailbound_sys::waits::{Kind, LateWait};
use tailbound_units::Nanos;

/// More events than this are left out, and counted.
const MOST: usize = 1_000_000;

/// The trace of some guests.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// By process: the guest's name.
    guests: BTreeMap<u32, String>,
    /// By thread: its process, and its name in the guest.
    threads: BTreeMap<u32, (u32, String)>,
    slices: Vec<Value>,
    waits: u64,
    longest: Nanos,
    left_out: u64,
}

/// Microseconds, which a trace's times are in.
fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

impl Events {
    /// Notes what threads are called.
    pub(super) fn name(&mut self, guests: &[Guest]) {
        for guest in guests {
            self.guests.insert(guest.pid, guest.name.clone());
            for thread in &guest.threads {
                let name = format!("{} ({})", thread.role, thread.name);
                self.threads.insert(thread.id.tid, (guest.pid, name));
            }
        }
    }

    /// Adds waits, each with who ran meanwhile.
    pub(super) fn take(&mut self, waits: Vec<(ThreadId, LateWait)>) {
        for (thread, wait) in waits {
            self.waits += 1;
            self.longest = self.longest.max(wait.until.since(wait.from));
            if self.slices.len() + wait.runs.len() >= MOST {
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
            self.slices.push(slice(name, wait.from, wait.until, about));
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
                self.slices.push(slice(&name, from, until, about));
            }
        }
    }

    /// What the file holds.
    pub(super) fn json(&self, least: Nanos, lost: u64) -> String {
        let name = |what: &str, pid: u32, tid: u32, name: &str| json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}});
        let guests = self.guests.iter();
        let guests = guests.map(|(pid, guest)| name("process_name", *pid, *pid, guest));
        let threads = self.threads.iter();
        let threads = threads.map(|(tid, (pid, thread))| name("thread_name", *pid, *tid, thread));
        let all: Vec<_> = guests
            .chain(threads)
            .chain(self.slices.iter().cloned())
            .collect();
        let file = json!({
            "traceEvents": all,
            "displayTimeUnit": "ns",
            "otherData": {
                "tool": format!("tailbound {}", env!("CARGO_PKG_VERSION")),
                "least_ns": least.0,
                "lost": lost,
                "left_out": self.left_out,
            },
        });
        format!("{file}\n")
    }

    /// What there is to see, in a line.
    pub(super) fn summary(&self) -> String {
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
        let mut events = Events::default();
        events.guests.insert(7, "web".to_owned());
        events
            .threads
            .insert(8, (7, "vCPU 0 (CPU 0/KVM)".to_owned()));
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
        events.take(vec![(id, wait)]);
        assert_eq!(
            events.summary(),
            "1 waits of 1 threads, the longest 299.500 us"
        );
        let file: Value = serde_json::from_str(&events.json(Nanos(50_000), 3)).unwrap();
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
}
