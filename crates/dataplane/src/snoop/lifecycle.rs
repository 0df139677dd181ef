//! End of early acknowledgement, reconfiguration, and views of connections.

use super::delayed::make_delayed;
use super::flow::{Stage, ticks};
use super::frame::{Bare, Direction, FlowId, TcpFrame};
use super::mode::Mode;
use super::segment::Flags;
use super::table::{Place, Table};
use super::{RingPlacement, Snoop, SnoopConfig};
use tailbound_units::{Bytes, Nanos};

/// Remaining data of a drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Connections whose guest has not acknowledged all bytes that were acknowledged early.
    pub flows: usize,
    /// The number of these bytes.
    pub bytes: u64,
}

impl Drained {
    /// Checks that no data is owed to the guest.
    pub const fn is_done(self) -> bool {
        self.flows == 0
    }
}

/// Status of a connection.
#[derive(Debug, Clone, Copy)]
pub struct FlowView {
    /// The connection.
    pub flow: FlowId,
    /// Mode, with the reason.
    pub mode: Mode,
    /// Bytes that were acknowledged early and not by the guest.
    pub owed: u32,
    /// Owed bytes that wait for the guest's window.
    pub withheld: u32,
    /// Memory of the retained segments.
    pub retained: Bytes,
    /// Retransmissions without progress.
    pub resends: u8,
}

impl<F: TcpFrame> Snoop<F> {
    /// Stops early acknowledgement of further data, and continues to deliver retained data: before
    /// the guest moves to another host, or before early acknowledgement is switched off.
    /// [`Snoop::drained`] reports the progress.
    pub const fn begin_drain(&mut self) {
        self.draining = true;
    }

    /// Resumes early acknowledgement.
    pub const fn end_drain(&mut self) {
        self.draining = false;
    }

    /// Checks for [`Snoop::begin_drain`] without [`Snoop::end_drain`].
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Counts the data that the guest is still owed. Reads every connection.
    pub fn drained(&self) -> Drained {
        let owed = self.flows.iter().filter(|(_, _, flow)| flow.owes());
        owed.fold(Drained::default(), |drained, (_, _, flow)| Drained {
            flows: drained.flows + 1,
            bytes: drained.bytes + u64::from(flow.data.next.since(flow.data.vm)),
        })
    }

    /// Resets all connections on which the guest has not taken acknowledged bytes, with a reset to
    /// each peer in its window, and forgets all connections. For a guest that has disappeared or
    /// restarted. Returns the number of resets.
    pub fn abort(&mut self) -> usize {
        make_delayed(self);
        let owed = self.flows.iter().filter(|(_, _, flow)| flow.owes());
        let owed: Vec<_> = owed.map(|(place, _, _)| place).collect();
        for place in &owed {
            self.abandon(*place);
        }
        self.flows = Table::new(self.config.flows.clamp(1, SnoopConfig::MOST_FLOWS));
        self.counts.modes = [0; Mode::LABELS.len()];
        self.counts.owing = 0;
        self.timers.clear();
        self.pending.clear();
        self.to_guest.clear();
        owed.len()
    }

    /// Changes the configuration. Retained data is kept until the guest has it. If the new table is
    /// smaller, it forgets connections, those idle for longest first.
    pub fn reconfigure(&mut self, now: Nanos, config: SnoopConfig) {
        self.handle_placed(RingPlacement::Waits);
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
        let mut kept: Vec<_> = self
            .flows
            .by_idle_time()
            .map(|(place, _, _)| place)
            .collect();
        // The newest of those without retained data.
        kept.reverse();
        kept.retain(|place| {
            let is_owed = self.flows.peek(*place).owes();
            let stays = is_owed || spare > 0;
            spare -= usize::from(stays && !is_owed);
            if !stays {
                self.counts.modes[self.flows.peek(*place).marks.counted.mode()] -= 1;
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
            // An entry that comes up too early is queued again.
            if flow.timer.queued != 0 {
                flows.get(at).timer.queued = ticks(now) as u32 | 1;
                self.timers.push(ticks(now) | 1, at);
            }
        }
        self.flows = flows;
    }

    /// Returns the status of each connection, the one idle for longest first.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.by_idle_time().map(|(_, id, flow)| FlowView {
            flow: *id,
            mode: flow.state.mode,
            owed: flow.data.next.since(flow.data.vm),
            withheld: flow.data.next.since(flow.data.sent),
            retained: flow.chain.held(),
            resends: flow.losses.resends,
        })
    }

    /// Number of connections in each mode, in the order of [`Mode::LABELS`].
    pub const fn modes(&self) -> [usize; Mode::LABELS.len()] {
        self.counts.modes
    }

    /// Forgets a connection and its retained segments.
    pub(super) fn forget(&mut self, place: Place) {
        debug_assert!(
            self.to_peer.delayed_place() != Some(place),
            "it is made before"
        );
        self.pending.retain(|pending| pending.place != place);
        let flow = self.flows.get(place);
        flow.timer.queued = 0;
        self.counts.modes[flow.marks.counted.mode()] -= 1;
        // The remaining entry must not be counted.
        flow.marks.counted.set_mode(flow.state.mode.index());
        self.counts.owing -= usize::from(flow.marks.counted.replace_owes(false));
        flow.data.vm = flow.data.next;
        self.store.clear(&mut flow.chain);
        self.flows.remove(place);
    }

    /// Abandons a connection: sends its peer a reset if acknowledged bytes have not reached the
    /// guest.
    pub(super) fn abandon(&mut self, place: Place) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        if flow.owes() && flow.state.stage != Stage::Foreign {
            let bare = Bare {
                direction: Direction::ToPeer,
                flow: id,
                hash,
                link: flow.link,
                seq: flow.reply.guest_next,
                ack: flow.data.next,
                flags: Flags::RST.with(Flags::ACK),
                window: 0,
                timestamps: flow.stamps_to_peer(flow.stamps.peer),
            };
            self.to_peer.push(F::bare(&self.maker, &bare));
        }
        self.forget(place);
    }
}
