//! The causes of delay.

use std::sync::Arc;

/// A kind of cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Another guest had the CPU.
    NeighbourCpu,
    /// A program or kernel thread of the host had the CPU.
    ProgramCpu,
    /// Other guests and programs of the host had the CPU, neither for half of the delay: the host is
    /// too busy. Only a finding has this kind; no time is divided to it.
    BusyHost,
    /// A thread that comes before all shares (`SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`) had the
    /// CPU.
    RealTime,
    /// The hypervisor below this host ran something else (steal).
    Hypervisor,
    /// Interrupts, also soft ones, had the CPU.
    Interrupts,
    /// The guest's own CPU quota was used up.
    Quota,
    /// The guest's own CPU reservation was used up.
    Reservation,
    /// A frame waited in a queue of the host.
    HostQueue,
    /// A frame waited for a limit on the guest's own interface.
    OwnLimit,
    /// Frames were lost beyond the host.
    Loss,
    /// The peer, or the network up to it, was slow.
    Delay,
    /// The peer was slow, which is a guest of this host too.
    PeerGuest,
    /// The peer did not take what it was sent.
    SlowReceiver,
    /// The guest itself: it computed, its own threads had its CPU, or it did not take a frame.
    GuestItself,
    /// The CPU was idle: it woke up, or the thread stood in another CPU's queue.
    Scheduler,
    /// The cause is not known.
    Unknown,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::NeighbourCpu,
        Self::ProgramCpu,
        Self::BusyHost,
        Self::RealTime,
        Self::Hypervisor,
        Self::Interrupts,
        Self::Quota,
        Self::Reservation,
        Self::HostQueue,
        Self::OwnLimit,
        Self::Loss,
        Self::Delay,
        Self::PeerGuest,
        Self::SlowReceiver,
        Self::GuestItself,
        Self::Scheduler,
        Self::Unknown,
    ];

    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeighbourCpu => "neighbour-cpu",
            Self::ProgramCpu => "program-cpu",
            Self::BusyHost => "busy-host",
            Self::RealTime => "real-time",
            Self::Hypervisor => "hypervisor",
            Self::Interrupts => "interrupts",
            Self::Quota => "quota",
            Self::Reservation => "reservation",
            Self::HostQueue => "host-queue",
            Self::OwnLimit => "own-limit",
            Self::Loss => "loss-beyond-host",
            Self::Delay => "delay-beyond-host",
            Self::PeerGuest => "peer-guest",
            Self::SlowReceiver => "slow-receiver",
            Self::GuestItself => "guest-itself",
            Self::Scheduler => "scheduler",
            Self::Unknown => "unknown",
        }
    }
}

/// A cause of delay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// Its kind.
    pub kind: Kind,
    /// The name of the guest, program, peer or limit; `None` if there is none or it is not known.
    pub by: Option<Arc<str>>,
}

impl Cause {
    /// A cause without a name.
    pub const fn of(kind: Kind) -> Self {
        Self { kind, by: None }
    }

    /// A cause with the name of the guest, program, peer or limit.
    pub fn by(kind: Kind, name: &Arc<str>) -> Self {
        Self {
            kind,
            by: Some(Arc::clone(name)),
        }
    }
}
