//! Classification of guests' frames.

use crate::{Class, Classes, Frame, HashKeys, Mark, Meter, MeterConfig, MeterStats, Traffic};
use std::mem;
use tailbound_units::Nanos;

/// Guarantee that covers a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// None: best effort.
    Nothing,
    /// A guarantee that covers the frame's destination.
    Guarantee,
    /// A guarantee that does not cover the destination, because it was not announced.
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
    /// Bulk, and all traffic that is in the lowest class in every fabric.
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

/// Rule by which frames get a class.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one on each way")]
enum Rule {
    /// Frames keep the marks of their guests.
    Keep,
    /// All best-effort frames are of one class.
    Unmetered(Places),
    /// Best-effort frames are classified by the size of their flows.
    Metered(Places, Meter),
}

/// Assigns guests' frames the class that the table has for them ([`tailbound_classes`]).
#[derive(Debug)]
pub struct Classifier {
    rule: Rule,
    /// The number of guests that share the meter.
    guests: usize,
    /// The counters of the last meter.
    stats: MeterStats,
}

impl Classifier {
    /// Creates a classifier. Without `classes` frames keep the marks of their guests, and are not
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

    /// Sets a frame's class and mark. Frames from outside keep theirs.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn classify<F: Frame>(&mut self, now: Nanos, frame: &mut F, promise: Promise) {
        if let (Promise::Nothing, Rule::Metered(places, meter)) = (promise, &mut self.rule)
            && let Some(header) = frame.ipv4()
        {
            let is_small = meter.is_of_small_flow(now, header.flow(), header.frame_len());
            // Two calls, so that the code behind them is compiled for each outcome.
            if is_small {
                header.set_class(places.small.class, places.small.mark);
            } else {
                header.set_class(places.lowest.class, places.lowest.mark);
            }
        } else {
            self.classify_other(now, frame, promise);
        }
    }

    /// Classifies any frame: a separate function, so that the most common path stays short.
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

    /// Divides the meter among this number of guests from now on. The default is one guest.
    pub fn set_guests(&mut self, guests: usize) {
        self.guests = guests;
        if let Rule::Metered(_, meter) = &mut self.rule {
            meter.set_guests(guests);
        }
    }

    /// Changes the configuration. Flows that a meter knows stay large or small.
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

    /// The meter's counters, or those of the last meter; zero if there was none.
    pub fn stats(&self) -> MeterStats {
        match &self.rule {
            Rule::Metered(_, meter) => meter.stats(),
            Rule::Keep | Rule::Unmetered(_) => self.stats,
        }
    }
}
