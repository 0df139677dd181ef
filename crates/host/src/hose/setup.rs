//! Prerequisites of an exchange of rates: keys, a socket, and the client that requests keys.
//! Preparing them takes files and time, and any thread may do it.

use super::channel::addresses;
use super::{Exchange, Hose, HoseConfig, Issuer, PeerConfig};
use crate::control::{ControlConfig, ControlError, KeyClient, KeyInbox, Keys};
use crate::wake::Waker;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tailbound_dataplane::Classes;
use tailbound_hose::{
    self as hose, ClassesCode, Epoch, HoseState, HostId, KeyEpoch, PairKeys, SHORTEST_SECRET,
    Secret, TimeOfDay,
};
use tailbound_sys::secret::{self, SecretError};
use tailbound_units::Nanos;

/// Reason why rates cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum HoseError {
    /// The key cannot be used.
    #[error("hose: the key {path}: {source}", path = path.display())]
    Key {
        /// The key's file.
        path: PathBuf,
        /// The mistake in the key.
        source: SecretError,
    },
    /// The address cannot be listened at.
    #[error("hose: cannot listen at {address}: {source}; is another tailbound host running?")]
    Listen {
        /// The address of `listen`.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration expects keys from a placement service, and the daemon follows none.
    #[error(
        "hose: keys = \"service\" needs a placement service to follow; start with --control URL, or \
         name a key_file"
    )]
    NoService,
    /// The service knows this host by another name.
    #[error(
        "hose: this host is {here:?} to its peers and {there:?} to the placement service, which \
         issues keys by its own names; use one name for host and --control-host"
    )]
    Name {
        /// The name in the configuration.
        here: String,
        /// The name in the service.
        there: String,
    },
    /// Keys cannot be requested.
    #[error("hose: {0}")]
    Control(#[from] ControlError),
}

/// The placement service that the daemon follows, if any, and the waker for its answers.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) service: Option<ControlConfig>,
    /// The way of the changes of keys.
    pub(crate) keys: KeyInbox,
    pub(crate) waker: Waker,
}

impl Placement {
    /// A daemon that follows no service.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self {
            service: None,
            keys: KeyInbox::default(),
            waker: Waker::without_thread(),
        }
    }

    /// Starts to request keys, if `config` expects them from the service.
    fn ask(self, config: &HoseConfig) -> Result<Option<KeyClient>, HoseError> {
        let Some(Issuer::Service) = config.keys else {
            return Ok(None);
        };
        let service = self.service.ok_or(HoseError::NoService)?;
        if service.host != config.host {
            return Err(HoseError::Name {
                here: config.host.clone(),
                there: service.host,
            });
        }
        let peers = config.peers.iter();
        let peers = peers.filter(|peer| peer.key_file.is_none());
        let peers = peers.map(|peer| peer.host.clone()).collect();
        Ok(Some(KeyClient::start(
            &service, peers, self.keys, self.waker,
        )?))
    }
}

/// A prepared exchange of rates, for a start or a change.
#[derive(Debug)]
pub(crate) struct HoseSetup {
    pub(super) exchange: Exchange,
    pub(super) asks: Option<KeyClient>,
    /// The new socket; `None` if the running exchange has the right one already.
    pub(super) socket: Option<UdpSocket>,
}

impl HoseSetup {
    /// Reads the keys, or starts to request them, and listens, unless a running exchange is
    /// `listening` at the address already. `classes` are those in which this host marks frames.
    ///
    /// # Errors
    /// A key, the service or the address cannot be used.
    pub(crate) fn open(
        config: HoseConfig,
        classes: Option<Classes>,
        listening: Option<SocketAddr>,
        placement: Placement,
    ) -> Result<Self, HoseError> {
        let is_new = listening != Some(config.listen);
        Ok(Self {
            socket: is_new.then(|| listen(config.listen)).transpose()?,
            asks: placement.ask(&config)?,
            exchange: Exchange {
                keys: read_keys(&config)?,
                classes,
                config,
            },
        })
    }

    /// Starts the exchange if none is running; `None` if the socket is that of a former one.
    pub(crate) fn start(self, now: Nanos) -> Option<Hose> {
        Some(Hose::new(self.exchange, self.asks, self.socket?, now))
    }
}

fn listen(address: SocketAddr) -> Result<UdpSocket, HoseError> {
    let bound = UdpSocket::bind(address).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.map_err(|source| HoseError::Listen { address, source })
}

/// Reads the key of this host and each peer: the secret that these two share, or the common secret.
/// A peer without either has no key.
fn read_keys(config: &HoseConfig) -> Result<Keys, HoseError> {
    let read = |path: &Path| {
        let failed = |source| HoseError::Key {
            path: path.to_owned(),
            source,
        };
        let bytes = secret::read(path, SHORTEST_SECRET).map_err(failed)?;
        let (len, shortest) = (bytes.len(), SHORTEST_SECRET);
        Secret::new(&bytes).ok_or_else(|| failed(SecretError::Short { len, shortest }))
    };
    let shared = config.key_file.as_deref().map(read).transpose()?;
    let mut keys = Keys::new();
    for PeerConfig { host, key_file, .. } in &config.peers {
        let own = key_file.as_deref().map(read).transpose()?;
        if let Some(secret) = own.as_ref().or(shared.as_ref()) {
            let key = secret.pair_key(KeyEpoch::OWN, &config.host, host);
            keys.insert(HostId::of(host), Arc::new(PairKeys::own(key)));
        }
    }
    Ok(keys)
}

/// Makes the state of a host without peers' messages and without keys, whose pacer schedules each frame when
/// it leaves.
pub(super) fn state(exchange: &Exchange, now: Nanos) -> HoseState {
    state_with(exchange, now, Nanos::ZERO)
}

/// Makes the state of a host whose frames leave at a former rate for a `commitment`.
pub(super) fn state_with(exchange: &Exchange, now: Nanos, commitment: Nanos) -> HoseState {
    let Exchange {
        config, classes, ..
    } = exchange;
    let code = classes.map_or(ClassesCode::NONE, |classes| ClassesCode(classes.code()));
    let hose = hose::HoseConfig {
        host: HostId::of(&config.host),
        classes: code,
        epoch: Epoch::starting(today()),
        interval: config.interval,
        commitment,
        peers: addresses(config).into_keys().collect(),
    };
    HoseState::new(now, hose)
}

pub(super) fn today() -> TimeOfDay {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    TimeOfDay(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use tailbound_api::client::Settings;

    #[test]
    fn keys_that_are_issued_need_a_service_that_knows_this_host_by_its_name() {
        let text = "host = 'a'\nlisten = '127.0.0.1:0'\nkeys = 'service'\n";
        let open = |placement| {
            let config: HoseConfig = toml::from_str(text).unwrap();
            let refused = HoseSetup::open(config, None, None, placement);
            refused.unwrap_err().to_string()
        };
        let error = open(Placement::none());
        assert!(error.contains("start with --control URL"), "{error}");
        let service = ControlConfig {
            service: Settings::new("http://127.0.0.1:1"),
            host: "b".to_owned(),
            state: "/nowhere".into(),
        };
        let error = open(Placement {
            service: Some(service),
            ..Placement::none()
        });
        assert!(error.contains("\"a\" to its peers and \"b\" to"), "{error}");
    }

    #[test]
    fn a_peers_own_secret_overrides_the_common_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, secret: &str| {
            let path = directory.path().join(name);
            write(&path, secret).unwrap();
            set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
            path
        };
        let all = "0123456789abcdef0123456789abcdef";
        let own = "fedcba9876543210fedcba9876543210";
        let (all_file, own_file) = (file("all", all), file("own", own));
        let text = format!(
            "host = 'a'\nlisten = '127.0.0.1:0'\nkey_file = {all_file:?}\n\
             [[peer]]\nhost = 'b'\naddress = '127.0.0.2:9'\nkey_file = {own_file:?}\n\
             [[peer]]\nhost = 'c'\naddress = '127.0.0.3:9'\n"
        );
        let keys = read_keys(&toml::from_str(&text).unwrap()).unwrap();
        let key = |secret: &str, peer| {
            let secret = Secret::new(secret.as_bytes()).unwrap();
            PairKeys::own(secret.pair_key(KeyEpoch::OWN, "a", peer))
        };
        assert_eq!(*keys[&HostId::of("b")], key(own, "b"));
        assert_eq!(*keys[&HostId::of("c")], key(all, "c"));
        let missing = text.replace("own", "gone");
        let refused = read_keys(&toml::from_str(&missing).unwrap());
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("gone: cannot be read"), "{message}");
    }
}
