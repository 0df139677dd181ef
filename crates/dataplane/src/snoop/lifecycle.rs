//! How early acknowledgement ends, and what it shows of itself.

use super::flow::{Stage, ticks};
use super::frame::{Bare, FlowId, TcpFrame, Way};
use super::mode::Mode;
use super::segment::Flags;
use super::table::{Place, Table};
use super::{Placed, Snoop, SnoopConfig};
use tailbound_units::{Bytes, Nanos};

/// How far a drain is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Connections on which the guest has not acknowledged all that was in its place.
    pub flows: usize,
    /// The bytes of those.
    pub bytes: u64,
}

impl Drained {
    /// Whether nothing is owed to the guest any more.
    pub const fn is_done(self) -> bool {
        self.flows == 0
    }
}

/// What is shown of a connection.
#[derive(Debug, Clone, Copy)]
pub struct FlowView {
    /// The connection.
    pub flow: FlowId,
    /// Whether it is answered for, and why not.
    pub mode: Mode,
    /// Bytes that were acknowledged and that the guest has not acknowledged.
    pub owed: u32,
    /// Those of them that wait for the guest's window.
    pub withheld: u32,
    /// The memory that is kept for it.
    pub retained: Bytes,
    /// Resends without progress.
    pub resends: u8,
}

impl<F: TcpFrame> Snoop<F> {
    /// Acknowledges nothing early from now on, and goes on bringing the guest what was:
    /// before it moves to another host, or early acknowledgement ends. [`Snoop::drained`]
    /// says how far that is.
    pub const fn begin_drain(&mut self) {
        self.draining = true;
    }

    /// Acknowledges early again.
    pub const fn end_drain(&mut self) {
        self.draining = false;
    }

    /// Whether it is drained, or is to be.
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// What the guest is still owed. Looks at every connection.
    pub fn drained(&self) -> Drained {
        let owed = self.flows.iter().filter(|(_, _, flow)| flow.owes());
        owed.fold(Drained::default(), |drained, (_, _, flow)| Drained {
            flows: drained.flows + 1,
            bytes: drained.bytes + u64::from(flow.next.since(flow.vm)),
        })
    }

    /// The guest is gone, or has begun anew: each peer that was told of bytes that it never
    /// took gets a reset in its window. Nothing is known afterwards. Returns how many
    /// there were.
    pub fn abort(&mut self) -> usize {
        let owed = self.flows.iter().filter(|(_, _, flow)| flow.owes());
        let owed: Vec<_> = owed.map(|(place, _, _)| place).collect();
        for place in &owed {
            self.abandon(*place);
        }
        self.flows = Table::new(self.config.flows.clamp(1, SnoopConfig::MOST_FLOWS));
        self.modes = [0; Mode::LABELS.len()];
        self.owing = 0;
        self.timers.clear();
        self.pending.clear();
        self.to_guest.clear();
        owed.len()
    }

    /// Becomes one of another configuration. What was acknowledged is kept until the guest
    /// has it; connections that there is no room for are forgotten, those idle for longest
    /// first.
    pub fn reconfigure(&mut self, now: Nanos, config: SnoopConfig) {
        self.handle_placed(Placed::Waits);
        let is_resized = config.flows != self.config.flows;
        self.config = config;
        if is_resized {
            self.resize(now);
        }
    }

    fn resize(&mut self, now: Nanos) {
        let owed = self.drained().flows;
        let capacity = self.config.flows.clamp(1, SnoopConfig::MOST_FLOWS);
        let capacity = capacity.max(owed);
        let mut spare = capacity - owed;
        let mut flows = Table::new(capacity);
        let mut kept: Vec<_> = self.flows.iter().map(|(place, _, _)| place).collect();
        // The newest of those that nothing is owed.
        kept.reverse();
        kept.retain(|place| {
            let is_owed = self.flows.peek(*place).owes();
            let stays = is_owed || spare > 0;
            spare -= usize::from(stays && !is_owed);
            if !stays {
                self.modes[self.flows.peek(*place).counted.mode()] -= 1;
                let chain = &mut self.flows.get(*place).chain;
                self.store.clear(chain);
            }
            stays
        });
        self.timers.clear();
        for place in kept.into_iter().rev() {
            let flow = *self.flows.peek(place);
            let hash = self.flows.hash(place);
            let at = flows.add(now, self.flows.key(place), hash, flow);
            // One that is looked at too early is put back.
            if flow.queued != 0 {
                flows.get(at).queued = ticks(now) as u32 | 1;
                self.timers.push(ticks(now) | 1, at);
            }
        }
        self.flows = flows;
    }

    /// What is known of each connection, the one idle for longest first.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.iter().map(|(_, id, flow)| FlowView {
            flow: *id,
            mode: flow.mode,
            owed: flow.next.since(flow.vm),
            withheld: flow.next.since(flow.sent),
            retained: flow.chain.held(),
            resends: flow.resends,
        })
    }

    /// How many connections there are of each mode, in the order of [`Mode::LABELS`].
    pub const fn modes(&self) -> [usize; Mode::LABELS.len()] {
        self.modes
    }

    /// Forgets a connection and what is kept of it.
    pub(super) fn forget(&mut self, place: Place) {
        self.pending.retain(|pending| pending.place != place);
        let flow = self.flows.get(place);
        flow.queued = 0;
        self.modes[flow.counted.mode()] -= 1;
        // What is left of the place has nothing to be counted.
        flow.counted.set_mode(flow.mode.index());
        self.owing -= usize::from(flow.counted.replace_owes(false));
        flow.vm = flow.next;
        self.store.clear(&mut flow.chain);
        self.flows.remove(place);
    }

    /// Gives a connection up: its peer gets a reset where it was told of bytes that the
    /// guest has not taken.
    pub(super) fn abandon(&mut self, place: Place) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        if flow.owes() && flow.stage != Stage::Foreign {
            let bare = Bare {
                way: Way::ToPeer,
                flow: id,
                hash,
                link: flow.link,
                seq: flow.guest_next,
                ack: flow.next,
                flags: Flags::RST.with(Flags::ACK),
                window: 0,
                timestamps: flow.stamps_to_peer(),
            };
            self.to_peer.push_back(F::bare(&self.maker, &bare));
        }
        self.forget(place);
    }
}
