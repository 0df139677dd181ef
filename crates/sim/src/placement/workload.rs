//! Arriving requests, and departures.

use super::experiment::Class;
use crate::distribution::{drawn, exponential};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_placement::{Guarantee, Request};
use tailbound_units::{Bytes, Rate};

/// Smallest and largest bandwidth that is drawn, in bits a second.
const BANDWIDTHS: (f64, f64) = (1e6, 1e12);
/// Largest burst that is drawn, in bytes.
const MOST_BURST: f64 = 1e9;

/// Distribution of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkloadConfig<'e> {
    pub(crate) classes: &'e [Class],
    /// Mean number of machines; exponential, rounded up.
    pub(crate) mean_vms: f64,
    /// Largest number of machines.
    pub(crate) most_vms: u32,
    /// Inward burst of each machine; that of its class.
    pub(crate) inward: Option<Inward>,
}

/// Inward burst of each machine of a tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inward {
    /// The number of bursts in it.
    pub(crate) bursts: u32,
    /// The longest frame, for the least inward burst of a tenant.
    pub(crate) frame: Bytes,
}

impl Inward {
    /// Returns the request with an inward burst, at least the least that admission accepts.
    pub(crate) fn limit(self, request: &mut Request) {
        let least = request.least_inward(self.frame);
        if let Some(guarantee) = &mut request.guarantee {
            let bursts = guarantee.burst.max(self.frame).0 * u64::from(self.bursts);
            guarantee.burst_in = Some(least.max(Bytes(bursts)));
        }
    }
}

/// Requests without end, which follow from the seed alone, not from the admissions.
pub(crate) struct Workload<'e> {
    config: WorkloadConfig<'e>,
    weights: u32,
    requests: Pcg64Mcg,
    /// Random numbers for departures, separate so that they do not change the requests.
    leavers: Pcg64Mcg,
}

impl<'e> Workload<'e> {
    pub(crate) fn new(config: WorkloadConfig<'e>, seed: u64) -> Self {
        Self {
            config,
            weights: config.classes.iter().map(|class| class.weight).sum(),
            requests: Pcg64Mcg::seed_from_u64(seed),
            leavers: Pcg64Mcg::seed_from_u64(!seed),
        }
    }

    /// Returns the next request, and the number of its class.
    pub(crate) fn next(&mut self) -> (usize, Request) {
        let WorkloadConfig {
            classes,
            mean_vms,
            most_vms,
            inward,
        } = self.config;
        let vms = exponential(&mut self.requests, mean_vms).ceil();
        let ticket = self.requests.random_range(0..self.weights);
        let number = drawn(ticket.into(), classes.iter().map(|class| class.weight));
        let number = number.expect("a ticket is below the sum of the weights");
        let class = &classes[number];
        let guarantee = if class.varied {
            self.varied(class.guarantee)
        } else {
            class.guarantee
        };
        let vms = vms.clamp(1.0, f64::from(most_vms)) as u32;
        let mut request = Request {
            vms,
            guarantee: Some(guarantee.with_default_bursts()),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        };
        if let Some(inward) = inward {
            inward.limit(&mut request);
        }
        (number, request)
    }

    /// Returns a random number below `count`.
    pub(super) fn one_of(&mut self, count: usize) -> usize {
        self.leavers.random_range(0..count)
    }

    fn varied(&mut self, mean: Guarantee) -> Guarantee {
        let bandwidth = exponential(&mut self.requests, mean.bandwidth.0 as f64);
        let bandwidth = Rate(bandwidth.clamp(BANDWIDTHS.0, BANDWIDTHS.1) as u64);
        let burst = exponential(&mut self.requests, mean.burst.0 as f64).min(MOST_BURST);
        Guarantee {
            bandwidth,
            burst: Bytes(burst as u64),
            burst_rate: mean.burst_rate.map(|rate| rate.max(bandwidth)),
            ..mean
        }
    }
}
