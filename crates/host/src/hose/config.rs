//! The section `[hose]` of a host's configuration.

use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use tailbound_api::VmName;
use tailbound_document::{Problem, Step};
use tailbound_hose::HostId;
use tailbound_units::Nanos;

/// Range of the interval of the exchange. Below, leases end before a descheduled thread is back;
/// above, rates come too late.
const INTERVAL: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(100));

/// The largest difference between two frames' delays: the allowance for it is a burst of that much
/// of a guarantee.
const MAX_JITTER: Nanos = Nanos::from_millis(100);

/// Largest number of a host's peers.
const MAX_PEERS: usize = 4096;

/// Exchange of rates with other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoseConfig {
    /// This host's name for its peers.
    pub host: String,
    /// Local address and UDP port.
    pub listen: SocketAddr,
    /// Secret for peers without their own `key_file`, readable by its owner only.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// `"service"`: the placement service issues the keys, instead of a file.
    #[serde(default)]
    pub keys: Option<Issuer>,
    /// Interval of the exchange under traffic; 1 ms.
    #[serde(default = "interval")]
    pub interval: Nanos,
    /// Allowance for a sender's jitter beyond the service's promised delay; 4 ms: one horizon of
    /// its host and 2 ms of lateness.
    #[serde(default = "jitter")]
    pub jitter: Nanos,
    /// VMs of each tenant (`OWNER/NAME`) that the service does not know; the known ones.
    #[serde(default)]
    pub machines: BTreeMap<String, u32>,
    /// Other hosts.
    #[serde(default, rename = "peer")]
    pub peers: Vec<PeerConfig>,
}

/// The issuer of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Issuer {
    /// The placement service that the daemon follows.
    Service,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its `host`.
    pub host: String,
    /// Its address and UDP port.
    pub address: SocketAddr,
    /// Secret for this peer alone, readable by its owner only.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

const fn interval() -> Nanos {
    Nanos::from_millis(1)
}

const fn jitter() -> Nanos {
    Nanos::from_millis(4)
}

impl HoseConfig {
    /// Returns all mistakes in the section, whose place is `at`.
    pub(crate) fn check(&self, at: &[Step]) -> Vec<Problem> {
        let mut wrong = Vec::new();
        let mut add = |steps: &[Step], message: String| {
            wrong.push(Problem {
                path: [at, steps].concat(),
                message,
            });
        };
        if self.host.is_empty() {
            let message = "the host's name is empty; use a name of its own";
            add(&[Step::Key("host")], message.to_owned());
        }
        if self.listen.ip().is_multicast() {
            let message = format!("{} is no single host's; use this host's own", self.listen);
            add(&[Step::Key("listen")], message);
        }
        if self.interval < INTERVAL.0 || self.interval > INTERVAL.1 {
            let message = format!(
                "an interval of {} is out of range; use {} to {}, usually 1ms",
                self.interval, INTERVAL.0, INTERVAL.1
            );
            add(&[Step::Key("interval")], message);
        }
        if self.jitter > MAX_JITTER {
            let message = format!(
                "a jitter of {} would disable the enforcement; use 0s to {MAX_JITTER}, usually \
                    4ms",
                self.jitter
            );
            add(&[Step::Key("jitter")], message);
        }
        if self.keys.is_some() && self.key_file.is_some() {
            let message = "there is `key_file` as well; keys come from a file or from the \
                           placement service, so leave one of the two out";
            add(&[Step::Key("keys")], message.to_owned());
        }
        for (tenant, machines) in &self.machines {
            // Any number will do to see whether it is a tenant's name.
            if format!("{tenant}/0").parse::<VmName>().is_err() {
                let message =
                    format!("{tenant:?} is no tenant; write OWNER/NAME, for example \"acme/web\"");
                add(&[Step::Key("machines")], message);
            }
            if *machines < 2 {
                let message = format!("{tenant} has {machines} machines; use at least 2");
                add(&[Step::Key("machines")], message);
            }
        }
        if self.peers.len() > MAX_PEERS {
            let message = format!("{} peers are too many; use {MAX_PEERS}", self.peers.len());
            add(&[Step::Key("peer")], message);
        }
        self.check_peers(&mut add);
        wrong
    }

    fn check_peers(&self, add: &mut impl FnMut(&[Step], String)) {
        let mut hosts = HashMap::from([(HostId::of(&self.host), "this host")]);
        let mut addresses = HashMap::from([(self.listen, "this host")]);
        for (index, peer) in self.peers.iter().enumerate() {
            let key = |key| [Step::Key("peer"), Step::Index(index), Step::Key(key)];
            let PeerConfig {
                host,
                address,
                key_file,
            } = peer;
            if key_file.is_none() && self.key_file.is_none() && self.keys.is_none() {
                let message = format!(
                    "there is no key for {host}; use a file that it and this host share, \
                     hose.key_file for all, or keys = \"service\""
                );
                add(&key("key_file"), message);
            }
            if host.is_empty() {
                let message = "a peer without a name is never heard; use what it calls itself";
                add(&key("host"), message.to_owned());
            }
            if let Some(other) = hosts.insert(HostId::of(host), host) {
                let message = format!("{host} is {other} already; name each host once");
                add(&key("host"), message);
            }
            if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
                let message = format!(
                    "{address} is not a reachable address; use the address at \
                    which {host} listens"
                );
                add(&key("address"), message);
            } else if let Some(other) = addresses.insert(*address, host) {
                let message = format!(
                    "duplicate address {address}, used by {other}; use a \
                    different address for each host"
                );
                add(&key("address"), message);
            }
            if address.is_ipv4() != self.listen.is_ipv4() {
                let message = format!(
                    "{address} cannot be reached from {}; use addresses of one family",
                    self.listen
                );
                add(&key("address"), message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let config: HoseConfig = toml::from_str(text).unwrap();
        config.check(&[]).into_iter().map(|w| w.message).collect()
    }

    const GOOD: &str = "host = 'a'\nlisten = '10.0.0.1:4785'\nkey_file = '/k'\n";

    #[test]
    fn a_section_with_the_defaults_is_read() {
        let config: HoseConfig = toml::from_str(GOOD).unwrap();
        assert_eq!(config.interval, Nanos::from_millis(1));
        assert_eq!(config.jitter, Nanos::from_millis(4));
        assert!(config.check(&[]).is_empty());
    }

    #[test]
    fn each_mistake_of_a_hose_section_is_reported() {
        for (extra, start) in [
            ("interval = '50us'", "an interval of 50us"),
            ("interval = '1s'", "an interval of 1s"),
            ("jitter = '1s'", "a jitter of 1s"),
            ("machines = { web = 3 }", "\"web\" is no tenant"),
            ("machines = { 'acme/web' = 1 }", "acme/web has 1 machines"),
            (
                "[[peer]]\nhost = 'a'\naddress = '10.0.0.2:1'",
                "a is this host already",
            ),
            (
                "[[peer]]\nhost = ''\naddress = '10.0.0.2:1'",
                "a peer without a name",
            ),
            (
                "[[peer]]\nhost = 'b'\naddress = '10.0.0.1:4785'",
                "duplicate address 10.0.0.1:4785, used by this host",
            ),
            (
                "[[peer]]\nhost = 'b'\naddress = '10.0.0.2:0'",
                "10.0.0.2:0 is not a reachable address",
            ),
            (
                "[[peer]]\nhost = 'b'\naddress = '[fd00::1]:1'",
                "[fd00::1]:1 cannot be reached",
            ),
            (
                "[[peer]]\nhost = 'b'\naddress = '10.0.0.2:1'\n\
                 [[peer]]\nhost = 'b'\naddress = '10.0.0.3:1'",
                "b is b already",
            ),
        ] {
            let found = mistakes(&format!("{GOOD}{extra}"));
            assert_eq!(found.len(), 1, "{extra}: {found:?}");
            assert!(found[0].starts_with(start), "{found:?}");
        }
        assert!(toml::from_str::<HoseConfig>(&format!("{GOOD}listen_at = 1")).is_err());
        assert_eq!(mistakes(&GOOD.replace("10.0.0.1", "224.0.0.1")).len(), 1);
        assert_eq!(mistakes(&GOOD.replace("'a'", "''")).len(), 1);
    }

    #[test]
    fn keys_come_from_a_file_or_from_the_service() {
        let peer = "[[peer]]\nhost = 'b'\naddress = '10.0.0.2:1'\n";
        let issued = GOOD.replace("key_file = '/k'", "keys = 'service'") + peer;
        assert!(mistakes(&issued).is_empty());
        let both = format!("{GOOD}keys = 'service'\n{peer}");
        let found = mistakes(&both);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("there is `key_file` as well"),
            "{found:?}"
        );
        assert!(toml::from_str::<HoseConfig>(&both.replace("'service'", "'file'")).is_err());
    }

    #[test]
    fn each_peer_needs_its_own_or_the_common_key() {
        let without = GOOD.replace("key_file = '/k'\n", "");
        assert!(mistakes(&without).is_empty());
        let peers = "[[peer]]\nhost = 'b'\naddress = '10.0.0.2:1'\nkey_file = '/kb'\n\
                     [[peer]]\nhost = 'c'\naddress = '10.0.0.3:1'\n";
        let found = mistakes(&format!("{without}{peers}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("there is no key for c"), "{found:?}");
        assert!(mistakes(&format!("{GOOD}{peers}")).is_empty());
    }
}
