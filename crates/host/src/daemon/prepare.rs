//! The preparation of another configuration: a thread reads and checks it, and opens its files,
//! sockets and ports, while the packet loop goes on with the one in force.

use super::HostError;
use super::agent::{AgentStarter, NextAgent};
use super::changes::Changes;
use super::clock::Clock;
use super::core::Core;
use super::feed::{FeedInForce, NextFeed};
use super::plan::{PortPlan, plan};
use super::ports::NextPorts;
use super::thread::ThreadConfig;
use crate::config::{Change, Files};
use crate::guarantees::Guarantees;
use crate::hose::{HoseSetup, Placement};
use crate::inventory::Inventory;
use crate::wake::Waker;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tailbound_switch::SwitchPlan;

/// The requested configuration.
pub(super) enum ReloadRequest {
    /// The present content of the files.
    Files,
    /// The configuration in force, with other guests.
    Change(Change),
}

/// The result of a preparation; `None` if the configuration is in force already.
pub(super) type PrepareResult = Result<Option<PreparedConfig>, HostError>;

/// A configuration that is prepared, except for the switch's own part.
pub(super) struct PreparedConfig {
    pub(super) switch: SwitchPlan,
    pub(super) next: Box<NextParts>,
}

/// The parts of a configuration that take files, sockets and time.
pub(super) struct NextParts {
    pub(super) files: Files,
    /// True if the added guests differ from those in force.
    pub(super) is_change: bool,
    pub(super) changes: Changes,
    pub(super) inventory: Inventory,
    pub(super) thread: ThreadConfig,
    pub(super) guarantees: Guarantees,
    /// True if the configuration of all guests is the same as the one in force: only the service's
    /// guarantees may change meanwhile.
    pub(super) says_the_same: bool,
    pub(super) ports: NextPorts,
    pub(super) hose: Option<HoseSetup>,
    pub(super) feed: NextFeed,
    pub(super) agent: NextAgent,
}

/// The state in force, with which a configuration is compared.
pub(super) struct InForce {
    pub(super) files: Files,
    pub(super) core: Core,
    pub(super) clock: Clock,
    pub(super) plans: Arc<Vec<PortPlan>>,
    pub(super) guarantees: Arc<Guarantees>,
    pub(super) feed: FeedInForce,
    /// The address of the exchange of rates, if there is one.
    pub(super) hose: Option<SocketAddr>,
    pub(super) placement: Placement,
    pub(super) agent: AgentStarter,
    pub(super) waker: Waker,
}

impl InForce {
    /// Starts a thread that prepares a configuration, and wakes the packet loop at its end.
    ///
    /// # Errors
    /// The system refuses to start the thread.
    pub(super) fn start(self, wanted: ReloadRequest) -> io::Result<Receiver<PrepareResult>> {
        let (done, prepared) = channel();
        let work = move || {
            // It begins where the packet loop runs, and threads begin where it does.
            self.core.take(None);
            let waker = self.waker.clone();
            // Nobody waits for it once the daemon ends.
            let _ = done.send(self.prepare(&wanted));
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("reload".to_owned());
        thread.spawn(work)?;
        Ok(prepared)
    }

    fn prepare(self, wanted: &ReloadRequest) -> PrepareResult {
        let (files, config) = match wanted {
            ReloadRequest::Files => {
                let files = Files::read(self.files.path())?;
                let config = files.parse()?;
                (files, config)
            }
            ReloadRequest::Change(change) => match self.files.changed(change)? {
                Some(changed) => changed,
                None => return Ok(None),
            },
        };
        let changes = Changes::between(&self.files.parse().unwrap_or_default(), &config);
        let guarantees = self.guarantees.reconfigured(&config)?;
        let (plans, switch) = plan(&config, &guarantees);
        let guests = self.plans.iter().filter(|plan| plan.is_guest());
        let switch = SwitchPlan::new(switch, guests.map(|plan| plan.name.as_str()));
        let ports = NextPorts::open(plans, &self.plans, &self.clock)?;
        let feed = self.feed.prepare(config.metrics, config.otlp.clone())?;
        let hose = config.hose.clone();
        let placement = self.placement.clone();
        let hose = hose.map(|hose| HoseSetup::open(hose, config.classes, self.hose, placement));
        let hose = hose.transpose()?;
        let next = Box::new(NextParts {
            inventory: Inventory::new(&files, &config),
            is_change: matches!(wanted, ReloadRequest::Change(_)),
            changes,
            files,
            thread: ThreadConfig::from(&config),
            says_the_same: guarantees.is_same(&self.guarantees),
            guarantees,
            ports,
            hose,
            feed,
            agent: self.agent.prepare(config.vcpu)?,
        });
        Ok(Some(PreparedConfig { switch, next }))
    }
}
