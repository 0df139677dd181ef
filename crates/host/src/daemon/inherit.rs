//! Descriptors of ports that another process opened: the daemon before this one handed them over,
//! or it died and systemd stored them.

use super::store;
use crate::config::PortConfig;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tailbound_switch::port::Estate;
use tailbound_vhost::Mode;

/// Longest name of a descriptor that systemd keeps, in bytes (`sd_notify(3)`).
const MAX_NAME_BYTES: usize = 255;

/// Descriptors of ports, by [`key`].
#[derive(Debug, Default)]
pub(super) struct InheritedPorts {
    descriptors: HashMap<String, OwnedFd>,
    /// Estates of ports, by [`CardKeys::card`], or by [`CardKeys::first`] if the daemon before
    /// knew no other.
    estates: HashMap<String, Estate>,
    /// True after a handover: then each card that is opened anew has a reason, which is logged.
    is_handover: bool,
    /// The keys of the descriptors that are in use again.
    adopted: Vec<String>,
}

impl InheritedPorts {
    /// Returns the descriptors that systemd stored of a daemon that died.
    pub(super) fn from_systemd() -> Self {
        let descriptors = tailbound_sys::inherited::take_from_systemd();
        Self::new(descriptors)
    }

    /// Makes a set of descriptors with their keys.
    pub(super) fn new(descriptors: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        Self {
            descriptors: descriptors.into_iter().collect(),
            estates: HashMap::new(),
            is_handover: false,
            adopted: Vec::new(),
        }
    }

    /// Returns the descriptors that a daemon handed over, and the estates of its other ports.
    pub(super) fn handed_over(
        descriptors: impl IntoIterator<Item = (String, OwnedFd)>,
        estates: impl IntoIterator<Item = (String, Estate)>,
    ) -> Self {
        Self {
            estates: estates.into_iter().collect(),
            is_handover: true,
            ..Self::new(descriptors)
        }
    }

    /// Returns the port that `adopt` makes of the descriptor for `config`; `None` if there is no
    /// usable descriptor.
    pub(super) fn take<T>(
        &mut self,
        config: &PortConfig,
        adopt: impl FnOnce(OwnedFd) -> io::Result<T>,
    ) -> Option<T> {
        let (key, fd) = self.descriptors.remove_entry(&key(config)?)?;
        match adopt(fd) {
            Ok(port) => {
                tracing::debug!(port = %config, "goes on with the descriptor that was there");
                self.adopted.push(key);
                Some(port)
            }
            Err(error) => {
                tracing::warn!(port = %config, %error, "opened anew: its descriptor is of no use");
                // As long as systemd has it, a TAP is busy.
                store::remove(&key);
                None
            }
        }
    }

    /// Returns the port that `adopt` makes of an estate, in the same way.
    pub(super) fn take_estate<T>(
        &mut self,
        config: &PortConfig,
        adopt: impl FnOnce(Estate) -> io::Result<T>,
    ) -> Option<T> {
        let keys = CardKeys::of(config)?;
        let estate = self.estates.remove(&keys.card);
        let Some(estate) = estate.or_else(|| self.estates.remove(&keys.first)) else {
            if self.is_handover {
                tracing::warn!(
                    port = %config, key = keys.card,
                    "opened anew: the daemon before handed over no card of this key"
                );
            }
            return None;
        };
        let adopted = adopt(estate);
        if let Err(error) = &adopted {
            tracing::warn!(port = %config, %error, "opened anew: its inherited state is unusable");
        }
        adopted.ok()
    }

    /// Returns the keys that are in use again, and those that no port took. The log names the cards
    /// among the latter: their guests have no port.
    pub(super) fn keys(self) -> (Vec<String>, Vec<String>) {
        for key in self.estates.keys() {
            tracing::warn!(key, "closed: the configuration has no card of this key");
        }
        (self.adopted, self.descriptors.into_keys().collect())
    }
}

/// Returns the key of a port's descriptor: kind, interface and namespace, in a form that systemd
/// accepts as a name. `None` for a kind of port that is more than its descriptor, and is opened
/// anew.
pub(super) fn key(config: &PortConfig) -> Option<String> {
    let (kind, interface, netns) = match config {
        PortConfig::Tap { interface, netns } => ("tap", interface, netns),
        PortConfig::AfPacket {
            interface, netns, ..
        } => ("af-packet", interface, netns),
        PortConfig::AfXdp { .. } | PortConfig::VhostUser { .. } | PortConfig::Pcap { .. } => {
            return None;
        }
    };
    let netns = netns
        .as_ref()
        .map_or(&[][..], |path| path.as_os_str().as_bytes());
    let mut key = kind.to_owned();
    for part in [interface.as_bytes(), netns] {
        key.push('/');
        push(&mut key, part);
    }
    (key.len() <= MAX_NAME_BYTES).then_some(key)
}

/// Appends bytes without colons, slashes and line ends.
fn push(key: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                key.push(char::from(*byte));
            }
            _ => key.extend(['%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
}

/// The keys of a card, by which daemons of different releases recognize the card. Both spellings
/// are permanent: tests contain them as releases wrote them.
///
/// A setting belongs to the first key only if another value makes another card. All other settings
/// are checked when the card continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardKeys {
    /// Kind, version of the spelling, side of the socket, and its name.
    pub(super) card: String,
    /// The key that the first releases with cards wrote and look for: all settings of that
    /// time, in the form of Rust's `Debug`.
    pub(super) first: String,
}

impl CardKeys {
    /// Returns the keys of a card; `None` for a port of another kind.
    pub(super) fn of(config: &PortConfig) -> Option<Self> {
        // All fields are named, so that the author of a new one decides whether it makes another
        // card.
        let PortConfig::VhostUser {
            socket,
            mode,
            user,
            queues,
            capture,
        } = config
        else {
            return None;
        };
        let (side, side_of_first) = match mode {
            Mode::Server => ("server", "Server"),
            Mode::Client => ("client", "Client"),
        };
        let mut card = format!("vhost-user/1/{side}/");
        push(&mut card, socket.as_os_str().as_bytes());
        // The file of a configuration is text.
        let socket = socket.to_string_lossy();
        let capture = capture.as_deref().map(Path::to_string_lossy);
        Some(Self {
            card,
            first: format!(
                "VhostUser {{ socket: {socket:?}, mode: {side_of_first}, user: {user:?}, \
                 queues: {queues}, capture: {capture:?} }}"
            ),
        })
    }
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tap(interface: &str, netns: Option<&str>) -> PortConfig {
        PortConfig::Tap {
            interface: interface.to_owned(),
            netns: netns.map(Into::into),
        }
    }

    fn card(socket: &str, mode: Mode, user: Option<u32>, capture: Option<&str>) -> PortConfig {
        PortConfig::VhostUser {
            socket: socket.into(),
            mode,
            user,
            queues: 2,
            capture: capture.map(Into::into),
        }
    }

    #[test]
    fn a_cards_keys_are_spelled_as_releases_have_written_them() {
        let keys = CardKeys::of(&card(
            "/run/th/a \"b",
            Mode::Client,
            Some(7),
            Some("c.pcap"),
        ));
        let keys = keys.expect("it is a card");
        assert_eq!(keys.card, "vhost-user/1/client/%2frun%2fth%2fa%20%22b");
        assert_eq!(
            keys.first,
            "VhostUser { socket: \"/run/th/a \\\"b\", mode: Client, user: Some(7), queues: 2, \
             capture: Some(\"c.pcap\") }"
        );
        let keys = CardKeys::of(&card("/run/db1", Mode::Server, None, None));
        let keys = keys.expect("it is a card");
        assert_eq!(keys.card, "vhost-user/1/server/%2frun%2fdb1");
        assert_eq!(
            keys.first,
            "VhostUser { socket: \"/run/db1\", mode: Server, user: None, queues: 2, \
             capture: None }"
        );
        assert_eq!(CardKeys::of(&tap("a", None)), None);
    }

    #[test]
    fn a_setting_that_keeps_the_card_reopens_no_card() {
        let before = card("/run/db1", Mode::Server, None, None);
        let now = card("/run/db1", Mode::Server, Some(64), Some("c.pcap"));
        let other = card("/run/db1", Mode::Client, None, None);
        let keys = CardKeys::of(&before).expect("a card");
        let estate = || Estate {
            state: "as it was".to_owned(),
            descriptors: Vec::new(),
        };
        let inherited = || InheritedPorts::handed_over([], [(keys.card.clone(), estate())]);
        let taken = |config| {
            let taken = inherited().take_estate(config, |estate| Ok(estate.state));
            taken.is_some()
        };
        assert!(taken(&before) && taken(&now));
        assert!(!taken(&other) && !taken(&card("/run/db2", Mode::Server, None, None)));
        // Of the first releases.
        let mut first = InheritedPorts::handed_over([], [(keys.first.clone(), estate())]);
        assert!(first.take_estate(&before, |_| Ok(())).is_some());
        assert!(first.take_estate(&before, |_| Ok(())).is_none(), "once");
    }

    #[test]
    fn port_keys_are_unique_and_valid_for_systemd() {
        let packet = PortConfig::AfPacket {
            interface: "a".to_owned(),
            netns: None,
            cuts_tunnels: false,
            txqueuelen: None,
            rps: true,
        };
        let ports = [
            tap("a", None),
            tap("a", Some("/run/netns/b")),
            tap("a%2f", None),
            tap("a:", Some("b")),
            packet,
        ];
        let keys: std::collections::BTreeSet<_> = ports.iter().filter_map(key).collect();
        assert_eq!(keys.len(), ports.len());
        assert!(keys.contains("tap/a/%2frun%2fnetns%2fb"), "{keys:?}");
        assert!(keys.iter().all(|key| !key.contains([':', '\n'])));
        assert_eq!(key(&tap("a", Some(&"n".repeat(300)))), None);
    }
}
