//! One bound for a message including the CPU at both ends: a sender with a reservation of
//! `SCHED_DEADLINE`, the pacer of the data path, a network with a bounded delay, and a receiver
//! with a reservation. The only check is that no message takes longer.

use super::FRAME;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_dataplane::pacer::{Guarantee, Pacer, PacerConfig, WireItem};
use tailbound_dataplane::{GuestId, PacketRecord};
use tailbound_hypervisor::reservation::{Deadline, Disturbance, Pool};
use tailbound_hypervisor::{Costs, Domain, Enforcement, Event, Host, Machine};
use tailbound_hypervisor::{SchedDeadline, VcpuId, Wake};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// Messages of one pair of machines.
const PAIR: u32 = 1000;
const LINK: Rate = Rate::from_mbit(10_000);
/// Part of the guaranteed delay that a pacer may use for a batch.
const QUEUE: Nanos = Nanos::from_micros(50);

/// A host with reservations on all its CPUs; the first of them is measured.
struct End {
    machine: Machine<SchedDeadline>,
    demand: Nanos,
    /// Guaranteed upper limit of the message's time on this host.
    promised: Nanos,
    /// Next wake-up of each other thread, and its longest work and sleep; without a sleep it never
    /// wakes.
    wakes: Vec<Nanos>,
    habits: Vec<(u64, u64)>,
    random: Pcg64Mcg,
    events: Vec<Event>,
}

fn reservation(random: &mut Pcg64Mcg) -> Deadline {
    let period = random.random_range(2_000_000..20_000_000);
    let deadline = random.random_range(period / 2..=period);
    Deadline {
        runtime: Nanos(random.random_range(100_000..=deadline / 2)),
        deadline: Nanos(deadline),
        period: Nanos(period),
    }
}

/// Returns CPUs with reservations that fit, and the kernel's enforcement.
fn pool(random: &mut Pcg64Mcg) -> (Pool, Vec<Deadline>, Enforcement) {
    loop {
        let every = random.random_range(250_000..=4_000_000);
        let ticks = Enforcement::Tick {
            every: Nanos(every),
            at: Nanos(random.random_range(0..every)),
        };
        let (enforcement, overrun) = if random.random() {
            (ticks, Nanos(every))
        } else {
            (Enforcement::Timer, Nanos::ZERO)
        };
        let threads = random.random_range(1..=4);
        let all: Vec<_> = (0..threads).map(|_| reservation(random)).collect();
        let densities = all.iter().map(Deadline::density);
        let pool = Pool {
            cpus: random.random_range(1..=3),
            threads,
            largest: densities.clone().max().unwrap_or(0),
            reservable: densities.sum(),
            disturbance: Disturbance {
                overrun,
                ..Disturbance::default()
            },
        };
        if pool.services(&all).is_ok() {
            return (pool, all, enforcement);
        }
    }
}

impl End {
    fn new(random: &mut Pcg64Mcg) -> Self {
        let (pool, all, enforcement) = pool(random);
        let mut host = Host::new(pool.cpus).expect("some CPUs");
        let domain = host.add_domain(Domain::default()).expect("a weight");
        for _ in &all {
            host.add_vcpu(domain).expect("the domain exists");
        }
        let scheduler = SchedDeadline::new(&host, &all, enforcement).expect("they are kept");
        let demand = Nanos(random.random_range(1_000..=3 * all[0].runtime.0));
        let service = pool.service(all[0]).expect("it is kept");
        let habits = all.iter().map(|other| {
            let work = random.random_range(1..=2 * other.runtime.0);
            let sleeps = random.random_range(0..3) > 0;
            (work, if sleeps { 2 * other.period.0 } else { 0 })
        });
        let habits: Vec<_> = habits.collect();
        Self {
            machine: Machine::new(&host, scheduler, Costs::default()),
            demand,
            promised: service.latency(demand).total(),
            wakes: [Nanos::MAX]
                .into_iter()
                .chain(vec![Nanos(1); all.len() - 1])
                .collect(),
            habits,
            random: Pcg64Mcg::seed_from_u64(random.random()),
            events: Vec::new(),
        }
    }

    /// Runs the first thread's work, which arrives at `at`; returns the time of its completion.
    fn serve(&mut self, at: Nanos) -> Nanos {
        self.wakes[0] = at;
        loop {
            let next = self.wakes.iter().copied().min().unwrap_or(Nanos::MAX);
            let now = self.machine.poll_at().map_or(next, |at| at.min(next));
            self.events.clear();
            self.machine.advance(now, &mut self.events);
            let mut is_done = false;
            for event in &self.events {
                let Event::Done { vcpu, .. } = *event else {
                    continue;
                };
                let (_, sleep) = self.habits[vcpu.index()];
                if vcpu.0 == 0 {
                    is_done = true;
                } else {
                    let sleep = Nanos(self.random.random_range(1..=sleep.max(1)));
                    self.wakes[vcpu.index()] = now + sleep;
                }
            }
            for (vcpu, wake) in (0..).map(VcpuId).zip(&mut self.wakes) {
                if *wake > now {
                    continue;
                }
                *wake = Nanos::MAX;
                let work = match self.habits[vcpu.index()] {
                    _ if vcpu.0 == 0 => self.demand,
                    (_, 0) => Nanos::MAX,
                    (work, _) => Nanos(self.random.random_range(1..=work)),
                };
                self.machine.wake(vcpu, work, Wake::Event);
            }
            self.machine.dispatch(&mut self.events);
            if is_done {
                return now;
            }
        }
    }
}

/// The network between both ends.
struct Network {
    pacer: Pacer<PacketRecord>,
    frames: u64,
    /// Guaranteed time until the message has left.
    promised: Nanos,
    /// The time until another message may be sent.
    refill: Nanos,
    delay: Nanos,
}

impl Network {
    fn new(random: &mut Pcg64Mcg) -> Self {
        let bandwidth = Rate::from_mbit(random.random_range(50..=500));
        let burst_rate = Rate::from_mbit(random.random_range(500..=10_000));
        let frames = random.random_range(1..=40);
        let burst = Bytes(random.random_range(1..=40) * FRAME);
        let mut pacer = Pacer::new(&PacerConfig::strict(LINK)).expect("a wire");
        let guarantee = Guarantee::new(bandwidth, burst, burst_rate);
        let guarantee = Guarantee {
            horizon: Nanos::from_secs(3),
            ..guarantee
        };
        pacer
            .set_guest(Nanos::ZERO, GuestId::first(0), Some(&guarantee))
            .expect("no rule is broken");
        let curve = tailbound_netcalc::Guarantee {
            bandwidth,
            burst,
            burst_rate,
            bursts: Bursts::PerReceiver,
            burst_in: None,
        };
        let message = Bytes(frames * FRAME);
        Self {
            pacer,
            frames,
            promised: curve.time_for(message, Bytes(FRAME)),
            refill: bandwidth.time_for(message),
            delay: Nanos(random.random_range(100_000..=1_000_000)),
        }
    }

    /// Returns the arrival time of a message that is sent at `now`.
    fn carry(&mut self, now: Nanos, random: &mut Pcg64Mcg) -> Nanos {
        for id in 0..self.frames {
            let frame = PacketRecord {
                id,
                came: now,
                ..PacketRecord::on_wire(FRAME)
            };
            self.pacer.enqueue(now, frame);
        }
        let (mut left, mut sent, mut turn) = (self.frames, now, now);
        while left > 0 {
            turn = self.pacer.poll_at().expect("frames wait").max(turn);
            let clock = self.pacer.clock();
            self.pacer.batch(turn).for_each(|paced| {
                if let WireItem::Guaranteed { at, .. } = paced {
                    left -= 1;
                    sent = sent.max(clock.moment(at + Bytes(FRAME).into()));
                }
            });
        }
        let most = self.delay - QUEUE;
        let delay = if random.random() {
            most
        } else {
            Nanos(random.random_range(0..=most.0))
        };
        sent + delay
    }
}

/// Returns the number of a pair's messages that took longer than guaranteed, and the largest part
/// of the guaranteed time that a message took.
fn late(seed: u64) -> (u32, f64) {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let (mut sender, mut receiver) = (End::new(random), End::new(random));
    let mut network = Network::new(random);
    let promised = sender.promised + network.promised + network.delay + receiver.promised;
    let (mut late, mut worst) = (0, Nanos::ZERO);
    let mut start = Nanos::from_secs(10);
    for _ in 0..PAIR {
        let sent = sender.serve(start);
        let came = network.carry(sent, random);
        let done = receiver.serve(came);
        late += u32::from(done > start + promised);
        worst = worst.max(done - start);
        let pause = random.random_range(1..=20_000_000) / random.random_range(1..=20);
        start = done.max(sent + network.refill) + Nanos(pause);
    }
    (late, worst.as_secs_f64() / promised.as_secs_f64())
}

fn no_message_is_late(messages: u64) {
    let late: Vec<_> = (0..messages / u64::from(PAIR)).map(late).collect();
    let worst = late.iter().map(|late| late.1).fold(0.0, f64::max);
    println!("of {messages} messages the longest took {worst:.3} of what is promised");
    assert_eq!(late.iter().map(|late| late.0).sum::<u32>(), 0);
    // The test is sharp: messages use a large part of the bound.
    assert!(worst > 0.5, "{worst}");
}

#[test]
fn no_message_takes_longer_than_both_ends_and_the_network_promise() {
    no_message_is_late(30_000);
}

#[test]
#[ignore = "takes minutes"]
fn none_of_ten_million_messages_exceeds_its_promise() {
    no_message_is_late(10_000_000);
}
