//! A host under Xen: a driver domain, guests, and the rings between them.
//!
//! Path of a received frame: the NIC interrupts the driver domain, which passes each frame through
//! its bridge to netback; netback copies the frames into the guest's ring and sends an event; the
//! guest's NAPI reads them. Path of a sent frame: it is in the guest's ring, an event wakes the
//! driver domain, and the driver domain puts it on the wire. Each step runs when the scheduler runs
//! the vCPU that does it.

use crate::scheduler::{AnyScheduler, SchedulerSpec};
use std::collections::VecDeque;
use tailbound_dataplane::snoop::{Direction, Origin, RingPlacement, TcpFrame};
use tailbound_dataplane::{Snoop, SnoopStats};
use tailbound_hypervisor::netif::{EnqueueResult, NetifConfig, POLL_BUDGET, Receive, Transmit};
use tailbound_hypervisor::{
    Costs, Domain, Guests, Happening, Host, Machine, PcpuSet, SimulationConfig, VcpuId, Wake,
};
use tailbound_units::Nanos;

/// The driver domain's only vCPU.
pub(crate) const DRIVER: VcpuId = VcpuId(0);

/// A domain on a host, with its vCPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    /// Kind, as schedulers name it.
    pub(crate) kind: &'static str,
    pub(crate) domain: Domain,
    /// CPUs that it may run on.
    pub(crate) core: PcpuSet,
}

/// CPUs of a host, and their scheduler.
pub(crate) struct Cpus<'s> {
    pub(crate) pcpus: u32,
    pub(crate) scheduler: &'s SchedulerSpec,
    pub(crate) costs: Costs,
    pub(crate) config: SimulationConfig,
}

impl Cpus<'_> {
    /// Returns these vCPUs on the CPUs.
    ///
    /// # Errors
    /// Reason for which the host or the scheduler refuses the configuration.
    pub(crate) fn machine(&self, seats: &[Seat]) -> Result<Machine<AnyScheduler>, String> {
        let mut host = Host::new(self.pcpus).map_err(|it| it.to_string())?;
        for seat in seats {
            let domain = host.add_domain(seat.domain).map_err(|it| it.to_string())?;
            host.add_pinned_vcpu(domain, seat.core)
                .map_err(|it| it.to_string())?;
        }
        let kinds: Vec<&str> = seats.iter().map(|seat| seat.kind).collect();
        let scheduler = self.scheduler.build(&host, &kinds)?;
        Ok(Machine::new(&host, scheduler, self.costs))
    }

    /// Returns these vCPUs with a guest on each, without load.
    ///
    /// # Errors
    /// Same as [`Self::machine`].
    pub(crate) fn guests<J>(&self, seats: &[Seat]) -> Result<Guests<AnyScheduler, J>, String> {
        Ok(Guests::new(self.machine(seats)?, self.config))
    }
}

/// CPU time of the steps, and interrupt moderation of the NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The driver domain's CPU time for a frame, either way.
    pub(crate) driver: Nanos,
    /// A guest's CPU time for a frame, either way, including its TCP.
    pub(crate) guest: Nanos,
    /// Longest delay of the NIC's interrupt after a frame.
    pub(crate) interrupt: Nanos,
    /// Number of frames after which the NIC interrupts immediately.
    pub(crate) frames: usize,
    /// Interval at which the driver domain handles events of guests; 0 is immediately.
    pub(crate) hears: Nanos,
}

impl Steps {
    /// Costs at 3 GHz with a Broadcom `NetXtreme`.
    ///
    /// In vSnoop's table I, 509 cycles are 3.03 % of the CPU time, so a packet takes 16,800 cycles
    /// in all, 5.6 us; of these a guest's own are about 2 us. The NIC's driver (`tg3`) sets 20 us
    /// or 5 frames.
    pub(crate) const PAPER: Self = Self {
        driver: Nanos(3_600),
        guest: Nanos(2_000),
        interrupt: Nanos::from_micros(20),
        frames: 5,
        hears: Nanos::ZERO,
    };
}

/// A job of a vCPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Job<F, W> {
    /// The driver domain: a frame from the NIC to a guest's netback.
    Bridge(VcpuId, F),
    /// The driver domain: slots were posted in a guest's ring.
    Resume(VcpuId),
    /// The driver domain: a guest's next frame to the wire.
    Outbound(VcpuId),
    /// The driver domain: a timer of early acknowledgement.
    Snoop(VcpuId),
    /// A guest: the next frame of its ring.
    Poll,
    /// A guest: work of its caller.
    Work(W),
}

/// Position of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// At the NIC, received.
    Arrived,
    /// Through the driver domain's bridge, at the guest's ring.
    Bridged,
    /// Read from the ring by the guest.
    Taken,
    /// In the guest's ring, sent.
    Answered,
    /// Read from there by the driver domain.
    Left,
}

/// A frame of a host.
pub(crate) trait Carried: Copy {
    /// Records a step. Returns true if the host also records its time ([`XenHost::marks`]).
    fn passes(&mut self, step: Step, now: Nanos) -> bool;
}

/// Times of the last ping's steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    pub(crate) arrived: Nanos,
    pub(crate) bridged: Nanos,
    pub(crate) taken: Nanos,
    pub(crate) answered: Nanos,
    pub(crate) left: Nanos,
}

impl Marks {
    fn pass<F: Carried>(&mut self, frame: &mut F, step: Step, now: Nanos) {
        if !frame.passes(step, now) {
            return;
        }
        *match step {
            Step::Arrived => &mut self.arrived,
            Step::Bridged => &mut self.bridged,
            Step::Taken => &mut self.taken,
            Step::Answered => &mut self.answered,
            Step::Left => &mut self.left,
        } = now;
    }
}

/// Output of a host, for the code that interprets frames.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output<F, W> {
    /// A frame for a guest's TCP.
    Receive(F),
    /// The end of a guest's softirq: its applications may run.
    Received(VcpuId),
    /// A frame for the wire.
    Wire(F),
    /// Work that a guest completed.
    Done(VcpuId, W),
}

/// Early acknowledgement for a guest at its ring.
pub(crate) trait Early<F>: Send {
    /// Handles a frame for the guest; returns it unless it is answered here.
    fn arrives(&mut self, now: Nanos, frame: F) -> Option<F>;
    /// Handles the outcome of the last frame that arrived.
    fn placed(&mut self, placed: RingPlacement);
    /// Handles a frame of the guest.
    fn leaves(&mut self, now: Nanos, frame: F) -> Option<F>;
    /// Returns the time of the next timer.
    fn due(&self) -> Option<Nanos>;
    /// Handles expired timers.
    fn look(&mut self, now: Nanos);
    /// Returns the next of its own frames for the guest.
    fn to_guest(&mut self) -> Option<F>;
    /// Returns the next of its own frames for the guest's peers.
    fn to_peer(&mut self) -> Option<F>;
    /// Returns its counters.
    fn stats(&self) -> SnoopStats;
}

impl<F: TcpFrame> Early<F> for Snoop<F>
where
    Self: Send,
{
    fn arrives(&mut self, now: Nanos, frame: F) -> Option<F> {
        self.handle_ingress(now, frame)
    }
    fn placed(&mut self, placed: RingPlacement) {
        self.handle_placed(placed);
    }
    fn leaves(&mut self, now: Nanos, frame: F) -> Option<F> {
        self.handle_egress(now, frame, Origin::OUTSIDE)
    }
    fn due(&self) -> Option<Nanos> {
        self.poll_at()
    }
    fn look(&mut self, now: Nanos) {
        self.handle_timeout(now);
    }
    fn to_guest(&mut self) -> Option<F> {
        self.poll_to_guest()
    }
    fn to_peer(&mut self) -> Option<F> {
        self.poll_to_peer()
    }
    fn stats(&self) -> SnoopStats {
        self.stats()
    }
}

/// A guest's network card.
struct Card<F> {
    receive: Receive<F>,
    transmit: Transmit<F>,
    /// Number of frames in the current NAPI poll, if it runs.
    polling: Option<usize>,
    early: Option<Box<dyn Early<F>>>,
    /// True if its timer is scheduled to be handled.
    snoop_pending: bool,
}

impl<F> Card<F> {
    /// Passes a frame from the bridge to netback, through early acknowledgement.
    fn bridge(&mut self, now: Nanos, frame: F) {
        let Some(early) = &mut self.early else {
            self.receive.give(frame);
            return;
        };
        let passed = early.arrives(now, frame);
        let taken = passed.map(|frame| self.receive.give(frame));
        early.placed(match taken {
            None | Some(EnqueueResult::Placed) => RingPlacement::All,
            Some(EnqueueResult::Queued) => RingPlacement::Waits,
            Some(EnqueueResult::Dropped) => RingPlacement::Lost,
        });
    }

    /// Returns the time of early acknowledgement's next timer that is not scheduled yet.
    fn snoop_at(&self) -> Nanos {
        let due = self.early.as_ref().and_then(|it| it.due());
        due.filter(|_| !self.snoop_pending).unwrap_or(Nanos::MAX)
    }
}

/// The host. Its guests are the vCPUs after [`DRIVER`].
///
/// Frames are of type `F`; work of guests besides receiving is of type `W`.
pub(crate) struct XenHost<F, W> {
    guests: Guests<AnyScheduler, Job<F, W>>,
    steps: Steps,
    cards: Vec<Card<F>>,
    /// Frames at the NIC before its interrupt.
    waiting: Vec<(VcpuId, F)>,
    interrupt_at: Nanos,
    /// Guests with events that the driver domain has not handled, and the time at which it does.
    heard: Vec<VcpuId>,
    heard_at: Nanos,
    marks: Marks,
    out: VecDeque<Output<F, W>>,
}

impl<F: Carried, W: Copy> XenHost<F, W> {
    pub(crate) fn new(
        guests: Guests<AnyScheduler, Job<F, W>>,
        netif: NetifConfig,
        steps: Steps,
        mut early: impl FnMut() -> Option<Box<dyn Early<F>>>,
    ) -> Self {
        let card = |_| Card {
            receive: Receive::new(netif),
            transmit: Transmit::default(),
            polling: None,
            early: early(),
            snoop_pending: false,
        };
        Self {
            cards: (0..guests.machine().vcpus()).map(card).collect(),
            guests,
            steps,
            waiting: Vec::new(),
            interrupt_at: Nanos::MAX,
            heard: Vec::new(),
            heard_at: Nanos::MAX,
            marks: Marks::default(),
            out: VecDeque::new(),
        }
    }

    /// Passes the handshake of a connection that was opened earlier to the early acknowledgement of
    /// a guest.
    pub(crate) fn shake(&mut self, guest: VcpuId, steps: impl IntoIterator<Item = (Direction, F)>) {
        let now = self.guests.machine().now();
        let Some(early) = &mut self.cards[guest.index()].early else {
            return;
        };
        for (direction, frame) in steps {
            match direction {
                Direction::ToGuest => {
                    early.arrives(now, frame);
                    early.placed(RingPlacement::All);
                }
                Direction::ToPeer => {
                    early.leaves(now, frame);
                }
            }
        }
    }

    /// Number of frames that were dropped because the guests' rings were full.
    pub(crate) fn dropped(&self) -> u64 {
        self.cards.iter().map(|card| card.receive.dropped()).sum()
    }

    /// Counters of early acknowledgement for its guests.
    pub(crate) fn snooped(&self) -> impl Iterator<Item = SnoopStats> {
        let early = self.cards.iter().filter_map(|card| card.early.as_ref());
        early.map(|it| it.stats())
    }

    /// Returns the times of the last ping's steps.
    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    /// Returns the CPU time that a vCPU has used.
    pub(crate) fn used(&self, vcpu: VcpuId) -> Nanos {
        self.guests.machine().stats(vcpu).run
    }

    fn snoop_at(&self) -> Nanos {
        let due = self.cards.iter().map(Card::snoop_at).min();
        due.unwrap_or(Nanos::MAX)
    }

    /// Returns the time of the next event besides the vCPUs' jobs.
    fn own_at(&self) -> Nanos {
        let events = self.interrupt_at.min(self.heard_at);
        events.min(self.snoop_at())
    }

    /// Returns the time of the next event.
    pub(crate) fn poll_at(&self) -> Nanos {
        let own = self.own_at();
        self.guests.poll_at().min(own)
    }

    /// Runs to `now`, or to the next output, which the caller must handle first; returns `None` if
    /// there is no output until then.
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<(Nanos, Output<F, W>)> {
        loop {
            if let Some(output) = self.out.pop_front() {
                return Some((self.guests.machine().now(), output));
            }
            let until = now.min(self.own_at());
            if let Some(happening) = self.guests.next(until) {
                if let Happening::Done { vcpu, job, .. } = happening {
                    self.done(vcpu, job);
                }
            } else if self.heard_at <= until {
                self.heard_at = Nanos::MAX;
                for guest in std::mem::take(&mut self.heard) {
                    self.drive(Job::Outbound(guest));
                }
            } else if self.snoop_at() <= until {
                self.look_at_snoops(until);
            } else if self.interrupt_at > now {
                return None;
            } else {
                self.interrupt_at = Nanos::MAX;
                for (guest, frame) in std::mem::take(&mut self.waiting) {
                    self.drive(Job::Bridge(guest, frame));
                }
            }
        }
    }

    /// Schedules the driver domain to handle the expired timers of early acknowledgement.
    fn look_at_snoops(&mut self, now: Nanos) {
        for index in 0..self.cards.len() {
            if self.cards[index].snoop_at() <= now {
                self.cards[index].snoop_pending = true;
                self.drive(Job::Snoop(VcpuId(index as u32)));
            }
        }
    }

    /// Receives a frame at the NIC for a guest, or for the driver domain itself. The host must be
    /// at `now`.
    pub(crate) fn arrive(&mut self, now: Nanos, guest: VcpuId, mut frame: F) {
        self.marks.pass(&mut frame, Step::Arrived, now);
        self.waiting.push((guest, frame));
        let at = if self.waiting.len() >= self.steps.frames {
            now
        } else {
            now + self.steps.interrupt
        };
        self.interrupt_at = self.interrupt_at.min(at);
    }

    fn drive(&mut self, job: Job<F, W>) {
        self.guests
            .offer(DRIVER, job, self.steps.driver, Wake::Event);
    }

    /// Sends a frame of a guest, in the time of its current job.
    pub(crate) fn send(&mut self, guest: VcpuId, mut frame: F) {
        let now = self.guests.machine().now();
        self.marks.pass(&mut frame, Step::Answered, now);
        if self.cards[guest.index()].transmit.send(frame) {
            let hears = self.steps.hears;
            let at = if hears == Nanos::ZERO {
                now
            } else {
                Nanos((now.0 / hears.0 + 1) * hears.0)
            };
            self.heard.push(guest);
            self.heard_at = self.heard_at.min(at);
        }
    }

    /// Adds work for a guest, with `cost` of CPU time.
    pub(crate) fn work(&mut self, guest: VcpuId, work: W, cost: Nanos, cause: Wake) {
        self.guests.offer(guest, Job::Work(work), cost, cause);
    }

    fn done(&mut self, vcpu: VcpuId, job: Job<F, W>) {
        let now = self.guests.machine().now();
        match job {
            Job::Bridge(DRIVER, frame) => self.out.push_back(Output::Receive(frame)),
            Job::Bridge(guest, mut frame) => {
                self.marks.pass(&mut frame, Step::Bridged, now);
                self.cards[guest.index()].bridge(now, frame);
                self.end_batch(guest);
            }
            Job::Resume(guest) => {
                self.cards[guest.index()].receive.resume();
                self.end_batch(guest);
            }
            Job::Outbound(guest) => {
                let card = &mut self.cards[guest.index()];
                if let Some(mut frame) = card.transmit.take() {
                    self.marks.pass(&mut frame, Step::Left, now);
                    let goes = match &mut card.early {
                        None => Some(frame),
                        Some(early) => early.leaves(now, frame),
                    };
                    self.out.extend(goes.map(Output::Wire));
                    // The job that finds no frame requests an event.
                    self.drive(Job::Outbound(guest));
                }
                self.end_batch(guest);
            }
            Job::Snoop(guest) => {
                let card = &mut self.cards[guest.index()];
                card.snoop_pending = false;
                if let Some(early) = &mut card.early {
                    early.look(now);
                }
                self.end_batch(guest);
            }
            Job::Poll => self.take_frame(vcpu),
            Job::Work(work) => self.out.push_back(Output::Done(vcpu, work)),
        }
    }

    /// Sends the frames of early acknowledgement for a guest. Once the driver domain's softirqs
    /// have no more jobs, netback copies its frames.
    fn end_batch(&mut self, guest: VcpuId) {
        let card = &mut self.cards[guest.index()];
        if let Some(early) = &mut card.early {
            while card.receive.room() > 0
                && let Some(frame) = early.to_guest()
            {
                card.receive.give(frame);
            }
            while let Some(frame) = early.to_peer() {
                self.out.push_back(Output::Wire(frame));
            }
        }
        if self.guests.has_jobs(DRIVER) {
            return;
        }
        for index in 0..self.cards.len() {
            let card = &mut self.cards[index];
            if card.receive.answer() && card.polling.is_none() {
                card.polling = Some(0);
                let guest = VcpuId(index as u32);
                self.guests
                    .offer(guest, Job::Poll, self.steps.guest, Wake::Event);
            }
        }
    }

    /// Handles a frame that a guest's NAPI has processed.
    fn take_frame(&mut self, guest: VcpuId) {
        let card = &mut self.cards[guest.index()];
        let taken = card.polling.unwrap_or(0);
        let frame = card.receive.take();
        let taken = taken + usize::from(frame.is_some());
        if let Some(mut frame) = frame {
            let now = self.guests.machine().now();
            self.marks.pass(&mut frame, Step::Taken, now);
            self.out.push_back(Output::Receive(frame));
        }
        card.polling = Some(taken);
        let more = card.receive.has_more();
        if more && taken < POLL_BUDGET {
            self.guests
                .offer(guest, Job::Poll, self.steps.guest, Wake::Event);
            return;
        }
        self.end_poll(guest);
    }

    fn end_poll(&mut self, guest: VcpuId) {
        let card = &mut self.cards[guest.index()];
        let posted = card.receive.end_poll();
        if card.receive.sleep() {
            card.polling = Some(0);
            self.guests
                .offer(guest, Job::Poll, self.steps.guest, Wake::Event);
        } else {
            card.polling = None;
            self.out.push_back(Output::Received(guest));
        }
        if posted {
            self.drive(Job::Resume(guest));
        }
    }
}
