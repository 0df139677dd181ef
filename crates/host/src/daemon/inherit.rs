//! Descriptors of ports that another process opened: the daemon before this one, which
//! hands them over, or which died, and systemd kept them.

use super::store;
use crate::config::PortConfig;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use tailbound_switch::port::Estate;

/// Longest name of a descriptor that systemd keeps, in bytes (`sd_notify(3)`).
const LONGEST: usize = 255;

/// Descriptors of ports, by [`key`].
#[derive(Debug, Default)]
pub(super) struct Inherited {
    descriptors: HashMap<String, OwnedFd>,
    /// Those of ports that are more, by [`estate_key`].
    estates: HashMap<String, Estate>,
    /// The keys of those that are ports again.
    adopted: Vec<String>,
}

impl Inherited {
    /// Those that systemd kept of a daemon that died.
    pub(super) fn from_systemd() -> Self {
        let kept = tailbound_sys::inherited::take_from_systemd();
        Self::new(kept)
    }

    /// Descriptors and their keys.
    pub(super) fn new(descriptors: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        Self {
            descriptors: descriptors.into_iter().collect(),
            estates: HashMap::new(),
            adopted: Vec::new(),
        }
    }

    /// One more port, which is more than a descriptor.
    pub(super) fn add(&mut self, key: String, estate: Estate) {
        self.estates.insert(key, estate);
    }

    /// The port that `adopt` makes of the descriptor for `config`; `None` where there is
    /// none, or it is of no use.
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

    /// The same of a port that is more than a descriptor.
    pub(super) fn take_estate<T>(
        &mut self,
        config: &PortConfig,
        adopt: impl FnOnce(Estate) -> io::Result<T>,
    ) -> Option<T> {
        let estate = self.estates.remove(&estate_key(config))?;
        let adopted = adopt(estate);
        if let Err(error) = &adopted {
            tracing::warn!(port = %config, %error, "opened anew: what there was of it is of no use");
        }
        adopted.ok()
    }

    /// The keys of those that are ports again, and of those that nobody took.
    pub(super) fn keys(self) -> (Vec<String>, Vec<String>) {
        (self.adopted, self.descriptors.into_keys().collect())
    }
}

/// What the descriptor of a port is known by: kind, interface and namespace, as systemd
/// takes them for a name. `None` for a kind of port that is opened anew, as it is more
/// than its descriptor.
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
        for byte in part {
            // Neither a colon nor what ends a line.
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    key.push(char::from(*byte));
                }
                _ => key.extend(['%', hex(byte >> 4), hex(byte & 15)]),
            }
        }
    }
    (key.len() <= LONGEST).then_some(key)
}

/// What a port is known by that is more than a descriptor: all that it was opened from.
pub(super) fn estate_key(config: &PortConfig) -> String {
    format!("{config:?}")
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

    #[test]
    fn no_two_ports_have_one_key_and_systemd_takes_all_of_them() {
        let packet = PortConfig::AfPacket {
            interface: "a".to_owned(),
            netns: None,
            cuts_tunnels: false,
            txqueuelen: None,
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
