//! Export and import of the state of a guest's connections and the retained frames, for another
//! process.
//!
//! Numbers are little-endian words. First come the time since the guest's last sign of life in
//! ticks, and the limit beyond its window. Then follows each connection, the one idle for longest
//! first: its name, its state ([`Flow::record`]), the number of retained frames, and for each frame
//! its begin and end, its length, and its bytes behind a virtio header.

use super::Snoop;
use super::flow::record::WORDS;
use super::flow::{Flow, TICK, ticks};
use super::frame::{Direction, FlowId, Origin, StoredFrame};
use super::reach::Reach;
use super::seq::Seq;
use crate::GuestId;
use tailbound_units::Nanos;

/// Error of an import of damaged or truncated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the inherited state of connections is damaged")]
pub struct Damaged;

/// Number of words of a connection's name.
const NAME: usize = 10;

fn name(id: &FlowId) -> [u32; NAME] {
    let halves = [id.guest[0], id.guest[1], id.peer[0], id.peer[1]];
    let mut words = [id.ports; NAME];
    for (two, half) in words.chunks_exact_mut(2).zip(halves) {
        two.copy_from_slice(&[(half >> 32) as u32, half as u32]);
    }
    words[NAME - 1] = id.v6.into();
    words
}

fn named(words: &[u32; NAME]) -> FlowId {
    let half = |at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
    FlowId {
        guest: [half(0), half(2)],
        peer: [half(4), half(6)],
        ports: words[NAME - 2],
        v6: words[NAME - 1] != 0,
    }
}

fn write(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// The unread rest of the data.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn words<const N: usize>(&mut self) -> Result<[u32; N], Damaged> {
        let mut words = [0; N];
        for word in &mut words {
            let (bytes, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
            *word = u32::from_le_bytes(*bytes);
            self.0 = rest;
        }
        Ok(words)
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], Damaged> {
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or(Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl<F: StoredFrame> Snoop<F> {
    /// Appends the state to `out`. Frames that wait for [`Snoop::poll_to_guest`] and
    /// [`Snoop::poll_to_peer`] are left out: they are lost as on any wire.
    pub fn export(&self, now: Nanos, out: &mut Vec<u8>) {
        let idle = now.saturating_sub(self.alive);
        let idle = ticks(idle).min(u32::MAX.into()) as u32;
        write(out, &[idle, self.reach.number()]);
        for (_, id, flow) in self.flows.by_idle_time() {
            write(out, &name(id));
            write(out, &flow.record(now));
            let kept = self.store.of(flow.chain);
            let kept: Vec<_> = kept
                .filter_map(|node| Some((node, node.frame()?)))
                .collect();
            write(out, &[kept.len() as u32]);
            for (node, frame) in kept {
                let bytes = frame.to_bytes();
                write(out, &[node.seq.0, node.end.0, bytes.len() as u32]);
                out.extend_from_slice(&bytes);
            }
        }
    }

    /// Continues with the state that another process exported, up to the limit of connections.
    /// `guest` maps that process's slots to this one's guests. Returns the number of imported
    /// connections.
    ///
    /// # Errors
    /// The data is damaged. Connections that were read before the damage remain.
    pub fn import(
        &mut self,
        now: Nanos,
        from: &[u8],
        guest: impl Fn(usize) -> Option<GuestId>,
    ) -> Result<usize, Damaged> {
        let mut from = Reader(from);
        let [idle, reach] = from.words()?;
        self.reach = Reach::of_number(reach).ok_or(Damaged)?;
        self.alive = now.saturating_sub(Nanos(u64::from(idle) << TICK));
        let mut count = 0;
        while !from.0.is_empty() {
            let id = named(&from.words()?);
            let flow = Flow::of_record(&from.words::<WORDS>()?, now, |number| {
                Origin::of_number(number, &guest)
            });
            let mut flow = flow.ok_or(Damaged)?;
            let [kept] = from.words()?;
            for _ in 0..kept {
                self.import_frame(&mut flow, &mut from)?;
            }
            count += 1;
            let hash = F::hash(&self.maker, &id);
            if self.flows.is_full() || self.flows.find(&id, hash).is_some() {
                self.store.clear(&mut flow.chain);
                continue;
            }
            self.counts.modes[flow.marks.counted.mode()] += 1;
            let place = self.flows.add(now, id, hash, flow);
            if let Some(due) = flow.deadline(now) {
                self.queue(place, due);
            }
            self.recount(place);
        }
        Ok(count)
    }

    fn import_frame(&mut self, flow: &mut Flow, from: &mut Reader<'_>) -> Result<(), Damaged> {
        let [seq, end, len] = from.words()?;
        let frame = F::from_bytes(&self.maker, from.bytes(len)?).ok_or(Damaged)?;
        // `TcpFrame::part` finds its bytes by these numbers.
        let segment = frame
            .sight(Direction::ToGuest)
            .and_then(|sight| sight.segment);
        let segment =
            segment.filter(|segment| segment.seq == Seq(seq) && segment.end() == Seq(end));
        if segment.is_none() {
            return Err(Damaged);
        }
        let truesize = frame.truesize();
        self.store
            .push(&mut flow.chain, frame, truesize, [Seq(seq), Seq(end)]);
        Ok(())
    }
}
