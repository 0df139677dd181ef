//! Another configuration comes into force.

use super::core::Core;
use super::ending::listener;
use super::inherit::Inherited;
use super::notify::{self, notify};
use super::plan::{PortPlan, plan};
use super::poller::{HOSE, Poller};
use super::vcpu::VcpuThread;
use super::{Daemon, HostError, ask, system};
use crate::config::Config;
use crate::hose::Hose;
use crate::metrics::Server;
use crate::wake::Waker;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tailbound_document::DocumentError;
use tailbound_switch::port::Port;
use tailbound_units::Nanos;

/// The ports of a configuration that is not in force yet.
struct NextPorts {
    plans: Vec<PortPlan>,
    /// Where each is among those in force; `None` for a new one,
    kept: Vec<Option<usize>>,
    /// which is here.
    fresh: Vec<Option<Box<dyn Port>>>,
}

/// A configuration that is read and checked beside the packet loop: with hundreds of
/// guests that takes milliseconds.
pub(super) struct Reading(Receiver<Result<Config, DocumentError>>);

impl Reading {
    fn start(path: PathBuf, core: Core, waker: Waker) -> io::Result<Self> {
        let (done, read) = channel();
        let work = move || {
            // It begins where the packet loop runs.
            core.take(None);
            // Nobody waits for it once the daemon ends.
            let _ = done.send(Config::load(&path));
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("reload".to_owned());
        thread.spawn(work)?;
        Ok(Self(read))
    }

    /// What was read, once it is.
    fn take(&self) -> Option<Result<Config, DocumentError>> {
        self.0.try_recv().ok()
    }
}

impl Daemon {
    /// Has the configuration read, checked and handed to [`Self::finish_reload`]. While one
    /// is read, another reload waits.
    pub(super) fn reload(&mut self) {
        notify(&notify::reloading());
        match Reading::start(self.path.clone(), self.core, self.signals.waker()) {
            Ok(reading) => self.reading = Some(reading),
            Err(error) => self.reloaded(Err(system("start a thread")(error))),
        }
    }

    /// Applies the configuration that was read, once it is.
    pub(super) fn finish_reload(&mut self) {
        let read = self.reading.as_ref().and_then(Reading::take);
        if let Some(read) = read {
            self.reading = None;
            let result = read.map_err(HostError::from);
            let result = result.and_then(|config| self.apply_where_threads_may_start(&config));
            self.reloaded(result);
        }
    }

    fn reloaded(&mut self, result: Result<(), HostError>) {
        match result {
            Ok(()) => {
                self.reloads_applied += 1;
                tracing::info!(ports = self.plans.len(), "configuration reloaded");
            }
            Err(error) => {
                self.reloads_refused += 1;
                tracing::error!(%error, "reload refused; the configuration in force stays");
            }
        }
        notify("READY=1");
    }

    /// Threads start where the thread that starts them may run.
    fn apply_where_threads_may_start(&mut self, config: &Config) -> Result<(), HostError> {
        self.core.take(None);
        let result = self.apply(config);
        if result.is_ok() {
            self.cpu = config.cpu;
        }
        self.core.take(self.cpu);
        result
    }

    /// Whatever may fail comes first, and changes nothing; then all is applied.
    fn apply(&mut self, config: &Config) -> Result<(), HostError> {
        let guarantees = self.guarantees.reconfigured(config);
        let (plans, switch) = plan(config, &guarantees);
        self.switch.check(&switch)?;
        let ports = self.open(plans)?;
        let metrics = match config.metrics {
            at if at == self.metrics_address() => None,
            at => {
                let watch = || ask(self.watch.as_ref());
                let start = |at| Server::start(at, &self.signals, self.vcpus.clone(), watch());
                Some(at.map(start).transpose()?)
            }
        };
        let vcpu_thread = match &config.vcpu {
            Some(vcpu) if self.vcpu_thread.is_none() => Some(VcpuThread::start(vcpu.clone())?),
            _ => None,
        };
        // Last of what may fail, as it changes one that runs.
        let now = self.clock.now();
        self.renew_hose(now, config, &ports)?;
        self.renew_vcpus(config, vcpu_thread);
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
        self.take(ports);
        self.guarantees = Arc::new(guarantees);
        self.scrapes.handle_reload();
        self.switch.reconfigure(now, switch)?;
        self.tell_hose(now);
        self.keep_descriptors();
        Ok(())
    }

    /// Opens the ports that are not there yet.
    fn open(&self, plans: Vec<PortPlan>) -> Result<NextPorts, HostError> {
        let mut kept = Vec::with_capacity(plans.len());
        let mut fresh = Vec::with_capacity(plans.len());
        let old = self.plans.iter().enumerate();
        let old: HashMap<_, _> = old.map(|(index, plan)| (&plan.port, index)).collect();
        for plan in &plans {
            let old = old.get(&plan.port).copied();
            kept.push(old);
            fresh.push(if old.is_some() {
                None
            } else {
                Some(plan.open(&self.clock, &mut Inherited::default())?)
            });
        }
        Ok(NextPorts { plans, kept, fresh })
    }

    /// Starts, changes or ends the exchange of rates, and waits for it and for the
    /// ports from now on.
    fn renew_hose(
        &mut self,
        now: Nanos,
        config: &Config,
        ports: &NextPorts,
    ) -> Result<(), HostError> {
        let views: Vec<_> = ports
            .kept
            .iter()
            .zip(&ports.fresh)
            .map(|(kept, fresh)| kept.map_or(fresh, |old| &self.ports[old]))
            .collect();
        let started = match (&mut self.hose, &config.hose) {
            (Some(running), Some(config)) => {
                running.reconfigure(now, config)?;
                None
            }
            (_, config) => config
                .as_ref()
                .map(|config| Hose::open(config, now))
                .transpose()?,
        };
        let hose = started.as_ref().or(match config.hose {
            Some(_) => self.hose.as_ref(),
            None => None,
        });
        let others = [
            hose.map(|hose| (HOSE, hose.descriptor())),
            listener(self.instance.as_ref()),
        ];
        self.poller = Poller::new(&self.signals, others.into_iter().flatten(), views)
            .map_err(system("wait for the ports"))?;
        self.hose_ready = true;
        if let (Some(over), None) = (&mut self.hose, &config.hose) {
            for station in over.stations() {
                self.switch.set_limited_by_station(station, false);
            }
            if let Some(pacer) = self.switch.pacer() {
                // Takes its limits away.
                over.set_guests(now, Vec::new());
                over.poll(now, pacer);
            }
            over.hold_senders(now, &mut self.switch);
        }
        if started.is_some() || config.hose.is_none() {
            self.hose = started;
        }
        Ok(())
    }

    /// Starts, changes or ends the agent; `started` is a thread for one that does not
    /// run yet.
    fn renew_vcpus(&mut self, config: &Config, started: Option<VcpuThread>) {
        match (&config.vcpu, started) {
            (_, Some(started)) => self.vcpu_thread = Some(started),
            (Some(vcpu), None) => {
                if let Some(running) = &self.vcpu_thread {
                    running.configure(vcpu.clone());
                }
            }
            (None, None) => {
                if let Some(running) = self.vcpu_thread.take() {
                    running.retire();
                }
            }
        }
        self.vcpus
            .set(self.vcpu_thread.as_ref().map(VcpuThread::shared));
    }

    /// Puts ports in force, and closes those that are no longer among them.
    fn take(&mut self, ports: NextPorts) {
        let NextPorts {
            plans,
            kept,
            mut fresh,
        } = ports;
        for (place, old) in fresh.iter_mut().zip(&kept) {
            if let Some(old) = old {
                *place = self.ports[*old].take();
            }
        }
        self.missing.retain_mut(|missing| {
            let place = kept.iter().position(|old| *old == Some(missing.index));
            missing.index = place.unwrap_or_default();
            place.is_some()
        });
        self.ports = fresh;
        self.plans = plans;
    }
}
