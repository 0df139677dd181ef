//! The differences between two configurations, for the log.

use crate::config::{Config, GuestConfig};
use std::collections::HashMap;

/// Guests that one line of the log names.
const MAX_NAMED: usize = 20;

/// Differences that a reload makes: names of guests, and keys at the top of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    keys: Vec<&'static str>,
}

impl Changes {
    /// The differences from `old` to `new`.
    pub(super) fn between(old: &Config, new: &Config) -> Self {
        let by_name = |config: &Config| -> HashMap<String, GuestConfig> {
            let guests = config.guests.iter();
            guests
                .map(|guest| (guest.name.clone(), guest.clone()))
                .collect()
        };
        let (before, after) = (by_name(old), by_name(new));
        let names = |guests: &[GuestConfig], is_one: &dyn Fn(&GuestConfig) -> bool| {
            let guests = guests.iter().filter(|guest| is_one(guest));
            guests.map(|guest| guest.name.clone()).collect()
        };
        let keys = [
            ("metrics", old.metrics != new.metrics),
            ("otlp", old.otlp != new.otlp),
            ("cpu", old.cpu != new.cpu),
            ("loop_class", old.loop_class != new.loop_class),
            ("classes", old.classes != new.classes),
            ("uplink", old.uplink != new.uplink),
            ("vcpu", old.vcpu != new.vcpu),
            ("hose", old.hose != new.hose),
            ("added", old.added != new.added),
        ];
        let keys = keys.into_iter().filter(|(_, differs)| *differs);
        Self {
            added: names(&new.guests, &|guest| !before.contains_key(&guest.name)),
            changed: names(&new.guests, &|guest| {
                before.get(&guest.name).is_some_and(|old| old != guest)
            }),
            removed: names(&old.guests, &|guest| !after.contains_key(&guest.name)),
            keys: keys.map(|(key, _)| key).collect(),
        }
    }

    /// Logs them, with the number of ports and the user that asked at the control socket;
    /// without one a signal asked.
    pub(super) fn log(&self, ports: usize, uid: Option<u32>) {
        let keys: Vec<_> = self.keys.iter().map(|key| (*key).to_owned()).collect();
        tracing::info!(
            ports,
            by = if uid.is_some() { "socket" } else { "signal" },
            uid,
            added = named(&self.added),
            changed = named(&self.changed),
            removed = named(&self.removed),
            keys = named(&keys),
            "configuration reloaded"
        );
    }
}

/// Returns the first names, and the number of the others; `None` without names.
fn named(names: &[String]) -> Option<String> {
    let more = names.len().saturating_sub(MAX_NAMED);
    let shown = names.get(..MAX_NAMED).unwrap_or(names).join(", ");
    match (names, more) {
        ([], _) => None,
        (_, 0) => Some(shown),
        (_, more) => Some(format!("{shown} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn config(guests: &[(&str, u8)], metrics: &str) -> Config {
        let mut text = format!("metrics = \"127.0.0.1:{metrics}\"\n");
        for (name, number) in guests {
            let _ = write!(
                text,
                "[[guest]]\nname = {name:?}\nmac = \"02:00:00:00:00:{number:02x}\"\n\
                 ip = [\"10.0.0.{number}\"]\nport = {{ kind = \"tap\", interface = \"t{number}\" }}\n"
            );
        }
        Config::parse(&text).expect("it is right")
    }

    #[test]
    fn guests_and_keys_that_differ_are_named() {
        let old = config(&[("web", 1), ("db", 2), ("log", 3)], "9464");
        let new = config(&[("web", 1), ("db", 4), ("cache", 5)], "9465");
        let expected = Changes {
            added: vec!["cache".to_owned()],
            changed: vec!["db".to_owned()],
            removed: vec!["log".to_owned()],
            keys: vec!["metrics"],
        };
        assert_eq!(Changes::between(&old, &new), expected);
        assert_eq!(Changes::between(&old, &old), Changes::default());
    }

    #[test]
    fn of_many_names_the_first_are_logged() {
        let names: Vec<_> = (0..22).map(|number| format!("g{number}")).collect();
        assert_eq!(named(&names[..1]).as_deref(), Some("g0"));
        let line = named(&names).expect("some");
        assert!(line.ends_with("g18, g19 and 2 more"), "{line}");
        assert_eq!(named(&[]), None);
    }
}
