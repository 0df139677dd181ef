//! A host in virtual time around a pacer, and an independent check of the wire's contents in plain
//! integers, without the pacer's arithmetic.

use super::super::guests::number_of;
use super::super::line::Stage;
use super::*;
pub(super) use crate::PacketRecord as Record;
pub(super) use crate::Reach;
use std::collections::VecDeque;

pub(super) const LINK: Rate = Rate::from_mbit(10_000);

pub(super) fn pacer(config: &PacerConfig, guarantees: &[Guarantee]) -> Pacer<Record> {
    let mut pacer = Pacer::new(config).expect("a sound configuration");
    for (id, guarantee) in (0..).zip(guarantees) {
        pacer
            .set_guest(Nanos::ZERO, GuestId::first(id), Some(guarantee))
            .expect("a sound guarantee");
    }
    pacer
}

/// A packet of `len` bytes from `guest`.
pub(super) fn packet(id: u64, guest: u32, len: usize) -> Record {
    Record {
        id,
        guest,
        destination: 1,
        takes_marks: true,
        ..Record::new(len)
    }
}

/// A frame of `guest` that takes `wire` bytes of the wire.
pub(super) fn frame(id: u64, guest: u32, wire: u64) -> Record {
    packet(id, guest, (wire - void::OVERHEAD.0) as usize)
}

/// An item on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentItem {
    pub(super) at: u64,
    pub(super) wire: u64,
    /// `None` for a void.
    pub(super) frame: Option<Record>,
    /// `None` for best effort and elastic frames.
    pub(super) departure: Option<u64>,
    /// Position of the begin or departure, plus the bytes for which virtual time was frozen until
    /// then.
    pub(super) in_real_time: u64,
    pub(super) is_elastic: bool,
    /// Time of its departure, or of its begin.
    pub(super) moment: Nanos,
}

/// Guests with rings of frames, a pacer, and what was sent.
pub(super) struct Host {
    pub(super) pacer: Pacer<Record>,
    /// Frames of each guest with their arrival times.
    pub(super) rings: Vec<VecDeque<(Nanos, Record)>>,
    pub(super) sent: Vec<SentItem>,
    /// Frames that went to other guests of the host, and their departures in real time.
    pub(super) local: Vec<(u64, Record)>,
    pub(super) now: Nanos,
    /// Delay of the host at each turn.
    pub(super) late: Nanos,
}

impl Host {
    pub(super) fn new(config: &PacerConfig, guarantees: &[Guarantee]) -> Self {
        Self {
            pacer: pacer(config, guarantees),
            rings: vec![VecDeque::new(); guarantees.len()],
            sent: Vec::new(),
            local: Vec::new(),
            now: Nanos::from_millis(1),
            late: Nanos::ZERO,
        }
    }

    pub(super) fn ring(&mut self, guest: usize, at: Nanos, frame: Record) {
        if self.rings.len() <= guest {
            self.rings.resize(guest + 1, VecDeque::new());
        }
        self.rings[guest].push_back((at, frame));
    }

    /// One turn of a packet loop at `self.now`.
    pub(super) fn turn(&mut self) {
        let Self {
            pacer,
            rings,
            sent,
            local,
            now,
            ..
        } = self;
        for (guest, ring) in (0..).map(GuestId::first).zip(rings) {
            while pacer.is_read(guest)
                && let Some((_, frame)) = ring.pop_front_if(|(at, _)| *at <= *now)
            {
                pacer.enqueue(*now, frame);
            }
        }
        let end = pacer.core.chain.advance(*now) + pacer.core.chain.wire.batch();
        let lost = pacer.core.chain.wire.lost();
        let batch = pacer.batch(*now);
        let clock = batch.clock();
        batch.for_each(|paced| {
            sent.push(match paced {
                WireItem::Guaranteed {
                    frame,
                    departure,
                    at,
                    ..
                } => SentItem {
                    at: at.0,
                    wire: void::on_the_wire(frame.len).0,
                    frame: Some(frame),
                    departure: Some(departure.0),
                    in_real_time: (departure + lost).0,
                    is_elastic: false,
                    moment: clock.moment(departure),
                },
                WireItem::BestEffort { frame, at, .. } => SentItem {
                    at: at.0,
                    wire: void::on_the_wire(frame.len).0,
                    frame: Some(frame),
                    departure: None,
                    in_real_time: (at + lost).0,
                    is_elastic: false,
                    moment: clock.moment(at),
                },
                WireItem::Elastic { frame, at, .. } => SentItem {
                    at: at.0,
                    wire: void::on_the_wire(frame.len).0,
                    frame: Some(frame),
                    departure: None,
                    in_real_time: (at + lost).0,
                    is_elastic: true,
                    moment: clock.moment(at),
                },
                WireItem::Local {
                    frame, departure, ..
                } => {
                    assert!(departure < end, "{frame:?} is early by more than a batch");
                    return local.push(((departure + lost).0, frame));
                }
                WireItem::Void { wire, at } => SentItem {
                    at: at.0,
                    wire: wire.0,
                    frame: None,
                    departure: None,
                    in_real_time: (at + lost).0,
                    is_elastic: false,
                    moment: clock.moment(at),
                },
            });
        });
    }

    /// Time of the next turn.
    pub(super) fn wake_at(&self) -> Option<Nanos> {
        let rings = (0..).map(GuestId::first).zip(&self.rings);
        let rings = rings.filter(|(guest, _)| self.pacer.is_read(*guest));
        let comes = rings.filter_map(|(_, ring)| Some(ring.front()?.0));
        comes.chain(self.pacer.poll_at()).min()
    }

    /// Runs turns until no work is left before `end`.
    pub(super) fn run_until(&mut self, end: Nanos) {
        let mut idle = 0;
        while let Some(at) = self.wake_at() {
            let at = at.max(self.now);
            if at >= end {
                break;
            }
            idle = if at == self.now { idle + 1 } else { 0 };
            assert!(idle < 10, "the host spins at {at:?}");
            self.now = at + self.late;
            self.turn();
        }
        self.now = self.now.max(end);
    }

    /// Frames that the pacer dropped.
    pub(super) fn dropped(&self) -> u64 {
        let drops = self.pacer.stats().drops.by_reason();
        drops.iter().map(|(_, count)| count).sum()
    }

    /// Frames of one guest, in order.
    pub(super) fn of(&self, guest: u32) -> impl Iterator<Item = (SentItem, Record)> + '_ {
        self.sent
            .iter()
            .filter_map(|sent| Some((*sent, sent.frame?)))
            .filter(move |(_, frame)| frame.guest == guest)
    }
}

/// Returns the maximum by which positions and bytes exceed `burst + rate · t`, over every interval,
/// in bytes times the link's rate: the definition of an arrival curve, with running minima instead
/// of all pairs. At most 0 for conforming frames.
pub(super) fn excess(
    link: Rate,
    rate: Rate,
    burst: u64,
    frames: impl Iterator<Item = (u64, u64)>,
) -> i128 {
    let (mut sent, mut least, mut worst) = (0_i128, i128::MAX, i128::MIN);
    for (at, wire) in frames {
        let earned = i128::from(at) * i128::from(rate.0);
        // Before this frame and after it: it is in every interval that ends here.
        least = least.min(sent - earned);
        sent += i128::from(wire) * i128::from(link.0);
        worst = worst.max(sent - earned - least);
    }
    worst.saturating_sub(i128::from(burst) * i128::from(link.0))
}

/// The same by its definition, over all pairs.
pub(super) fn excess_of_all_pairs(
    link: Rate,
    rate: Rate,
    burst: u64,
    frames: &[(u64, u64)],
) -> i128 {
    let mut worst = i128::MIN;
    for first in 0..frames.len() {
        let mut sent = 0_i128;
        for &(at, wire) in &frames[first..] {
            sent += i128::from(wire) * i128::from(link.0);
            let earned = i128::from(at - frames[first].0) * i128::from(rate.0);
            worst = worst.max(sent - earned - i128::from(burst) * i128::from(link.0));
        }
    }
    worst
}

/// Permitted excess of departures over their curve: less than one byte of the wire for each bucket
/// that rounds up to a byte.
pub(super) const ROUNDING: i128 = 2 * LINK.0 as i128;

/// Checks that frames stay within `min(Bmax·t + frame, B·t + S)`.
pub(super) fn conform(config: &PacerConfig, guarantee: &Guarantee, frames: &[(u64, u64)]) {
    let Guarantee {
        bandwidth,
        burst,
        burst_rate,
        ..
    } = *guarantee;
    for (rate, burst) in [(bandwidth, burst), (burst_rate, config.frame)] {
        let over = excess(config.link, rate, burst.0, frames.iter().copied());
        assert!(over < ROUNDING, "{over} over {burst} + {rate}·t");
    }
}

/// Checks the invariants of a wire for any traffic: no overlaps, no frame before its departure, and
/// none later than on a wire that sends each scheduled frame at its departure, or right behind the
/// one before it, by 84 bytes or more, or by the length of the last best-effort frame.
pub(super) fn check_wire(sent: &[SentItem]) {
    let (mut taken, mut ideal, mut blocked) = (0, 0, void::SHORTEST.0);
    for (i, sent) in sent.iter().enumerate() {
        assert!(sent.at >= taken, "{i}: {sent:?} overlaps");
        taken = sent.at + sent.wire;
        if let Some(departure) = sent.departure {
            assert!(sent.at >= departure, "{i}: {sent:?} is early");
            ideal = departure.max(ideal);
            assert!(sent.at - ideal < blocked, "{i}: {sent:?} is late");
            ideal += sent.wire;
        } else if sent.frame.is_none() {
            assert!((void::SHORTEST.0..=void::MAX_VOID.0).contains(&sent.wire));
            blocked = void::SHORTEST.0;
        } else {
            blocked = sent.wire;
        }
    }
}

/// Checks that the counters of lines and guests equal their contents, and are within bounds.
pub(super) fn check_books(pacer: &Pacer<Record>) {
    let mut frames = 0;
    for guest in pacer.core.guests.iter() {
        let number = number_of(guest.id);
        let (mut memory, mut released, mut with_frames) = (Bytes(0), WireBytes::ZERO, 0);
        if guest.stamped.is_some() {
            frames += 1;
            memory.0 += pacer.core.chain.store.at(guest.stamped).memory.0;
        }
        let mut line = guest.lines.unlimited;
        let mut next = guest.lines.first;
        let mut limited = 0;
        while line.is_some() {
            let of = pacer.core.lines.at(line);
            assert_eq!(of.guest, number);
            assert_eq!(of.is_empty(), of.stage == Stage::Empty);
            let (mut held, mut wire) = (Bytes(0), WireBytes::ZERO);
            let mut largest = 0;
            for index in of.frames(&pacer.core.chain.store) {
                let waiting = pacer.core.chain.store.at(index);
                held.0 += waiting.memory.0;
                wire += waiting.wire;
                largest = largest.max(waiting.memory.0);
                frames += 1;
            }
            assert_eq!((of.memory, of.wire), (held, wire));
            // And the last packet, which has 42 segments here.
            assert!(
                held.0 <= guest.backlog.share().0 + 42 * largest,
                "{held} of {}",
                guest.backlog.share()
            );
            if of.stage == Stage::Released {
                released += wire;
            }
            with_frames += u32::from(!of.is_empty());
            memory.0 += held.0;
            limited += u32::from(of.limit.is_some());
            line = next;
            next = pacer.core.lines.sibling(line);
        }
        let elastic = pacer
            .elastic
            .places(&guest.elastic, &pacer.core.chain.store);
        let held = elastic.iter().flatten().map(|&place| {
            frames += 1;
            pacer.core.chain.store.at(place).memory.0
        });
        let held: u64 = held.sum();
        let share = guest.backlog.share();
        assert!(held <= share.0, "{held} of {share}");
        assert!(elastic.len() <= super::super::flows::MOST_FLOWS);
        memory.0 += held;
        assert_eq!(
            (guest.backlog.memory, guest.backlog.released),
            (memory, released)
        );
        assert_eq!(
            (guest.lines.busy, guest.lines.limited),
            (with_frames, limited)
        );
        let bound = guest.backlog.bound();
        assert!(memory <= bound, "{memory} of {bound}");
        assert_eq!(guest.round.is_empty(), released == WireBytes::ZERO);
        assert!(guest.stamped.is_some() || guest.round.is_empty());
        let store = &pacer.core.chain.store;
        let is_local = |index| store.at(index).frame.is_some_and(|frame| frame.is_local());
        let departs_here = guest.stamped.is_some() && is_local(guest.stamped);
        assert_eq!(pacer.core.chain.local.has(number), departs_here);
    }
    assert_eq!(pacer.core.chain.store.len(), frames);
}
