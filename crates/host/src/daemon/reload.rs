//! Reloads: another configuration comes into force.
//!
//! A thread reads and checks the configuration, and opens its files, sockets and ports. The packet
//! loop applies it between packets, a few guests per turn ([`tailbound_switch::Reload`]). Steps
//! that may fail come first and change nothing. A thread also closes the old ports: for a TAP that
//! takes milliseconds.
//!
//! Guests that are added or removed over the control socket are such a reload, too, but the
//! configuration's file is not read again. The new set of guests is stored right before it comes
//! into force: if the daemon dies in between, the next one continues as if it had answered.

use super::changes::Changes;
use super::core::Core;
use super::notify::{self, notify};
use super::plan::{PortPlan, plan};
use super::poller::{HOSE, Mark};
use super::vcpu::{AgentEnd, VcpuThread};
use super::{Clock, Daemon, HostError, Inherited, ask, placement, system, tell};
use crate::config::{Change, ChangeError, Files, LoopClass};
use crate::guarantees::Guarantees;
use crate::hose::{Hose, HoseSetup, Placement, Renewed};
use crate::inventory::Inventory;
use crate::metrics::{AskWatch, Asker, Collector, Server, Vcpus};
use crate::retire::retire;
use crate::wake::Waker;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use tailbound_agent::AgentConfig;
use tailbound_otlp::Endpoint;
use tailbound_switch::port::Port;
use tailbound_switch::{PortIndex, Reload, Switch, SwitchPlan};
use tailbound_units::Nanos;

/// Work of a turn on a reload, in units of an unchanged guest.
const WORK: usize = 32;

/// Descriptors that are stored in systemd, and ports that are closed, per turn: a few system calls
/// each.
const DESCRIPTORS: usize = 4;

/// The requested configuration.
pub(super) enum ReloadRequest {
    /// The present content of the files.
    Files,
    /// The configuration in force, with other guests.
    Change(Change),
}

/// The result of a thread's preparation; `None` if the configuration is in force already.
type Opened = Result<Option<Box<Prepared>>, HostError>;

/// The state of a reload.
pub(super) enum Reloading {
    /// A thread prepares the configuration.
    Opening(Receiver<Opened>),
    /// The switch checks and prepares the configuration.
    Trying(Box<Prepared>, Box<Reload>),
    /// A thread stores the added guests.
    Keeping(
        Receiver<Result<(), ChangeError>>,
        Box<Prepared>,
        Box<Reload>,
    ),
    /// The configuration is in force, except for the settings that guests get one by one.
    Settling(Box<Reload>, Rest),
    /// A thread closes the old ports: until then they cannot be opened anew.
    Closing(Receiver<()>, Changes),
}

/// The parts of a configuration that take files, sockets and time.
pub(super) struct Prepared {
    files: Files,
    /// True if the added guests differ from those in force.
    is_change: bool,
    changes: Changes,
    inventory: Inventory,
    cpu: Option<u32>,
    loop_class: LoopClass,
    guarantees: Guarantees,
    /// True if the configuration of all guests is the same as the one in force: only the service's
    /// guarantees may change meanwhile.
    says_the_same: bool,
    switch: Option<SwitchPlan>,
    ports: NextPorts,
    hose: Option<HoseSetup>,
    metrics: Becomes<Server>,
    collector: Becomes<Collector>,
    vcpu: Option<AgentConfig>,
    /// The agent's thread, if none runs yet.
    vcpu_thread: Option<VcpuThread>,
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

/// A port that is no longer configured, with its key in systemd and its mark in the kernel.
struct RemovedPort {
    port: Option<Box<dyn Port>>,
    key: Option<String>,
    mark: Mark,
}

/// The ports of a configuration that is not in force yet.
struct NextPorts {
    plans: Vec<PortPlan>,
    /// The index of each port among those in force; `None` for a new one.
    kept: Vec<Option<usize>>,
    /// The new ports.
    fresh: Vec<Option<Box<dyn Port>>>,
}

/// Remaining work after a configuration came into force.
pub(super) struct Rest {
    closing: Closing,
    /// True if the switch and other hosts must receive the guarantees again.
    is_told: bool,
    changes: Changes,
    /// The former state: another thread frees it, since that takes milliseconds.
    spent: Box<dyn Send>,
}

/// New ports, and ports that are no longer configured.
struct Closing {
    /// New ports, which the switch must read and systemd must store.
    fresh: VecDeque<usize>,
    gone: Vec<RemovedPort>,
    /// Ports that only remain to be closed.
    closed: Vec<Box<dyn Port>>,
}

/// The state in force, with which a configuration is compared.
struct InForce {
    files: Files,
    core: Core,
    clock: Clock,
    plans: Arc<Vec<PortPlan>>,
    guarantees: Arc<Guarantees>,
    metrics: Option<SocketAddr>,
    hose: Option<SocketAddr>,
    placement: Placement,
    has_vcpu_thread: bool,
    vcpu_end: AgentEnd,
    vcpus: Vcpus,
    watch: Option<AskWatch>,
    collector: Option<Endpoint>,
    asker: Asker,
    waker: Waker,
}

impl InForce {
    fn prepare(self, wanted: &ReloadRequest) -> Opened {
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
        let ports = self.open(plans)?;
        let metrics = match config.metrics {
            at if at == self.metrics => Becomes::AsItWas,
            at => Becomes::This(at.map(|at| self.serve(at)).transpose()?),
        };
        let collector = match config.otlp.clone() {
            at if at == self.collector => Becomes::AsItWas,
            at => {
                let told = (&self.asker, &self.vcpus, self.watch.clone());
                Becomes::This(tell(at, self.placement.service.as_ref(), told)?)
            }
        };
        let hose = config.hose.clone();
        let placement = self.placement.clone();
        let hose = hose.map(|hose| HoseSetup::open(hose, config.classes, self.hose, placement));
        let hose = hose.transpose()?;
        let vcpu_thread = match &config.vcpu {
            Some(vcpu) if !self.has_vcpu_thread => {
                self.vcpu_end.wait();
                Some(VcpuThread::start(vcpu.clone())?)
            }
            _ => None,
        };
        Ok(Some(Box::new(Prepared {
            inventory: Inventory::new(&files, &config),
            is_change: matches!(wanted, ReloadRequest::Change(_)),
            changes,
            files,
            cpu: config.cpu,
            loop_class: config.loop_class,
            says_the_same: guarantees.is_same(&self.guarantees),
            guarantees,
            switch: Some(switch),
            ports,
            hose,
            metrics,
            collector,
            vcpu: config.vcpu,
            vcpu_thread,
        })))
    }

    fn serve(&self, at: SocketAddr) -> Result<Server, HostError> {
        let (waker, vcpus) = (self.waker.clone(), self.vcpus.clone());
        Ok(Server::start(at, waker, vcpus, self.watch.clone())?)
    }

    /// Opens the ports that are not open yet.
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
}

impl Daemon {
    /// Starts a thread that reads and prepares the configuration. Further reloads wait for it.
    pub(super) fn reload(&mut self) {
        notify(&notify::reloading());
        self.prepare(ReloadRequest::Files);
    }

    /// Starts a thread that prepares a configuration. Call it only if no reload is in progress.
    pub(super) fn prepare(&mut self, wanted: ReloadRequest) {
        match self.start_preparing(wanted) {
            Ok(prepared) => self.reloading = Some(Reloading::Opening(prepared)),
            Err(error) => self.reloaded(Err(system("start a thread")(error))),
        }
    }

    fn start_preparing(&self, wanted: ReloadRequest) -> io::Result<Receiver<Opened>> {
        let in_force = InForce {
            files: self.files.clone(),
            core: self.core,
            clock: self.clock,
            plans: Arc::clone(&self.plans),
            guarantees: Arc::clone(&self.guarantees),
            metrics: self.metrics_address(),
            hose: self.hose.as_ref().map(Hose::address),
            placement: placement(self.control.as_ref(), &self.signals),
            has_vcpu_thread: self.vcpu_thread.is_some(),
            vcpu_end: self.vcpu_end.clone(),
            vcpus: self.vcpus.clone(),
            watch: ask(self.watch.as_ref()),
            collector: self.collector.as_ref().map(|it| it.endpoint().clone()),
            asker: self.asker.clone(),
            waker: self.signals.waker(),
        };
        let (done, prepared) = channel();
        let work = move || {
            // It begins where the packet loop runs, and threads begin where it does.
            in_force.core.take(None);
            let waker = in_force.waker.clone();
            // Nobody waits for it once the daemon ends.
            let _ = done.send(in_force.prepare(&wanted));
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("reload".to_owned());
        thread.spawn(work)?;
        Ok(prepared)
    }

    /// Returns true if the reload has more work to do now.
    pub(super) fn is_reloading(&self) -> bool {
        matches!(
            self.reloading,
            Some(Reloading::Trying(..) | Reloading::Settling(..))
        )
    }

    /// Continues a reload, if there is one: a few guests per turn.
    pub(super) fn go_on_reloading(&mut self, now: Nanos) {
        let Some(reloading) = self.reloading.take() else {
            return;
        };
        self.reloading = match reloading {
            Reloading::Opening(receiver) => self.go_on_opening(receiver),
            Reloading::Trying(prepared, reload) => self.go_on_trying(now, prepared, reload),
            Reloading::Keeping(kept, prepared, reload) => {
                self.go_on_keeping(now, kept, prepared, reload)
            }
            Reloading::Settling(mut reload, mut rest) => {
                let settled = self.switch.settle(now, &mut reload, WORK);
                if self.clear_up(&mut rest.closing) && settled {
                    Some(self.finish(rest, *reload))
                } else {
                    Some(Reloading::Settling(reload, rest))
                }
            }
            // What guests are guaranteed is not in force yet.
            Reloading::Closing(closed, changes) if self.telling.is_some() => {
                Some(Reloading::Closing(closed, changes))
            }
            Reloading::Closing(closed, changes) => match closed.try_recv() {
                Err(TryRecvError::Empty) => Some(Reloading::Closing(closed, changes)),
                Ok(()) | Err(TryRecvError::Disconnected) => {
                    self.reloaded(Ok(changes));
                    None
                }
            },
        };
    }

    fn go_on_opening(&mut self, receiver: Receiver<Opened>) -> Option<Reloading> {
        match receiver.try_recv() {
            Err(TryRecvError::Empty) => Some(Reloading::Opening(receiver)),
            Err(TryRecvError::Disconnected) => {
                let ended = io::Error::other("its thread ended");
                self.refuse(system("prepare the configuration")(ended))
            }
            Ok(Err(error)) => self.refuse(error),
            Ok(Ok(None)) => {
                self.answer_change(Ok(false));
                // Another one may have been asked for in between.
                self.signals.waker().wake();
                None
            }
            Ok(Ok(Some(mut prepared))) => prepared.switch.take().map(|plan| {
                let reload = Box::new(Switch::begin_reload(plan));
                Reloading::Trying(prepared, reload)
            }),
        }
    }

    fn go_on_trying(
        &mut self,
        now: Nanos,
        prepared: Box<Prepared>,
        mut reload: Box<Reload>,
    ) -> Option<Reloading> {
        match self.switch.prepare(&mut reload, WORK) {
            Ok(false) => Some(Reloading::Trying(prepared, reload)),
            Ok(true) if prepared.is_change => self.keep(prepared, reload),
            Ok(true) => {
                let rest = self.swap(now, *prepared, &mut reload);
                Some(Reloading::Settling(reload, rest))
            }
            Err(rule) => {
                retire(prepared);
                self.refuse(rule.into())
            }
        }
    }

    fn go_on_keeping(
        &mut self,
        now: Nanos,
        kept: Receiver<Result<(), ChangeError>>,
        prepared: Box<Prepared>,
        mut reload: Box<Reload>,
    ) -> Option<Reloading> {
        match kept.try_recv() {
            Err(TryRecvError::Empty) => Some(Reloading::Keeping(kept, prepared, reload)),
            Ok(Ok(())) => {
                let rest = self.swap(now, *prepared, &mut reload);
                Some(Reloading::Settling(reload, rest))
            }
            Ok(Err(error)) => self.cancel(prepared, reload, error.into()),
            Err(TryRecvError::Disconnected) => {
                let ended = io::Error::other("its thread ended");
                let error = system("write down who was added")(ended);
                self.cancel(prepared, reload, error)
            }
        }
    }

    /// Starts a thread that stores the added guests, before they come into force.
    fn keep(&mut self, prepared: Box<Prepared>, reload: Box<Reload>) -> Option<Reloading> {
        let added = Arc::clone(prepared.files.added());
        let (done, kept) = channel();
        let waker = self.signals.waker();
        let write = move || {
            // Nobody waits for it once the daemon ends.
            let _ = done.send(added.write());
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("keep".to_owned());
        match thread.spawn(write) {
            Ok(_) => Some(Reloading::Keeping(kept, prepared, reload)),
            Err(error) => self.cancel(prepared, reload, system("start a thread")(error)),
        }
    }

    /// Gives up what the switch had prepared.
    fn cancel(
        &mut self,
        prepared: Box<Prepared>,
        mut reload: Box<Reload>,
        error: HostError,
    ) -> Option<Reloading> {
        self.switch.cancel(&mut reload);
        retire((prepared, reload.into_spent()));
        self.refuse(error)
    }

    fn refuse(&mut self, error: HostError) -> Option<Reloading> {
        self.reloaded(Err(error));
        None
    }

    fn reloaded(&mut self, result: Result<Changes, HostError>) {
        let uid = self.answer_change(result.as_ref().map(|_| true));
        match result {
            Ok(changes) => {
                self.reloads_applied += 1;
                changes.log(self.plans.len(), uid);
            }
            Err(error) => {
                self.reloads_refused += 1;
                if let Some(uid) = uid {
                    tracing::warn!(uid, %error, "a change was asked for and refused");
                } else {
                    tracing::error!(%error, "reload refused; the configuration in force stays");
                }
            }
        }
        notify("READY=1");
        // Another one may have been asked for in between.
        self.signals.waker().wake();
    }

    /// Puts a configuration in force; returns the remaining work.
    fn swap(&mut self, now: Nanos, prepared: Prepared, reload: &mut Reload) -> Rest {
        let Prepared {
            files,
            changes,
            inventory,
            cpu,
            loop_class,
            mut guarantees,
            says_the_same,
            ports,
            hose,
            metrics,
            collector,
            vcpu,
            vcpu_thread,
            ..
        } = prepared;
        let starts_hose = self.renew_hose(now, hose);
        self.switch.swap(reload);
        let (closing, plans) = self.take(ports);
        // What it said while the configuration was prepared.
        let is_other = guarantees.follow(&self.guarantees);
        // What was being told is of ports that were.
        let was_told = self.telling.take().is_some();
        self.renew_vcpus(vcpu, vcpu_thread);
        if self.cpu != cpu {
            self.cpu = cpu;
            self.core.take(cpu);
        }
        if self.class.wanted() != loop_class
            && let Err(error) = self.class.take(loop_class)
        {
            tracing::error!(%error, "the packet loop goes on without a real-time class");
        }
        let server = metrics.put(&mut self.metrics);
        let collector = collector.put(&mut self.collector);
        let spent = (
            std::mem::replace(&mut self.files, files),
            std::mem::replace(&mut self.inventory, Arc::new(inventory)),
            std::mem::replace(&mut self.guarantees, Arc::new(guarantees)),
            self.scrapes.handle_reload(),
            plans,
            server,
            collector,
        );
        Rest {
            closing,
            is_told: starts_hose || was_told || is_other || !says_the_same,
            changes,
            spent: Box::new(spent),
        }
    }

    /// Starts, changes or ends the exchange of rates, and waits for it. Returns true if another one
    /// begins.
    fn renew_hose(&mut self, now: Nanos, setup: Option<HoseSetup>) -> bool {
        self.hose_ready = true;
        let renewed = match (&mut self.hose, setup) {
            (Some(running), Some(setup)) => running.reconfigure(now, setup),
            (None, Some(setup)) => {
                self.hose = setup.start(now);
                Renewed {
                    former: None,
                    begins: true,
                    has_other_socket: true,
                }
            }
            (Some(_), None) => Renewed {
                former: self.hose.take().map(|over| over.end(now)),
                begins: false,
                has_other_socket: false,
            },
            (None, None) => return false,
        };
        self.former_hoses.extend(renewed.former);
        let hose = self.hose.as_ref().filter(|_| renewed.has_other_socket);
        if let Some(Err(error)) = hose.map(|hose| self.poller.add(HOSE, hose.descriptor())) {
            tracing::error!(%error, "no notification of rate datagrams: they are read late");
        }
        renewed.begins
    }

    /// Starts, changes or ends the agent. `started` is a thread for an agent that does not run yet.
    fn renew_vcpus(&mut self, config: Option<AgentConfig>, started: Option<VcpuThread>) {
        match (config, started) {
            (_, Some(started)) => self.vcpu_thread = Some(started),
            (Some(vcpu), None) => {
                if let Some(running) = &self.vcpu_thread {
                    running.configure(vcpu);
                }
            }
            (None, None) => {
                if let Some(running) = self.vcpu_thread.take() {
                    running.retire(&self.vcpu_end);
                }
            }
        }
        self.vcpus
            .set(self.vcpu_thread.as_ref().map(VcpuThread::shared));
    }

    /// Puts ports in force. Returns the ports that remain to be closed, and the plans that all
    /// former ports were opened from.
    fn take(&mut self, ports: NextPorts) -> (Closing, Arc<Vec<PortPlan>>) {
        let NextPorts {
            plans,
            kept,
            mut fresh,
        } = ports;
        let mut places = vec![None; self.ports.len()];
        let mut opened = VecDeque::new();
        for (index, (place, old)) in fresh.iter_mut().zip(&kept).enumerate() {
            if let Some(old) = *old {
                places[old] = Some(index);
                *place = self.ports[old].take();
            } else {
                opened.push_back(index);
            }
        }
        self.missing.retain_mut(|missing| {
            let place = places[missing.index];
            missing.index = place.unwrap_or_default();
            place.is_some()
        });
        let marks = self.poller.rearrange(kept);
        let old = std::mem::replace(&mut self.ports, fresh);
        let plans = std::mem::replace(&mut self.plans, Arc::new(plans));
        let gone = old.into_iter().zip(marks).zip(places).enumerate();
        let gone = gone.filter(|(_, (_, place))| place.is_none());
        let gone = gone.map(|(index, ((port, mark), _))| RemovedPort {
            port,
            key: plans[index].key.clone(),
            mark,
        });
        let closing = Closing {
            gone: gone.collect(),
            fresh: opened,
            closed: Vec::new(),
        };
        (closing, plans)
    }

    /// Starts to read some new ports and stores them in systemd, and forgets some old ones. Returns
    /// true when none of either is left.
    fn clear_up(&mut self, closing: &mut Closing) -> bool {
        let fresh = closing.fresh.len().min(DESCRIPTORS);
        for index in closing.fresh.range(..fresh) {
            self.switch.handle_opened(PortIndex(*index));
        }
        self.keep_descriptors(closing.fresh.drain(..fresh));
        for _ in 0..DESCRIPTORS {
            let Some(RemovedPort { port, key, mark }) = closing.gone.pop() else {
                break;
            };
            let descriptor = port.as_ref().and_then(|port| port.descriptor());
            self.poller.retire(mark, descriptor);
            if let Some(key) = key {
                self.store.forget(&key);
            }
            closing.closed.extend(port);
        }
        closing.fresh.is_empty() && closing.gone.is_empty()
    }

    /// Repeats the announcement after the reload that is settling, if there is one: the guarantees
    /// that it has yet to bring into force were planned before.
    pub(super) fn tell_again_once_settled(&mut self) {
        if let Some(Reloading::Settling(_, rest)) = &mut self.reloading {
            rest.is_told = true;
        }
    }

    /// Ends a reload that was applied, except for closing the old ports.
    fn finish(&mut self, rest: Rest, reload: Reload) -> Reloading {
        if rest.is_told {
            self.begin_telling();
        } else {
            self.begin_reporting();
        }
        let (done, closed) = channel();
        let waker = self.signals.waker();
        let spent = (rest.closing.closed, rest.spent, reload.into_spent());
        let close = move || {
            drop(spent);
            // Nobody waits for it once the daemon ends.
            let _ = done.send(());
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("retire".to_owned());
        if let Err(error) = thread.spawn(close) {
            tracing::error!(%error, "ports were closed within the packet loop");
        }
        Reloading::Closing(closed, rest.changes)
    }
}
