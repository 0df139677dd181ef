//! The daemon around the switch: it opens ports, waits for them, and handles signals and scrapes.
//!
//! One thread does everything except serving metrics, reading configurations and opening the ports
//! that they name. The thread sleeps in `epoll_wait` until a port is readable, a pipeline's next
//! frame is due, or a [`crate::wake::Waker`] wakes it. An idle daemon sets no timer.

mod aside;
mod changes;
mod class;
mod connections;
mod core;
mod ending;
mod handover;
mod inherit;
mod level;
mod measured;
mod notify;
mod open;
mod others;
mod plan;
mod poller;
mod reload;
mod requests;
mod scrape;
mod sending;
mod store;
mod takeover;
mod telling;
mod traced;
mod vcpu;
mod watchdog;

use crate::config::{ChangeError, Config, ConfigError, Files, PortConfig};
use crate::control::{ControlConfig, ControlError, ReportClient, WatchClient};
use crate::guarantees::{ClassesDiffer, Guarantees};
use crate::hose::{Former, Hose, HoseError, HoseSetup, Placement};
use crate::inventory::Inventory;
use crate::lateness::Lateness;
use crate::metrics::MetricsError;
use crate::metrics::{AskWatch, Asker, Collector, Exposition, HostCounts, Server, Vcpus};
use crate::retire::retire;
use crate::socket::View;
use crate::wake::Signals;
use aside::Aside;
use class::Class;
use core::Core;
use ending::listener;
use handover::Legacy;
use inherit::Inherited;
use level::Restoring;
use measured::ask_measured;
use notify::notify;
pub use open::OpenError;
use plan::{PortPlan, plan};
use poller::{HOSE, Poller, Ready};
use reload::Reloading;
use requests::Requests;
use scrape::{Scrapes, Viewer};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use store::Store;
use tailbound_agent::guest::LOOP_THREAD;
use tailbound_otlp::Endpoint;
use tailbound_switch::port::Port;
use tailbound_switch::{Interest, PortIndex, Switch};
use tailbound_units::Nanos;
pub use takeover::{Instance, InstanceError};
use telling::{Moved, Telling, begin_exchange};
pub use vcpu::watch_vcpus;
use vcpu::{AgentEnd, VcpuThread, ask_cpu};
use watchdog::Watchdog;

/// The longest time for draining the queues after SIGTERM.
const DRAIN: Nanos = Nanos::from_secs(1);

/// Most ports whose watched events change per turn: each takes a system call of some 300 ns.
const WATCHED: usize = 32;

/// Delay until a missing interface is looked up again: the first one and the longest one. The delay
/// doubles with each failure.
const RETRY: (Nanos, Nanos) = (Nanos::from_millis(250), Nanos::from_secs(2));

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
    let names: Vec<_> = daemon.plans.iter().map(|plan| plan.name.as_str()).collect();
    let metrics = daemon.metrics_address().map(tracing::field::display);
    tracing::info!(ports = names.join(","), metrics, "ready");
    notify("READY=1");
    daemon.tell_lateness();
    daemon.keep_descriptors(0..daemon.ports.len());
    let result = daemon.run();
    notify("STOPPING=1");
    match result? {
        End::Asked => {
            let unsent = daemon.drain()?;
            tracing::info!(unsent, "stopped");
        }
        End::HandedOver => tracing::info!("another daemon goes on with the ports"),
    }
    Ok(())
}

/// Reason why the packet loop ended.
enum End {
    /// A signal ended the loop.
    Asked,
    /// Another daemon reads the ports.
    HandedOver,
}

fn system(step: &'static str) -> impl Fn(io::Error) -> HostError {
    move |source| HostError::System { step, source }
}

/// A port whose interface vanished.
#[derive(Debug)]
struct Missing {
    index: usize,
    retry_at: Nanos,
    delay: Nanos,
}

struct Daemon {
    /// The texts that the configuration in force was read from.
    files: Files,
    inventory: Arc<Inventory>,
    clock: Clock,
    signals: Signals,
    poller: Poller,
    switch: Switch,
    plans: Arc<Vec<PortPlan>>,
    guarantees: Arc<Guarantees>,
    ports: Vec<Option<Box<dyn Port>>>,
    missing: Vec<Missing>,
    metrics: Option<Server>,
    /// Sends metrics to a collector, if one is configured.
    collector: Option<Collector>,
    /// Requests a copy of the counters, from any thread.
    asker: Asker,
    scrapes: Scrapes,
    aside: Aside,
    core: Core,
    cpu: Option<u32>,
    class: Class,
    watchdog: Watchdog,
    vcpus: Vcpus,
    vcpu_thread: Option<VcpuThread>,
    vcpu_end: AgentEnd,
    control: Option<ControlConfig>,
    watch: Option<WatchClient>,
    /// Reports this host's capacity and guarantees.
    reporter: Option<ReportClient>,
    hose: Option<Hose>,
    /// Ended exchanges of rates, until their limits are removed.
    former_hoses: VecDeque<Former>,
    /// True if datagrams from other hosts are waiting.
    hose_ready: bool,
    instance: Option<Instance>,
    requests: Requests,
    /// True if another daemon requests a takeover.
    successor_ready: bool,
    store: Store,
    /// Bucket levels from the daemon before this one that are not yet restored.
    levels: Restoring,
    reloading: Option<Reloading>,
    telling: Option<Telling>,
    moved: Moved,
    reloads_applied: u64,
    reloads_refused: u64,
}

impl Daemon {
    fn start(
        path: &Path,
        signals: Signals,
        control: Option<&ControlConfig>,
        mut instance: Option<Instance>,
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
        let legacy = instance.as_mut().and_then(|own| own.legacy.take());
        let mut legacy = legacy.unwrap_or_else(Legacy::from_systemd);
        let mut levels = Restoring::from(legacy.levels.take().unwrap_or_default());
        let (ports, store) = ending::go_on(legacy, &plans, &clock, &mut switch)?;
        let vcpus = Vcpus::default();
        let (asker, reports) = Asker::new(signals.waker());
        let (watch, reporter) = follow(control, &signals, &vcpus, &asker)?;
        let serve = |at| Server::start(at, signals.waker(), vcpus.clone(), ask(watch.as_ref()));
        let metrics = config.metrics.map(serve).transpose()?;
        let collector = tell(config.otlp, control, (&asker, &vcpus, ask(watch.as_ref())))?;
        let vcpu_thread = config.vcpu.map(VcpuThread::start).transpose()?;
        vcpus.set(vcpu_thread.as_ref().map(VcpuThread::shared));
        let open = |hose| HoseSetup::open(hose, config.classes, None, placement(control, &signals));
        let setup = config.hose.map(open).transpose()?;
        let hose = begin_exchange(setup, &guarantees, &mut levels, &mut switch, clock.now());
        let poller = poller(&signals, hose.as_ref(), instance.as_ref(), &ports)?;
        // Last: threads start where the thread that starts them may run.
        core.take(config.cpu);
        let class = Class::start(config.loop_class)
            .map_err(system("set the loop's real-time class (loop_class)"))?;
        Ok(Self {
            requests: Requests::serve(instance.as_mut(), &signals)?,
            inventory,
            files,
            clock,
            signals,
            poller,
            switch,
            plans: Arc::new(plans),
            guarantees: Arc::new(guarantees),
            ports,
            missing: Vec::new(),
            metrics,
            collector,
            asker,
            scrapes: Scrapes::new(reports),
            aside: Aside::default(),
            core,
            cpu: config.cpu,
            class,
            watchdog: Watchdog::start(clock.now()),
            vcpus,
            vcpu_thread,
            vcpu_end: AgentEnd::default(),
            control: control.cloned(),
            watch,
            reporter,
            hose,
            former_hoses: VecDeque::new(),
            hose_ready: true,
            instance,
            successor_ready: false,
            store,
            levels,
            reloading: None,
            telling: Some(Telling::report()),
            moved: Moved::default(),
            reloads_applied: 0,
            reloads_refused: 0,
        })
    }

    /// Logs the lateness of wake-ups on this computer, with the guests whose bounds suffer from it.
    fn tell_lateness(&self) {
        let Ok(config) = self.files.parse() else {
            return;
        };
        std::thread::spawn(move || {
            for line in Lateness::told(&config).lines() {
                tracing::info!("{line}");
            }
        });
    }

    fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Server::address)
    }

    /// The packet loop.
    fn run(&mut self) -> Result<End, HostError> {
        let mut woken = true;
        loop {
            if std::mem::take(&mut self.successor_ready) && self.hand_over()? {
                return Ok(End::HandedOver);
            }
            let now = self.clock.now();
            self.aside.begin(woken || self.is_beside_packets(now));
            if woken {
                if self.signals.take_stop() {
                    return Ok(End::Asked);
                }
                if self.reloading.is_none() && self.signals.take_reload() {
                    self.reload();
                }
                if let Some(guarantees) = self.watch.as_ref().and_then(WatchClient::take) {
                    if Arc::make_mut(&mut self.guarantees).update(guarantees) {
                        self.begin_telling();
                    } else {
                        self.begin_reporting();
                    }
                }
                if let Some(hose) = &mut self.hose {
                    hose.take_keys(now);
                }
                self.scrapes.handle_woken();
                self.requests.handle_woken();
            }
            self.take_requests(now);
            self.poll_trials(now);
            self.poll_tracing(now);
            self.answer();
            self.go_on_reloading(now);
            self.go_on_telling(now);
            self.look_for_missing(now);
            let turn = self.switch.poll(now, &mut self.ports);
            for (port, error) in turn.gone {
                self.lost(now, port, &error);
            }
            self.note_moved(now, turn.moved);
            if turn.memory_is_free {
                // Beside the loop, which allocates nothing that it would wait for.
                std::thread::spawn(tailbound_sys::memory::give_back);
            }
            self.exchange(now);
            self.poll_drains(now);
            let until = if turn.busy || self.is_beside_packets(now) {
                Some(now)
            } else {
                self.next_event()
            };
            self.aside.end();
            self.watchdog.turn(now);
            self.class.turn(now, until != Some(now));
            woken = self.wait(now, until)?;
        }
    }

    /// Returns true if work beside packets is due now.
    fn is_beside_packets(&self, now: Nanos) -> bool {
        self.scrapes.is_busy()
            || self.missing.iter().any(|missing| missing.retry_at <= now)
            || self.is_reloading()
            || !self.former_hoses.is_empty()
            || self.telling.is_some()
    }

    /// Exchanges rates with other hosts if that is due: a bounded piece of work, like all work
    /// between packets.
    fn exchange(&mut self, now: Nanos) {
        if let Some(former) = self.former_hoses.front_mut() {
            // Another exchange owns the limits from then on.
            if !former.wind_up(now, &mut self.switch) {
                retire(self.former_hoses.pop_front());
            }
            return;
        }
        if let Some(hose) = &mut self.hose {
            hose.note_drained(now, |guest| self.switch.drained(guest));
        }
        if let Some(hose) = &mut self.hose
            && let Some(pacer) = self.switch.pacer()
        {
            if std::mem::take(&mut self.hose_ready) {
                hose.handle_readable(now);
            }
            hose.poll(now, pacer);
            for (station, limited) in hose.poll_stations() {
                self.switch.set_limited_by_station(station, limited);
            }
            hose.hold_senders(now, &mut self.switch);
        }
    }

    /// Returns the time of the next event, if no other comes first.
    fn next_event(&self) -> Option<Nanos> {
        let retry = self.missing.iter().map(|missing| missing.retry_at).min();
        let rates = self.hose.as_ref().and_then(Hose::poll_at);
        let drains = self.requests.poll_at();
        let moved = self.moved.poll_at();
        [
            self.switch.poll_at(&self.ports),
            rates,
            retry,
            drains,
            moved,
            self.watchdog.poll_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Sleeps until `until`, a port is ready or a waker wakes the loop. Returns true if there was
    /// an event.
    fn wait(&mut self, now: Nanos, until: Option<Nanos>) -> Result<bool, HostError> {
        let mut watched = 0;
        while watched < WATCHED
            && let Some((index, interest)) = self.switch.poll_interest()
        {
            watched += 1;
            let port = self.ports[index.0].as_ref();
            if let Some(port) = port
                && let Some(descriptor) = port.descriptor()
            {
                let room_reads = interest.transmit && port.readable_may_be_writable();
                let interest = Interest {
                    receive: interest.receive || room_reads,
                    ..interest
                };
                self.poller
                    .watch(index.0, descriptor, interest)
                    .map_err(system("wait for a port"))?;
            }
        }
        let until = if watched < WATCHED { until } else { Some(now) };
        let timeout = until.map(|until| until.since(now));
        let mut woken = false;
        let ready = self
            .poller
            .wait(timeout)
            .map_err(system("wait for the ports"))?;
        for event in ready {
            match event {
                Ready::Woken => woken = true,
                Ready::Hose => self.hose_ready = true,
                Ready::Successor => self.successor_ready = true,
                Ready::Port {
                    index,
                    readable,
                    writable,
                } => {
                    if readable {
                        self.switch.handle_readable(PortIndex(index));
                    }
                    let mut either = false;
                    if let Some(port) = &mut self.ports[index] {
                        port.note_ready();
                        either = port.readable_may_be_writable();
                    }
                    if writable || (readable && either) {
                        self.switch.handle_writable(PortIndex(index));
                    }
                }
            }
        }
        if woken {
            self.signals.clear();
        }
        Ok(woken)
    }

    /// Continues the copy of the counters for the requests that wait for one.
    fn answer(&mut self) {
        let metrics = self.metrics.as_ref();
        let answer = self
            .scrapes
            .poll(metrics, &mut self.switch, &mut self.ports);
        let Some((snapshot, viewers)) = answer else {
            return;
        };
        let counts = HostCounts {
            snapshot: Arc::new(snapshot),
            guarantees: Arc::clone(&self.guarantees),
            hose: self.hose.as_ref().map(Hose::snapshot),
            reloads_applied: self.reloads_applied,
            reloads_refused: self.reloads_refused,
            aside: self.aside.times(),
            class: self.class.state(),
            inventory: Arc::clone(&self.inventory),
        };
        for viewer in viewers {
            let counts = counts.clone();
            match viewer {
                Viewer::Scrape(scrape) => scrape.answer(Exposition {
                    host: Some(counts),
                    ..Exposition::default()
                }),
                Viewer::Reply(reply) => reply.show(View {
                    uptime: self.clock.now(),
                    counts,
                }),
            }
        }
    }

    fn lost(&mut self, now: Nanos, port: PortIndex, error: &io::Error) {
        let gone = self.ports[port.0].take();
        let descriptor = gone.as_ref().and_then(|gone| gone.descriptor());
        self.poller.forget(port.0, descriptor);
        drop(gone);
        if let Some(key) = &self.plans[port.0].key {
            self.store.forget(key);
        }
        let plan = &self.plans[port.0];
        tracing::error!(
            port = plan.name, interface = %plan.port, %error,
            "port lost: its interface vanished or went down; the others go on, and it is taken \
             up again when it returns"
        );
        self.missing.push(Missing {
            index: port.0,
            retry_at: now + RETRY.0,
            delay: RETRY.0,
        });
    }

    /// Tries to open the missing port that has been due for longest. One port per turn: each takes
    /// system calls, and all may be due at the same time.
    fn look_for_missing(&mut self, now: Nanos) {
        let due = (self.missing.iter().enumerate()).min_by_key(|(_, missing)| missing.retry_at);
        let Some((position, &Missing { index, .. })) =
            due.filter(|(_, missing)| missing.retry_at <= now)
        else {
            return;
        };
        let plan = &self.plans[index];
        match self.core.anywhere(|| plan.open_again(&self.clock)) {
            Ok(port) => {
                tracing::info!(port = plan.name, interface = %plan.port, "port is back");
                self.missing.swap_remove(position);
                self.ports[index] = Some(port);
                self.switch.handle_opened(PortIndex(index));
                self.keep_descriptors(std::iter::once(index));
            }
            Err(error) => {
                tracing::debug!(%error, "port is still missing");
                let missing = &mut self.missing[position];
                missing.delay = Nanos(missing.delay.0 * 2).min(RETRY.1);
                missing.retry_at = now + missing.delay;
            }
        }
    }
}

/// Watches the ports, other hosts' rates and a successor.
fn poller(
    signals: &Signals,
    hose: Option<&Hose>,
    instance: Option<&Instance>,
    ports: &[Option<Box<dyn Port>>],
) -> Result<Poller, HostError> {
    let hose = hose.map(|hose| (HOSE, hose.descriptor()));
    let others = [hose, listener(instance)].into_iter().flatten();
    Poller::new(signals, others, ports).map_err(system("wait for the ports"))
}

/// Starts to follow the placement service, if one is configured, and to report to it.
fn follow(
    control: Option<&ControlConfig>,
    signals: &Signals,
    vcpus: &Vcpus,
    asker: &Asker,
) -> Result<(Option<WatchClient>, Option<ReportClient>), ControlError> {
    let watch = control.map(|control| WatchClient::start(control, signals.waker()));
    let reporter = control.map(|control| {
        let measured = ask_measured(asker.clone(), vcpus.clone());
        ReportClient::start(control, ask_cpu(vcpus.clone()), measured)
    });
    Ok((watch.transpose()?, reporter.transpose()?))
}

/// Returns this host's name in metrics: its name in the placement service, else the system's.
fn name_of(control: Option<&ControlConfig>) -> String {
    let by_service = control.map(|control| control.host.clone());
    by_service.unwrap_or_else(|| {
        let system = rustix::system::uname();
        system.nodename().to_string_lossy().into_owned()
    })
}

/// Returns the source of keys for the exchange of rates.
fn placement(control: Option<&ControlConfig>, signals: &Signals) -> Placement {
    Placement {
        service: control.cloned(),
        waker: signals.waker(),
    }
}

/// Starts to send the metrics to a collector, if one is configured.
fn tell(
    endpoint: Option<Endpoint>,
    control: Option<&ControlConfig>,
    (asker, vcpus, watch): (&Asker, &Vcpus, Option<AskWatch>),
) -> Result<Option<Collector>, HostError> {
    let Some(endpoint) = endpoint else {
        return Ok(None);
    };
    let (name, asker, vcpus) = (name_of(control), asker.clone(), vcpus.clone());
    let collector = Collector::start(endpoint, name, asker, vcpus, watch);
    collector.map(Some).map_err(system("start a thread"))
}

/// Returns a function that returns the state of the watch.
fn ask(watch: Option<&WatchClient>) -> Option<AskWatch> {
    watch.map(|watch| Arc::new(watch.status()) as AskWatch)
}

/// The clock of the packet loop: `CLOCK_MONOTONIC`, zero at the start.
#[derive(Debug, Clone, Copy)]
struct Clock {
    start: Instant,
    /// The time of day at the start, since 1970.
    epoch: Duration,
}

impl Clock {
    fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            start: Instant::now(),
            epoch: since_1970.unwrap_or_default(),
        }
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }

    /// Returns the value of `CLOCK_MONOTONIC` at zero, in nanoseconds: the most exact of three
    /// readings.
    fn zero(&self) -> u64 {
        let look = |_| {
            let (before, shown) = (self.now(), tailbound_sys::timer::now());
            (self.now().since(before), shown.0.saturating_sub(before.0))
        };
        (0..3).map(look).min().map_or(0, |(_, zero)| zero)
    }
}
