//! `tailbound place serve`.

use super::request::read_topology;
use super::store::StoreUrl;
use crate::command::address::address;
use crate::command::output;
use crate::exit::{Exit, Failure};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tailbound_control::ledger::Ledger;
use tailbound_control::replica::{self, Replica, StartError};
use tailbound_control::server::{
    Authentication, Config, HoseSecret, Metrics, Server, Signals, TlsFiles,
};
use tailbound_control::service::Service;
use tailbound_control::store::etcd::Location;
use tailbound_control::store::{Sqlite, Store as _, StoreError};
use tailbound_otlp::{Endpoint, Settings};
use tailbound_placement::{Policy, Spec};

/// Arguments of `tailbound place serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SIGHUP reloads the files of tokens, certificate and secret. SIGTERM ends the \
    service after the requests in progress. --tokens (see `tailbound place token`) or \
    --insecure-loopback selects the authentication. Exit code: 0 after SIGTERM; 2 not started, \
    or failed."
)]
pub(super) struct Serve {
    /// The address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070", value_parser = address)]
    listen: SocketAddr,
    /// The store: sqlite:FILE, or etcd://HOST:PORT[,...]/PREFIX for several replicas
    #[arg(
        long,
        value_name = "STORE",
        default_value = "sqlite:tailbound-place.db"
    )]
    store: StoreUrl,
    /// The topology of a new store (JSON if the name ends in .json, otherwise TOML); `tailbound
    /// place topology apply` changes it later
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The admission rules of a new store: silo, oktopus, oktopus-bursts or locality [default:
    /// silo]
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,
    /// The token file, which lists the users and their roles
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_loopback")]
    tokens: Option<PathBuf>,
    /// Accept all requests without tokens; only on a loopback address
    #[arg(long)]
    insecure_loopback: bool,
    /// The certificate for TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The file with the secret from which the service derives the keys of hosts' rate exchange;
    /// equal at all replicas. Without it, the service issues no keys
    #[arg(long, value_name = "FILE")]
    hose_secret: Option<PathBuf>,
    /// The lifetime of hosts' keys
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "hose_secret",
        default_value_t = 86_400,
        value_parser = clap::value_parser!(u64).range(2..=31_536_000)
    )]
    hose_period: u64,
    /// The address at which other replicas reach this one, with etcd [default: the listen address]
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// The lease of the leader, with etcd: after the leader's crash, no replica decides for this
    /// time
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    lease: u64,
    /// The authority of the other replicas' certificates, with etcd (PEM)
    #[arg(long, value_name = "FILE")]
    leader_ca: Option<PathBuf>,
    /// The maximum number of hosts that follow their guarantees; each takes one file descriptor
    #[arg(long, value_name = "N", default_value_t = 4096)]
    streams: usize,
    /// Send traces of requests and metrics to this collector, by OTLP in protobuf over HTTP
    #[arg(long, value_name = "http://HOST:4318")]
    otlp: Option<Endpoint>,
    /// Open the map in a browser
    #[arg(long)]
    open: bool,
}

/// Number of file descriptors reserved for the store, the log and reloaded files.
const OTHER_DESCRIPTORS: u64 = 64;

/// Returns the number of connections within the limit of file descriptors.
fn connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.current.unwrap_or(u64::MAX);
    let most = usize::try_from(most.saturating_sub(OTHER_DESCRIPTORS));
    most.unwrap_or(usize::MAX).max(8)
}

pub(super) fn policy(text: &str) -> Result<Policy, serde::de::value::Error> {
    Policy::deserialize(text.into_deserializer())
}

impl Serve {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(failure)?;
        runtime.block_on(self.serve())?;
        // Threads that still compute an answer have no client any more.
        runtime.shutdown_background();
        Ok(Exit::Holds)
    }

    async fn serve(self) -> Result<(), Failure> {
        let config = self.config()?;
        config.check_files().map_err(failure)?;
        // Before all other side effects.
        let listener = TcpListener::bind(self.listen)
            .map_err(|error| Failure::new(format!("cannot listen on {}: {error}", self.listen)))?;
        let address = listener.local_addr().map_err(failure)?;
        config.check(address).map_err(failure)?;
        let url = url(&config, address);
        let config = self.told(config, &url);

        let metrics = Metrics::new();
        let (failed, failure_of_store) = tokio::sync::oneshot::channel();
        let (service, replica) = match &self.store {
            StoreUrl::Sqlite(path) => {
                let service = self.alone(path, &metrics, failed).await?;
                (service, None)
            }
            StoreUrl::Etcd(location) => {
                let (service, replica) = self.among(location.clone(), &url, &metrics).await?;
                (service, Some(replica))
            }
        };
        let status = service.read(|ledger| ledger.status(service.role(), None));
        tracing::info!(
            tenants = status.tenants,
            hosts = status.hosts,
            used = status.used,
            slots = status.slots,
            revision = status.revision,
            "the ledger is read"
        );
        let server =
            Server::new(config, service.clone(), replica.clone(), metrics).map_err(failure)?;
        let signals = Signals::catch().map_err(failure)?;
        output::print(&format!("serving on {url}/\n"));
        if let Err(error) = tailbound_sys::notify::notify("READY=1") {
            tracing::warn!(%error, "cannot notify systemd of readiness");
        }
        if self.open {
            open(&url);
        }
        let store_failed = async {
            match failure_of_store.await {
                Ok(error) => error,
                // With etcd the replica handles it.
                Err(_) => std::future::pending().await,
            }
        };
        let replica_ended = async {
            match &replica {
                Some(replica) => replica.ended().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = server.run_until_signalled(listener, signals) => ended.map_err(failure),
            error = store_failed => Err(failure(error)),
            () = replica_ended => Err(Failure::new(
                "this replica has failed; the log has the reason",
            )),
        };
        if let Some(replica) = replica {
            replica.resign().await;
        } else {
            // Closes the store.
            service.follow().await.map_err(failure)?;
        }
        ended
    }

    fn config(&self) -> Result<Config, Failure> {
        let authentication = match (&self.tokens, self.insecure_loopback) {
            (Some(file), _) => Authentication::Tokens(file.clone()),
            (None, true) => Authentication::InsecureLoopback,
            (None, false) => {
                return Err(Failure::wrong_arguments(
                    "authentication is missing: pass --tokens FILE (`tailbound place token` \
                        creates its entries), or --insecure-loopback to accept all local \
                        requests",
                ));
            }
        };
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        Ok(Config {
            authentication,
            tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
            streams: self.streams,
            connections: connections(),
            hose: self.hose_secret.clone().map(|file| HoseSecret {
                file,
                period: Duration::from_secs(self.hose_period),
            }),
            collector: None,
        })
    }

    /// Returns the configuration with the trace collector for a service at `url`.
    fn told(&self, config: Config, url: &str) -> Config {
        let instance = self.advertise.as_deref().unwrap_or(url);
        let collector = self.otlp.clone().map(|endpoint| Settings {
            endpoint,
            service: "tailbound-place",
            instance: instance.to_owned(),
        });
        Config {
            collector,
            ..config
        }
    }

    /// Starts the service over a file of its own.
    async fn alone(
        &self,
        path: &Path,
        metrics: &Metrics,
        failed: tokio::sync::oneshot::Sender<StoreError>,
    ) -> Result<Service, Failure> {
        // Before the store is opened, which creates the file.
        let initial = self.initial()?;
        if initial.is_none() && !path.exists() {
            return Err(no_topology());
        }
        let mut store = Sqlite::open(path).map_err(failure)?;
        let ledger = self.ledger(initial, &mut store)?;
        let service = Service::start(ledger, metrics.observer());
        // No other process can write to the file; a failure needs an operator, and a supervisor may
        // restart the service. With a damaged file it would not start, and its memory may be the last
        // whole copy.
        let on_end = move |error: StoreError| match error {
            StoreError::Corrupt(_) => tracing::error!(
                %error,
                "the service changes nothing any more, and answers queries: take a backup of it now \
                    (`tailbound place backup`), and restore it into a new file"
            ),
            error => {
                let _ = failed.send(error);
            }
        };
        service
            .lead(Box::new(store), Box::new(on_end))
            .await
            .map_err(failure)?;
        Ok(service)
    }

    /// Returns the ledger of a store, or the initial one of a new store.
    fn ledger(
        &self,
        initial: Option<(Spec, Policy)>,
        store: &mut Sqlite,
    ) -> Result<Ledger, Failure> {
        let snapshot = store.load().map_err(failure)?;
        if snapshot.topology.is_some() {
            let ledger = Ledger::load(snapshot)
                .map_err(|error| Failure::new(format!("the store cannot be used: {error}")))?;
            self.compare(initial, &ledger)?;
            return Ok(ledger);
        }
        let (spec, policy) = initial.ok_or_else(no_topology)?;
        let (mut ledger, changes) = Ledger::new(spec, policy).map_err(failure)?;
        ledger.set_revision(store.commit(&changes).map_err(failure)?);
        Ok(ledger)
    }

    /// Starts the service as one of several replicas.
    async fn among(
        &self,
        location: Location,
        url: &str,
        metrics: &Metrics,
    ) -> Result<(Service, Replica), Failure> {
        let initial = self.initial()?;
        let options = replica::Options {
            location,
            advertise: self.advertise.clone().unwrap_or_else(|| url.to_owned()),
            lease: Duration::from_secs(self.lease),
            leader_ca: self.leader_ca.clone(),
            initial: initial.clone(),
        };
        let observer = metrics.observer();
        let started = Replica::start(options, |ledger| Service::start(ledger, observer)).await;
        let (service, replica) = started.map_err(|error| match error {
            StartError::NoTopology => no_topology(),
            error => failure(error),
        })?;
        service.read(|ledger| self.compare(initial, ledger))?;
        Ok((service, replica))
    }

    /// Returns the topology and the policy of a new store.
    fn initial(&self) -> Result<Option<(Spec, Policy)>, Failure> {
        let Some(path) = &self.topology else {
            return Ok(None);
        };
        let spec = read_topology(path)?;
        Ok(Some((spec, self.policy.unwrap_or_default())))
    }

    /// Checks that the flags agree with the store.
    fn compare(&self, initial: Option<(Spec, Policy)>, ledger: &Ledger) -> Result<(), Failure> {
        let stored_topology = ledger.topology();
        if let Some(new_policy) = self
            .policy
            .filter(|policy| *policy != stored_topology.policy)
        {
            return Err(Failure::new(format!(
                "the store admits by the rules of {}, not {}; leave --policy out, or begin a new \
                 store",
                stored_topology.policy.name(),
                new_policy.name(),
            )));
        }
        match initial {
            Some((spec, _)) if spec != stored_topology.spec => Err(Failure::new(format!(
                "the store has another topology, at revision {}; leave --topology out, and use \
                 `tailbound place topology diff` and `apply` to change it",
                stored_topology.revision
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns the URL of a service with this configuration, at an address.
fn url(config: &Config, address: SocketAddr) -> String {
    match &config.tls {
        Some(_) => format!("https://{address}"),
        None => format!("http://{address}"),
    }
}

fn no_topology() -> Failure {
    Failure::new("the store is new: pass its topology by --topology FILE")
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(error)
}

/// Opens the page in a browser, if there is one.
fn open(url: &str) {
    let started = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // It passes the address to the browser and exits.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => tracing::warn!(%error, "no browser can be opened; the address is above"),
    }
}
