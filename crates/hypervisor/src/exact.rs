//! Comparison of each moment of small sets of servers on up to three pCPUs with independently
//! computed schedules of global earliest deadline first: RTDS' deferrable servers, and the hard
//! constant bandwidth servers of `SCHED_DEADLINE`.

use crate::reservation::Deadline;
use crate::{Costs, Domain, Enforcement, Host, Machine, PcpuId, Reservation, Rtds};
use crate::{SchedDeadline, Scheduler, VcpuId, Wake};
use proptest::prelude::*;
use tailbound_units::Nanos;

/// Unit of all times, which `SCHED_DEADLINE` counts without rounding.
const UNIT: Nanos = Nanos(1_024_000);
/// Number of compared units of each set. Periods are 2 to 8 units.
const UNITS: u64 = 120;

/// Kind of a server's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Anew in each period, and kept while it sleeps.
    Deferrable,
    /// By a deadline that is postponed; no budget before that deadline once it is used up.
    Bandwidth,
}

/// A server as its definition has it.
#[derive(Debug, Clone)]
struct Server {
    kind: Kind,
    budget: u64,
    period: u64,
    left: u64,
    /// End of its period; None before its first wake.
    deadline: Option<u64>,
    is_throttled: bool,
    work: u64,
    /// Start of the time without work.
    idle_from: u64,
}

impl Server {
    fn new(kind: Kind, budget: u64, period: u64) -> Self {
        Self {
            kind,
            budget,
            period,
            left: 0,
            deadline: None,
            is_throttled: false,
            work: 0,
            idle_from: 0,
        }
    }

    fn is_ready(&self) -> bool {
        self.work > 0 && self.left > 0 && !self.is_throttled
    }

    /// A moment comes.
    fn reach(&mut self, now: u64) {
        match (self.kind, self.deadline) {
            (Kind::Deferrable, _) if self.work > 0 => self.enter(now),
            (Kind::Bandwidth, Some(deadline)) if self.is_throttled && deadline <= now => {
                let next = deadline + self.period;
                // One so far behind that this has passed, too, begins anew.
                let begins_anew = next < now;
                self.deadline = Some(if begins_anew { now + self.period } else { next });
                self.left = self.budget;
                self.is_throttled = false;
            }
            _ => {}
        }
    }

    /// Enters the period that `now` is in.
    fn enter(&mut self, now: u64) {
        if self.deadline.is_none_or(|deadline| now >= deadline) {
            self.deadline = Some((now / self.period + 1) * self.period);
            self.left = self.budget;
        }
    }

    fn wake(&mut self, now: u64, work: u64) {
        self.work = work;
        match self.kind {
            Kind::Deferrable => self.enter(now),
            Kind::Bandwidth if self.is_throttled => {}
            Kind::Bandwidth => {
                let keeps = self.deadline.is_some_and(|deadline| {
                    now <= deadline && self.left * self.period <= (deadline - now) * self.budget
                });
                if !keeps {
                    self.deadline = Some(now + self.period);
                    self.left = self.budget;
                }
            }
        }
    }

    /// Runs from `now` for one unit.
    fn run(&mut self, now: u64) {
        self.left -= 1;
        self.work -= 1;
        self.is_throttled = self.kind == Kind::Bandwidth && self.left == 0;
        if self.work == 0 {
            self.idle_from = now + 1;
        }
    }
}

/// A set: pCPUs, budgets and periods, and when who is given how much to do.
#[derive(Debug, Clone)]
struct Set {
    pcpus: u32,
    servers: Vec<(u64, u64)>,
    wakes: Vec<(u64, usize, u64)>,
}

impl Set {
    fn any() -> impl Strategy<Value = Self> {
        let server = (2_u64..=8).prop_flat_map(|period| (1..=period, Just(period)));
        let servers = proptest::collection::vec(server, 1..=6);
        let wake = (0..UNITS, 0_usize..6, prop_oneof![1_u64..=6, Just(1_000)]);
        let wakes = proptest::collection::vec(wake, 1..60);
        (1_u32..=3, servers, wakes).prop_map(|(pcpus, servers, wakes)| Self {
            pcpus,
            servers,
            wakes,
        })
    }

    fn host(&self) -> Host {
        let mut host = Host::new(self.pcpus).unwrap();
        let domain = host.add_domain(Domain::default()).unwrap();
        for _ in &self.servers {
            host.add_vcpu(domain).unwrap();
        }
        host
    }

    fn rtds(&self) -> Result<(), TestCaseError> {
        let reservation = |(budget, period): &(u64, u64)| Reservation {
            period: Nanos(UNIT.0 * period),
            budget: Nanos(UNIT.0 * budget),
            extratime: false,
        };
        let reservations: Vec<_> = self.servers.iter().map(reservation).collect();
        self.check(Kind::Deferrable, |host| {
            Rtds::new(host, &reservations).unwrap()
        })
    }

    fn sched_deadline(&self) -> Result<(), TestCaseError> {
        let reservation = |(budget, period): &(u64, u64)| Deadline {
            runtime: Nanos(UNIT.0 * budget),
            deadline: Nanos(UNIT.0 * period),
            period: Nanos(UNIT.0 * period),
        };
        let reservations: Vec<_> = self.servers.iter().map(reservation).collect();
        self.check(Kind::Bandwidth, |host| {
            SchedDeadline::new(host, &reservations, Enforcement::Timer).unwrap()
        })
    }

    /// Runs it, and looks at each unit who runs. Of those with the same deadline any may.
    fn check<S: Scheduler>(
        &self,
        kind: Kind,
        scheduler: impl FnOnce(&Host) -> S,
    ) -> Result<(), TestCaseError> {
        let host = self.host();
        let mut machine = Machine::new(&host, scheduler(&host), Costs::default());
        let servers = self.servers.iter();
        let mut servers: Vec<_> = servers
            .map(|(budget, period)| Server::new(kind, *budget, *period))
            .collect();
        let mut events = Vec::new();
        for unit in 0..UNITS {
            let now = Nanos(UNIT.0 * unit);
            while let Some(at) = machine.poll_at().filter(|at| *at < now) {
                machine.advance(at, &mut events);
                machine.dispatch(&mut events);
            }
            machine.advance(now, &mut events);
            for server in &mut servers {
                server.reach(unit);
            }
            for (_, index, work) in self.wakes.iter().filter(|(at, ..)| *at == unit) {
                let index = index % servers.len();
                let server = &mut servers[index];
                if server.work == 0 && (server.idle_from < unit || unit == 0) {
                    server.wake(unit, *work);
                    let work = Nanos(UNIT.0 * work);
                    machine.wake(VcpuId(index as u32), work, Wake::Event);
                }
            }
            machine.dispatch(&mut events);
            while machine.poll_at() == Some(now) {
                machine.advance(now, &mut events);
                machine.dispatch(&mut events);
            }
            for vcpu in self.may_run(&machine, &servers, unit)? {
                servers[vcpu.index()].run(unit);
            }
        }
        Ok(())
    }

    /// Checks the vCPUs that run at a moment: the largest possible number, with the earliest
    /// deadlines.
    fn may_run<S: Scheduler>(
        &self,
        machine: &Machine<S>,
        servers: &[Server],
        unit: u64,
    ) -> Result<Vec<VcpuId>, TestCaseError> {
        let runs = (0..self.pcpus).filter_map(|pcpu| machine.current(PcpuId(pcpu)));
        let runs: Vec<_> = runs.collect();
        let ready = servers.iter().filter(|server| server.is_ready()).count();
        let many = ready.min(self.pcpus as usize);
        prop_assert_eq!(runs.len(), many, "at {}: {:?}, {:?}", unit, &runs, servers);
        let latest = runs.iter().map(|vcpu| servers[vcpu.index()].deadline).max();
        for (vcpu, server) in (0..).map(VcpuId).zip(servers) {
            if runs.contains(&vcpu) {
                prop_assert!(
                    server.is_ready(),
                    "{:?} runs at {}: {:?}",
                    vcpu,
                    unit,
                    servers
                );
            } else if server.is_ready() {
                let waits = Some(server.deadline) >= latest;
                prop_assert!(waits, "{:?} waits at {}: {:?}", vcpu, unit, servers);
            }
        }
        Ok(runs)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rtds_runs_the_earliest_deadlines(set in Set::any()) {
        set.rtds()?;
    }

    #[test]
    fn sched_deadline_runs_the_earliest_deadlines(set in Set::any()) {
        set.sched_deadline()?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30_000))]

    #[test]
    #[ignore = "a minute"]
    fn many_sets_run_the_earliest_deadlines(set in Set::any()) {
        set.rtds()?;
        set.sched_deadline()?;
    }
}
