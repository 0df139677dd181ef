use super::*;
use crate::{Costs, Event, Load, Machine, Simulation, SimulationConfig, Task, Workload};
use proptest::prelude::*;

fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}
fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// One domain with one vCPU for each (weight, cap).
fn host(pcpus: u32, domains: &[(u32, u32)]) -> Host {
    let mut host = Host::new(pcpus).unwrap();
    for &(weight, cap) in domains {
        let domain = host.add_domain(crate::Domain { weight, cap }).unwrap();
        host.add_vcpu(domain).unwrap();
    }
    host
}

fn machine(host: &Host) -> Machine<Credit2> {
    let credit2 = Credit2::new(Credit2Config::default(), host);
    Machine::new(host, credit2, Costs::default())
}

fn run(machine: &mut Machine<Credit2>, end: Nanos) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(at) = machine.poll_at().filter(|&at| at <= end) {
        machine.advance(at, &mut events);
        machine.dispatch(&mut events);
    }
    machine.advance(end, &mut events);
    events
}

fn wake(machine: &mut Machine<Credit2>, vcpu: u32, work: Nanos) {
    machine.wake(VcpuId(vcpu), work, Wake::Event);
    machine.dispatch(&mut Vec::new());
}

/// The CPU time of hogs after `seconds`, in milliseconds.
fn shares(host: &Host, seconds: u64) -> Vec<u64> {
    let hogs = vec![Workload::hog(); host.vcpus().len()];
    let config = SimulationConfig::default();
    let mut simulation = Simulation::new(machine(host), &hogs, config).unwrap();
    simulation.run(Nanos::from_secs(seconds), &mut |_| {});
    let run = |vcpu| simulation.machine().stats(VcpuId(vcpu)).run.0 / 1_000_000;
    (0..host.vcpus().len() as u32).map(run).collect()
}

#[test]
fn shares_are_as_the_weights() {
    let host = host(1, &[(256, 0), (512, 0), (1024, 0), (256, 0)]);
    let shares = shares(&host, 32);
    for (share, expected) in shares.iter().zip([4_000, 8_000, 16_000, 4_000]) {
        assert!(share.abs_diff(expected) <= 40, "{shares:?}");
    }
}

#[test]
fn equal_hogs_share_several_pcpus_equally() {
    let shares = shares(&host(2, &[(256, 0); 5]), 20);
    assert!(
        shares.iter().all(|share| share.abs_diff(8_000) <= 160),
        "{shares:?}"
    );
}

#[test]
fn a_capped_domain_gets_only_its_cap_on_an_idle_pcpu() {
    assert_eq!(shares(&host(1, &[(256, 30)]), 10), [3_000]);
    let both = shares(&host(1, &[(256, 30), (256, 0)]), 10);
    assert!(
        both[0].abs_diff(3_000) <= 10 && both[0] + both[1] == 10_000,
        "{both:?}"
    );
}

#[test]
fn a_waking_vcpu_preempts_one_that_has_run_for_the_ratelimit() {
    let mut machine = machine(&host(1, &[(256, 0), (256, 0)]));
    wake(&mut machine, 0, Nanos::MAX);
    run(&mut machine, us(955));
    wake(&mut machine, 1, us(50));
    assert_eq!(
        machine.runs_on(VcpuId(1)),
        None,
        "asked, but kept for the limit"
    );
    run(&mut machine, us(1_454));
    assert_eq!(machine.runs_on(VcpuId(1)), None, "no timer is below 500 us");
    run(&mut machine, us(1_455));
    assert!(machine.runs_on(VcpuId(1)).is_some());
    run(&mut machine, us(3_000));
    wake(&mut machine, 1, us(50));
    assert!(machine.runs_on(VcpuId(1)).is_some(), "at once");
}

#[test]
fn a_wake_within_the_ratelimit_waits_for_the_next_decision() {
    let mut machine = machine(&host(1, &[(256, 0), (256, 0)]));
    wake(&mut machine, 0, Nanos::MAX);
    run(&mut machine, us(500));
    wake(&mut machine, 1, us(50));
    let first = run(&mut machine, ms(20))
        .into_iter()
        .find_map(|event| match event {
            Event::Started { vcpu, at, .. } => Some((vcpu, at)),
            _ => None,
        });
    assert_eq!(first, Some((VcpuId(1), ms(10))), "no pCPU was asked");
}

/// `runq_candidate` of Xen 4.17 goes on (`continue`) after a vCPU whose domain has no budget.
#[test]
fn the_next_runs_when_the_first_in_the_queue_has_no_budget() {
    let mut machine = machine(&host(1, &[(256, 10), (256, 0), (256, 0)]));
    // The capped domain uses its 1 ms of this period, the last vCPU more credit.
    wake(&mut machine, 2, ms(3));
    run(&mut machine, ms(3));
    wake(&mut machine, 0, ms(1));
    run(&mut machine, ms(4));
    wake(&mut machine, 1, ms(1));
    run(&mut machine, us(4_100));
    wake(&mut machine, 0, ms(1));
    wake(&mut machine, 2, ms(1));
    run(&mut machine, ms(5));
    let runs = [0, 1, 2].map(|vcpu| machine.runs_on(VcpuId(vcpu)).is_some());
    assert_eq!(runs, [false, false, true]);
}

#[test]
fn a_light_vcpu_is_not_late_beside_hogs() {
    let mut workloads = vec![Workload::hog(); 6];
    workloads[0] = Workload::task(Task::SleepLoop {
        sleep: ms(7),
        jitter: us(100),
        work: us(20),
    });
    let host = host(1, &[(256, 0); 6]);
    let config = SimulationConfig::default();
    let mut simulation = Simulation::new(machine(&host), &workloads, config).unwrap();
    let mut latest = Nanos::ZERO;
    let mut samples = 0;
    simulation.run(Nanos::from_secs(20), &mut |sample| {
        samples += 1;
        latest = latest.max(sample.took);
    });
    assert!(samples > 1_000);
    assert!(
        latest <= ms(7 + 10) + us(100),
        "{latest}: the sleep and one timer at most"
    );
}

#[test]
fn a_run_with_waiters_ends_within_the_longest_timer() {
    let mut machine = machine(&host(1, &[(256, 0), (512, 0), (64, 0)]));
    for vcpu in 0..3 {
        machine.wake(VcpuId(vcpu), Nanos::MAX, Wake::Timer);
    }
    machine.dispatch(&mut Vec::new());
    let events = run(&mut machine, Nanos::from_secs(2));
    let starts = events.iter().filter_map(|event| match event {
        Event::Started { at, .. } => Some(*at),
        _ => None,
    });
    let gaps: Vec<_> = starts
        .clone()
        .zip(starts.skip(1))
        .map(|(a, b)| b - a)
        .collect();
    assert!(
        gaps.iter().all(|&gap| gap >= ms(1)),
        "never below the ratelimit"
    );
    assert!(
        gaps.iter().all(|&gap| gap <= ms(21)),
        "{:?}",
        gaps.iter().max()
    );
}

/// Number of each vCPU's moves between pCPUs since its credit was last cut to the limit on savings.
/// Xen adds credit for each move without a limit, so a vCPU that moves repeatedly before it has
/// used any exceeds the limit.
struct Moves {
    home: Vec<PcpuId>,
    since_reset: Vec<i64>,
    resets: u64,
}

impl Moves {
    fn new(machine: &Machine<Credit2>, host: &Host) -> Self {
        Self {
            home: host.vcpus().iter().map(|vcpu| vcpu.home).collect(),
            since_reset: vec![0; host.vcpus().len()],
            resets: machine.scheduler().resets(PcpuId(0)),
        }
    }

    /// Counts the moves since the last call. If all credits were reset in between, each of these
    /// moves counts as one after the reset.
    fn count(&mut self, machine: &Machine<Credit2>, events: &[Event]) {
        let resets = machine.scheduler().resets(PcpuId(0));
        if resets != self.resets {
            self.resets = resets;
            self.since_reset.fill(0);
        }
        for event in events {
            if let Event::Started { vcpu, pcpu, .. } = *event
                && self.home[vcpu.index()] != pcpu
            {
                self.home[vcpu.index()] = pcpu;
                self.since_reset[vcpu.index()] += 1;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_pcpu_idles_while_a_vcpu_without_a_cap_waits(
        pcpus in 1_u32..5,
        weights in prop_oneof![
            proptest::collection::vec((1_u32..1_000, Just(0_u32)), 1..9),
            proptest::collection::vec((1_u32..1_000, prop_oneof![Just(0_u32), 5_u32..100]), 1..9),
        ],
        steps in proptest::collection::vec((0_usize..9, 0_u64..5_000, 1_u64..20_000, 0_u8..8), 1..80),
    ) {
        let host = host(pcpus, &weights);
        let mut machine = machine(&host);
        machine.dispatch(&mut Vec::new());
        let mut now = Nanos::ZERO;
        let mut moves = Moves::new(&machine, &host);
        for (vcpu, gap, work, pause) in steps {
            now += us(gap);
            let mut events = run(&mut machine, now);
            let vcpu = VcpuId((vcpu % weights.len()) as u32);
            machine.wake(vcpu, us(work), Wake::Event);
            if pause == 0 {
                machine.pause(vcpu);
            } else {
                machine.unpause(vcpu);
            }
            machine.dispatch(&mut events);
            moves.count(&machine, &events);
            let scheduler = machine.scheduler();
            // Whoever finds the first in the queue parked by its cap looks no
            // further, in Xen as well.
            let capped = weights.iter().any(|&(_, cap)| cap > 0);
            let idle = (0..pcpus).any(|pcpu| machine.current(PcpuId(pcpu)).is_none());
            for (row, moves) in scheduler.vcpus.iter().zip(&moves.since_reset) {
                prop_assert!(capped || !(idle && row.place == Place::Queued));
                let most = CREDIT_INIT + CARRYOVER + moves * MIGRATE_COMPENSATION;
                prop_assert!((CREDIT_MIN..=most).contains(&row.credit));
            }
            for queue in &scheduler.queues {
                let credits = queue.waiting.iter().map(|vcpu| scheduler.credit(*vcpu));
                prop_assert!(credits.is_sorted_by(|a, b| a >= b));
            }
        }
    }

    #[test]
    fn a_capped_domain_never_exceeds_its_cap_by_more_than_a_quota(
        cap in 5_u32..100,
        others in 0_usize..4,
        busy in 1_u64..20,
    ) {
        let mut domains = vec![(256, 0); others];
        domains.push((256, cap));
        let host = host(1, &domains);
        let mut workloads = vec![Workload::hog(); others];
        workloads.push(Workload::load(Load::DutyCycle {
            busy: ms(busy),
            period: ms(20),
            jitter: us(100),
        }));
        let config = SimulationConfig::default();
        let mut simulation = Simulation::new(machine(&host), &workloads, config).unwrap();
        simulation.run(Nanos::from_secs(2), &mut |_| {});
        let run = simulation.machine().stats(VcpuId(others as u32)).run;
        let most = ms(2_000 * u64::from(cap) / 100 + 1);
        prop_assert!(run <= most, "{run} of {most}");
    }
}

#[test]
fn a_hog_runs_or_waits_all_the_time() {
    let host = host(1, &[(256, 0), (512, 0)]);
    let hogs = [Workload::hog(); 2];
    let config = SimulationConfig::default();
    let mut simulation = Simulation::new(machine(&host), &hogs, config).unwrap();
    simulation.run(Nanos::from_secs(1), &mut |_| {});
    for vcpu in [0, 1].map(VcpuId) {
        let stats = simulation.machine().stats(vcpu);
        assert_eq!(stats.run + stats.waited, Nanos::from_secs(1), "{vcpu:?}");
    }
}

/// All of a queue get the same: twice the usual credit if the next one has the lowest. A running one
/// whose budget is used up then is asked to stop.
#[test]
fn a_reset_gives_a_queue_credit_and_ends_a_run_without_budget() {
    let host = host(1, &[(256, 0), (256, 50)]);
    for (credit, gift) in [(CREDIT_MIN, 2 * CREDIT_INIT), (CREDIT_MIN + 1, CREDIT_INIT)] {
        for (budget, stops) in [(1_000_000, true), (1_000_001, false)] {
            let mut credit2 = Credit2::new(Credit2Config::default(), &host);
            credit2.vcpus[0].credit = credit;
            credit2.current[0] = Some(VcpuId(1));
            (credit2.vcpus[1].credit, credit2.vcpus[1].budget) = (-9_000_000, Some(budget));
            let mut raise = PcpuSet::new();
            credit2.reset(ms(1), VcpuId(0), &mut raise);
            assert_eq!(credit2.vcpus[0].credit, credit + gift);
            // Its millisecond is paid before, down to the lowest credit.
            assert_eq!(credit2.vcpus[1].credit, CREDIT_MIN + gift);
            assert_eq!(raise.contains(PcpuId(0)), stops);
        }
    }
}
