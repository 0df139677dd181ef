//! Who comes next, and who leaves.

use super::experiment::Class;
use crate::distribution::{drawn, exponential};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_placement::{Guarantee, Request};
use tailbound_units::{Bytes, Rate};

/// The least and the most bandwidth that is drawn.
const BANDWIDTHS: (f64, f64) = (1e6, 1e12);
/// The most burst that is drawn, in bytes.
const MOST_BURST: f64 = 1e9;

/// Who asks, and for how many machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkloadConfig<'e> {
    pub(crate) classes: &'e [Class],
    /// On average; exponential, rounded up.
    pub(crate) mean_vms: f64,
    /// Nobody asks for more.
    pub(crate) most_vms: u32,
}

/// Requests without end; what comes follows from the seed alone, not from what
/// was admitted.
pub(crate) struct Workload<'e> {
    config: WorkloadConfig<'e>,
    weights: u32,
    requests: Pcg64Mcg,
    /// A random number more for who leaves must not change who comes.
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

    /// The next request, and the number of its class.
    pub(crate) fn next(&mut self) -> (usize, Request) {
        let WorkloadConfig {
            classes,
            mean_vms,
            most_vms,
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
        let request = Request {
            vms: vms.clamp(1.0, f64::from(most_vms)) as u32,
            guarantee: Some(guarantee),
            cpu: 0,
            memory: Bytes::ZERO,
            domains: None,
            cpu_reservation: None,
            message: None,
        };
        (number, request)
    }

    /// One of so many.
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
