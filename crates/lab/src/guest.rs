//! What runs inside guests: the lab starts its own program there, with a task.
//!
//! A task is prepared (sockets opened, connections made, memory filled), says
//! `ready` on standard output, reads the moment to start from standard input,
//! and writes its [`Outcome`] to a file. Tasks that are load for others go on
//! after that until they are killed, so that the last requests of the others
//! meet the same conditions as the first.

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
pub use frames::Frames;
pub(crate) use message::Header;
pub use message::{Messages, Moments};
#[cfg(test)]
pub(crate) use packet::message_frame;
pub use packet::{End, Manner};
pub(crate) use packet::{on_wire, read as read_frame};
pub use pages::Pages;
pub use probe::{ProbeReport, ProbedCpu};
pub use query::Queries;
pub(crate) use rtp::jitter_of;
pub use rtp::{Encoder, Stream};
pub use transfer::Transfers;
pub use watch::Watch;
pub(crate) use workflows::Chosen;
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

/// What one process in a guest is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The work.
    pub work: Work,
    /// How long the load runs before samples count.
    pub warmup: Nanos,
    /// How long samples count.
    pub duration: Nanos,
    /// How long to wait for answers after that.
    pub grace: Nanos,
    /// Where the outcome goes.
    pub outcome: PathBuf,
}

impl Task {
    /// Writes it where the process that is to do it finds it.
    pub(crate) fn write(&self, path: &Path) -> Result<(), LabError> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        text.and_then(|text| std::fs::write(path, text))
            .map_err(LabError::file("writing", path))
    }
}

/// The arguments of this program that make it do the task in a file.
pub(crate) fn command(task: &Path) -> Vec<String> {
    vec!["lab".into(), "guest".into(), task.display().to_string()]
}

/// The kinds of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Answers requests.
    Server {
        /// Where it listens.
        port: u16,
    },
    /// Sends requests at random moments.
    Query(Queries),
    /// Asks memcached for values.
    Etc(Requests),
    /// Sends TCP streams and receives them; the amount is bytes received.
    Shuffle {
        /// Where it listens.
        port: u16,
        /// To whom it sends.
        peers: Vec<SocketAddrV4>,
    },
    /// Sends one TCP stream.
    BulkSender {
        /// To whom.
        to: SocketAddrV4,
    },
    /// Receives TCP streams; the amount is bytes.
    BulkReceiver {
        /// Where it listens.
        port: u16,
    },
    /// Sends UDP datagrams; the amount is datagrams.
    Flood {
        /// To whom.
        to: SocketAddrV4,
        /// The size of each, without headers.
        payload: Bytes,
        /// How many a second; as many as it can where that is not said.
        offered: Option<u32>,
        /// Each is left to be cut into datagrams of so many bytes (`UDP_SEGMENT`).
        segment: Option<u16>,
    },
    /// Sends a stream of RTP; the amount is packets.
    RtpSender(Stream),
    /// Receives one, and measures its jitter; the amount is packets.
    RtpReceiver {
        /// Where it listens.
        port: u16,
    },
    /// Fetches pages at random moments; the amount is pages.
    Pages(Pages),
    /// Copies frames between two TAPs.
    Copy {
        /// Of whom.
        taps: [TapOf; 2],
    },
    /// Receives UDP datagrams; the amount is datagrams.
    Sink {
        /// Where it listens.
        port: u16,
    },
    /// Sends frames of its own making as fast as it can; the amount is frames.
    Frames(Frames),
    /// Measures what arrives.
    Meter {
        /// From whom.
        from: std::net::Ipv4Addr,
    },
    /// Sends messages; the amount is messages.
    Messages(Messages),
    /// Receives messages.
    MessageSink {
        /// Where it listens.
        port: u16,
    },
    /// Sends transfers.
    Transfers(Transfers),
    /// Receives transfers.
    TransferSink {
        /// Where it listens.
        port: u16,
        /// The size of each.
        size: Bytes,
        /// Senders close behind it.
        closes: bool,
    },
    /// Watches a port of the switch.
    Watch(Watch),
    /// Sends ICMP echo requests.
    Echo {
        /// To whom.
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
        /// How long after the start.
        #[serde(default)]
        after: Nanos,
        /// Where all that it says goes, too.
        #[serde(default)]
        result: Option<PathBuf>,
    },
    /// Runs workflows of calls to many nodes.
    Workflows(Workflows),
    /// Sleeps until random moments.
    Wakeup {
        /// The mean time between two.
        mean_gap: Nanos,
        /// Where the moments come from.
        seed: u64,
    },
}

/// What a query client and its servers speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// The lab's own: eight bytes that name the size of the answer.
    Own,
    /// The text protocol of memcached.
    Memcached,
}

/// One measured event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its place among the arrivals: the same in every variant.
    pub arrival: u32,
    /// When it was to start, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// When it was over.
    pub end: Nanos,
}

impl Sample {
    /// How long it took, from when it was *to* start.
    pub fn latency(&self) -> Nanos {
        self.end.since(self.start)
    }
}

/// What a task found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The events whose start lay in the measured time, in order of arrival.
    pub samples: Vec<Sample>,
    /// The longest time without progress in each of them, of those that make some.
    #[serde(default)]
    pub pauses: Vec<Sample>,
    /// Events that had no end when the grace was over.
    pub unanswered: u64,
    /// Bytes or scans in the measured time.
    pub amount: u64,
    /// CPU time used in it, by those that compute.
    #[serde(default)]
    pub cpu: Nanos,
    /// How long that was.
    pub time: Nanos,
    /// How many requests were served on each CPU.
    pub served: BTreeMap<u32, u64>,
    /// What the probe said.
    #[serde(default)]
    pub probe: Option<ProbeReport>,
    /// What arrived in each second, in bytes on the wire; of TCP and UDP what programs had of it.
    #[serde(default)]
    pub windows: Vec<u64>,
    /// When the first of these began.
    #[serde(default)]
    pub windows_from: Nanos,
    /// The pauses between arrivals.
    #[serde(default)]
    pub gaps: Option<Stats>,
    /// Other figures, by name.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// What can be drawn, by name: points in order.
    #[serde(default)]
    pub lines: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Outcome {
    /// What a task left in its file.
    pub(crate) fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read(path).map_err(LabError::file("reading", path))?;
        let outcome = serde_json::from_slice(&text).map_err(io::Error::from);
        outcome.map_err(LabError::file("reading", path))
    }

    /// The share of a CPU used, in percent.
    pub fn cpu_percent(&self) -> f64 {
        match self.time {
            Nanos::ZERO => 0.0,
            time => self.cpu.as_secs_f64() / time.as_secs_f64() * 100.0,
        }
    }

    /// The amount in a second.
    pub fn rate(&self) -> f64 {
        match self.time {
            Nanos::ZERO => 0.0,
            time => self.amount as f64 / time.as_secs_f64(),
        }
    }
}

/// What arrives is counted by that.
const WINDOW: Nanos = Nanos::from_secs(1);

/// When a task's phases begin, on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// The load starts.
    pub(crate) start: Nanos,
    /// Samples count from here
    pub(crate) from: Nanos,
    /// to here; the load of those who measure ends.
    pub(crate) to: Nanos,
    /// What has no answer yet will have none.
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

    /// What arrives in each second that counts: nothing yet.
    pub(crate) fn windows(&self) -> Vec<u64> {
        vec![0; self.window(self.to)]
    }

    /// Which of these a moment that counts is in.
    pub(crate) fn window(&self, moment: Nanos) -> usize {
        (moment.since(self.from).as_nanos() / WINDOW.as_nanos()) as usize
    }

    /// Whether something that starts at `moment` counts.
    pub(crate) fn counts(&self, moment: Nanos) -> bool {
        (self.from..self.to).contains(&moment)
    }
}

/// The time on `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
}

/// The CPU time of this thread.
pub(crate) fn cpu_time() -> Nanos {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(used.tv_sec.cast_unsigned() * 1_000_000_000 + used.tv_nsec.cast_unsigned())
}

/// The congestion control of guests: the paper's guests ran Linux's default,
/// which most guests still do, whatever this machine's is.
pub const CONGESTION_CONTROL: &str = "cubic";

/// Gives a socket that; connections that a listener accepts inherit it.
pub(crate) fn control_congestion(socket: impl std::os::fd::AsFd) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_congestion(socket, CONGESTION_CONTROL).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(
            error.kind(),
            format!("congestion control {CONGESTION_CONTROL}: {error}"),
        )
    })
}

/// Sleeps until `moment`; returns at once if that has passed.
pub(crate) fn sleep_until(moment: Nanos) {
    let moment = events::timespec(moment);
    while rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &moment)
        .is_err()
    {}
}

/// Where guests' broadcasts go, to a port at which nobody listens (RFC 863).
const EVERYBODY: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 255, 255), 9);

/// How often, until what is measured starts: the kernel drops what a guest sends before it has
/// seen that its card's cable is plugged in, up to a second after it was.
const ANNOUNCED_EVERY: Nanos = Nanos::from_millis(50);

/// Tells the network where this guest is, as a machine does when it starts, `until` then. A
/// guest that only receives would be unknown to other hosts, on which guests have a budget for
/// what they send to such.
fn announce(until: Nanos) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_broadcast(true)?;
    while now() < until {
        socket.send_to(&[], EVERYBODY)?;
        sleep_until(now().saturating_add(ANNOUNCED_EVERY));
    }
    Ok(())
}

/// Says that everything is prepared and waits for the moment to start.
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

    /// The same for who sends nothing: the network hears where he is until what is measured
    /// starts.
    fn ready_to_listen(&self) -> io::Result<Schedule> {
        let schedule = self.ready()?;
        let until = schedule.from;
        // Where a load has a network of its own, no other host is on it.
        std::thread::spawn(move || announce(until));
        Ok(schedule)
    }

    fn finish(&self, outcome: &Outcome) -> io::Result<()> {
        leave(&self.0.outcome, &serde_json::to_vec(outcome)?)?;
        // For who waits for it where the file is not seen: outside of a machine.
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{FINISHED}")?;
        stdout.flush()
    }
}

/// Writes a file under another name first: whoever sees it sees all of it.
fn leave(path: &Path, text: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

/// What a task prints when it is prepared.
pub const READY: &str = "ready";
/// And when its outcome is written.
const FINISHED: &str = "finished";

/// Why a task could not be done.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The file that describes it is of no use.
    #[error("cannot read the task {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It failed.
    #[error("{what}: {source}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Does the task that `path` describes.
///
/// # Errors
/// The task cannot be read or a system call failed.
pub fn run(path: &Path) -> Result<(), TaskError> {
    let read = |source| TaskError::Read {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read(path).map_err(read)?;
    let task: Task = serde_json::from_slice(&text).map_err(|error| read(error.into()))?;
    // Wake up when asked to, not 50 us later (the default timer slack).
    if let Some(least) = std::num::NonZeroU64::new(1) {
        let _ = rustix::thread::set_current_timer_slack(Some(least));
    }
    let (what, result) = work(&task);
    result.map_err(|source| TaskError::Failed { what, source })
}

/// Does the work of a task; what it is called, and how it ended.
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
        Work::Flood {
            to,
            payload,
            offered,
            segment,
        } => {
            let flood = flood::Flood {
                to: *to,
                payload: *payload,
                offered: *offered,
                segment: *segment,
            };
            ("flood", flood::send(&starter, &flood))
        }
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
