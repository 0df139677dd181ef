//! The ports of the packet loop: their plans, the open ones, and the descriptors that the loop waits
//! for. A port whose interface vanished is opened again when the interface is back.

use super::clock::Clock;
use super::inherit::{CardKeys, InheritedPorts};
use super::open;
use super::plan::PortPlan;
use super::poller::{Mark, Poller, Ready};
use super::store::Store;
use super::thread::LoopThread;
use super::{HostError, system};
use crate::wake::Signals;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tailbound_switch::port::{Estate, Port};
use tailbound_switch::{Interest, PortIndex, Ports, Switch};
use tailbound_units::Nanos;

/// Most ports whose watched events change per turn: each takes a system call of some 300 ns.
const WATCHED: usize = 32;

/// Delay until a missing interface is looked up again: the first one and the longest one. The delay
/// doubles with each failure.
const RETRY: (Nanos, Nanos) = (Nanos::from_millis(250), Nanos::from_secs(2));

/// Descriptors that are stored in systemd, and ports that are closed, per turn: a few system calls
/// each.
const DESCRIPTORS: usize = 4;

/// A port whose interface vanished.
#[derive(Debug)]
struct MissingPort {
    index: usize,
    retry_at: Nanos,
    delay: Nanos,
}

/// Events beside those of ports, since they were last taken.
#[derive(Debug)]
struct Events {
    /// A waker woke the loop.
    is_woken: bool,
    /// Datagrams with rates wait.
    has_rates: bool,
    /// Another daemon requests a takeover.
    has_successor: bool,
}

/// The ports of the daemon, each at the index of its plan.
pub(super) struct PortSet {
    poller: Poller,
    plans: Arc<Vec<PortPlan>>,
    /// The ports; `None` where the interface is missing.
    open: Vec<Option<Box<dyn Port>>>,
    missing: Vec<MissingPort>,
    store: Store,
    events: Events,
}

impl PortSet {
    /// Opens the ports of `plans`, or continues with the `inherited` ones, and watches them. The
    /// first turn handles all events as if they had happened.
    ///
    /// # Errors
    /// A port cannot be opened, or the system refuses to watch it.
    pub(super) fn open(
        plans: Vec<PortPlan>,
        mut inherited: InheritedPorts,
        clock: &Clock,
        signals: &Signals,
    ) -> Result<Self, HostError> {
        let open = plans
            .iter()
            .map(|plan| plan.open(clock, &mut inherited).map(Some));
        let open: Vec<_> = open.collect::<Result<_, _>>()?;
        let (own_keys, others) = inherited.keys();
        let adopted = plans.iter().filter(|plan| {
            let key = plan.key.as_ref();
            key.is_some_and(|key| own_keys.contains(key))
        });
        open::review(adopted.map(|plan| &plan.port));
        Ok(Self {
            poller: Poller::new(signals, &open).map_err(system("wait for the ports"))?,
            plans: Arc::new(plans),
            open,
            missing: Vec::new(),
            store: Store::new(own_keys, &others),
            events: Events {
                is_woken: true,
                has_rates: true,
                has_successor: false,
            },
        })
    }

    /// Returns the plans of all ports.
    pub(super) const fn plans(&self) -> &Arc<Vec<PortPlan>> {
        &self.plans
    }

    /// Returns all ports, for the switch.
    pub(super) fn all(&self) -> &Ports {
        &self.open
    }

    /// Returns all ports, for the switch.
    pub(super) fn all_mut(&mut self) -> &mut Ports {
        &mut self.open
    }

    /// Watches a descriptor that is no port, by its mark, for something to receive.
    pub(super) fn watch_other(&self, mark: u64, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.add(mark, descriptor)
    }

    /// Returns true, once, if a waker woke the loop.
    pub(super) fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.events.is_woken)
    }

    /// Returns true, once, if datagrams with rates wait.
    pub(super) fn take_rates(&mut self) -> bool {
        std::mem::take(&mut self.events.has_rates)
    }

    /// Returns true, once, if another daemon requests a takeover.
    pub(super) fn take_successor(&mut self) -> bool {
        std::mem::take(&mut self.events.has_successor)
    }

    /// Sleeps until `until`, a port is ready or there is another event. Reports ready ports to the
    /// switch, and keeps other events until a caller takes them.
    pub(super) fn wait(
        &mut self,
        now: Nanos,
        until: Option<Nanos>,
        switch: &mut Switch,
        signals: &Signals,
    ) -> Result<(), HostError> {
        let is_complete = self.watch_changed(switch)?;
        let until = if is_complete { until } else { Some(now) };
        let timeout = until.map(|until| until.since(now));
        let mut woken = false;
        let ready = self.poller.wait(timeout);
        for event in ready.map_err(system("wait for the ports"))? {
            match event {
                Ready::Woken => woken = true,
                Ready::Hose => self.events.has_rates = true,
                Ready::Successor => self.events.has_successor = true,
                Ready::Port {
                    index,
                    readable,
                    writable,
                } => {
                    if readable {
                        switch.handle_readable(PortIndex(index));
                    }
                    let mut either = false;
                    if let Some(port) = &mut self.open[index] {
                        port.note_ready();
                        either = port.readable_may_be_writable();
                    }
                    if writable || (readable && either) {
                        switch.handle_writable(PortIndex(index));
                    }
                }
            }
        }
        if woken {
            signals.clear();
            self.events.is_woken = true;
        }
        Ok(())
    }

    /// Watches the events that the switch awaits of some ports. Returns true if no port is left
    /// whose awaited events have changed.
    fn watch_changed(&mut self, switch: &mut Switch) -> Result<bool, HostError> {
        for _ in 0..WATCHED {
            let Some((index, interest)) = switch.poll_interest() else {
                return Ok(true);
            };
            let port = self.open[index.0].as_ref();
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
        Ok(false)
    }

    /// Stores the descriptors of all ports in systemd, for a restart after a crash.
    pub(super) fn keep_all(&mut self) {
        for index in 0..self.open.len() {
            self.keep(index);
        }
    }

    /// Stores the descriptor of a port in systemd.
    fn keep(&mut self, index: usize) {
        let port = self.open[index].as_deref();
        if let Some((key, descriptor)) = descriptor(&self.plans[index], port) {
            self.store.keep(key, descriptor);
        }
    }

    /// Returns the descriptors of the ports that are nothing more, with their keys.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let ports = self.plans.iter().zip(&self.open);
        ports.filter_map(|(plan, port)| descriptor(plan, port.as_deref()))
    }

    /// Closes a port that is unusable, until its interface is back.
    pub(super) fn handle_lost(&mut self, now: Nanos, port: PortIndex, error: &io::Error) {
        let lost_port = self.open[port.0].take();
        let descriptor = lost_port
            .as_ref()
            .and_then(|lost_port| lost_port.descriptor());
        self.poller.forget(port.0, descriptor);
        drop(lost_port);
        let plan = &self.plans[port.0];
        if let Some(key) = &plan.key {
            self.store.forget(key);
        }
        tracing::error!(
            port = plan.name, interface = %plan.port, %error,
            "port lost: its interface vanished or went down; the others go on, and it is taken \
             up again when it returns"
        );
        self.missing.push(MissingPort {
            index: port.0,
            retry_at: now + RETRY.0,
            delay: RETRY.0,
        });
    }

    /// Tries to open the missing port that has been due for longest. One port per turn: each takes
    /// system calls, and all may be due at the same time.
    pub(super) fn retry_missing(&mut self, now: Nanos, thread: &LoopThread, switch: &mut Switch) {
        let due = (self.missing.iter().enumerate()).min_by_key(|(_, missing)| missing.retry_at);
        let Some((position, &MissingPort { index, .. })) =
            due.filter(|(_, missing)| missing.retry_at <= now)
        else {
            return;
        };
        let plan = &self.plans[index];
        match thread.anywhere(|| plan.open_again(&thread.clock())) {
            Ok(port) => {
                tracing::info!(port = plan.name, interface = %plan.port, "port is back");
                self.missing.swap_remove(position);
                self.open[index] = Some(port);
                switch.handle_opened(PortIndex(index));
                self.keep(index);
            }
            Err(error) => {
                tracing::debug!(%error, "port is still missing");
                let missing = &mut self.missing[position];
                missing.delay = Nanos(missing.delay.0 * 2).min(RETRY.1);
                missing.retry_at = now + missing.delay;
            }
        }
    }

    /// Returns the time of the next attempt to open a missing port; `None` if none is missing.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.missing.iter().map(|missing| missing.retry_at).min()
    }

    /// Pauses all ports. Returns the state of each port that is more than a descriptor. A port that
    /// has not paused by `deadline` is opened anew by the next daemon.
    pub(super) fn pause(&mut self, clock: &Clock, deadline: Nanos) -> Vec<(CardKeys, Estate)> {
        let mut estates = Vec::new();
        for (plan, port) in self.plans.iter().zip(&mut self.open) {
            let Some(port) = port else {
                continue;
            };
            let Some(keys) = CardKeys::of(&plan.port) else {
                // It waits for nothing, and has no more than its descriptor.
                port.pause();
                continue;
            };
            if clock.now() < deadline
                && let Some(estate) = port.pause()
            {
                estates.push((keys, estate));
            }
        }
        estates
    }

    /// Resumes all ports after [`Self::pause`].
    pub(super) fn resume(&mut self) {
        for port in self.open.iter_mut().flatten() {
            port.resume();
        }
    }

    /// Puts other ports in force.
    pub(super) fn replace(&mut self, next: NextPorts) -> ReplacedPorts {
        let NextPorts {
            plans,
            former_indices,
            mut fresh,
        } = next;
        let mut places = vec![None; self.open.len()];
        let mut opened = VecDeque::new();
        for (index, (place, old)) in fresh.iter_mut().zip(&former_indices).enumerate() {
            if let Some(old) = *old {
                places[old] = Some(index);
                *place = self.open[old].take();
            } else {
                opened.push_back(index);
            }
        }
        self.missing.retain_mut(|missing| {
            let place = places[missing.index];
            missing.index = place.unwrap_or_default();
            place.is_some()
        });
        let marks = self.poller.rearrange(former_indices);
        let old = std::mem::replace(&mut self.open, fresh);
        let plans = std::mem::replace(&mut self.plans, Arc::new(plans));
        let removed_ports = old.into_iter().zip(marks).zip(places).enumerate();
        let removed_ports = removed_ports.filter(|(_, (_, place))| place.is_none());
        let removed_ports = removed_ports.map(|(index, ((port, mark), _))| RemovedPort {
            port,
            key: plans[index].key.clone(),
            mark,
        });
        let closing = ClosingPorts {
            gone: removed_ports.collect(),
            fresh: opened,
            closed: Vec::new(),
        };
        ReplacedPorts { closing, plans }
    }

    /// Starts to read some new ports and stores them in systemd, and forgets some old ones. Returns
    /// true when none of either is left.
    pub(super) fn clear_up(&mut self, closing: &mut ClosingPorts, switch: &mut Switch) -> bool {
        let fresh = closing.fresh.len().min(DESCRIPTORS);
        for index in closing.fresh.drain(..fresh) {
            switch.handle_opened(PortIndex(index));
            self.keep(index);
        }
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
}

/// The ports of a configuration that is not in force yet.
pub(super) struct NextPorts {
    plans: Vec<PortPlan>,
    /// The index of each port among those in force; `None` for a new one.
    former_indices: Vec<Option<usize>>,
    /// The new ports.
    fresh: Vec<Option<Box<dyn Port>>>,
}

impl NextPorts {
    /// Opens the ports of `plans`, except those that are open by a plan in force.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub(super) fn open(
        plans: Vec<PortPlan>,
        in_force: &[PortPlan],
        clock: &Clock,
    ) -> Result<Self, HostError> {
        let mut former_indices = Vec::with_capacity(plans.len());
        let mut fresh = Vec::with_capacity(plans.len());
        let old = in_force.iter().enumerate();
        let old: HashMap<_, _> = old.map(|(index, plan)| (&plan.port, index)).collect();
        for plan in &plans {
            let old = old.get(&plan.port).copied();
            former_indices.push(old);
            fresh.push(if old.is_some() {
                None
            } else {
                Some(plan.open(clock, &mut InheritedPorts::default())?)
            });
        }
        Ok(Self {
            plans,
            former_indices,
            fresh,
        })
    }
}

/// The former ports, after others came into force.
pub(super) struct ReplacedPorts {
    /// The remaining work.
    pub(super) closing: ClosingPorts,
    /// The plans of all former ports.
    pub(super) plans: Arc<Vec<PortPlan>>,
}

/// New ports, and ports that are no longer configured.
pub(super) struct ClosingPorts {
    /// New ports, which the switch must read and systemd must store.
    fresh: VecDeque<usize>,
    gone: Vec<RemovedPort>,
    /// Ports that only remain to be closed.
    closed: Vec<Box<dyn Port>>,
}

impl ClosingPorts {
    /// Returns the ports that only remain to be closed.
    pub(super) fn into_closed(self) -> Vec<Box<dyn Port>> {
        self.closed
    }
}

/// A port that is no longer configured, with its key in systemd and its mark in the kernel.
struct RemovedPort {
    port: Option<Box<dyn Port>>,
    key: Option<String>,
    mark: Mark,
}

/// Returns the descriptor of a port that is nothing more, with its key.
fn descriptor<'p>(
    plan: &'p PortPlan,
    port: Option<&'p dyn Port>,
) -> Option<(&'p str, BorrowedFd<'p>)> {
    Some((plan.key.as_deref()?, port?.descriptor()?))
}
