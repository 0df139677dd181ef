//! Jobs of tenants: arrivals, flows between machines, amounts of data, and computing times. All of
//! them follow from the seed alone, and not from the admission.

use super::experiment::{FlowClass, FlowPoint, FlowsExperiment, Traffic};
use crate::distribution::exponential;
use crate::net::Time;
use crate::placement::{Workload, WorkloadConfig};
use rand::seq::SliceRandom as _;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_placement::Request;

/// A tenant's job.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// Index of its class.
    pub(super) class: usize,
    /// The tenant's request.
    pub(super) request: Request,
    /// Shortest computing time.
    pub(super) compute: Time,
    /// Sending and receiving machine of each flow.
    pub(super) flows: Vec<(u32, u32)>,
    /// Bits of each flow.
    pub(super) bits: f64,
}

/// All jobs of a point.
pub(super) struct Jobs<'e> {
    classes: &'e [FlowClass],
    point: &'e FlowPoint,
    seed: u64,
    requests: Vec<(usize, Request)>,
}

impl<'e> Jobs<'e> {
    pub(super) fn new(experiment: &'e FlowsExperiment, point: &'e FlowPoint, seed: u64) -> Self {
        let classes = experiment.requests();
        let config = WorkloadConfig {
            classes: &classes,
            mean_vms: point.mean_vms,
            most_vms: point.most_vms,
            inward: None,
        };
        let mut workload = Workload::new(config, seed);
        Self {
            classes: &experiment.class,
            point,
            seed,
            requests: (0..point.requests).map(|_| workload.next()).collect(),
        }
    }

    /// Number of jobs.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns a job, by its number. The result is always the same.
    pub(super) fn job(&self, number: usize) -> Job {
        let (class, request) = self.requests[number];
        let given = &self.classes[class];
        let seed = self.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let compute = exponential(&mut random, given.compute.0 as f64);
        let flows = self.flows(given.traffic, request.vms, &mut random);
        let bandwidth = request.guarantee.map_or(0, |it| it.bandwidth.0);
        let data = bandwidth as f64 * given.transfer * compute / 1e9;
        let parts = match given.traffic {
            Traffic::AllToOne => f64::from(request.vms - 1),
            Traffic::Permutation => self.point.destinations.min(f64::from(request.vms - 1)),
        };
        Job {
            class,
            request,
            compute: Time((compute * 1e3) as u64),
            bits: data / parts.max(1.0),
            flows,
        }
    }

    fn flows(&self, traffic: Traffic, vms: u32, random: &mut Pcg64Mcg) -> Vec<(u32, u32)> {
        if vms < 2 {
            return Vec::new();
        }
        match traffic {
            Traffic::AllToOne => {
                let to = random.random_range(0..vms);
                let others = (0..vms).filter(|from| *from != to);
                others.map(|from| (from, to)).collect()
            }
            Traffic::Permutation => permutation(self.point.destinations, vms, random),
        }
    }

    /// Returns the mean interval between arrivals for the point's occupancy.
    pub(super) fn mean_gap(&self, slots: u64) -> Time {
        // Slots multiplied by time of all jobs.
        let load = (0..self.len()).map(|number| {
            let job = self.job(number);
            f64::from(job.request.vms) * job.nominal().0 as f64
        });
        let load: f64 = load.sum();
        let wanted = slots as f64 * f64::from(self.point.occupancy) / 100.0;
        Time((load / self.len() as f64 / wanted) as u64)
    }
}

/// Returns flows from each machine to x others, each of which also receives from x machines: all
/// machines form a random circle, and each sends to the next x ones. If x is not an integer, some
/// do not send to the last of these.
fn permutation(x: f64, vms: u32, random: &mut Pcg64Mcg) -> Vec<(u32, u32)> {
    let mut circle: Vec<u32> = (0..vms).collect();
    circle.shuffle(random);
    let x = x.min(f64::from(vms - 1));
    let (whole, part) = (x as usize, x.fract());
    let mut flows = Vec::new();
    for from in 0..circle.len() {
        let is_one_more = part > 0.0 && random.random::<f64>() < part;
        for step in 1..=whole + usize::from(is_one_more) {
            let to = (from + step) % circle.len();
            flows.push((circle[from], circle[to]));
        }
    }
    flows
}

impl Job {
    /// Guaranteed rate of each machine, in bits a second.
    pub(super) fn bandwidth(&self) -> f64 {
        let guarantee = self.request.guarantee;
        guarantee.map_or(0.0, |guarantee| guarantee.bandwidth.0 as f64)
    }

    /// Returns the shortest time under any policy: each machine sends and receives at its
    /// bandwidth, and no flow waits for another.
    pub(super) fn nominal(&self) -> Time {
        let vms = self.request.vms as usize;
        let (mut sent, mut received) = (vec![0_u32; vms], vec![0_u32; vms]);
        for (from, to) in &self.flows {
            sent[*from as usize] += 1;
            received[*to as usize] += 1;
        }
        let most = sent.iter().chain(&received).max().copied().unwrap_or(0);
        let bits = self.bits * f64::from(most);
        let transfer = Time((bits / self.bandwidth().max(1.0) * 1e12) as u64);
        self.compute.max(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_vm_sends_to_x_others_and_receives_from_x(
            vms in 2..40_u32, x in 0..50_u32, seed in any::<u64>(),
        ) {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let flows = permutation(f64::from(x), vms, &mut random);
            let x = x.min(vms - 1) as usize;
            for machine in 0..vms {
                let mut to: Vec<u32> = (flows.iter().filter(|flow| flow.0 == machine))
                    .map(|flow| flow.1)
                    .collect();
                to.sort_unstable();
                to.dedup();
                prop_assert_eq!(to.len(), x);
                prop_assert!(!to.contains(&machine));
                prop_assert_eq!(flows.iter().filter(|flow| flow.1 == machine).count(), x);
            }
            prop_assert_eq!(flows.len(), x * vms as usize);
        }
    }

    #[test]
    fn half_of_the_machines_send_where_x_is_a_half() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let flows = permutation(0.5, 10_000, &mut random).len();
        assert!((4_800..5_200).contains(&flows), "{flows}");
    }
}
