//! The placement service that the daemon follows, if any: guarantees come from it, and reports go to
//! it.

use super::measured::ask_measured;
use super::vcpu::ask_cpu;
use crate::control::{
    ControlConfig, ControlError, IndexedGuarantees, KeyInbox, ReportClient, WatchClient,
};
use crate::hose::Placement;
use crate::metrics::{AskWatch, Asker, Vcpus};
use crate::wake::Signals;
use std::sync::Arc;

/// The placement service of the daemon.
#[derive(Default)]
pub(super) struct Service {
    config: Option<ControlConfig>,
    watch: Option<WatchClient>,
    keys: KeyInbox,
    /// Reports this host's capacity and guarantees.
    reporter: Option<ReportClient>,
}

impl Service {
    /// Starts to follow the placement service, if one is configured, and to report to it.
    ///
    /// # Errors
    /// The service's settings cannot be used, or the system refuses a thread.
    pub(super) fn follow(
        config: Option<&ControlConfig>,
        signals: &Signals,
        vcpus: &Vcpus,
        asker: &Asker,
    ) -> Result<Self, ControlError> {
        let Some(config) = config else {
            return Ok(Self::default());
        };
        let keys = KeyInbox::default();
        let watch = WatchClient::start(config, keys.clone(), signals.waker())?;
        let measured = ask_measured(asker.clone(), vcpus.clone());
        let reporter = ReportClient::start(config, ask_cpu(vcpus.clone()), measured)?;
        Ok(Self {
            config: Some(config.clone()),
            watch: Some(watch),
            keys,
            reporter: Some(reporter),
        })
    }

    /// Returns this host's name in the service.
    pub(super) fn host(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.host.as_str())
    }

    /// Returns the source of keys for the exchange of rates.
    pub(super) fn placement(&self, signals: &Signals) -> Placement {
        Placement {
            service: self.config.clone(),
            keys: self.keys.clone(),
            waker: signals.waker(),
        }
    }

    /// Returns a function that returns the state of the watch.
    pub(super) fn status(&self) -> Option<AskWatch> {
        let watch = self.watch.as_ref()?;
        Some(Arc::new(watch.status()) as AskWatch)
    }

    /// Returns new guarantees, if the service has sent some.
    pub(super) fn take_guarantees(&self) -> Option<Arc<IndexedGuarantees>> {
        self.watch.as_ref()?.take()
    }

    /// Returns the client for reports.
    pub(super) const fn reporter(&self) -> Option<&ReportClient> {
        self.reporter.as_ref()
    }
}
