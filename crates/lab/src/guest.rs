//! Programs inside guests: the lab starts its own program there with a task.
//!
//! A task is prepared (sockets opened, connections made, memory filled), prints `ready` on standard
//! output, reads the start time from standard input, and writes its [`Outcome`] to a file. Tasks
//! that are load for others continue after that until they are killed, so that the last requests of
//! the others meet the same conditions as the first.

mod bulk;
mod copy;
mod duty;
mod echo;
mod etc;
pub(crate) mod events;
mod flood;
mod frames;
mod hog;
mod memcached;
mod message;
mod meter;
mod packet;
mod pages;
mod passage;
mod probe;
mod protocol;
mod query;
mod rtp;
mod server;
mod shuffle;
mod stream;
mod transfer;
mod wakeup;
mod watch;
mod workflows;

pub use copy::TapOf;
pub use etc::Requests;
pub use flood::Flood;
pub use frames::Frames;
#[cfg(test)]
pub(crate) use message::Header;
pub use message::{Messages, Moments};
#[cfg(test)]
pub(crate) use packet::message_frame;
pub use packet::{End, Manner};
pub use pages::Pages;
pub(crate) use passage::{Passage, Passages, passage_of};
pub use probe::{ProbeReport, ProbedCpu};
pub use query::Queries;
pub(crate) use rtp::jitter_of;
pub use rtp::{Encoder, Stream};
pub(crate) use tailbound_sys::timer::{now, sleep_until, thread_cpu_time as cpu_time};
pub use transfer::Transfers;
pub use watch::Watch;
pub(crate) use workflows::NodeSelection;
pub use workflows::{Choice, Flows, Workflows};

use crate::LabError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use tailbound_report::Stats;
use tailbound_units::{Bytes, Nanos};

/// The interface of a guest.
pub const GUEST_INTERFACE: &str = "eth0";

/// The task of one process in a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The work.
    pub work: Work,
    /// Length of the load before samples count.
    pub warmup: Nanos,
    /// Time in which samples count.
    pub duration: Nanos,
    /// Longest wait for answers after that time.
    pub grace: Nanos,
    /// Path of the outcome's file.
    pub outcome: PathBuf,
}

impl Task {
    /// Writes the task to the file that the process in the guest reads.
    pub(crate) fn write(&self, path: &Path) -> Result<(), LabError> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        text.and_then(|text| std::fs::write(path, text))
            .map_err(LabError::file("writing", path))
    }
}

/// Returns the arguments of this program for the task in a file.
pub(crate) fn command(task: &Path) -> Vec<String> {
    vec!["lab".into(), "guest".into(), task.display().to_string()]
}

/// The kinds of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Answers requests.
    Server {
        /// Its TCP port.
        port: u16,
    },
    /// Sends requests at random times.
    Query(Queries),
    /// Requests values from memcached.
    Etc(Requests),
    /// Sends TCP streams and receives others; the amount is bytes received.
    Shuffle {
        /// The TCP port of the receiving side.
        port: u16,
        /// The receivers of its streams.
        peers: Vec<SocketAddrV4>,
    },
    /// Sends one TCP stream.
    BulkSender {
        /// The receiver.
        to: SocketAddrV4,
    },
    /// Receives TCP streams; the amount is bytes.
    BulkReceiver {
        /// Its TCP port.
        port: u16,
    },
    /// Sends UDP datagrams; the amount is datagrams.
    Flood(Flood),
    /// Sends a stream of RTP; the amount is packets.
    RtpSender(Stream),
    /// Receives a stream of RTP and measures its jitter; the amount is packets.
    RtpReceiver {
        /// Its UDP port.
        port: u16,
    },
    /// Fetches pages at random times; the amount is pages.
    Pages(Pages),
    /// Copies frames between two TAPs.
    Copy {
        /// The TAPs.
        taps: [TapOf; 2],
    },
    /// Receives UDP datagrams; the amount is datagrams.
    Sink {
        /// Its UDP port.
        port: u16,
    },
    /// Sends frames that it composes itself at its full speed; the amount is frames.
    Frames(Frames),
    /// Measures the received traffic from one sender.
    Meter {
        /// The sender.
        from: std::net::Ipv4Addr,
    },
    /// Sends messages; the amount is messages.
    Messages(Messages),
    /// Receives messages.
    MessageSink {
        /// Its UDP port.
        port: u16,
    },
    /// Sends transfers.
    Transfers(Transfers),
    /// Receives transfers.
    TransferSink {
        /// Its TCP port.
        port: u16,
        /// The size of each transfer.
        size: Bytes,
        /// Senders close the connection after a transfer.
        closes: bool,
    },
    /// Watches a port of the switch.
    Watch(Watch),
    /// Sends ICMP echo requests.
    Echo {
        /// The receiver.
        to: std::net::Ipv4Addr,
        /// The time between requests.
        every: Nanos,
    },
    /// Scans memory; the amount is scans.
    Hog {
        /// Scans between two sleeps.
        scans: u32,
        /// The length of a sleep.
        sleep: Nanos,
        /// The size of the block.
        block: Bytes,
    },
    /// Computes for a part of each period.
    Duty {
        /// CPU time in each period.
        busy: Nanos,
        /// The period.
        period: Nanos,
    },
    /// Runs `tailbound probe`.
    Probe {
        /// Its arguments.
        args: Vec<String>,
        /// Delay from the start of the load to that of the probe.
        after: Nanos,
        /// Path of a copy of the probe's output.
        result: Option<PathBuf>,
    },
    /// Runs workflows of calls to many nodes.
    Workflows(Workflows),
    /// Sleeps until random times.
    Wakeup {
        /// The mean time between two wakeups.
        mean_gap: Nanos,
        /// Seed of the wakeups' times.
        seed: u64,
    },
}

impl Work {
    /// Returns whether the task ends by itself after its measurement; others continue until they
    /// are killed.
    pub(crate) const fn ends(&self) -> bool {
        !matches!(
            self,
            Self::Server { .. }
                | Self::Shuffle { .. }
                | Self::BulkSender { .. }
                | Self::BulkReceiver { .. }
                | Self::Copy { .. }
                | Self::Sink { .. }
                | Self::Frames(_)
                | Self::Hog { .. }
                | Self::Duty { .. }
        )
    }
}

/// One measured event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its index among the arrivals: the same in every variant.
    pub arrival: u32,
    /// Scheduled start, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// End, on `CLOCK_MONOTONIC`.
    pub end: Nanos,
}

impl Sample {
    /// Returns the duration, from the *scheduled* start.
    pub fn latency(&self) -> Nanos {
        self.end.since(self.start)
    }
}

/// Outcome of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The events whose start lay in the measured time, in order of arrival.
    pub samples: Vec<Sample>,
    /// The longest time without progress in each event, for events with progress.
    pub pauses: Vec<Sample>,
    /// Events without an end after the grace time.
    pub unanswered: u64,
    /// Bytes or scans in the measured time.
    pub amount: u64,
    /// CPU time used in the measured time, of tasks that compute.
    pub cpu: Nanos,
    /// Length of the measured time.
    pub time: Nanos,
    /// Number of served requests on each CPU.
    pub served: BTreeMap<u32, u64>,
    /// The probe's report.
    pub probe: Option<ProbeReport>,
    /// Received traffic in each second, in bytes on the wire; for TCP and UDP, the bytes that the
    /// program received.
    pub windows: Windows,
    /// The pauses between arrivals.
    pub gaps: Option<Stats>,
    /// Other figures, by name.
    pub figures: BTreeMap<String, f64>,
    /// Points to draw in a chart, by name and in order.
    pub lines: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Outcome {
    /// Reads the outcome that a task left in its file.
    pub(crate) fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read(path).map_err(LabError::file("reading", path))?;
        let outcome = serde_json::from_slice(&text).map_err(io::Error::from);
        outcome.map_err(LabError::file("reading", path))
    }

    /// Returns the share of a CPU used, in percent.
    pub fn cpu_percent(&self) -> f64 {
        match self.time {
            Nanos::ZERO => 0.0,
            time => self.cpu.as_secs_f64() / time.as_secs_f64() * 100.0,
        }
    }

    /// Returns the amount per second.
    pub fn rate(&self) -> f64 {
        match self.time {
            Nanos::ZERO => 0.0,
            time => self.amount as f64 / time.as_secs_f64(),
        }
    }
}

/// Interval of the counts of received traffic.
const WINDOW: Nanos = Nanos::from_secs(1);

/// Received traffic in each second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Begin of the first second.
    pub from: Nanos,
    /// Bytes of each second.
    pub bytes: Vec<u64>,
}

impl Windows {
    /// Counts bytes that arrived at this time.
    pub(crate) fn add(&mut self, at: Nanos, bytes: u64) {
        let window = at.since(self.from).as_nanos() / WINDOW.as_nanos();
        if let Some(window) = self.bytes.get_mut(window as usize) {
            *window += bytes;
        }
    }
}

/// Begin of each phase of a task, on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// The load starts.
    pub(crate) start: Nanos,
    /// Begin of the time in which samples count
    pub(crate) from: Nanos,
    /// and its end; measuring tasks end their load.
    pub(crate) to: Nanos,
    /// Time at which pending requests count as unanswered.
    pub(crate) give_up: Nanos,
}

impl Schedule {
    fn new(task: &Task, start: Nanos) -> Self {
        let from = start.saturating_add(task.warmup);
        let to = from.saturating_add(task.duration);
        Self {
            start,
            from,
            to,
            give_up: to.saturating_add(task.grace),
        }
    }

    /// Returns a count of received traffic for each second that counts, all 0.
    pub(crate) fn windows(&self) -> Windows {
        let seconds = self.to.since(self.from).as_nanos() / WINDOW.as_nanos();
        Windows {
            from: self.from,
            bytes: vec![0; seconds as usize],
        }
    }

    /// Returns whether an event that starts at `moment` counts.
    pub(crate) fn counts(&self, moment: Nanos) -> bool {
        (self.from..self.to).contains(&moment)
    }
}

/// The congestion control of guests: the paper's guests ran Linux's default, which is still common
/// in guests, independently of this computer's setting.
pub const CONGESTION_CONTROL: &str = "cubic";

/// Sets this congestion control for a socket; connections that a listener accepts inherit it.
pub(crate) fn control_congestion(socket: impl std::os::fd::AsFd) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_congestion(socket, CONGESTION_CONTROL).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(
            error.kind(),
            format!("congestion control {CONGESTION_CONTROL}: {error}"),
        )
    })
}

/// Destination of guests' broadcasts: the discard port (RFC 863), which no process uses.
const EVERYBODY: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 255, 255), 9);

/// Interval of these broadcasts until the measurement starts: the kernel drops a guest's frames
/// until it has detected that the NIC's cable is plugged in, which takes up to a second.
const ANNOUNCED_EVERY: Nanos = Nanos::from_millis(50);

/// Announces this guest's location to the network `until` that time, as a VM does when it starts. A
/// guest that only receives would be unknown to other hosts, which limit their guests' traffic to
/// unknown destinations.
fn announce(until: Nanos) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_broadcast(true)?;
    while now() < until {
        socket.send_to(&[], EVERYBODY)?;
        sleep_until(now().saturating_add(ANNOUNCED_EVERY));
    }
    Ok(())
}

/// Reports that a task is prepared, and waits for the start time.
struct Starter<'a>(&'a Task);

impl Starter<'_> {
    fn ready(&self) -> io::Result<Schedule> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{READY}")?;
        stdout.flush()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let start = line.trim().parse().map_err(|_| {
            let message = format!("expected the time to start on standard input, got {line:?}");
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        Ok(Schedule::new(self.0, Nanos(start)))
    }

    /// Reports readiness for a task that sends no frames: the guest announces itself until the
    /// measurement starts.
    fn ready_to_listen(&self) -> io::Result<Schedule> {
        let schedule = self.ready()?;
        let until = schedule.from;
        // A load with a network of its own has no other host on it.
        std::thread::spawn(move || announce(until));
        Ok(schedule)
    }

    fn finish(&self, outcome: &Outcome) -> io::Result<()> {
        leave(&self.0.outcome, &serde_json::to_vec(outcome)?)?;
        // A process outside of a VM cannot see the file, so it waits for this line.
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{FINISHED}")?;
        stdout.flush()
    }
}

/// Writes a file under another name first, so that a reader never sees a part of it.
pub(crate) fn leave(path: &Path, text: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

/// Output of a prepared task.
pub const READY: &str = "ready";
/// Output of a task after it has written its outcome.
const FINISHED: &str = "finished";

/// Reason of a failed task.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The task's file is not readable.
    #[error("cannot read the task {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A system call of the task failed.
    #[error("{what}: {source}")]
    Failed {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Executes the task that `path` describes.
pub fn run(path: &Path) -> Result<(), TaskError> {
    let read = |source| TaskError::Read {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read(path).map_err(read)?;
    let task: Task = serde_json::from_slice(&text).map_err(|error| read(error.into()))?;
    // Wake up at the requested time, not 50 us later (the default timer slack).
    if let Some(least) = std::num::NonZeroU64::new(1) {
        let _ = rustix::thread::set_current_timer_slack(Some(least));
    }
    let (action, result) = work(&task);
    result.map_err(|source| TaskError::Failed {
        what: action,
        source,
    })
}

/// Executes the work of a task; returns its name and its result.
fn work(task: &Task) -> (&'static str, io::Result<()>) {
    let starter = Starter(task);
    match &task.work {
        Work::Server { port } => ("server", server::run(&starter, *port)),
        Work::Query(queries) => {
            let span = task.warmup + task.duration;
            ("query client", query::run(&starter, span, queries))
        }
        Work::Etc(requests) => ("memcached client", etc::run(&starter, requests)),
        Work::Shuffle { port, peers } => ("shuffle", shuffle::run(&starter, *port, peers)),
        Work::BulkSender { to } => ("bulk sender", bulk::send(&starter, *to)),
        Work::BulkReceiver { port } => ("bulk receiver", bulk::receive(&starter, *port)),
        Work::Flood(flood) => ("flood", flood::send(&starter, flood)),
        Work::RtpSender(stream) => ("stream of RTP", rtp::send(&starter, stream)),
        Work::RtpReceiver { port } => ("receiver of RTP", rtp::receive(&starter, *port)),
        Work::Pages(pages) => {
            let span = task.warmup + task.duration;
            ("client of pages", pages::run(&starter, span, pages))
        }
        Work::Copy { taps } => ("copy between TAPs", copy::run(taps)),
        Work::Sink { port } => ("sink", flood::receive(&starter, *port)),
        Work::Frames(frames) => ("frames", frames::send(&starter, frames)),
        Work::Meter { from } => ("meter", meter::run(&starter, *from)),
        Work::Messages(messages) => {
            let span = task.warmup + task.duration;
            ("messages", message::send(&starter, span, messages))
        }
        Work::MessageSink { port } => ("message sink", message::receive(&starter, *port)),
        Work::Transfers(transfers) => {
            let span = task.warmup + task.duration;
            ("transfers", transfer::send(&starter, span, transfers))
        }
        Work::TransferSink { port, size, closes } => {
            let received = transfer::receive(&starter, *port, *size, *closes);
            ("transfer sink", received)
        }
        Work::Watch(watch) => ("watch", watch::run(&starter, watch)),
        Work::Echo { to, every } => ("echo client", echo::run(&starter, *to, *every)),
        Work::Hog {
            scans,
            sleep,
            block,
        } => ("hog", hog::run(&starter, *scans, *sleep, *block)),
        Work::Duty { busy, period } => ("duty", duty::run(&starter, *busy, *period)),
        Work::Probe {
            args,
            after,
            result,
        } => {
            let result = result.as_deref();
            ("probe", probe::run(&starter, args, *after, result))
        }
        Work::Workflows(it) => ("workflows", workflows::run(&starter, it)),
        Work::Wakeup { mean_gap, seed } => (
            "wakeup",
            wakeup::run(&starter, task.warmup + task.duration, *mean_gap, *seed),
        ),
    }
}
