//! Levels of guests' buckets, for a takeover: no guest gets its burst twice, and none loses it.
//!
//! The time of the levels is one of `CLOCK_MONOTONIC`, which all processes of a boot share. A guest
//! gets the credit of its guarantee for the time since then.

use super::others::{Others, pass_over};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tailbound_dataplane::FlowKey;
use tailbound_dataplane::pacer::{DestinationLevel, Place};
use tailbound_switch::{GuestMut, Spent, Switch};
use tailbound_sys::timer;
use tailbound_units::{Bytes, Nanos, Rate, WireBytes};

/// The bucket levels of all guests.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Levels {
    /// The time of the levels, in nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    guests: Vec<Level>,
    /// Fields of another release.
    #[serde(flatten)]
    others: Others,
}

/// The bucket levels of one guest.
#[derive(Debug, Serialize, Deserialize)]
struct Level {
    name: String,
    /// The content of {B, S}, in bytes on the wire; `None` without a guarantee.
    holds: Option<u64>,
    /// The guest's limited destinations.
    destinations: Vec<Destination>,
    /// The bytes spent of its budgets for groups and for unknown addresses.
    groups: u64,
    unknown: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Destination {
    /// The pacer's key of the destination, in hexadecimal digits.
    known_as: String,
    /// The rate in bits per second.
    rate: u64,
    holds: u64,
    /// The host and the machine, as the pacer knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<(u64, u64)>,
}

impl Levels {
    /// Returns the levels of all guests at `now`.
    pub(super) fn of(switch: &mut Switch, now: Nanos) -> Self {
        let guests = switch.guests();
        let guests: Vec<_> = guests.map(|(id, name)| (id, name.to_owned())).collect();
        let guests = guests.into_iter().map(|(id, name)| {
            let spent = switch.guest(id).map(|guest| guest.spent(now));
            let spent = spent.unwrap_or_default();
            let level = switch.guest_mut(id).and_then(|mut guest| guest.level(now));
            let destinations = level.iter().flat_map(|level| &level.destinations);
            let destinations = destinations.map(|destination| Destination {
                known_as: format!("{:x}", destination.destination),
                rate: destination.rate.0,
                holds: destination.holds.0,
                place: destination.place.map(|place| (place.host, place.machine)),
            });
            Level {
                name,
                destinations: destinations.collect(),
                holds: level.map(|level| level.holds.0),
                groups: spent.groups.0,
                unknown: spent.unknown.0,
            }
        });
        Self {
            guests: guests.collect(),
            at: timer::now().0,
            others: Others::new(),
        }
    }

    /// Reads levels; `None`, with a line in the log, if the text is unreadable.
    pub(super) fn read(text: serde_json::Value) -> Option<Self> {
        if text.is_null() {
            tracing::info!(
                "no bucket state from the previous daemon; guests start with empty \
                buckets"
            );
            return None;
        }
        match serde_json::from_value::<Self>(text) {
            Ok(levels) if levels.at <= timer::now().0 => {
                pass_over("buckets", &levels.others);
                Some(levels)
            }
            Ok(_) => {
                tracing::warn!(
                    "the previous daemon's bucket state has another clock; buckets \
                    start empty"
                );
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the previous daemon's bucket state is of another \
                    version; buckets start empty");
                None
            }
        }
    }
}

/// Levels that are not yet restored.
#[derive(Debug, Default)]
pub(super) struct LevelsToRestore {
    at: u64,
    guests: HashMap<String, Level>,
}

impl From<Levels> for LevelsToRestore {
    fn from(levels: Levels) -> Self {
        let guests = levels.guests.into_iter();
        Self {
            at: levels.at,
            guests: guests.map(|level| (level.name.clone(), level)).collect(),
        }
    }
}

impl LevelsToRestore {
    /// Restores the levels of the guests that have a guarantee by now. Returns the flows that are
    /// limited as before; none without an exchange of rates.
    pub(super) fn restore(
        &mut self,
        now: Nanos,
        switch: &mut Switch,
        has_hose: bool,
    ) -> Vec<FlowKey> {
        if self.guests.is_empty() {
            return Vec::new();
        }
        let since = timer::now().since(Nanos(self.at));
        let guests = switch.guests();
        let known = guests.filter(|(_, name)| self.guests.contains_key(*name));
        let known: Vec<_> = known.map(|(id, name)| (id, name.to_owned())).collect();
        let mut limited = Vec::new();
        for (id, name) in known {
            let Some(mut level) = self.guests.remove(&name) else {
                continue;
            };
            let spent = Spent {
                groups: Bytes(std::mem::take(&mut level.groups)),
                unknown: Bytes(std::mem::take(&mut level.unknown)),
            };
            if !has_hose {
                level.destinations.clear();
            }
            if let Some(mut guest) = switch.guest_mut(id) {
                guest.note_spent(now, spent);
                limited.extend(level.restore(now, since, &mut guest));
            }
            // The placement service may be about to guarantee it something.
            if level.holds.is_some() && switch.guarantee(id).is_none() {
                self.guests.insert(name, level);
            }
        }
        limited
    }
}

impl Level {
    /// Fills the buckets of a guest that has a guarantee, with the levels of that time.
    fn restore(&self, now: Nanos, since: Nanos, guest: &mut GuestMut<'_>) -> Vec<FlowKey> {
        let earned = |rate: Rate| rate.bytes_in(since).0;
        let guarantee = guest.guarantee().copied();
        let (Some(holds), Some(guarantee)) = (self.holds, guarantee) else {
            return Vec::new();
        };
        let bandwidth = guarantee.bandwidth;
        // Receivers' hosts may grant the rates of the former process to others by now. That would
        // exceed an inward burst.
        let is_closed = guarantee.credit.is_some();
        let there = guest.level(now).map_or(0, |level| level.holds.0);
        let wanted = holds.saturating_add(earned(bandwidth));
        guest.fill_bucket(now, WireBytes(wanted.saturating_sub(there)));
        let mut limited = Vec::new();
        for destination in &self.destinations {
            let Ok(known_as) = u128::from_str_radix(&destination.known_as, 16) else {
                continue;
            };
            let rate = if is_closed {
                Rate::ZERO
            } else {
                Rate(destination.rate)
            };
            let level = DestinationLevel {
                destination: known_as,
                rate,
                holds: WireBytes(destination.holds.saturating_add(earned(rate))),
                place: destination
                    .place
                    .map(|(host, machine)| Place { host, machine }),
            };
            match guest.set_destination_level(now, level) {
                Ok(()) => limited.push(FlowKey {
                    source: guest.id(),
                    destination: known_as,
                }),
                Err(rule) => tracing::debug!(%rule, "a limit is not as it was"),
            }
        }
        limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_dataplane::{EgressConfig, Guarantee, PacedPipelineConfig, PacerConfig};
    use tailbound_switch::{GuestConfig, Mac, SwitchConfig};

    const LINK: Rate = Rate::from_mbit(1000);
    const BURST: u64 = 150_000;

    fn switch(names: &[&str]) -> Switch {
        let guarantee = Guarantee::new(Rate::from_mbit(8), Bytes(BURST), LINK);
        let guests = (1..).zip(names).map(|(n, name)| GuestConfig {
            guarantee: Some(guarantee),
            ..GuestConfig::new(*name, Mac([2, 0, 0, 0, 0, n]))
        });
        let pacer = PacedPipelineConfig::new(PacerConfig::strict(LINK));
        Switch::new(SwitchConfig {
            uplink: Some(EgressConfig::Pacer(pacer)),
            guests: guests.collect(),
            ..SwitchConfig::default()
        })
        .expect("no rule is broken")
    }

    fn holds(switch: &mut Switch, now: Nanos) -> Vec<u64> {
        let guests: Vec<_> = switch.guests().map(|(id, _)| id).collect();
        let levels = guests
            .into_iter()
            .filter_map(|id| switch.guest_mut(id)?.level(now));
        levels.map(|level| level.holds.0).collect()
    }

    /// Returns a new switch, whose clock began at zero, with the restored `levels`.
    fn restored(levels: &Levels, names: &[&str], has_hose: bool) -> (Switch, Vec<FlowKey>) {
        let text = serde_json::to_vec(levels).expect("plain data");
        let read = Levels::read(serde_json::from_slice(&text).expect("JSON"));
        let mut switch = switch(names);
        let mut restoring = LevelsToRestore::from(read.expect("it is ours"));
        let limited = restoring.restore(Nanos::ZERO, &mut switch, has_hose);
        // Not twice.
        let again = restoring.restore(Nanos::ZERO, &mut switch, has_hose);
        assert!(again.is_empty());
        (switch, limited)
    }

    #[test]
    fn bucket_levels_follow_their_guest_and_a_new_guest_starts_empty() {
        let mut old = switch(&["a", "b"]);
        // Since 50 ms: 8 Mbit/s are 1,000 bytes in one.
        let now = Nanos::from_millis(50);
        let levels = Levels::of(&mut old, now);
        assert_eq!(holds(&mut old, now), [50_000, 50_000]);
        let (mut new, _) = restored(&levels, &["new", "b", "a"], true);
        let [new, b, a] = holds(&mut new, Nanos::ZERO)[..] else {
            panic!("three guests");
        };
        assert_eq!(new, 0);
        // And what came since then: a second of it would fill the bucket.
        assert!((50_000..=BURST).contains(&a), "{a}");
        assert!((50_000..=BURST).contains(&b), "{b}");
    }

    #[test]
    fn a_takeover_restores_bucket_levels_of_destinations() {
        let mut old = switch(&["a"]);
        let now = Nanos::from_secs(1);
        let id = old.guests().next().expect("one").0;
        let pacer = old.pacer().expect("it is paced");
        for (destination, rate) in [(7, 1), (8, 0)] {
            let level = DestinationLevel {
                destination,
                rate: Rate::from_mbit(rate),
                holds: WireBytes(1000),
                place: (destination == 7).then_some(Place {
                    host: u64::MAX,
                    machine: 1,
                }),
            };
            pacer
                .set_destination_level(now, id, level)
                .expect("no rule");
        }
        let mut levels = Levels::of(&mut old, now);
        // No time passes, so that it can be told.
        levels.at = u64::MAX;
        assert!(Levels::read(serde_json::to_value(&levels).expect("plain")).is_none());
        levels.at = timer::now().0;
        let (mut new, limited) = restored(&levels, &["a"], true);
        assert_eq!(limited.len(), 2);
        let id = new.guests().next().expect("one").0;
        let level = new
            .guest_mut(id)
            .and_then(|mut guest| guest.level(Nanos::ZERO));
        let level = level.expect("guaranteed");
        let [closed, open] = [8, 7].map(|destination| {
            let mut all = level.destinations.iter();
            *all.find(|level| level.destination == destination)
                .expect("known")
        });
        assert_eq!(open.rate, Rate::from_mbit(1));
        // 1 Mbit/s are 125 bytes in a millisecond: a whole second is less than its burst.
        assert!((1000..BURST).contains(&open.holds.0), "{open:?}");
        assert_eq!((closed.rate, closed.holds), (Rate(0), WireBytes(1000)));
        assert_eq!(open.place.map(|place| place.host), Some(u64::MAX));
        assert_eq!(closed.place, None);
        // Nobody would ever take them away.
        let (mut new, limited) = restored(&levels, &["a"], false);
        assert!(limited.is_empty());
        let id = new.guests().next().expect("one").0;
        let level = new
            .guest_mut(id)
            .and_then(|mut guest| guest.level(Nanos::ZERO));
        assert!(level.expect("guaranteed").destinations.is_empty());
    }

    #[test]
    fn levels_of_another_version_are_ignored() {
        for text in [
            serde_json::Value::Null,
            serde_json::json!({"at": 1}),
            serde_json::json!({"at": 1, "guests": [{"name": 7}]}),
        ] {
            assert!(Levels::read(text).is_none());
        }
    }
}
