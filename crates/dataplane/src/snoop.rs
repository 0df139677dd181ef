//! Early acknowledgement of TCP for a guest that waits for its CPU (Kangarlou, Gamage,
//! Kompella, Xu: *vSnoop: Improving TCP Throughput in Virtualized Environments via
//! Acknowledgement Offload*, SC 2010, III and IV).
//!
//! [`Snoop`] is placed at a guest's ring, behind every queue that may drop. It sees the frames to
//! the guest ([`Snoop::handle_ingress`]) and from the guest ([`Snoop::handle_egress`]), and
//! acknowledges segments in order before the guest does. It follows the paper's rules, except for
//! those with which current TCP stacks would lose data, or would take the guest for a receiver that
//! breaks its promises:
//!
//! - acknowledged segments are retained until the guest acknowledges them
//!   ([`SnoopMode::Retaining`]): the host is a TCP sender towards the guest, with a timer,
//!   retransmissions and probes, because a guest may drop segments behind its ring, which the paper
//!   takes for delivered;
//! - the paper extends the peer's window beyond the guest's, and takes segments beyond the guest's
//!   window for delivered once they are in the ring. Here they are retained. Segments that the
//!   guest dropped are queued with all later ones and sent in order when its window opens
//!   (`reach`);
//! - a connection goes online again only when no segment is missing before data that the guest may
//!   have: otherwise senders with SACK would detect reneging;
//! - windows never shrink below a promise, and forwarded SACK blocks of the guest never name
//!   acknowledged bytes.
//!
//! `table` stores connections by [`FlowId`], `flow` is the state of one, `store` holds retained
//! segments. `ingress`, `egress` and `deliver` process the three kinds of events; `steady` is the
//! fast path of the first two, and `delayed` lets two segments share an acknowledgement;
//! `lifecycle` ends early acknowledgement. All of them see a frame
//! through [`Segment`] and [`TcpFrame`], so a simulated one runs through the same code.

mod ages;
mod config;
mod delayed;
mod deliver;
mod egress;
mod estate;
mod flow;
mod frame;
mod ingress;
mod lifecycle;
mod mode;
mod outbox;
mod reach;
mod segment;
mod seq;
mod stats;
mod steady;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod timers;

pub use config::{SnoopConfig, SnoopMode};
pub use estate::Damaged;
pub use frame::{
    Bare, Change, Direction, FlowId, Link, Origin, Plain, Sight, StoredFrame, TcpFrame,
};
pub use lifecycle::{Drained, FlowView};
pub use mode::{Bar, Mode, Pause};
pub use segment::{Exotic, Flags, Handshake, Options, Sacks, Segment, Timestamps};
pub use seq::Seq;
pub use stats::SnoopStats;

use delayed::make_delayed;
use flow::Flow;
use outbox::Outbox;
use reach::Reach;
use std::collections::VecDeque;
use std::fmt;
use store::Store;
use table::{Place, Table};
use tailbound_units::{Bytes, Nanos};
use timers::Timers;

/// Result of placing the frames that [`Snoop::handle_ingress`] returned in the guest's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingPlacement {
    /// All frames are in the ring.
    All,
    /// Some frames wait for room.
    Waits,
    /// Some frames are lost.
    Lost,
}

/// A segment on its way to the ring.
#[derive(Debug, Clone, Copy)]
struct Pending {
    place: Place,
    /// Begin of a segment that is retained and acknowledged; or end of one that is acknowledged
    /// once it is in the ring.
    bytes: Placing,
}

#[derive(Debug, Clone, Copy)]
enum Placing {
    KeptFrom(Seq),
    UpTo(Seq),
}

/// Early acknowledgement for one guest.
///
/// Every frame to the guest passes [`Snoop::handle_ingress`] right before its ring, every frame of
/// the guest [`Snoop::handle_egress`]. After each call, and at [`Snoop::poll_at`] (after
/// [`Snoop::handle_timeout`]), the caller takes the host's frames: those in the guest's name
/// ([`Snoop::poll_to_peer`]), which count as the guest's traffic in every respect, and those in the
/// peers' names ([`Snoop::poll_to_guest`]), which go to the ring before all other frames.
pub struct Snoop<F: TcpFrame> {
    config: SnoopConfig,
    maker: F::Maker,
    flows: Table<Flow>,
    store: Store<F>,
    timers: Timers,
    /// Frames for the guest, in order.
    to_guest: VecDeque<F>,
    /// Frames that the host made in the guest's name.
    to_peer: Outbox<F>,
    /// Segments that [`Snoop::handle_placed`] will settle.
    pending: Vec<Pending>,
    /// Time of the guest's last sign of life.
    alive: Nanos,
    /// Limit of segments beyond the guest's window.
    reach: Reach,
    /// True if no further segments are acknowledged early.
    draining: bool,
    counts: Counts,
}

/// Counters of all connections.
struct Counts {
    stats: SnoopStats,
    /// Number of connections in each mode.
    modes: [usize; Mode::LABELS.len()],
    /// Number of connections with bytes that the guest owes an acknowledgement.
    owing: usize,
}

impl Counts {
    /// Counts a connection in its present mode, and among those that owe.
    fn recount(&mut self, flow: &mut Flow) {
        let index = flow.state.mode.index();
        let counted = flow.marks.counted.mode();
        if counted != index {
            self.modes[counted] -= 1;
            self.modes[index] += 1;
            flow.marks.counted.set_mode(index);
        }
        let owes = flow.owes();
        if flow.marks.counted.replace_owes(owes) != owes {
            self.owing = if owes { self.owing + 1 } else { self.owing - 1 };
        }
    }
}

impl<F: TcpFrame> Snoop<F> {
    /// Creates early acknowledgement with this configuration, without connections.
    pub fn new(config: SnoopConfig, maker: F::Maker) -> Self {
        Self {
            flows: Table::new(config.flows.clamp(1, SnoopConfig::MOST_FLOWS)),
            config,
            maker,
            store: Store::new(),
            timers: Timers::default(),
            to_guest: VecDeque::new(),
            to_peer: Outbox::new(),
            pending: Vec::new(),
            alive: Nanos::ZERO,
            reach: Reach::default(),
            draining: false,
            counts: Counts {
                stats: SnoopStats::default(),
                modes: [0; Mode::LABELS.len()],
                owing: 0,
            },
        }
    }

    /// The configuration.
    pub const fn config(&self) -> &SnoopConfig {
        &self.config
    }

    /// Counters since the start.
    pub const fn stats(&self) -> SnoopStats {
        self.counts.stats
    }

    /// Memory of segments that were acknowledged early and not yet by the guest.
    pub const fn retained(&self) -> Bytes {
        self.store.held()
    }

    /// Number of known connections.
    pub const fn len(&self) -> usize {
        self.flows.len()
    }

    /// Checks that no connection is known.
    pub const fn is_empty(&self) -> bool {
        self.flows.len() == 0
    }

    /// Returns the next frame that the host sends in the guest's name.
    pub fn poll_to_peer(&mut self) -> Option<F> {
        make_delayed(self);
        self.to_peer.pop()
    }

    /// Returns the next frame for the guest's ring.
    pub fn poll_to_guest(&mut self) -> Option<F> {
        self.to_guest.pop_front()
    }

    /// Checks for a frame that the host sends in the guest's name.
    pub fn has_for_peer(&self) -> bool {
        !self.to_peer.is_empty()
    }

    /// Checks for a frame for the guest's ring.
    pub fn has_for_guest(&self) -> bool {
        !self.to_guest.is_empty()
    }

    /// Checks for bytes that were acknowledged early and not yet by the guest.
    pub const fn owes(&self) -> bool {
        self.counts.owing > 0
    }

    /// Time at which [`Snoop::handle_timeout`] must be called; `None` without timers.
    pub fn poll_at(&self) -> Option<Nanos> {
        self.timers.poll_at()
    }

    /// Records a sign of life: the guest sent a frame, or took one from its ring.
    #[inline]
    pub fn handle_alive(&mut self, now: Nanos) {
        self.alive = now;
    }

    /// Counts a connection in its present mode, and among those that owe.
    #[inline]
    fn recount(&mut self, place: Place) {
        self.counts.recount(self.flows.get(place));
    }

    fn is_retaining(&self) -> bool {
        self.config.mode == SnoopMode::Retaining
    }

    /// Remaining memory for a connection that holds `held`.
    fn room(&self, held: Bytes) -> u64 {
        let of_flow = self.config.flow.0.saturating_sub(held.0);
        of_flow.min(self.config.guest.0.saturating_sub(self.store.held().0))
    }

    /// Sends the peer an acknowledgement of all bytes in order, new or repeated.
    fn acknowledge(&mut self, place: Place, window: u32) {
        let (id, hash, flow) = self.flows.entry(place);
        let fields = AnswerFields {
            ack: flow.data.next,
            window,
            echo: flow.stamps.peer,
        };
        let answer = answer(&self.maker, id, hash, flow, fields);
        self.to_peer.push(answer);
    }
}

/// The variable fields of an acknowledgement to a peer.
struct AnswerFields {
    /// The end of the acknowledged bytes.
    ack: Seq,
    /// The window, in bytes.
    window: u32,
    /// The echoed timestamp.
    echo: u32,
}

/// Makes an acknowledgement to the peer.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "for each segment that is acknowledged early"
)]
fn answer<F: TcpFrame>(
    maker: &F::Maker,
    id: &FlowId,
    hash: u32,
    flow: &mut Flow,
    AnswerFields { ack, window, echo }: AnswerFields,
) -> F {
    let bare = Bare {
        direction: Direction::ToPeer,
        flow: *id,
        hash,
        link: flow.link,
        seq: flow.reply.guest_next,
        ack,
        flags: Flags::ACK.with(flow.counter()),
        window: flow.show(ack, window),
        timestamps: flow.stamps_to_peer(echo),
    };
    F::bare(maker, &bare)
}

impl<F: TcpFrame> fmt::Debug for Snoop<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snoop")
            .field("config", &self.config)
            .field("flows", &self.flows.len())
            .field("retained", &self.store.held())
            .field("stats", &self.counts.stats)
            .finish_non_exhaustive()
    }
}
