//! Export and import of a connection as numbers, for another process.

use super::{Counter, Ecn, Flow, Stage, ticks};
use crate::snoop::frame::{Link, Origin};
use crate::snoop::mode::Mode;
use crate::snoop::reach::Reach;
use crate::snoop::segment::Flags;
use crate::snoop::seq::Seq;
use tailbound_units::Nanos;

/// Number of words of a connection.
pub(in crate::snoop) const WORDS: usize = 10 + 16;

/// Never, for a time that is recorded relative to the present.
const NEVER: u32 = u32::MAX;

/// The connection's sequence numbers.
fn places(flow: &mut Flow) -> [&mut Seq; 10] {
    [
        &mut flow.data.vm,
        &mut flow.data.sent,
        &mut flow.data.next,
        &mut flow.data.high,
        &mut flow.windows.edge,
        &mut flow.windows.shown,
        &mut flow.reply.guest_next,
        &mut flow.reply.peer_ack,
        &mut flow.data.recover,
        &mut flow.answered.ack,
    ]
}

/// The connection's flags.
fn facts(flow: &mut Flow) -> [&mut bool; 6] {
    [
        &mut flow.state.closing.guest,
        &mut flow.state.closing.peer,
        &mut flow.state.closing.held,
        &mut flow.marks.stamped,
        &mut flow.marks.solicited,
        &mut flow.losses.resent,
    ]
}

/// Two numbers of 16 bits in one.
const fn pair(low: u16, high: u16) -> u32 {
    low as u32 | (high as u32) << 16
}

const fn four(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}

const STAGES: [Stage; 6] = [
    Stage::Opening,
    Stage::Greeted,
    Stage::Answered,
    Stage::Open,
    Stage::Closed,
    Stage::Foreign,
];

impl Ecn {
    const fn number(self) -> u8 {
        match self {
            Self::Classic => 0,
            Self::Marked => 1,
            Self::Accurate(Counter(count)) => 2 + count,
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        /// The highest value of the ACE counter.
        const MAX_ACE: u8 = (Flags::ACE.0 >> super::SHIFT) as u8;
        match number {
            0 => Some(Self::Classic),
            1 => Some(Self::Marked),
            counter => (counter - 2 <= MAX_ACE).then_some(Self::Accurate(Counter(counter - 2))),
        }
    }
}

impl Flow {
    /// Returns the connection as numbers, without its retained frames.
    pub(in crate::snoop) fn record(mut self, now: Nanos) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(places(&mut self)) {
            *word = place.0;
        }
        let left = self.deadline(now).map(|due| due.saturating_sub(ticks(now)));
        let repeated = (ticks(now) as u16).wrapping_sub(self.answered.repeated_at);
        let facts = facts(&mut self).map(|fact| *fact);
        let facts = (0..).zip(facts).map(|(bit, fact)| u32::from(fact) << bit);
        let facts = facts.fold(0, |all, fact| all | fact);
        let [peer0, peer1, peer2, peer3, peer4, peer5, guest @ ..] = self.link.stations;
        let stage = STAGES.iter().position(|stage| *stage == self.state.stage);
        let rest = [
            self.windows.window,
            self.stamps.peer,
            self.stamps.guest,
            left.map_or(NEVER, |left| left.min((NEVER - 1).into()) as u32),
            if self.answered.repeated_at == 0 {
                NEVER
            } else {
                repeated.into()
            },
            pair(self.answered.field, self.windows.peer_window),
            pair(
                self.windows.mss,
                u16::from_le_bytes([self.marks.scale, self.losses.resends]),
            ),
            four([
                self.losses.duplicates,
                self.state.mode.index() as u8,
                stage.unwrap_or_default() as u8,
                self.state.ecn.number(),
            ]),
            facts,
            four([guest[0], guest[1], guest[2], guest[3]]),
            four([guest[4], guest[5], peer0, peer1]),
            four([peer2, peer3, peer4, peer5]),
            self.link.tag,
            self.link.top,
            pair(
                self.link.hops.into(),
                self.marks
                    .ahead
                    .map_or(0, |reach| 1 + reach.number() as u16),
            ),
            self.origin.number(),
        ];
        words[WORDS - rest.len()..].copy_from_slice(&rest);
        words
    }

    /// Returns the connection of these numbers, without retained frames; `None` if they are
    /// invalid. `origin` maps the number of the peer's location.
    pub(in crate::snoop) fn of_record(
        words: &[u32; WORDS],
        now: Nanos,
        origin: impl FnOnce(u32) -> Origin,
    ) -> Option<Self> {
        let rest: &[u32; 16] = words.last_chunk()?;
        let [
            window,
            peer_stamp,
            guest_stamp,
            left,
            repeated,
            fields,
            sizes,
            states,
            known,
            ..,
        ] = *rest;
        let [.., near, between, far, tag, top, hops, peer] = *rest;
        let [duplicates, mode, stage, ecn] = states.to_le_bytes();
        let [near, between, far] = [near, between, far].map(u32::to_le_bytes);
        // The guest's station comes before its peer's.
        let mut stations = [0; 12];
        for (to, from) in stations.iter_mut().zip(
            between[2..]
                .iter()
                .chain(&far)
                .chain(&near)
                .chain(&between[..2]),
        ) {
            *to = *from;
        }
        let link = Link {
            stations,
            tag,
            top,
            hops: hops as u8,
        };
        let stage = *STAGES.get(usize::from(stage))?;
        let mode = Mode::of_index(mode.into())?;
        let mut flow = Self::new(stage, mode, link, origin(peer));
        for (place, word) in places(&mut flow).into_iter().zip(words) {
            *place = Seq(*word);
        }
        for (bit, fact) in (0..).zip(facts(&mut flow)) {
            *fact = known >> bit & 1 == 1;
        }
        (flow.windows.window, flow.stamps.peer, flow.stamps.guest) =
            (window, peer_stamp, guest_stamp);
        if left != NEVER {
            flow.set_deadline_at(ticks(now) + u64::from(left));
        }
        if repeated != NEVER {
            flow.answered.repeated_at = (ticks(now) as u16).wrapping_sub(repeated as u16) | 1;
        }
        (flow.answered.field, flow.windows.peer_window) = (fields as u16, (fields >> 16) as u16);
        flow.windows.mss = sizes as u16;
        [_, _, flow.marks.scale, flow.losses.resends] = sizes.to_le_bytes();
        flow.losses.duplicates = duplicates;
        flow.state.ecn = Ecn::of_number(ecn)?;
        flow.marks.ahead = match (hops >> 16).checked_sub(1) {
            Some(reach) => Some(Reach::of_number(reach)?),
            None => None,
        };
        Some(flow)
    }
}
