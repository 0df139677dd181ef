//! The evidence about one guest in one window. All moments are on one clock, the host's monotonic
//! one; names are printable and unambiguous, which the caller sees to.

use std::sync::Arc;
use tailbound_units::Nanos;

/// The owner of a thread that had a CPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// The guest that waited.
    Own,
    /// Another guest.
    Guest(Arc<str>),
    /// A program of the host's.
    Program(Arc<str>),
    /// A thread of the kernel.
    Kernel(Arc<str>),
    /// A thread that exited before its owner was looked up, by its own name.
    Exited(Arc<str>),
    /// The CPU was idle.
    Idle,
}

/// One run on the CPU that a thread waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its begin.
    pub from: Nanos,
    /// Its end.
    pub until: Nanos,
    /// The owner of the thread that ran.
    pub occupant: Occupant,
    /// True if that thread comes before all shares.
    pub is_real_time: bool,
    /// The part that the hypervisor took, as far as it reports that.
    pub stolen: Nanos,
    /// The part that interrupts took, as far as the kernel counts that.
    pub interrupted: Nanos,
}

/// A late wait of one of the guest's threads for a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuWait {
    /// The thread's number.
    pub thread: u32,
    /// True if the thread had a CPU and lost it; false if it was woken.
    pub was_preempted: bool,
    /// Its begin.
    pub from: Nanos,
    /// Its end.
    pub until: Nanos,
    /// The time from its begin in which the thread's own reservation was used up.
    pub reservation: Nanos,
    /// The time after that in which a CPU quota of the guest was used up.
    pub quota: Nanos,
    /// The runs on the CPU that the thread got, in order; shared by the copies of a wait.
    pub runs: Arc<[Run]>,
}

/// A run of one of the guest's threads of which others took a part, in moments that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption {
    /// The thread's number.
    pub thread: u32,
    /// The run's begin.
    pub from: Nanos,
    /// Its end.
    pub until: Nanos,
    /// The part that the hypervisor took.
    pub stolen: Nanos,
    /// The part that interrupts took.
    pub interrupted: Nanos,
}

/// The direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A peer asked the guest: arrived, delivered, taken, sent, left.
    Served,
    /// The guest asked a peer: sent, left, arrived, delivered, taken.
    Made,
}

/// The moments of a request, each once, in the order of its [`Direction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Points {
    /// The last segment came to the host from outside or from a neighbour (t0).
    pub arrived: Nanos,
    /// The segment was put into the guest's ring or network namespace (t1).
    pub delivered: Nanos,
    /// The segment was taken from the ring (t2); `None` for an interface without one.
    pub taken: Option<Nanos>,
    /// The guest sent its first segment (t3).
    pub sent: Nanos,
    /// That segment left the host (t4).
    pub left: Nanos,
}

/// The owner of most bytes ahead in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing was ahead, or it is not known whose.
    Unknown,
    /// The guest's own frames.
    Own,
    /// Another guest's, by name.
    Guest(Arc<str>),
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The guest.
    Guest,
    /// Its peer.
    Peer,
}

/// The time that a request's frames spent in queues of the host's interfaces, between the points at which they
/// came and left. For the rest of that time they waited for soft interrupts, which carry frames from one
/// interface to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTimes {
    /// Towards the guest.
    pub inward: Nanos,
    /// From the guest.
    pub outward: Nanos,
}

/// A request that was slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// Its direction.
    pub direction: Direction,
    /// The moment at which its first segment was first seen: long requests have several.
    pub begun: Nanos,
    /// Its moments.
    pub points: Points,
    /// The peer's address.
    pub peer: Arc<str>,
    /// The peer's name if it is a guest of this host too, by the interface that its frames came from.
    pub peer_guest: Option<Arc<str>>,
    /// The frames ahead of it in the host's queue towards the guest.
    pub ahead_inward: Ahead,
    /// The frames ahead of it in the host's queue from the guest.
    pub ahead_outward: Ahead,
    /// Segments that were sent again meanwhile.
    pub retransmits: u32,
    /// Frames of its connection that the host dropped meanwhile.
    pub dropped: u32,
    /// The side that closed its window meanwhile.
    pub zero_window: Option<Side>,
    /// The time in queues; `None` if it is not known, as frames were lost or sent again.
    pub queued: Option<QueueTimes>,
    /// The thread that sent the guest's segment, if that is known.
    pub thread: Option<u32>,
}

/// The waits of frames in a queue of the host, of all that waited in an interval behind the same guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueWaits {
    /// The end of the interval.
    pub until: Nanos,
    /// The frames; at least one.
    pub count: u64,
    /// The sum of their waits.
    pub time: Nanos,
    /// True for frames from the guest.
    pub is_outward: bool,
    /// The frames ahead of them.
    pub ahead: Ahead,
}

/// The time in which peers held the guest back by their windows: they took no more data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The begin of the interval that was looked at.
    pub from: Nanos,
    /// Its end.
    pub until: Nanos,
    /// The waits for a window; at least one.
    pub count: u64,
    /// Their time, summed up.
    pub time: Nanos,
}

/// The time that the guest's threads ran in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuUse {
    /// The interval's begin.
    pub from: Nanos,
    /// The interval's end.
    pub until: Nanos,
    /// The time that all its threads ran, summed up.
    pub ran: Nanos,
    /// The time that interrupts took of the CPUs on which its threads ran, as the kernel counts it: the mean
    /// over these CPUs, by the time that its threads ran there.
    pub interrupts: Nanos,
}

/// A limit on the guest's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceLimit {
    /// The limit in words, such as `tbf 8Mbit/s on veth1`.
    pub text: Arc<str>,
    /// True for a limit on frames from the guest.
    pub is_outward: bool,
    /// True if it held any back in the window.
    pub was_reached: bool,
}

/// The guest's own limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its CPU quota in words, such as `20ms in 100ms`; `None` without one.
    pub quota: Option<Arc<str>>,
    /// Periods of the window in which its quota was used up.
    pub throttled_periods: u64,
    /// The time that the quota held its CPUs up in the window, summed up over CPUs.
    pub throttled: Nanos,
    /// Limits on its interfaces.
    pub interfaces: Vec<InterfaceLimit>,
}

/// The commands that would change something for the guest, made by the caller, who knows what
/// manages it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handles {
    /// The flags by which `tailbound vcpu apply` picks the guest.
    pub select: Option<String>,
    /// The command that raises its CPU quota.
    pub quota: Option<String>,
    /// The command that raises the limit on its interface.
    pub limit: Option<String>,
    /// The command for fair queueing in the host's queue.
    pub queue: Option<String>,
}

/// The parts that could be examined; an error is the reason why one could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedParts {
    /// Waits for a CPU.
    pub cpu: Result<(), String>,
    /// Packets: requests, queues, the network beyond the host.
    pub packets: Result<(), String>,
    /// The time that interrupts took.
    pub interrupts: Result<(), String>,
    /// The time that the hypervisor below took.
    pub steal: Result<(), String>,
    /// The part of the window in which packets were examined; `None` if all of it.
    pub time: Option<Nanos>,
    /// The part in which interrupts, and with them waits for a CPU, were examined; `None` if all of it.
    pub interrupts_time: Option<Nanos>,
}

impl Default for ExaminedParts {
    /// Returns the state after a complete examination.
    fn default() -> Self {
        Self {
            cpu: Ok(()),
            packets: Ok(()),
            interrupts: Ok(()),
            steal: Ok(()),
            time: None,
            interrupts_time: None,
        }
    }
}

/// Slow periods that are counted and no more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Their number.
    pub count: u64,
    /// The sum of their lengths.
    pub time: Nanos,
}

/// The slow periods that were left out to keep the evidence small: shorter ones than those that it
/// has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Slow requests.
    pub requests: Sum,
    /// Frames of bulk flows.
    pub packets: Sum,
    /// Waits for windows.
    pub stalls: Sum,
    /// Late waits for a CPU.
    pub waits: Sum,
    /// The time of these in which a thread that lost its CPU shared it.
    pub shared: Nanos,
}

/// All that was measured of one guest in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The guest's name.
    pub guest: String,
    /// The length of the window.
    pub window: Nanos,
    /// Requests that were answered in the window, slow or not.
    pub answered: u64,
    /// The slow ones.
    pub requests: Vec<SlowRequest>,
    /// Frames of bulk flows that waited long.
    pub packets: Vec<QueueWaits>,
    /// Waits for the windows of its peers.
    pub stalls: Vec<Stall>,
    /// Late waits for a CPU.
    pub waits: Vec<CpuWait>,
    /// Late waits that were not read in time.
    pub lost_waits: u64,
    /// The slow periods that were left out.
    pub left_out: LeftOut,
    /// Runs of its threads of which others took a part.
    pub interruptions: Vec<Interruption>,
    /// The CPU time of the guest, in intervals that do not overlap.
    pub cpu_use: Vec<CpuUse>,
    /// The guest's own limits.
    pub limits: Limits,
    /// The parts that could be examined.
    pub examined: ExaminedParts,
    /// The commands that would change something.
    pub handles: Handles,
}
