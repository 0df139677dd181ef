//! The thread of the packet loop: its clock, CPU, scheduling class and watchdog, and the CPU time of
//! its work beside packets. All methods are called in that thread.

use super::aside::Aside;
use super::class::Class;
use super::clock::Clock;
use super::core::Core;
use super::watchdog::Watchdog;
use super::{HostError, system};
use crate::config::{Config, LoopClass};
use crate::metrics::{AsideTimes, ClassState};
use tailbound_units::Nanos;

/// The settings of the packet loop's thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadConfig {
    /// The CPU that the thread is bound to; `None` for any.
    cpu: Option<u32>,
    /// The wanted scheduling class.
    class: LoopClass,
}

impl From<&Config> for ThreadConfig {
    fn from(config: &Config) -> Self {
        Self {
            cpu: config.cpu,
            class: config.loop_class,
        }
    }
}

/// The thread of the packet loop.
pub(super) struct LoopThread {
    clock: Clock,
    core: Core,
    cpu: Option<u32>,
    class: Class,
    aside: Aside,
    watchdog: Watchdog,
}

impl LoopThread {
    /// Moves the calling thread to its CPU and sets its class. Threads that it starts from then on
    /// may run on that CPU alone, except with [`Self::anywhere`].
    ///
    /// # Errors
    /// A real-time class is required, and the system refuses it.
    pub(super) fn start(core: Core, clock: Clock, config: ThreadConfig) -> Result<Self, HostError> {
        core.take(config.cpu);
        let class = Class::start(config.class)
            .map_err(system("set the loop's real-time class (loop_class)"))?;
        Ok(Self {
            clock,
            core,
            cpu: config.cpu,
            class,
            aside: Aside::default(),
            watchdog: Watchdog::start(clock.now()),
        })
    }

    /// Returns the loop's clock.
    pub(super) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the CPUs of the process.
    pub(super) const fn core(&self) -> Core {
        self.core
    }

    /// Runs `work` while the thread may use all CPUs ([`Core::anywhere`]).
    pub(super) fn anywhere<T>(&self, work: impl FnOnce() -> T) -> T {
        self.core.anywhere(work)
    }

    /// Begins a turn. Its CPU time is counted if it `has_other_work` than packets.
    pub(super) fn begin_turn(&mut self, has_other_work: bool) {
        self.aside.begin(has_other_work);
    }

    /// Ends a turn; `waits` is true if the loop sleeps after it.
    pub(super) fn end_turn(&mut self, now: Nanos, waits: bool) {
        self.aside.end();
        self.watchdog.turn(now);
        self.class.turn(now, waits);
    }

    /// Returns the latest time of the next turn; `None` without a watchdog.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        self.watchdog.poll_at()
    }

    /// Applies other settings.
    pub(super) fn reconfigure(&mut self, config: ThreadConfig) {
        if self.cpu != config.cpu {
            self.cpu = config.cpu;
            self.core.take(config.cpu);
        }
        if self.class.wanted() != config.class
            && let Err(error) = self.class.take(config.class)
        {
            tracing::error!(%error, "the packet loop goes on without a real-time class");
        }
    }

    /// Returns the CPU times of turns with work beside packets.
    pub(super) fn aside_times(&self) -> AsideTimes {
        self.aside.times()
    }

    /// Returns the present class.
    pub(super) fn class_state(&self) -> ClassState {
        self.class.state()
    }
}
