//! Run of an experiment: at each point tenants arrive, are admitted or refused, transfer their
//! data, and leave.

use super::experiment::{FlowPoint, FlowsExperiment};
use super::job::{Job, Jobs};
use super::recorder::{self, Recorder, Usage};
use super::sharing::LinkId;
use super::transfers::{Data, TIERS, Transfers};
use crate::Threads;
use crate::distribution::exponential;
use crate::net::{Time, ports};
use crate::parallel;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use tailbound_experiment::{
    Catalogue, ChartSpec, Curve, Document, Experiment, ExperimentError, Mistake, Mistakes, Run,
    RunOutput, catalogue,
};
use tailbound_placement::{
    AdmitError, Datacentre, Direction, NodeId, Placement, Policy, PortId, SpecError, TenantId,
    Topology,
};
use tailbound_report::Variant;

/// Reason for which a point failed.
#[derive(Debug, thiserror::Error)]
enum FlowsError {
    /// The network cannot be built.
    #[error(transparent)]
    Network(#[from] SpecError),
    /// A request is invalid.
    #[error(transparent)]
    Request(#[from] AdmitError),
}

impl Experiment for FlowsExperiment {
    type Options = Threads;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue = catalogue!("experiments/flows": "silo-large-scale", "silo-32k");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        self.find_mistakes(mistakes);
    }

    fn outline(&self) -> Vec<Variant> {
        let names = self.class_names();
        let outline = |point: &FlowPoint| recorder::outline(point.name.get_ref(), &names);
        self.point.iter().map(outline).collect()
    }

    fn charts(&self) -> &[ChartSpec] {
        &self.chart
    }

    fn curves(&self) -> Vec<Curve> {
        self.lines()
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let name = |point: &FlowPoint| point.name.get_ref().clone();
        let measure = |point: &FlowPoint| measure(self, point, seed);
        let mut found = RunOutput::of(parallel::map(run, &self.point, name, measure)?);
        found.condition("virtual_time", true);
        found.condition("model", "flows: no packets, no queues, not for tails");
        Ok(found)
    }
}

/// A tenant that was admitted.
#[derive(Debug)]
struct Tenant {
    class: usize,
    came: Time,
    nominal: Time,
    /// Number of incomplete flows.
    flows: usize,
    is_computing: bool,
    /// Links for the tenant's guarantees.
    hoses: Vec<LinkId>,
    is_measured: bool,
}

/// One data centre with its tenants.
struct Centre<'e> {
    point: &'e FlowPoint,
    dc: Datacentre,
    transfers: Transfers,
    /// Tenants by number.
    tenants: BTreeMap<usize, Tenant>,
    /// Ends of tenants' computing times.
    computed: BinaryHeap<Reverse<(Time, usize)>>,
    recorder: Recorder,
    /// Number of taken slots, time since it last changed, and slots multiplied by picoseconds
    /// before that.
    taken: u64,
    since: Time,
    area: f64,
    /// State at the start of the measurement: time, area, and carried bits.
    start: Option<(Time, f64, [f64; TIERS])>,
}

/// Runs a point.
///
/// # Errors
/// The network cannot be built, or a request is invalid.
fn measure(
    experiment: &FlowsExperiment,
    point: &FlowPoint,
    seed: u64,
) -> Result<Variant, FlowsError> {
    let network = experiment.network(point);
    let network = network.expect("an experiment's points are checked when it is read");
    let topology = network.uniform(point.pods).spec().build()?;
    let jobs = Jobs::new(experiment, point, seed);
    let mut centre = Centre::new(point, topology, experiment.class.len());
    let usage = centre.run(&jobs, seed)?;
    let name = point.name.get_ref();
    Ok(centre
        .recorder
        .finish(name, &experiment.class_names(), &usage))
}

impl<'e> Centre<'e> {
    fn new(point: &'e FlowPoint, topology: Topology, classes: usize) -> Self {
        let mut transfers = Transfers::new();
        if point.policy == Policy::Locality {
            open_ports(&mut transfers, &topology);
        }
        Self {
            point,
            dc: Datacentre::new(topology, point.policy),
            transfers,
            tenants: BTreeMap::new(),
            computed: BinaryHeap::new(),
            recorder: Recorder::new(classes),
            taken: 0,
            since: Time::ZERO,
            area: 0.0,
            start: None,
        }
    }

    fn run(&mut self, jobs: &Jobs<'_>, seed: u64) -> Result<Usage, FlowsError> {
        let slots = u64::from(self.dc.topology().resources(NodeId::TOP).slots);
        let gap = jobs.mean_gap(slots).0 as f64;
        let mut random = Pcg64Mcg::seed_from_u64(seed.rotate_left(32) ^ 0x00f1_0357);
        let (mut now, mut asked) = (Time::ZERO, 0);
        for number in 0..jobs.len() {
            if asked >= slots * u64::from(self.point.occupancy) / 100 {
                now = Time(now.0 + exponential(&mut random, gap) as u64);
                self.go_on(now)?;
            }
            let job = jobs.job(number);
            asked += u64::from(job.request.vms);
            if number == self.point.warmup as usize {
                self.count(now);
                self.start = Some((now, self.area, self.transfers.carried(now)));
            }
            self.come(now, number, &job)?;
        }
        Ok(self.usage(now, slots))
    }

    /// Handles all events up to `end`.
    fn go_on(&mut self, end: Time) -> Result<(), FlowsError> {
        loop {
            let computed = self.computed.peek().map_or(Time::NEVER, |it| it.0.0);
            let now = computed.min(self.transfers.next());
            if now > end {
                return Ok(());
            }
            let mut over = Vec::new();
            let tenants = &mut self.tenants;
            self.transfers.finish(now, |owner| {
                if let Some(tenant) = tenants.get_mut(&owner) {
                    tenant.flows -= 1;
                    over.push(owner);
                }
            });
            while let Some(&Reverse((at, number))) = self.computed.peek()
                && at <= now
            {
                self.computed.pop();
                if let Some(tenant) = self.tenants.get_mut(&number) {
                    tenant.is_computing = false;
                    over.push(number);
                }
            }
            for number in over {
                self.leave(now, number)?;
            }
            self.transfers.settle(now);
        }
    }

    /// Handles the arrival of a tenant.
    fn come(&mut self, now: Time, number: usize, job: &Job) -> Result<(), FlowsError> {
        let id = TenantId(number as u64);
        let is_measured = self.start.is_some();
        let placement = match self.dc.admit(id, &job.request) {
            Ok(placement) => Some(placement.clone()),
            Err(AdmitError::NoPlacement(_)) => None,
            Err(error) => return Err(error.into()),
        };
        if is_measured {
            self.recorder.decided(job.class, placement.is_some());
        }
        let Some(placement) = placement else {
            return Ok(());
        };
        self.count(now);
        self.taken += u64::from(job.request.vms);
        let (flows, hoses) = self.start_flows(now, number, job, &placement);
        self.computed
            .push(Reverse((Time(now.0 + job.compute.0), number)));
        let tenant = Tenant {
            class: job.class,
            came: now,
            nominal: job.nominal(),
            flows,
            is_computing: true,
            hoses,
            is_measured,
        };
        self.tenants.insert(number, tenant);
        self.transfers.settle(now);
        Ok(())
    }

    /// Removes a tenant if its job is complete.
    fn leave(&mut self, now: Time, number: usize) -> Result<(), FlowsError> {
        let is_over = |tenant: &Tenant| tenant.flows == 0 && !tenant.is_computing;
        if !self.tenants.get(&number).is_some_and(is_over) {
            return Ok(());
        }
        self.count(now);
        let left = self.dc.release(TenantId(number as u64))?;
        self.taken -= u64::from(left.request.vms);
        let Some(tenant) = self.tenants.remove(&number) else {
            return Ok(());
        };
        for link in tenant.hoses {
            self.transfers.links().close_link(link);
        }
        if tenant.is_measured {
            let took = now.since(tenant.came);
            self.recorder.ended(tenant.class, took, tenant.nominal);
        }
        Ok(())
    }

    /// Starts the flows of a job. Returns the number of flows to wait for, and the links that were
    /// opened for them.
    fn start_flows(
        &mut self,
        now: Time,
        owner: usize,
        job: &Job,
        placement: &Placement,
    ) -> (usize, Vec<LinkId>) {
        let machines = placement.hosts().iter();
        let machines =
            machines.flat_map(|(host, count)| std::iter::repeat_n(*host, *count as usize));
        let machines: Vec<NodeId> = machines.collect();
        let topology = self.dc.topology();
        if self.point.policy == Policy::Locality {
            let flows = start_fair(now, &mut self.transfers, topology, owner, job, &machines);
            return (flows, Vec::new());
        }
        let (bandwidth, links) = (job.bandwidth(), self.transfers.links());
        let hoses = (0..2 * machines.len()).map(|_| links.open_link(bandwidth));
        let hoses: Vec<LinkId> = hoses.collect();
        for &(from, to) in &job.flows {
            let (from, to) = (from as usize, to as usize);
            let data = Data {
                owner,
                count: 1,
                bits: job.bits,
                tiers: usize::from(topology.height(topology.meeting(machines[from], machines[to]))),
            };
            let way = [hoses[2 * from], hoses[2 * to + 1]];
            self.transfers.start(now, &way, data);
        }
        (job.flows.len(), hoses)
    }

    /// Adds the taken slots up to `now` to the area.
    fn count(&mut self, now: Time) {
        self.area += self.taken as f64 * now.since(self.since).0 as f64;
        self.since = now;
    }

    fn usage(&mut self, now: Time, slots: u64) -> Usage {
        self.count(now);
        let (start, area, before) = self.start.unwrap_or_default();
        let mut carried = self.transfers.carried(now);
        for (carried, before) in carried.iter_mut().zip(before) {
            *carried -= before;
        }
        let topology = self.dc.topology();
        let capacity = [0, 1, 2].map(|height| {
            let nodes = topology.at_height(height).iter();
            let ports = nodes.map(|&node| PortId {
                node,
                direction: Direction::Up,
            });
            ports.map(|port| topology.port(port).rate as f64).sum()
        });
        Usage {
            hosts: topology.hosts().len(),
            slots,
            time: now.since(start),
            taken: self.area - area,
            carried,
            capacity,
        }
    }
}

/// Opens a link for each port of the network, numbered by [`link`].
fn open_ports(transfers: &mut Transfers, topology: &Topology) {
    let mut rates = vec![1.0; 2 * topology.len()];
    for port in ports(topology) {
        rates[link(port) as usize] = topology.port(port).rate as f64;
    }
    // The top has no ports, so its links carry no flow.
    for rate in rates {
        transfers.links().open_link(rate);
    }
}

/// Returns the link of a port.
fn link(port: PortId) -> LinkId {
    2 * port.node.index() as LinkId + LinkId::from(port.direction == Direction::Down)
}

/// Starts the flows of a job that share the network's links; those within a host are complete
/// immediately. Returns the number of started flows.
fn start_fair(
    now: Time,
    transfers: &mut Transfers,
    topology: &Topology,
    owner: usize,
    job: &Job,
    hosts: &[NodeId],
) -> usize {
    // Equal flows between the same hosts always have the same rate and are merged.
    let mut counts: BTreeMap<(NodeId, NodeId), u32> = BTreeMap::new();
    for &(from, to) in &job.flows {
        let (from, to) = (hosts[from as usize], hosts[to as usize]);
        if from != to {
            *counts.entry((from, to)).or_default() += 1;
        }
    }
    for (&(from, to), &count) in &counts {
        let way: Vec<LinkId> = topology.path(from, to).into_iter().map(link).collect();
        let data = Data {
            owner,
            count,
            bits: job.bits,
            tiers: way.len() / 2,
        };
        transfers.start(now, &way, data);
    }
    counts.len()
}
