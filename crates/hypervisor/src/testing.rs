//! Machine whose events are scripted by a test.

use crate::{Costs, Domain, Event, Host, Machine, Scheduler, VcpuId, Wake};
use tailbound_units::Nanos;

/// `millis` milliseconds, exact to the nanosecond for the decimals of a test.
pub(crate) fn ms(millis: f64) -> Nanos {
    Nanos((millis * 1e6).round() as u64)
}

/// `pcpus` pCPUs and as many domains of equal weight with one vCPU each.
pub(crate) fn host(pcpus: u32, vcpus: u32) -> Host {
    let mut host = Host::new(pcpus).expect("some pCPUs");
    for _ in 0..vcpus {
        let domain = host.add_domain(Domain::default()).expect("a weight");
        host.add_vcpu(domain).expect("the domain exists");
    }
    host
}

/// Wakes at given times, and what came of them.
pub(crate) struct Script<S> {
    pub(crate) machine: Machine<S>,
    wakes: Vec<(Nanos, VcpuId, Nanos)>,
    pub(crate) log: Vec<Event>,
}

impl<S: Scheduler> Script<S> {
    pub(crate) fn new(host: &Host, scheduler: S) -> Self {
        Self {
            machine: Machine::new(host, scheduler, Costs::default()),
            wakes: Vec::new(),
            log: Vec::new(),
        }
    }

    /// `vcpu` gets `work` to do at `at` (all in milliseconds).
    pub(crate) fn wake(&mut self, at: f64, vcpu: u32, work: f64) -> &mut Self {
        self.wakes.push((ms(at), VcpuId(vcpu), ms(work)));
        self
    }

    /// `vcpu` gets endless work at `at`.
    pub(crate) fn hog(&mut self, at: f64, vcpu: u32) -> &mut Self {
        self.wakes.push((ms(at), VcpuId(vcpu), Nanos::MAX));
        self
    }

    pub(crate) fn run(&mut self, until: f64) -> &mut Self {
        self.wakes.sort_by_key(|&(at, ..)| at);
        loop {
            let own = self.wakes.first().map_or(Nanos::MAX, |&(at, ..)| at);
            let now = self.machine.next_at().min(own);
            if now > ms(until) {
                break;
            }
            self.machine.advance(now, &mut self.log);
            while let Some(&(at, vcpu, work)) = self.wakes.first() {
                if at > now {
                    break;
                }
                self.wakes.remove(0);
                self.machine.wake(vcpu, work, Wake::Event);
            }
            self.machine.dispatch(&mut self.log);
        }
        if self.machine.now() < ms(until) {
            self.machine.advance(ms(until), &mut self.log);
        }
        self
    }

    /// Returns the moments at which `vcpu` was put on a pCPU.
    pub(crate) fn starts(&self, vcpu: u32) -> Vec<Nanos> {
        let start = |event: &Event| match *event {
            Event::Started { vcpu: who, at, .. } if who.0 == vcpu => Some(at),
            _ => None,
        };
        self.log.iter().filter_map(start).collect()
    }

    /// The share of one pCPU that `vcpu` has had.
    pub(crate) fn share(&self, vcpu: u32) -> f64 {
        let run = self.machine.stats(VcpuId(vcpu)).run;
        run.as_secs_f64() / self.machine.now().as_secs_f64()
    }
}
