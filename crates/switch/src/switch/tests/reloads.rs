//! Reloads of a switch, a few guests at a time, amid traffic.

use super::*;
use tailbound_dataplane::{FqCodelConfig, Guarantee, PacedPipelineConfig, PacerConfig};

const LINK: Rate = Rate::from_mbit(10_000);

fn mac(guest: u32) -> Mac {
    let [a, b, c, d] = guest.to_be_bytes();
    Mac([6, 0, a, b, c, d])
}

/// Makes a configuration of A, B and other guests by number, each with a guarantee of `mbit`
/// Mbit/s.
fn with(others: impl IntoIterator<Item = u32>, mbit: u64) -> SwitchConfig {
    let mut config = config(&PipelineConfig::default());
    let pacer = PacerConfig::strict(LINK);
    config.uplink = Some(EgressConfig::Pacer(PacedPipelineConfig::new(pacer)));
    let guarantee = Guarantee::new(Rate::from_mbit(mbit), Bytes(15_380), LINK);
    config
        .guests
        .extend(others.into_iter().map(|n| GuestConfig {
            filter: Some(SpoofFilter::new(mac(n), [])),
            guarantee: Some(guarantee),
            ..GuestConfig::new(format!("other {n}"), mac(n))
        }));
    config
}

impl Bench {
    fn plan(&self, config: SwitchConfig) -> SwitchPlan {
        SwitchPlan::new(config, self.switch.guests().map(|(_, name)| name))
    }

    fn become_many(&mut self, config: SwitchConfig) {
        self.ports.resize_with(1 + config.guests.len(), || None);
        let changed = self.switch.reconfigure(self.now, config);
        changed.expect("no rule is broken");
        self.settle();
    }

    /// Reloads to `config`, and calls `turn` between all steps of `work`.
    fn reload_by(&mut self, config: SwitchConfig, work: usize, mut turn: impl FnMut(&mut Self)) {
        let guests = config.guests.len();
        let mut reload = Switch::begin_reload(self.plan(config));
        while !self
            .switch
            .prepare(&mut reload, work)
            .expect("no rule is broken")
        {
            turn(self);
        }
        self.switch.swap(&mut reload);
        self.ports.resize_with(1 + guests, || None);
        turn(self);
        while !self.switch.settle(self.now, &mut reload, work) {
            turn(self);
        }
    }
}

/// Sends B a frame between all steps, and returns the most allocations of a step: its work is
/// proportional to them.
fn most_allocations(guests: u32, to: SwitchConfig) -> u64 {
    let mut bench = Bench::new(&PipelineConfig::default());
    let before = with(0..guests, 1);
    bench.ports.resize_with(1 + before.guests.len(), || None);
    bench
        .switch
        .reconfigure(bench.now, before)
        .expect("no rule");
    bench.settle();
    let mut most = 0;
    let mut reload = Switch::begin_reload(bench.plan(to));
    let mut n = 0;
    let mut is_ready = false;
    loop {
        let mut done = false;
        let Bench { switch, now, .. } = &mut bench;
        let counted = allocation_counter::measure(|| {
            if is_ready {
                done = switch.settle(*now, &mut reload, 16);
            } else {
                is_ready = switch.prepare(&mut reload, 16).expect("no rule is broken");
            }
        });
        most = most.max(counted.count_total);
        if is_ready && n < 1_000_000 {
            n = 1_000_000;
            bench.switch.swap(&mut reload);
            let ports = bench.switch.parts.table.len();
            bench.ports.resize_with(ports, || None);
        }
        n += 1;
        let frame = a_to_b(n as u16);
        bench.send(A, &frame);
        bench.settle();
        assert_eq!(bench.sent(B), [frame]);
        if done {
            return most;
        }
    }
}

#[test]
fn a_step_costs_the_same_however_many_guests_there_are() {
    for (few, many) in [
        // Nothing changes; other guarantees; half of them are others.
        (with(0..50, 1), with(0..500, 1)),
        (with(0..50, 2), with(0..500, 2)),
        (with(25..75, 1), with(250..750, 1)),
    ] {
        let few = most_allocations(50, few);
        let many = most_allocations(500, many);
        // Tables grow as they did before, by doubling.
        assert!(many <= few + 8, "{many} instead of {few}");
        assert!(few < 120, "{few}");
    }
}

#[test]
#[should_panic(expected = "Try(0) is no step after the swap")]
fn settings_are_not_applied_before_the_swap() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let mut reload = Switch::begin_reload(bench.plan(with([], 1)));
    bench.switch.settle(bench.now, &mut reload, 1);
}

#[test]
#[should_panic(expected = "EndRemoved comes after the swap")]
fn a_reload_in_force_is_not_prepared_again() {
    let mut bench = Bench::new(&PipelineConfig::default());
    let mut reload = Switch::begin_reload(bench.plan(with([], 1)));
    while !bench
        .switch
        .prepare(&mut reload, 1)
        .expect("no rule is broken")
    {}
    bench.switch.swap(&mut reload);
    let _ = bench.switch.prepare(&mut reload, 1);
}

#[test]
fn a_reload_that_breaks_a_rule_has_changed_nothing() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.reload_by(with(0..300, 1), 16, |_| {});
    let before: Vec<_> = bench
        .switch
        .guests()
        .map(|(id, name)| (id, name.to_owned()))
        .collect();
    // The last of these guarantees do not fit into the link.
    let mut too_much = with(0..300, 1);
    let pacer = PacerConfig::strict(Rate::from_mbit(250));
    too_much.uplink = Some(EgressConfig::Pacer(PacedPipelineConfig::new(pacer)));
    for guest in &mut too_much.guests {
        if let Some(guarantee) = &mut guest.guarantee {
            guarantee.burst_rate = Rate::from_mbit(250);
        }
    }
    let mut reload = Switch::begin_reload(bench.plan(too_much));
    let mut steps = 0;
    let rule = loop {
        match bench.switch.prepare(&mut reload, 16) {
            Ok(ready) => assert!(!ready),
            Err(rule) => break rule,
        }
        bench.settle();
        steps += 1;
    };
    assert!(steps > 2, "{rule} is found late");
    drop(reload);
    let after: Vec<_> = bench
        .switch
        .guests()
        .map(|(id, name)| (id, name.to_owned()))
        .collect();
    assert_eq!(after, before);
    let a = bench.switch.guests().nth(2).expect("the first other").0;
    let held = bench.switch.guarantee(a).expect("it has one");
    assert_eq!(held.bandwidth, Rate::from_mbit(1));
    bench.send(A, &a_to_b(1));
    bench.settle();
    assert_eq!(bench.sent(B).len(), 1);
}

#[test]
fn ports_that_stay_are_not_looked_at_again() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.reload_by(with(0..100, 1), 16, |_| {});
    bench.settle();
    while bench.switch.poll_interest().is_some() {}
    bench.reload_by(with(50..150, 1), 16, |bench| {
        // Not even the turn after the swap.
        assert!(bench.switch.parts.table.agenda().is_empty(Work::Ready));
        assert!(bench.switch.poll_interest().is_none());
    });
}

proptest! {
    /// Guests are added and removed, and change places, guarantees and queues, with frames queued
    /// and stations learned. A reload in steps has the same result as one in a single step, and no
    /// frame between two guests that stay is lost or doubled.
    #[test]
    fn a_reload_in_steps_equals_a_reload_at_once(
        changes in prop::collection::vec(
            (prop::collection::btree_set(0u32..40, 0..30), 1u64..50, any::<bool>(), any::<bool>()),
            1..6,
        ),
        work in 1usize..40,
    ) {
        let mut whole = Bench::new(&PipelineConfig::default());
        let mut sliced = Bench::new(&PipelineConfig::default());
        let mut n = 0;
        for (others, mbit, is_paced, has_queue) in changes {
            let mut config = with(others, mbit);
            if !is_paced {
                config.uplink = Some(EgressConfig::Pipeline(PipelineConfig::default()));
            }
            if has_queue {
                for guest in &mut config.guests {
                    guest.pipeline.queue = QueueConfig::FqCodel(FqCodelConfig::default());
                }
            }
            whole.ports.resize_with(1 + config.guests.len(), || None);
            whole.switch.reconfigure(whole.now, config.clone()).expect("no rule is broken");
            sliced.reload_by(config, work, |bench| {
                n += 1;
                let frame = a_to_b(n);
                bench.send(A, &frame);
                bench.settle();
                assert_eq!(bench.sent(B), [frame]);
            });
            for bench in [&mut whole, &mut sliced] {
                bench.send(UPLINK, &datagram(MAC_A, Mac([2, 8, 0, 0, 0, n as u8]), (FAR, A4), n));
                bench.settle();
                bench.sent(A);
            }
            let names = |bench: &Bench| {
                let guests = bench.switch.guests();
                let guests = guests.map(|(id, name)| (id, name.to_owned(), bench.switch.guarantee(id).copied()));
                guests.collect::<Vec<_>>()
            };
            prop_assert_eq!(names(&whole), names(&sliced));
            let kinds = |bench: &Bench| {
                let guests = bench.switch.parts.table.guests();
                guests.map(|guest| guest.pipeline.config().clone()).collect::<Vec<_>>()
            };
            prop_assert_eq!(kinds(&whole), kinds(&sliced));
            prop_assert_eq!(whole.switch.parts.refusals, sliced.switch.parts.refusals);
        }
    }
}

/// Prints how long the longest step of each kind takes.
///
/// `cargo test --release -p tailbound-switch --lib longest_step -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges nothing"]
fn the_longest_step_of_a_reload() {
    const GUESTS: u32 = 500;
    let mut another_link = with(0..GUESTS, 1);
    let pacer = PacerConfig::new(Rate(2 * LINK.0));
    another_link.uplink = Some(EgressConfig::Pacer(PacedPipelineConfig::new(pacer)));
    for (what, to) in [
        ("the same again", with(0..GUESTS, 1)),
        ("another link", another_link),
        ("other guarantees", with(0..GUESTS, 2)),
        ("half of the guests are others", with(250..250 + GUESTS, 1)),
    ] {
        let mut longest = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..21 {
            let mut bench = Bench::new(&PipelineConfig::default());
            bench.become_many(with(0..GUESTS, 1));
            let mut reload = Switch::begin_reload(bench.plan(to.clone()));
            let mut most = [std::time::Duration::ZERO; 3];
            let (mut stage, mut done) = (0, false);
            while !done {
                let start = std::time::Instant::now();
                let mut next = stage;
                match stage {
                    0 => {
                        let is_ready = bench.switch.prepare(&mut reload, 32);
                        next = usize::from(is_ready.expect("no rule is broken"));
                    }
                    1 => {
                        bench.switch.swap(&mut reload);
                        next = 2;
                    }
                    _ => done = bench.switch.settle(bench.now, &mut reload, 32),
                }
                most[stage] = most[stage].max(start.elapsed());
                stage = next;
            }
            for (all, most) in longest.iter_mut().zip(most) {
                all.push(most);
            }
        }
        for (stage, mut all) in ["prepare", "swap", "settle"].into_iter().zip(longest) {
            all.sort();
            let (median, worst) = (all[all.len() / 2], all[all.len() - 1]);
            eprintln!("measured: {what}: {stage}: {median:?} (median of 21), {worst:?} (worst)");
        }
    }
}

#[test]
fn a_new_port_is_read_once_it_is_said_to_be_open() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.reload_by(with(0..1, 1), 16, |_| {});
    let (port, wire) = MemoryPort::new();
    let frame = datagram(MAC_B, mac(0), (A4, B4), 0);
    wire.borrow_mut().to_port.push_back((frame, None));
    bench.ports[3] = Some(Box::new(port));
    // It is looked at meanwhile: something comes for it.
    bench.send(A, &datagram(mac(0), MAC_A, (B4, A4), 0));
    bench.settle();
    // Each port of a reload is one to read: the caller spreads them over turns.
    assert_eq!(wire.borrow().to_port.len(), 1);
    bench.switch.handle_opened(PortIndex(3));
    bench.settle();
    assert_eq!(wire.borrow().to_port.len(), 0);
}
