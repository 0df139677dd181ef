//! Begin, change and end of guests' guarantees.

use super::best_effort::BestEffort;
use super::class::Rank;
use super::config::{MAX_GUESTS, PacerConfig, PacerError, check_rate, check_sum, slowest};
use super::core::Core;
use super::flows::Elastic;
use super::guest::{Contract, Guest};
use super::guests::number_of;
use super::index::FrameIndex;
use super::limits::Limits;
use super::line::{Line, Stage};
use super::place::set_bursts;
use super::room::Room;
use super::round::weight;
use super::store::Arrival;
use super::{Guarantee, wheel};
use crate::queue::Queued;
use crate::{Frame, GuestId};
use tailbound_units::{Bytes, Nanos, Position, Rate};

/// Changes of guarantees at a time.
pub(super) struct Guarantees<'p, F> {
    pub(super) core: &'p mut Core<F>,
    pub(super) elastic: &'p mut Elastic,
    pub(super) best_effort: &'p mut BestEffort<F>,
    pub(super) now: Nanos,
}

impl<F: Frame> Guarantees<'_, F> {
    /// Changes the guarantee of a guest: see [`super::Pacer::set_guest`].
    ///
    /// # Errors
    /// The rule that the guarantee breaks.
    pub(super) fn set(&mut self, id: GuestId, guarantee: &Guarantee) -> Result<(), PacerError> {
        if id.slot() >= MAX_GUESTS {
            return Err(PacerError::Guest(id.slot()));
        }
        let start = self.core.start_at(self.now);
        let fresh = fresh_guest(&self.core.config, id, guarantee)?;
        let held = self.core.guests.guaranteed(id).map(|guest| guest.guarantee);
        let sum = self.core.guests.sum_with(held.as_ref(), guarantee);
        check_sum(sum, self.core.config.link)?;
        if let Some(former) = self.core.guests.former(id)
            && former.is_guaranteed()
        {
            let former = former.id;
            return Err(PacerError::Occupied { id, former });
        }
        self.core.guests.commit(sum);
        let slots = self.core.guests.slots();
        self.core
            .chain
            .departures
            .reserve(fresh.guarantee.rank(), slots);
        if let Some(held) = &held {
            self.reclass(id, fresh.guarantee.rank());
            if let Some(guest) = self.core.guests.find_mut(id) {
                guest.buckets.make_up(self.core.chain.wire.lost());
                let from = start.max(guest.buckets.last_departure());
                guest.reconfigure(&self.core.config, &fresh, (from, from));
            }
            self.core.guests.share_memory(id, Some(held));
        } else {
            self.begin(start, fresh);
        }
        if let Some(guest) = self.core.guests.find_mut(id) {
            set_bursts(guest, &mut self.core.lines, guarantee.bursts);
        }
        if let Some(held) = held
            && held.credit != guarantee.credit
        {
            Limits {
                core: self.core,
                elastic: self.elastic,
                at: start,
            }
            .deepen(id);
        }
        Ok(())
    }

    /// Moves the departure of a guest to another class.
    fn reclass(&mut self, id: GuestId, rank: Rank) {
        let Core { guests, chain, .. } = &mut *self.core;
        let Some(guest) = guests
            .find_mut(id)
            .filter(|guest| guest.guarantee.rank() != rank)
        else {
            return;
        };
        let number = number_of(id);
        if guest.stamped.is_some() && !chain.store.at(guest.stamped).is_local {
            let floor = chain.wire.start();
            chain.departures.of(guest.guarantee.rank()).remove(number);
            let departure = guest.buckets.last_departure();
            chain.departures.of(rank).insert(number, departure, floor);
        }
    }

    /// Begins the guarantee of a guest, and takes in its frames that wait as best effort.
    fn begin(&mut self, start: Position, mut fresh: Guest) {
        let id = fresh.id;
        let before = self.core.guests.vacate(id);
        let slots = self.core.guests.slots();
        self.core
            .chain
            .departures
            .reserve(fresh.guarantee.rank(), slots);
        let share = weight(fresh.guarantee.bandwidth, self.core.config.link);
        let line = Line::new(number_of(id), share, None);
        fresh
            .buckets
            .start_empty(start, self.core.chain.wire.lost());
        fresh.lines.unlimited = self.core.insert_line(line);
        let before = before.filter(|guest| guest.id == id);
        fresh.stats = before.map(|guest| guest.stats).unwrap_or_default();
        self.core.guests.insert(fresh);
        self.core.guests.share_memory(id, None);
        for queued in self.best_effort.drain() {
            match self.core.guests.find_mut(id) {
                Some(guest) if queued.frame.source() == Some(id) => {
                    let line = self.core.lines.of_frame(guest, &queued.frame);
                    let arrival = Arrival {
                        enqueued: queued.enqueued.min(self.now),
                        at: start,
                    };
                    let (core, elastic) = (&mut *self.core, &mut *self.elastic);
                    Room { core, elastic }.take(line, queued.frame, arrival);
                }
                _ => self.best_effort.restore(queued),
            }
        }
    }

    /// Ends the guarantee of a guest, if it has one; its frames become best effort.
    pub(super) fn end(&mut self, id: GuestId) {
        let Some(guest) = self.core.guests.guaranteed_mut(id) else {
            return;
        };
        let (held, rank) = (guest.guarantee, guest.guarantee.rank());
        guest.contract = Contract::BestEffort;
        let stamped = std::mem::replace(&mut guest.stamped, FrameIndex::NONE);
        let (unlimited, first) = (guest.lines.unlimited, guest.lines.first);
        guest.backlog.memory = Bytes(0);
        let store = &self.core.chain.store;
        let elastic = self.elastic.end(&mut guest.elastic, store);
        let tree = guest.lines.tree.take();
        self.core.guests.release_ring(id);
        if stamped.is_some() {
            let number = number_of(id);
            if !self.core.chain.local.remove(number) {
                self.core.chain.departures.of(rank).remove(number);
            }
            self.restore(stamped);
        }
        for place in elastic {
            self.restore(place);
        }
        if let Some(tree) = tree {
            tree.for_wheel(|line| self.core.chain.releases.remove(line));
        }
        let mut line = unlimited;
        let mut next = first;
        while line.is_some() {
            if self.core.lines.at(line).stage == Stage::Limited {
                self.core.chain.releases.remove(line);
            }
            let mut index = self
                .core
                .lines
                .at_mut(line)
                .take_all(&mut self.core.chain.store);
            while index.is_some() {
                let next = self.core.chain.store.at(index).next;
                self.restore(index);
                index = next;
            }
            let sibling = self.core.lines.sibling(next);
            self.core.lines.remove(line, &mut self.core.chain.used);
            line = next;
            next = sibling;
        }
        self.core.guests.uncommit(&held);
        self.core.guests.share_memory(id, Some(&held));
    }

    /// Queues a frame as best effort, or frees it if it goes to a guest of this host.
    fn restore(&mut self, index: FrameIndex) {
        let enqueued = self.core.chain.store.at(index).enqueued;
        let frame = self.core.chain.store.take(index);
        let frame = frame.expect("a frame that waits is in its place");
        if frame.is_local() {
            self.core.chain.local.free(frame);
        } else {
            self.best_effort.restore(Queued { frame, enqueued });
        }
    }
}

impl PacerConfig {
    /// Checks a guarantee by itself: whether a guest that is alone on the wire could have it.
    ///
    /// # Errors
    /// The broken rule.
    pub fn check(&self, guarantee: &Guarantee) -> Result<(), PacerError> {
        fresh_guest(self, GuestId::first(0), guarantee).map(drop)
    }

    /// The lowest rate that can be counted on this wire.
    pub const fn slowest(&self) -> Rate {
        slowest(self.link)
    }
}

/// Returns a guest under a guarantee, with full buckets, if the guarantee follows the rules.
pub(super) fn fresh_guest(
    config: &PacerConfig,
    id: GuestId,
    guarantee: &Guarantee,
) -> Result<Guest, PacerError> {
    let Guarantee {
        bandwidth,
        burst,
        burst_rate,
        horizon,
        credit,
        ..
    } = *guarantee;
    let PacerConfig {
        link, frame, batch, ..
    } = *config;
    check_rate(bandwidth, link)?;
    if burst_rate < bandwidth {
        return Err(PacerError::BurstRateBelowBandwidth {
            burst_rate,
            bandwidth,
        });
    }
    check_rate(burst_rate, link)?;
    if burst < frame {
        return Err(PacerError::BurstBelowFrame { burst, frame });
    }
    if let Some(credit) = credit.filter(|credit| *credit < frame) {
        return Err(PacerError::CreditBelowFrame { credit, frame });
    }
    let most = link.time_for((wheel::RANGE / 8).into());
    if horizon < batch || horizon > most {
        return Err(PacerError::Horizon {
            horizon,
            batch,
            most,
        });
    }
    Guest::new(config, id, guarantee).ok_or(PacerError::BurstTooLong(burst))
}
