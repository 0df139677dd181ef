//! Early acknowledgement of TCP for a guest that waits for its CPU (Kangarlou, Gamage,
//! Kompella, Xu: *vSnoop: Improving TCP Throughput in Virtualized Environments via
//! Acknowledgement Offload*, SC 2010, III and IV).
//!
//! [`Snoop`] stands at a guest's ring, behind every queue that may drop. It sees what goes
//! in ([`Snoop::handle_ingress`]) and what the guest sends ([`Snoop::handle_egress`]), and
//! acknowledges what comes in order before the guest does. The paper's rules are kept where
//! they hold, and mended where today's TCP would lose data by them or take the host's words
//! for a receiver that breaks its promises:
//!
//! - what was acknowledged is kept until the guest acknowledges it ([`SnoopMode::Retaining`]):
//!   the host is a TCP sender towards the guest, with a timer, resends and probes, since a
//!   guest may drop behind its ring what the paper takes for delivered;
//! - the paper lets the peer's window grow beyond what the guest said, and takes what is placed
//!   beyond that for delivered. Here it is kept, and what the guest drops of it is kept back in
//!   order and sent when its window opens, as is all that comes later (`reach`);
//! - a connection goes online again when nothing is missing that the guest may have the
//!   rest of: else SACK senders take the guest for one that reneges;
//! - windows never lose what they promised, and the guest's SACK blocks never name what was
//!   acknowledged.
//!
//! `table` knows connections ([`FlowId`]), `flow` what is known of one, `store` what is
//! kept. `ingress`, `egress` and `deliver` are the three things that happen; `steady` is the
//! short way through the first two; `lifecycle` is how all of it ends. A segment is known by what it says ([`Segment`], [`TcpFrame`]), so
//! a simulated one runs through the same code.

mod config;
mod deliver;
mod egress;
mod estate;
mod flow;
mod frame;
mod ingress;
mod lifecycle;
mod mode;
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
pub use frame::{Bare, Change, FlowId, Link, Origin, Plain, Sight, StoredFrame, TcpFrame, Way};
pub use lifecycle::{Drained, FlowView};
pub use mode::{Bar, Mode, Pause};
pub use segment::{Exotic, Flags, Handshake, Options, Sacks, Segment, Timestamps};
pub use seq::Seq;
pub use stats::SnoopStats;

use flow::Flow;
use reach::Reach;
use std::collections::VecDeque;
use std::fmt;
use store::Store;
use table::{Place, Table};
use tailbound_units::{Bytes, Nanos};
use timers::Timers;

/// What was placed in the guest's ring of the frames that [`Snoop::handle_ingress`] let
/// pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// All of them stand there.
    All,
    /// Some wait for room.
    Waits,
    /// Some are lost.
    Lost,
}

/// A segment that is on its way to the ring.
#[derive(Debug, Clone, Copy)]
struct Pending {
    place: Place,
    /// Where it begins, of one that is kept and acknowledged; where it ends, of one whose
    /// acknowledgement is due once it stands there.
    bytes: Placing,
}

#[derive(Debug, Clone, Copy)]
enum Placing {
    KeptFrom(Seq),
    UpTo(Seq),
}

/// Early acknowledgement for one guest.
///
/// Every frame for the guest passes [`Snoop::handle_ingress`] right before its ring, every
/// frame of the guest [`Snoop::handle_egress`]. After each of these, and when
/// [`Snoop::poll_at`] has come ([`Snoop::handle_timeout`]), the caller takes what the host
/// says in the guest's place ([`Snoop::poll_to_peer`]), which is the guest's traffic in
/// every way, and in the peers' ([`Snoop::poll_to_guest`]), which goes to the ring before
/// all else.
pub struct Snoop<F: TcpFrame> {
    config: SnoopConfig,
    maker: F::Maker,
    flows: Table<Flow>,
    store: Store<F>,
    timers: Timers,
    /// Frames for the guest, in order.
    to_guest: VecDeque<F>,
    /// Frames of the guest that the host made.
    to_peer: VecDeque<F>,
    /// What waits for [`Snoop::handle_placed`].
    pending: Vec<Pending>,
    /// When the guest last showed that it runs.
    alive: Nanos,
    /// How far beyond its window segments are placed.
    reach: Reach,
    /// Nothing more is acknowledged early.
    draining: bool,
    stats: SnoopStats,
    /// How many connections there are of each mode.
    modes: [usize; Mode::LABELS.len()],
    /// Connections on which the guest is owed something.
    owing: usize,
}

impl<F: TcpFrame> Snoop<F> {
    /// Early acknowledgement of `config`, without connections.
    pub fn new(config: SnoopConfig, maker: F::Maker) -> Self {
        Self {
            flows: Table::new(config.flows.clamp(1, SnoopConfig::MOST_FLOWS)),
            config,
            maker,
            store: Store::new(),
            timers: Timers::default(),
            to_guest: VecDeque::new(),
            to_peer: VecDeque::new(),
            pending: Vec::new(),
            alive: Nanos::ZERO,
            reach: Reach::default(),
            draining: false,
            stats: SnoopStats::default(),
            modes: [0; Mode::LABELS.len()],
            owing: 0,
        }
    }

    /// How it is configured.
    pub const fn config(&self) -> &SnoopConfig {
        &self.config
    }

    /// What it did so far.
    pub const fn stats(&self) -> SnoopStats {
        self.stats
    }

    /// The memory of what was acknowledged and the guest has not acknowledged yet.
    pub const fn retained(&self) -> Bytes {
        self.store.held()
    }

    /// How many connections are known.
    pub const fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether no connection is known.
    pub const fn is_empty(&self) -> bool {
        self.flows.len() == 0
    }

    /// The next frame that the host sends in the guest's place.
    pub fn poll_to_peer(&mut self) -> Option<F> {
        self.to_peer.pop_front()
    }

    /// The next frame for the guest's ring.
    pub fn poll_to_guest(&mut self) -> Option<F> {
        self.to_guest.pop_front()
    }

    /// Whether there is a frame that the host sends in the guest's place.
    pub fn has_for_peer(&self) -> bool {
        !self.to_peer.is_empty()
    }

    /// Whether there is a frame for the guest's ring.
    pub fn has_for_guest(&self) -> bool {
        !self.to_guest.is_empty()
    }

    /// Whether the guest has not acknowledged all that was in its place.
    pub const fn owes(&self) -> bool {
        self.owing > 0
    }

    /// When [`Snoop::handle_timeout`] is to be called; `None` while time alone changes
    /// nothing.
    pub fn poll_at(&self) -> Option<Nanos> {
        self.timers.poll_at()
    }

    /// The guest showed that it runs: it sent something, or took something from its ring.
    #[inline]
    pub fn handle_alive(&mut self, now: Nanos) {
        self.alive = now;
    }

    /// Counts a connection in the mode that it has now, and whether it owes.
    #[inline]
    fn recount(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let index = flow.mode.index();
        let counted = flow.counted.mode();
        if counted != index {
            self.modes[counted] -= 1;
            self.modes[index] += 1;
            flow.counted.set_mode(index);
        }
        let owes = flow.owes();
        if flow.counted.replace_owes(owes) != owes {
            self.owing = if owes { self.owing + 1 } else { self.owing - 1 };
        }
    }

    fn is_retaining(&self) -> bool {
        self.config.mode == SnoopMode::Retaining
    }

    /// What may still be kept of a connection that has so much already.
    fn room(&self, held: Bytes) -> u64 {
        let of_flow = self.config.flow.0.saturating_sub(held.0);
        of_flow.min(self.config.guest.0.saturating_sub(self.store.held().0))
    }

    /// Tells the peer what it was told already, or what is new.
    fn acknowledge(&mut self, place: Place, window: u32) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        let answer = answer(&self.maker, id, hash, flow, window);
        self.to_peer.push_back(answer);
    }
}

/// Tells the peer of a connection how far its bytes are acknowledged, with that window.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "for each segment that is acknowledged early"
)]
fn answer<F: TcpFrame>(maker: &F::Maker, id: FlowId, hash: u32, flow: &mut Flow, window: u32) -> F {
    let ack = flow.next;
    let bare = Bare {
        way: Way::ToPeer,
        flow: id,
        hash,
        link: flow.link,
        seq: flow.guest_next,
        ack,
        flags: Flags::ACK.with(flow.counter()),
        window: flow.show(ack, window),
        timestamps: flow.stamps_to_peer(),
    };
    F::bare(maker, &bare)
}

impl<F: TcpFrame> fmt::Debug for Snoop<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snoop")
            .field("config", &self.config)
            .field("flows", &self.flows.len())
            .field("retained", &self.store.held())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
