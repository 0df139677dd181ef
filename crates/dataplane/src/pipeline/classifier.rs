//! Which class a guest's frame travels in.

use crate::{Class, Classes, Frame, HashKeys, Mark, Meter, MeterConfig, MeterStats, Traffic};
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

/// Gives guests' frames the class that the table has for them ([`tailbound_classes`]).
#[derive(Debug)]
pub struct Classifier {
    places: Option<Places>,
    meter: Option<Meter>,
    /// The guests that share the meter.
    guests: usize,
    /// The counters of the meter that there was last.
    stats: MeterStats,
}

impl Classifier {
    /// Without `classes` frames keep the marks that their guests wrote, and nothing is
    /// metered.
    pub fn new(classes: Option<Classes>, meter: Option<&MeterConfig>, keys: HashKeys) -> Self {
        Self {
            places: classes.map(Places::of),
            meter: meter.map(|config| Meter::with_keys(config, keys)),
            guests: 1,
            stats: MeterStats::default(),
        }
    }

    /// Gives a frame its class and mark. What came from outside keeps those it has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for every frame")]
    pub fn classify<F: Frame>(&mut self, now: Nanos, frame: &mut F, promise: Promise) {
        let Some(places) = &self.places else { return };
        let Some(source) = frame.source() else { return };
        if frame.is_multicast() {
            return places.lowest.give(frame);
        }
        match (promise, places.guaranteed) {
            (Promise::Guarantee, Some(place)) => return place.give(frame),
            (Promise::Unannounced, _) => return places.lowest.give(frame),
            (Promise::Guarantee | Promise::Nothing, _) => {}
        }
        let Some(meter) = &mut self.meter else {
            return places.lowest.give(frame);
        };
        // Two calls, so that what follows is compiled for each outcome.
        if meter.is_small(now, source, frame) {
            places.small.give(frame);
        } else {
            places.lowest.give(frame);
        }
    }

    /// Shares the meter among so many guests from now on; among one until it is told.
    pub fn set_guests(&mut self, guests: usize) {
        self.guests = guests;
        if let Some(meter) = &mut self.meter {
            meter.set_guests(guests);
        }
    }

    /// Becomes another one. Flows that a meter knows stay as large as they are.
    pub fn reconfigure(&mut self, classes: Option<Classes>, meter: Option<&MeterConfig>) {
        self.places = classes.map(Places::of);
        self.stats = self.stats();
        self.meter = match (self.meter.take(), meter) {
            (Some(mut meter), Some(config)) => {
                if meter.config() != config {
                    meter.reconfigure(config);
                }
                Some(meter)
            }
            (_, Some(config)) => {
                let mut meter = Meter::new(config);
                meter.set_guests(self.guests);
                meter.stats = self.stats;
                Some(meter)
            }
            (_, None) => None,
        };
    }

    /// The meter's counters, also of one that is gone; zero where there was none.
    pub fn stats(&self) -> MeterStats {
        self.meter.as_ref().map_or(self.stats, Meter::stats)
    }
}
