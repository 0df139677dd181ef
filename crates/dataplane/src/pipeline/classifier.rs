//! Which class a guest's frame travels in.

use crate::{Class, Classes, Frame, HashKeys, Mark, Meter, MeterConfig, MeterStats, Traffic};
use std::mem;
use tailbound_units::Nanos;

/// What a frame's guest is promised for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing: best effort.
    Nothing,
    /// A guarantee that extends to the frame's destination.
    Guarantee,
    /// A guarantee that does not, since nobody announced the destination.
    Unannounced,
}

/// A class and its mark.
#[derive(Debug, Clone, Copy)]
struct Place {
    class: Class,
    mark: Mark,
}

impl Place {
    #[inline]
    fn give(self, frame: &mut impl Frame) {
        frame.set_class(self.class, self.mark);
    }
}

/// The table for one fabric, with marks.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// `None`: by the flow's size.
    guaranteed: Option<Place>,
    small: Place,
    /// Bulk, and what is of the lowest class in every fabric.
    lowest: Place,
}

impl Places {
    fn of(classes: Classes) -> Self {
        let place = |traffic| {
            let class = classes.fabric().class_of(traffic)?;
            let mark = classes.mark(class);
            Some(Place { class, mark })
        };
        let lowest = Place {
            class: Class::Lowest,
            mark: classes.mark(Class::Lowest),
        };
        Self {
            guaranteed: place(Traffic::Guaranteed),
            small: place(Traffic::SmallFlow).unwrap_or(lowest),
            lowest,
        }
    }
}

impl Places {
    #[inline]
    const fn by_size(&self, is_small: bool) -> Place {
        if is_small { self.small } else { self.lowest }
    }
}

/// Whether frames are given a class, and by what.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one on each way")]
enum Rule {
    /// They keep the marks that their guests wrote.
    Keep,
    /// Those of best effort are all of one class.
    Unmetered(Places),
    /// Those of best effort go by the size of their flows.
    Metered(Places, Meter),
}

/// Gives guests' frames the class that the table has for them ([`tailbound_classes`]).
#[derive(Debug)]
pub struct Classifier {
    rule: Rule,
    /// The guests that share the meter.
    guests: usize,
    /// The counters of the meter that there was last.
    stats: MeterStats,
}

impl Classifier {
    /// Without `classes` frames keep the marks that their guests wrote, and nothing is
    /// metered.
    pub fn new(classes: Option<Classes>, meter: Option<&MeterConfig>, keys: HashKeys) -> Self {
        let rule = match (classes.map(Places::of), meter) {
            (None, _) => Rule::Keep,
            (Some(places), None) => Rule::Unmetered(places),
            (Some(places), Some(config)) => Rule::Metered(places, Meter::with_keys(config, keys)),
        };
        Self {
            rule,
            guests: 1,
            stats: MeterStats::default(),
        }
    }

    /// Gives a frame its class and mark. What came from outside keeps those it has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn classify<F: Frame>(&mut self, now: Nanos, frame: &mut F, promise: Promise) {
        if let (Promise::Nothing, Rule::Metered(places, meter)) = (promise, &mut self.rule)
            && let Some(header) = frame.ipv4()
        {
            let is_small = meter.is_of_small_flow(now, header.flow(), header.frame_len());
            // Two calls, so that what follows is compiled for each outcome.
            if is_small {
                header.set_class(places.small.class, places.small.mark);
            } else {
                header.set_class(places.lowest.class, places.lowest.mark);
            }
        } else {
            self.classify_other(now, frame, promise);
        }
    }

    /// The same for any frame: apart, so that the way of most stays short.
    fn classify_other<F: Frame>(&mut self, now: Nanos, frame: &mut F, promise: Promise) {
        let (places, meter) = match &mut self.rule {
            Rule::Keep => return,
            Rule::Unmetered(places) => (places, None),
            Rule::Metered(places, meter) => (places, Some(meter)),
        };
        let Some(source) = frame.source() else { return };
        let place = if frame.is_multicast() {
            places.lowest
        } else {
            match (promise, places.guaranteed) {
                (Promise::Guarantee, Some(place)) => place,
                (Promise::Unannounced, _) => places.lowest,
                (Promise::Guarantee, None) | (Promise::Nothing, _) => {
                    let is_small = meter.is_some_and(|it| it.is_small(now, source, frame));
                    places.by_size(is_small)
                }
            }
        };
        place.give(frame);
    }

    /// Shares the meter among so many guests from now on; among one until it is told.
    pub fn set_guests(&mut self, guests: usize) {
        self.guests = guests;
        if let Rule::Metered(_, meter) = &mut self.rule {
            meter.set_guests(guests);
        }
    }

    /// Becomes another one. Flows that a meter knows stay as large as they are.
    pub fn reconfigure(&mut self, classes: Option<Classes>, meter: Option<&MeterConfig>) {
        self.stats = self.stats();
        let known = match mem::replace(&mut self.rule, Rule::Keep) {
            Rule::Metered(_, meter) => Some(meter),
            Rule::Keep | Rule::Unmetered(_) => None,
        };
        self.rule = match (classes.map(Places::of), meter) {
            (None, _) => Rule::Keep,
            (Some(places), None) => Rule::Unmetered(places),
            (Some(places), Some(config)) => {
                let mut meter = known.unwrap_or_else(|| {
                    let mut meter = Meter::new(config);
                    meter.set_guests(self.guests);
                    meter.stats = self.stats;
                    meter
                });
                if meter.config() != config {
                    meter.reconfigure(config);
                }
                Rule::Metered(places, meter)
            }
        };
    }

    /// The meter's counters, also of one that is gone; zero where there was none.
    pub fn stats(&self) -> MeterStats {
        match &self.rule {
            Rule::Metered(_, meter) => meter.stats(),
            Rule::Keep | Rule::Unmetered(_) => self.stats,
        }
    }
}
