//! The daemon around the switch: it opens ports, waits for them, and handles signals and scrapes.
//!
//! One thread does everything except serving metrics, reading configurations and opening the ports
//! that they name. The thread sleeps in `epoll_wait` until a port is readable, a pipeline's next
//! frame is due, or a [`crate::wake::Waker`] wakes it. An idle daemon sets no timer.
//!
//! Each part of the daemon has its own state, and [`Daemon::run`] passes parts to each other:
//!
//! | part | state | files |
//! |---|---|---|
//! | [`PortSet`] | open and missing ports, the descriptors that the loop waits for | `ports`, `plan`, `open`, `poller`, `inherit`, `store` |
//! | [`LoopThread`] | clock, CPU, scheduling class and watchdog of the loop's thread | `thread`, `clock`, `core`, `class`, `aside`, `watchdog` |
//! | [`Enforcement`] | guarantees and limits, on their way into force | `enforcement`, `level` |
//! | [`RateExchange`] | rates that this host and others agree on | `rates` |
//! | [`Service`] | the placement service that the daemon follows | `service`, `measured` |
//! | [`Agent`] | the vCPU agent | `agent`, `vcpu` |
//! | [`Feed`] | the counters that others read | `feed`, `scrape` |
//! | [`Requests`] | requests of the control socket | `requests`, `trial`, `traced` |
//! | [`Reloads`] | the configuration in force, and the next one | `reload`, `prepare`, `changes` |
//! | [`Handover`] | the takeover by another daemon | `handover`, `legacy`, `connections`, `drain`, `takeover` |

mod agent;
mod aside;
mod changes;
mod class;
mod clock;
mod connections;
mod core;
mod drain;
mod enforcement;
mod feed;
mod handover;
mod inherit;
mod legacy;
mod level;
mod measured;
mod named;
mod notify;
mod open;
mod others;
mod plan;
mod poller;
mod ports;
mod prepare;
mod rates;
mod reload;
mod requests;
mod scrape;
mod service;
mod store;
mod takeover;
mod thread;
mod traced;
mod trial;
mod vcpu;
mod watchdog;

use crate::config::{ChangeError, Config, ConfigError, Files, PortConfig};
use crate::control::{ControlConfig, ControlError};
use crate::guarantees::{ClassesDiffer, Guarantees};
use crate::hose::{HoseError, HoseSetup};
use crate::inventory::Inventory;
use crate::lateness::Lateness;
use crate::metrics::{Asker, HostCounts, MetricsError, Vcpus};
use crate::wake::Signals;
use agent::Agent;
use clock::Clock;
use core::Core;
use drain::Drain;
use enforcement::Enforcement;
use feed::{Feed, Sources};
use handover::Handover;
use notify::notify;
pub use open::OpenError;
use plan::plan;
use poller::{HOSE, SUCCESSOR};
use ports::{PortSet, ReplacedPorts};
use prepare::{InForce, NextParts, ReloadRequest};
use rates::RateExchange;
use reload::{Candidate, End, Event, Reloads, Rest};
use requests::Requests;
use service::Service;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use tailbound_agent::guest::LOOP_THREAD;
use tailbound_switch::Switch;
use tailbound_units::Nanos;
pub use takeover::{Instance, InstanceError};
use thread::{LoopThread, ThreadConfig};
pub use vcpu::watch_vcpus;

/// Reason why the daemon cannot start, or a reload was refused.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The configuration has mistakes.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Guests cannot be added or removed.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A port cannot be opened.
    #[error("port {name} ({port}): {source}")]
    Port {
        /// The guest's name, or `uplink`.
        name: String,
        /// The configuration of the port.
        port: Box<PortConfig>,
        /// The reason of the failure.
        source: Box<OpenError>,
    },
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The vCPU agent cannot work.
    #[error(transparent)]
    Vcpu(#[from] tailbound_agent::AgentError),
    /// Rates cannot be exchanged with other hosts.
    #[error(transparent)]
    Hose(#[from] HoseError),
    /// The placement service cannot be followed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The placement service's fabric has other classes.
    #[error(transparent)]
    Classes(#[from] ClassesDiffer),
    /// The uplink cannot be paced like that.
    #[error("uplink: {0}")]
    Pacing(#[from] tailbound_dataplane::pacer::PacerError),
    /// The system refused a resource of the loop itself.
    #[error("cannot {step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Forwards packets by the configuration at `path`, until SIGTERM or SIGINT.
///
/// SIGHUP reads the configuration again: it is checked and applied as a whole, or the one in force
/// stays. With `control`, guests are promised the guarantees of that placement service; the daemon
/// starts even if the service does not answer. The daemon continues with the ports that the daemon
/// before it handed over to `instance`, or that systemd stored. It hands over its own ports to a
/// daemon that takes over. The control socket of `instance` serves requests that add, remove and
/// show guests.
///
/// # Errors
/// The configuration has mistakes, a port or the metrics address cannot be opened, or the settings
/// of the placement service cannot be used. Once the daemon is ready, only a system error of the
/// loop itself ends it.
pub fn run(
    path: &Path,
    control: Option<&ControlConfig>,
    instance: Option<Instance>,
) -> Result<(), HostError> {
    let signals = Signals::catch().map_err(system("catch signals"))?;
    if let Err(error) = rustix::thread::set_name(LOOP_THREAD) {
        tracing::warn!(%error, "the packet loop has no name, by which the vCPU agent knows it");
    }
    // The default of 50 us would be added to every deadline of a pipeline.
    if let Err(error) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)) {
        tracing::warn!(%error, "timers stay coarse: cannot set the timer slack to 1 ns");
    }
    let mut daemon = Daemon::start(path, signals, control, instance)?;
    let plans = daemon.ports.plans().iter();
    let names: Vec<_> = plans.map(|plan| plan.name.as_str()).collect();
    let metrics = daemon.feed.address().map(tracing::field::display);
    tracing::info!(ports = names.join(","), metrics, "ready");
    notify("READY=1");
    log_lateness(daemon.reloads.files());
    daemon.ports.keep_all();
    let result = daemon.run();
    notify("STOPPING=1");
    match result? {
        Reason::Signal => {
            let mut drain = daemon.drain();
            drain.settle_guests()?;
            let unsent = drain.empty_queues()?;
            tracing::info!(unsent, "stopped");
        }
        Reason::Successor => tracing::info!("another daemon goes on with the ports"),
    }
    Ok(())
}

/// Logs the lateness of wake-ups on this computer, with the guests whose bounds suffer from it.
fn log_lateness(files: &Files) {
    let Ok(config) = files.parse() else {
        return;
    };
    std::thread::spawn(move || {
        for line in Lateness::told(&config).lines() {
            tracing::info!("{line}");
        }
    });
}

/// Reason why the packet loop ended.
enum Reason {
    /// A signal ended the loop.
    Signal,
    /// Another daemon reads the ports.
    Successor,
}

fn system(step: &'static str) -> impl Fn(io::Error) -> HostError {
    move |source| HostError::System { step, source }
}

/// The daemon: each part has its own state, and the packet loop passes parts to each other.
struct Daemon {
    signals: Signals,
    switch: Switch,
    ports: PortSet,
    thread: LoopThread,
    enforcement: Enforcement,
    feed: Feed,
    agent: Agent,
    service: Service,
    rates: RateExchange,
    handover: Handover,
    requests: Requests,
    reloads: Reloads,
}

impl Daemon {
    fn start(
        path: &Path,
        signals: Signals,
        control: Option<&ControlConfig>,
        instance: Option<Instance>,
    ) -> Result<Self, HostError> {
        let files = Files::read(path)?;
        let config: Config = files.parse()?;
        let inventory = Arc::new(Inventory::new(&files, &config));
        let core = Core::detect().map_err(system("see its CPUs"))?;
        let clock = Clock::start();
        let guarantees = Guarantees::default().reconfigured(&config)?;
        let (plans, switch) = plan(&config, &guarantees);
        let mut switch = Switch::new(switch)?;
        switch.set_stopwatch(Box::new(core::LoopWatch));
        let mut handover = Handover::new(instance);
        let mut legacy = handover.take_legacy();
        let ports = PortSet::open(plans, legacy.take_ports(), &clock, &signals)?;
        let levels = legacy.resume(clock.now(), &mut switch, ports.all());
        let mut enforcement = Enforcement::new(guarantees, levels);
        let vcpus = Vcpus::default();
        let (asker, reports) = Asker::new(signals.waker());
        let service = Service::follow(control, &signals, &vcpus, &asker)?;
        let sources = Sources {
            asker,
            vcpus: vcpus.clone(),
            watch: service.status(),
            waker: signals.waker(),
            host: service.host().map(str::to_owned),
        };
        let thread = ThreadConfig::from(&config);
        let feed = Feed::start(sources, reports, config.metrics, config.otlp)?;
        let agent = Agent::start(config.vcpu, vcpus)?;
        let placement = service.placement(&signals);
        let open = |hose| HoseSetup::open(hose, config.classes, None, placement);
        let setup = config.hose.map(open).transpose()?;
        let hose = enforcement.begin_exchange(clock.now(), setup, &mut switch);
        let hose_socket = hose.as_ref().map(|hose| (HOSE, hose.descriptor()));
        let successors = handover.listener().map(|it| (SUCCESSOR, it.as_fd()));
        for (mark, descriptor) in [hose_socket, successors].into_iter().flatten() {
            let watched = ports.watch_other(mark, descriptor);
            watched.map_err(system("wait for the ports"))?;
        }
        Ok(Self {
            // Last: threads start where the thread that starts them may run.
            thread: LoopThread::start(core, clock, thread)?,
            requests: Requests::serve(handover.take_control(), &signals)?,
            signals,
            switch,
            ports,
            enforcement,
            feed,
            agent,
            service,
            rates: RateExchange::new(hose),
            handover,
            reloads: Reloads::new(files, inventory),
        })
    }

    /// The packet loop.
    fn run(&mut self) -> Result<Reason, HostError> {
        loop {
            if self.ports.take_successor() && self.hand_over()? {
                return Ok(Reason::Successor);
            }
            let is_woken = self.ports.take_woken();
            if self.ports.take_rates() {
                self.rates.handle_readable();
            }
            let now = self.thread.clock().now();
            self.thread
                .begin_turn(is_woken || self.is_beside_packets(now));
            if is_woken {
                if self.signals.take_stop() {
                    return Ok(Reason::Signal);
                }
                self.handle_woken(now);
            }
            self.take_requests(now);
            self.answer_viewers();
            self.poll_reload(now);
            self.enforcement
                .poll(now, &mut self.switch, &mut self.rates, &self.service);
            self.ports
                .retry_missing(now, &self.thread, &mut self.switch);
            let is_busy = self.move_packets(now);
            self.rates.poll(now, &mut self.switch);
            self.requests
                .poll_drains(now, &mut self.switch, self.ports.all());
            let until = if is_busy || self.is_beside_packets(now) {
                Some(now)
            } else {
                self.next_event()
            };
            self.thread.end_turn(now, until != Some(now));
            self.ports
                .wait(now, until, &mut self.switch, &self.signals)?;
        }
    }

    /// Handles signals and the news of other threads.
    fn handle_woken(&mut self, now: Nanos) {
        if self.reloads.is_idle() && self.signals.take_reload() {
            notify(&notify::reloading());
            self.begin_reload(ReloadRequest::Files);
        }
        if let Some(guarantees) = self.service.take_guarantees()
            && self.enforcement.update(guarantees)
        {
            self.reloads.enforce_again();
        }
        self.rates.take_keys(now);
        self.feed.handle_woken();
        self.requests.handle_woken();
    }

    /// Returns true if work beside packets is due now.
    fn is_beside_packets(&self, now: Nanos) -> bool {
        self.feed.is_busy()
            || self.ports.poll_at().is_some_and(|at| at <= now)
            || self.reloads.is_busy()
            || self.rates.is_winding_up()
            || self.enforcement.is_busy()
    }

    /// Does a turn of the switch. Returns true if it has more work now.
    fn move_packets(&mut self, now: Nanos) -> bool {
        let turn = self.switch.poll(now, self.ports.all_mut());
        for (port, error) in turn.gone {
            self.ports.handle_lost(now, port, &error);
        }
        self.enforcement.note_moved(now, turn.moved);
        if turn.memory_is_free {
            // Beside the loop, which allocates nothing that it would wait for.
            std::thread::spawn(tailbound_sys::memory::give_back);
        }
        turn.busy
    }

    /// Returns the time of the next event, if no other comes first.
    fn next_event(&self) -> Option<Nanos> {
        [
            self.switch.poll_at(self.ports.all()),
            self.rates.poll_at(),
            self.ports.poll_at(),
            self.requests.poll_at(),
            self.enforcement.poll_at(),
            self.thread.poll_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Hands the ports over to the daemon that requests them. Returns true if it took them.
    fn hand_over(&mut self) -> Result<bool, HostError> {
        match self.handover.accept() {
            Some(successor) => handover::hand_over(successor, self.drain()),
            None => Ok(false),
        }
    }

    /// Returns the parts that move the last frames.
    fn drain(&mut self) -> Drain<'_> {
        Drain {
            clock: self.thread.clock(),
            signals: &self.signals,
            switch: &mut self.switch,
            ports: &mut self.ports,
        }
    }

    /// Takes new requests of the control socket, and begins the next change if no reload is in
    /// progress.
    fn take_requests(&mut self, now: Nanos) {
        let (switch, ports) = (&mut self.switch, self.ports.all());
        self.requests
            .take_new(now, switch, ports, &mut self.feed, self.reloads.inventory());
        if self.reloads.is_idle()
            && let Some(change) = self.requests.next_change()
        {
            self.begin_reload(ReloadRequest::Change(change));
        }
        let (switch, ports) = (&mut self.switch, self.ports.all());
        self.requests
            .poll_frames(now, switch, ports, &self.thread.clock());
    }

    /// Continues the copy of the counters for the requests that wait for one.
    fn answer_viewers(&mut self) {
        let copied = self.feed.poll(&mut self.switch, self.ports.all_mut());
        let Some((snapshot, viewers)) = copied else {
            return;
        };
        let counts = HostCounts {
            snapshot: Arc::new(snapshot),
            guarantees: Arc::clone(self.enforcement.guarantees()),
            hose: self.rates.snapshot(),
            reloads_applied: self.reloads.applied(),
            reloads_refused: self.reloads.refused(),
            aside: self.thread.aside_times(),
            class: self.thread.class_state(),
            inventory: Arc::clone(self.reloads.inventory()),
        };
        let uptime = self.thread.clock().now();
        feed::answer(viewers, &counts, uptime, self.feed.watch());
    }

    /// Starts a thread that prepares a configuration. Further reloads wait for it.
    fn begin_reload(&mut self, wanted: ReloadRequest) {
        let in_force = InForce {
            files: self.reloads.files().clone(),
            core: self.thread.core(),
            clock: self.thread.clock(),
            plans: Arc::clone(self.ports.plans()),
            guarantees: Arc::clone(self.enforcement.guarantees()),
            feed: self.feed.in_force(),
            hose: self.rates.address(),
            placement: self.service.placement(&self.signals),
            agent: self.agent.starter(),
            waker: self.signals.waker(),
        };
        if let Err(error) = self.reloads.begin(wanted, in_force) {
            self.end_reload(End::Refused(error));
        }
    }

    /// Continues a reload, if there is one.
    fn poll_reload(&mut self, now: Nanos) {
        let is_enforcing = self.enforcement.is_busy();
        let (switch, ports) = (&mut self.switch, &mut self.ports);
        let signals = &self.signals;
        let event = self.reloads.poll(now, switch, ports, is_enforcing, signals);
        match event {
            None => {}
            Some(Event::Ready(candidate)) => self.put_in_force(now, candidate),
            Some(Event::InForce { enforces: true }) => self.enforcement.begin(),
            Some(Event::InForce { enforces: false }) => self.enforcement.begin_report(),
            Some(Event::Ended(end)) => self.end_reload(end),
        }
    }

    /// Puts a configuration in force, except for the settings that guests get one by one.
    fn put_in_force(&mut self, now: Nanos, candidate: Candidate) {
        let Candidate { next, mut reload } = candidate;
        let NextParts {
            files,
            is_change: _,
            changes,
            inventory,
            thread,
            guarantees,
            says_the_same,
            ports,
            hose,
            feed,
            agent,
        } = *next;
        let starts_exchange = self.rates.reconfigure(now, hose, &self.ports);
        self.switch.swap(&mut reload);
        let ReplacedPorts { closing, plans } = self.ports.replace(ports);
        let replaced = self.enforcement.replace(guarantees);
        self.agent.reconfigure(agent);
        self.thread.reconfigure(thread);
        let spent = (
            self.feed.replace(feed),
            self.reloads.replace(files, inventory),
            replaced.guarantees,
            plans,
        );
        let rest = Rest {
            closing,
            enforces: starts_exchange || replaced.is_incomplete || !says_the_same,
            changes,
            spent: Box::new(spent),
        };
        self.reloads.settle(reload, rest);
    }

    /// Answers the request for the reload that ended.
    fn end_reload(&mut self, end: End) {
        let result = match end {
            End::Unchanged => Ok(None),
            End::Applied(changes) => Ok(Some(changes)),
            End::Refused(error) => Err(error),
        };
        let answer = result.as_ref().map(Option::is_some);
        let guarantees = self.enforcement.guarantees();
        let uid = self
            .requests
            .answer_change(answer, &self.switch, guarantees);
        if let Some(result) = result.transpose() {
            let ports = self.ports.plans().len();
            self.reloads.note_end(result, ports, uid);
        }
        // Another one may have been asked for in between.
        self.signals.waker().wake();
    }
}
