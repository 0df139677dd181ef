//! A machine under Xen: a driver domain, guests, and the rings between them.
//!
//! The way in: the NIC interrupts the driver domain, which takes frame by frame through its
//! bridge to netback; netback copies them into the guest's ring and sends an event; the
//! guest's NAPI takes them. The way out: the guest's frames stand in its ring, an event
//! wakes the driver domain, and it puts them on the wire. Whoever does a step does it when
//! the scheduler lets it.

use super::frame::{End, Frame, Kind};
use crate::vcpu::sweep::AnyScheduler;
use std::collections::VecDeque;
use tailbound_dataplane::snoop::{Origin, Placed};
use tailbound_dataplane::{Snoop, SnoopConfig, SnoopStats};
use tailbound_hypervisor::netif::{NetifConfig, POLL_BUDGET, Receive, Taken, Transmit};
use tailbound_hypervisor::{Guests, Happening, VcpuId, Wake};
use tailbound_units::Nanos;

/// The driver domain's only vCPU.
pub(super) const DRIVER: VcpuId = VcpuId(0);

/// CPU time of the steps, and when the NIC interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steps {
    /// The driver domain's for a frame, either way.
    pub(super) driver: Nanos,
    /// A guest's for a frame, either way, up to and with its TCP.
    pub(super) guest: Nanos,
    /// How long after a frame the NIC interrupts,
    pub(super) interrupt: Nanos,
    /// or after how many frames.
    pub(super) frames: usize,
    /// The driver domain hears of a guest's frames at the next multiple of this; 0: at once.
    pub(super) hears: Nanos,
}

impl Steps {
    /// At 3 GHz with a Broadcom `NetXtreme`.
    ///
    /// vSnoop's table I gives 509 cycles as 3.03 % of the CPU time, so a packet takes
    /// 16,800 cycles in all, 5.6 us; of these a guest's own are about 2 us. The NIC's
    /// driver (`tg3`) sets 20 us or 5 frames.
    pub(super) const PAPER: Self = Self {
        driver: Nanos(3_600),
        guest: Nanos(2_000),
        interrupt: Nanos::from_micros(20),
        frames: 5,
        hears: Nanos::ZERO,
    };
}

/// What is done on a vCPU.
#[derive(Debug, Clone, Copy)]
pub(super) enum Job {
    /// The driver domain: a frame from the NIC to a guest's netback.
    Bridge(VcpuId, Frame),
    /// The driver domain: slots were posted in a guest's ring.
    Resume(VcpuId),
    /// The driver domain: the next frame of a guest's to the wire.
    Outbound(VcpuId),
    /// The driver domain: a timer of early acknowledgement.
    Snoop(VcpuId),
    /// A guest: the next frame of its ring.
    Poll,
    /// A guest: what its caller asked for.
    Work(Work),
}

/// What a guest does beside receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Its application looks at a connection.
    Application(End),
    /// Its TCP looks at its timers.
    Timer(End),
    /// An application computes: what the caller calls it, and what is left of it.
    Compute(u32, Nanos),
}

/// When the last ping was where.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    /// At the NIC, on its way in.
    pub(super) arrived: Nanos,
    /// Through the driver domain's bridge, at the guest's ring.
    pub(super) bridged: Nanos,
    /// Taken from the ring by the guest.
    pub(super) taken: Nanos,
    /// Answered by the guest: in its ring on the way out.
    pub(super) answered: Nanos,
    /// Taken from there by the driver domain.
    pub(super) left: Nanos,
}

/// What a machine hands to whoever knows what frames mean.
#[derive(Debug, Clone, Copy)]
pub(super) enum Output {
    /// A guest's TCP gets a frame.
    Receive(Frame),
    /// A guest's softirq is through: its applications may run.
    Received(VcpuId),
    /// A frame goes onto the wire.
    Wire(Frame),
    /// A guest has done this.
    Done(VcpuId, Work),
}

/// A guest's network card.
#[derive(Debug)]
struct Card {
    receive: Receive<Frame>,
    transmit: Transmit<Frame>,
    /// While NAPI runs: the frames taken in this poll.
    polling: Option<usize>,
    snoop: Option<Snoop<Frame>>,
    /// Its timer is about to be looked at.
    snoop_pending: bool,
}

impl Card {
    /// Gives a frame from the bridge to netback, past early acknowledgement.
    fn bridge(&mut self, now: Nanos, frame: Frame) {
        let Some(snoop) = &mut self.snoop else {
            self.receive.give(frame);
            return;
        };
        let passed = snoop.handle_ingress(now, frame);
        let taken = passed.map(|frame| self.receive.give(frame));
        snoop.handle_placed(match taken {
            None | Some(Taken::Placed) => Placed::All,
            Some(Taken::Queued) => Placed::Waits,
            Some(Taken::Dropped) => Placed::Lost,
        });
    }

    /// When a timer of early acknowledgement is due that nobody looks at yet.
    fn snoop_at(&self) -> Nanos {
        let due = self.snoop.as_ref().and_then(Snoop::poll_at);
        due.filter(|_| !self.snoop_pending).unwrap_or(Nanos::MAX)
    }
}

/// The machine. Its guests are the vCPUs behind [`DRIVER`].
pub(super) struct XenHost {
    guests: Guests<AnyScheduler, Job>,
    steps: Steps,
    cards: Vec<Card>,
    /// Frames that the NIC has got and not told of.
    waiting: Vec<(VcpuId, Frame)>,
    interrupt_at: Nanos,
    /// Guests whose events the driver domain has not heard of, and when it does.
    heard: Vec<VcpuId>,
    heard_at: Nanos,
    marks: Marks,
    out: VecDeque<Output>,
}

impl XenHost {
    pub(super) fn new(
        guests: Guests<AnyScheduler, Job>,
        netif: NetifConfig,
        snoop: Option<SnoopConfig>,
        steps: Steps,
    ) -> Self {
        let card = |_| Card {
            receive: Receive::new(netif),
            transmit: Transmit::default(),
            polling: None,
            snoop: snoop.map(|config| Snoop::new(config, ())),
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

    /// Frames that the guests' rings had no room for.
    pub(super) fn dropped(&self) -> u64 {
        self.cards.iter().map(|card| card.receive.dropped()).sum()
    }

    /// What early acknowledgement did for its guests.
    pub(super) fn snooped(&self) -> impl Iterator<Item = SnoopStats> {
        let snoops = self.cards.iter().filter_map(|card| card.snoop.as_ref());
        snoops.map(Snoop::stats)
    }

    /// When the last ping was where.
    pub(super) fn marks(&self) -> Marks {
        self.marks
    }

    /// The CPU time that a vCPU had so far.
    pub(super) fn used(&self, vcpu: VcpuId) -> Nanos {
        self.guests.machine().stats(vcpu).run
    }

    fn snoop_at(&self) -> Nanos {
        let due = self.cards.iter().map(Card::snoop_at).min();
        due.unwrap_or(Nanos::MAX)
    }

    /// When something beside the vCPUs' work is next to be done.
    fn own_at(&self) -> Nanos {
        let events = self.interrupt_at.min(self.heard_at);
        events.min(self.snoop_at())
    }

    /// When something is next to be done.
    pub(super) fn poll_at(&self) -> Nanos {
        let own = self.own_at();
        self.guests.poll_at().min(own)
    }

    /// Goes on to `now`, or to what the caller is to handle first; `None` once there is
    /// nothing more until then.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<(Nanos, Output)> {
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

    /// The driver domain is to look at the timers of early acknowledgement that are due.
    fn look_at_snoops(&mut self, now: Nanos) {
        for index in 0..self.cards.len() {
            if self.cards[index].snoop_at() <= now {
                self.cards[index].snoop_pending = true;
                self.drive(Job::Snoop(VcpuId(index as u32)));
            }
        }
    }

    /// The NIC has got a frame for a guest, or for the driver domain itself. The machine
    /// must be at `now`.
    pub(super) fn arrive(&mut self, now: Nanos, guest: VcpuId, frame: Frame) {
        if frame.kind == Kind::Echo {
            self.marks.arrived = now;
        }
        self.waiting.push((guest, frame));
        let at = if self.waiting.len() >= self.steps.frames {
            now
        } else {
            now + self.steps.interrupt
        };
        self.interrupt_at = self.interrupt_at.min(at);
    }

    fn drive(&mut self, job: Job) {
        self.guests
            .offer(DRIVER, job, self.steps.driver, Wake::Event);
    }

    /// A guest sends a frame, in the time of what it is doing.
    pub(super) fn send(&mut self, guest: VcpuId, frame: Frame) {
        if frame.kind == Kind::Echo {
            self.marks.answered = self.guests.machine().now();
        }
        if self.cards[guest.index()].transmit.send(frame) {
            let (now, hears) = (self.guests.machine().now(), self.steps.hears);
            let at = if hears == Nanos::ZERO {
                now
            } else {
                Nanos((now.0 / hears.0 + 1) * hears.0)
            };
            self.heard.push(guest);
            self.heard_at = self.heard_at.min(at);
        }
    }

    /// A guest is to do something, `cost` of CPU time.
    pub(super) fn work(&mut self, guest: VcpuId, work: Work, cost: Nanos, cause: Wake) {
        self.guests.offer(guest, Job::Work(work), cost, cause);
    }

    fn done(&mut self, vcpu: VcpuId, job: Job) {
        let now = self.guests.machine().now();
        match job {
            Job::Bridge(DRIVER, frame) => self.out.push_back(Output::Receive(frame)),
            Job::Bridge(guest, frame) => {
                if frame.kind == Kind::Echo {
                    self.marks.bridged = now;
                }
                self.cards[guest.index()].bridge(now, frame);
                self.end_batch(guest);
            }
            Job::Resume(guest) => {
                self.cards[guest.index()].receive.resume();
                self.end_batch(guest);
            }
            Job::Outbound(guest) => {
                let card = &mut self.cards[guest.index()];
                if let Some(frame) = card.transmit.take() {
                    if frame.kind == Kind::Echo {
                        self.marks.left = now;
                    }
                    let goes = match &mut card.snoop {
                        None => Some(frame),
                        Some(snoop) => snoop.handle_egress(now, frame, Origin::OUTSIDE),
                    };
                    self.out.extend(goes.map(Output::Wire));
                    // The one that finds nothing asks for an event.
                    self.drive(Job::Outbound(guest));
                }
                self.end_batch(guest);
            }
            Job::Snoop(guest) => {
                let card = &mut self.cards[guest.index()];
                card.snoop_pending = false;
                if let Some(snoop) = &mut card.snoop {
                    snoop.handle_timeout(now);
                }
                self.end_batch(guest);
            }
            Job::Poll => self.take_frame(vcpu),
            Job::Work(work) => self.out.push_back(Output::Done(vcpu, work)),
        }
    }

    /// Sends what early acknowledgement has to say for a guest. Once the driver domain's
    /// softirqs have nothing more to do, netback copies what it took.
    fn end_batch(&mut self, guest: VcpuId) {
        let card = &mut self.cards[guest.index()];
        if let Some(snoop) = &mut card.snoop {
            while card.receive.room() > 0
                && let Some(frame) = snoop.poll_to_guest()
            {
                card.receive.give(frame);
            }
            while let Some(frame) = snoop.poll_to_peer() {
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

    /// A guest's NAPI has worked on a frame.
    fn take_frame(&mut self, guest: VcpuId) {
        let card = &mut self.cards[guest.index()];
        let taken = card.polling.unwrap_or(0);
        let frame = card.receive.take();
        let taken = taken + usize::from(frame.is_some());
        if let Some(frame) = frame {
            if frame.kind == Kind::Echo {
                self.marks.taken = self.guests.machine().now();
            }
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
