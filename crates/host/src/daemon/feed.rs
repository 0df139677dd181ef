//! The counters that the daemon shows: to scrapers of its metrics, to a collector, to the placement
//! service and at the control socket. Each gets a copy that is made between packets.

use super::scrape::{Scrapes, Viewer};
use super::{HostError, system};
use crate::metrics::{AskWatch, Asker, Collector, Exposition, HostCounts, Scrape, Server, Vcpus};
use crate::socket::{Reply, View};
use crate::wake::Waker;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use tailbound_otlp::Endpoint;
use tailbound_switch::{Ports, Snapshot, Switch};
use tailbound_units::Nanos;

/// The sources of what other threads show.
#[derive(Clone)]
pub(super) struct Sources {
    /// Requests a copy of the counters, from any thread.
    pub(super) asker: Asker,
    pub(super) vcpus: Vcpus,
    /// The state of the connection to the placement service.
    pub(super) watch: Option<AskWatch>,
    pub(super) waker: Waker,
    /// This host's name in the placement service.
    pub(super) host: Option<String>,
}

impl Sources {
    /// Serves metrics at an address.
    fn serve(&self, at: SocketAddr) -> Result<Server, HostError> {
        let (waker, vcpus) = (self.waker.clone(), self.vcpus.clone());
        Ok(Server::start(at, waker, vcpus, self.watch.clone())?)
    }

    /// Starts to send the metrics to a collector.
    fn send(&self, to: Endpoint) -> Result<Collector, HostError> {
        let (asker, vcpus) = (self.asker.clone(), self.vcpus.clone());
        let collector = Collector::start(to, self.name(), asker, vcpus, self.watch.clone());
        collector.map_err(system("start a thread"))
    }

    /// Returns this host's name in metrics: its name in the placement service, else the system's.
    fn name(&self) -> String {
        self.host.clone().unwrap_or_else(|| {
            let system = rustix::system::uname();
            system.nodename().to_string_lossy().into_owned()
        })
    }
}

/// The daemon's counters, and the threads that show them.
pub(super) struct Feed {
    sources: Sources,
    server: Option<Server>,
    collector: Option<Collector>,
    scrapes: Scrapes,
}

impl Feed {
    /// Serves metrics at `metrics` and sends them to `otlp`, where these are configured. `reports`
    /// has the requests of [`Sources::asker`].
    ///
    /// # Errors
    /// The address cannot be served, or the system refuses a thread.
    pub(super) fn start(
        sources: Sources,
        reports: Receiver<Scrape>,
        metrics: Option<SocketAddr>,
        otlp: Option<Endpoint>,
    ) -> Result<Self, HostError> {
        Ok(Self {
            server: metrics.map(|at| sources.serve(at)).transpose()?,
            collector: otlp.map(|to| sources.send(to)).transpose()?,
            scrapes: Scrapes::new(reports),
            sources,
        })
    }

    /// Returns the source of the connection's state, if there is a placement service.
    pub(super) fn watch(&self) -> Option<&AskWatch> {
        self.sources.watch.as_ref()
    }

    /// Returns the address of the metrics.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Returns the part that a reload compares its configuration with.
    pub(super) fn in_force(&self) -> FeedInForce {
        let collector = self.collector.as_ref();
        FeedInForce {
            sources: self.sources.clone(),
            metrics: self.address(),
            otlp: collector.map(|collector| collector.endpoint().clone()),
        }
    }

    /// Notes that there may be new scrapes.
    pub(super) fn handle_woken(&mut self) {
        self.scrapes.handle_woken();
    }

    /// Adds a request of the control socket.
    pub(super) fn show(&mut self, reply: Reply) {
        self.scrapes.show(reply);
    }

    /// Returns true if there is more to copy.
    pub(super) fn is_busy(&self) -> bool {
        self.scrapes.is_busy()
    }

    /// Copies some counters if a receiver waits. Returns the copy and its receivers once it is
    /// complete.
    pub(super) fn poll(
        &mut self,
        switch: &mut Switch,
        ports: &mut Ports,
    ) -> Option<(Snapshot, Vec<Viewer>)> {
        self.scrapes.poll(self.server.as_ref(), switch, ports)
    }

    /// Puts another feed in force. Returns the parts that are no longer used: their end takes time.
    pub(super) fn replace(&mut self, next: NextFeed) -> impl Send + 'static + use<> {
        (
            next.server.put(&mut self.server),
            next.collector.put(&mut self.collector),
            self.scrapes.handle_reload(),
        )
    }
}

/// Answers the receivers of a copy of the counters; `uptime` is the time since the start, and `watch`
/// returns the state of the connection to the placement service.
pub(super) fn answer(
    viewers: Vec<Viewer>,
    counts: &HostCounts,
    uptime: Nanos,
    watch: Option<&AskWatch>,
) {
    for viewer in viewers {
        let counts = counts.clone();
        match viewer {
            Viewer::Scrape(scrape) => scrape.answer(Exposition {
                host: Some(counts),
                ..Exposition::default()
            }),
            Viewer::Reply(reply) => reply.show(View {
                uptime,
                counts,
                watch: watch.map(|watch| watch()),
            }),
        }
    }
}

/// The feed in force, as another thread sees it.
pub(super) struct FeedInForce {
    sources: Sources,
    metrics: Option<SocketAddr>,
    otlp: Option<Endpoint>,
}

impl FeedInForce {
    /// Starts the parts that differ from those in force.
    ///
    /// # Errors
    /// The address cannot be served, or the system refuses a thread.
    pub(super) fn prepare(
        &self,
        metrics: Option<SocketAddr>,
        otlp: Option<Endpoint>,
    ) -> Result<NextFeed, HostError> {
        let server = if metrics == self.metrics {
            Becomes::AsItWas
        } else {
            Becomes::This(metrics.map(|at| self.sources.serve(at)).transpose()?)
        };
        let collector = if otlp == self.otlp {
            Becomes::AsItWas
        } else {
            Becomes::This(otlp.map(|to| self.sources.send(to)).transpose()?)
        };
        Ok(NextFeed { server, collector })
    }
}

/// A feed that is not in force yet.
pub(super) struct NextFeed {
    server: Becomes<Server>,
    collector: Becomes<Collector>,
}

/// Change of an optional part.
enum Becomes<T> {
    AsItWas,
    This(Option<T>),
}

impl<T> Becomes<T> {
    /// Replaces `old`, and returns the part that is no longer used.
    fn put(self, old: &mut Option<T>) -> Option<T> {
        match self {
            Self::AsItWas => None,
            Self::This(new) => std::mem::replace(old, new),
        }
    }
}
