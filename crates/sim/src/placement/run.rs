//! Run of an experiment of the placement simulator.

use super::experiment::{Leave, PlacementExperiment, Point};
use super::recorder::{DecisionCost, End, Recorder};
use super::workload::{Inward, Workload, WorkloadConfig};
use crate::net::ports;
use std::fmt::Debug;
use tailbound_experiment::{
    Catalogue, ChartSpec, Curve, Document, Experiment, ExperimentError, Mistake, Mistakes, Noise,
    RunOutput, catalogue,
};
use tailbound_placement::{AdmitError, Datacentre, NodeId, Policy, Request, TenantId};
use tailbound_report::Variant;
use tailbound_units::{Bytes, Nanos};

/// Measures the time and the memory of decisions. It does not influence decisions: with any
/// implementation the same tenants are admitted to the same hosts.
pub trait Stopwatch: Debug {
    /// Returns the time since any start.
    fn now(&self) -> Nanos;
    /// Resets the peak memory.
    fn reset_peak_memory(&self);
    /// Returns the peak memory since the last reset, if known.
    fn peak_memory(&self) -> Option<Bytes>;
}

impl Experiment for PlacementExperiment {
    type Options = Box<dyn Stopwatch>;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue =
        catalogue!("experiments/placement": "microbenchmark", "scale", "policies");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        self.find_mistakes(mistakes);
    }

    fn outline(&self) -> Vec<Variant> {
        let outline = |point: &Point| {
            let recorder = Recorder::new(self.class.len());
            recorder.outline(point.name.get_ref(), &self.class_names())
        };
        self.point.iter().map(outline).collect()
    }

    fn charts(&self) -> &[ChartSpec] {
        &self.chart
    }

    fn curves(&self) -> Vec<Curve> {
        vec![self.curve()]
    }

    fn run(
        &self,
        run: &mut tailbound_experiment::Run<'_, Box<dyn Stopwatch>>,
    ) -> Result<RunOutput, ExperimentError> {
        let mut found = RunOutput {
            noise: Noise::Unknown,
            ..RunOutput::default()
        };
        found.condition("virtual_time", false);
        found.condition("explain_every", self.explain_every);
        for (done, point) in self.point.iter().enumerate() {
            (run.progress)(&format!("{done} of {}", self.point.len()));
            let variant = measure(self, point, run.seed, run.options.as_ref())?;
            found.variants.push(variant);
            let text = format!(
                "{} pods of {}, mean {} machines, {} requests",
                point.pods,
                point.network.get_ref(),
                point.mean_vms,
                point.requests
            );
            found.condition(format!("point_{}", point.name.get_ref()), text);
        }
        Ok(found)
    }
}

impl PlacementExperiment {
    fn class_names(&self) -> Vec<&str> {
        let classes = self.class.iter();
        classes.map(|class| class.name.get_ref().as_str()).collect()
    }
}

/// One data centre with its tenants.
struct Run<'e> {
    experiment: &'e PlacementExperiment,
    point: &'e Point,
    stopwatch: &'e dyn Stopwatch,
    dc: Datacentre,
    here: Vec<TenantId>,
    recorder: Recorder,
    /// Number of refusals.
    refusals: u32,
}

fn measure(
    experiment: &PlacementExperiment,
    point: &Point,
    seed: u64,
    stopwatch: &dyn Stopwatch,
) -> Result<Variant, ExperimentError> {
    stopwatch.reset_peak_memory();
    let name = point.name.get_ref();
    let failed = |error: &dyn std::error::Error| ExperimentError::run(name, error);
    let network = experiment.network(point);
    let network = network.expect("an experiment's points are checked when it is read");
    let tree = network.uniform(point.pods).spec().build();
    let tree = tree.map_err(|error| failed(&error))?;
    let mut run = Run {
        experiment,
        point,
        stopwatch,
        dc: Datacentre::new(tree, point.policy),
        here: Vec::new(),
        recorder: Recorder::new(experiment.class.len()),
        refusals: 0,
    };
    if let Some(effort) = point.effort {
        run.dc.set_effort(effort);
    }
    let config = WorkloadConfig {
        classes: &experiment.class,
        mean_vms: point.mean_vms,
        most_vms: point.most_vms,
        inward: point.inward_bursts.map(|bursts| Inward {
            bursts,
            frame: run.dc.topology().frame(),
        }),
    };
    let mut workload = Workload::new(config, seed);
    run.all(&mut workload).map_err(|error| failed(&error))?;
    let end = run.end();
    Ok(run.recorder.finish(name, &experiment.class_names(), &end))
}

impl Run<'_> {
    fn all(&mut self, workload: &mut Workload<'_>) -> Result<(), AdmitError> {
        let mut next = 0_u64;
        let mut is_measured = self.point.leave == Leave::Never;
        // Policies that never fill the data centre have had enough requests by then.
        let slots = u64::from(self.slots());
        let fair = (20.0 * slots as f64 / self.point.mean_vms) as u64;
        let mut measured = 0;
        while measured < self.point.requests {
            if !is_measured && (self.is_full() || next > fair) {
                is_measured = true;
                self.recorder = Recorder::new(self.experiment.class.len());
            }
            if is_measured && self.point.leave == Leave::Random {
                self.make_room(workload)?;
            }
            measured += u32::from(is_measured);
            let (class, request) = workload.next();
            self.decide(TenantId(next), class, &request)?;
            next += 1;
        }
        Ok(())
    }

    fn slots(&self) -> u32 {
        self.dc.topology().resources(NodeId::TOP).slots
    }

    fn taken(&self) -> u32 {
        self.slots() - self.dc.free(NodeId::TOP).slots
    }

    fn is_full(&self) -> bool {
        let (taken, slots) = (u64::from(self.taken()), u64::from(self.slots()));
        taken * 100 > slots * u64::from(self.point.occupancy)
    }

    fn make_room(&mut self, workload: &mut Workload<'_>) -> Result<(), AdmitError> {
        while self.is_full() && !self.here.is_empty() {
            let leaving = self.here.swap_remove(workload.one_of(self.here.len()));
            let start = self.stopwatch.now();
            self.dc.release(leaving)?;
            self.recorder.released(self.since(start));
        }
        Ok(())
    }

    fn since(&self, start: Nanos) -> Nanos {
        self.stopwatch.now().saturating_sub(start)
    }

    fn decide(&mut self, id: TenantId, class: usize, request: &Request) -> Result<(), AdmitError> {
        let start = self.stopwatch.now();
        let answer = self.dc.admit(id, request).map(|_| ());
        let cost = DecisionCost {
            took: self.since(start),
            ports: self.dc.last_effort(),
        };
        let refusal = match answer {
            Ok(()) => None,
            Err(AdmitError::NoPlacement(refusal)) => Some(refusal),
            Err(error) => return Err(error),
        };
        self.recorder
            .decided(class, request, refusal.as_ref(), cost);
        match refusal {
            None => self.here.push(id),
            Some(_) => self.explain(request)?,
        }
        Ok(())
    }

    /// Explains some refusals, to measure the time; the result is not used.
    fn explain(&mut self, request: &Request) -> Result<(), AdmitError> {
        self.refusals += 1;
        if let Some(every) = self.experiment.explain_every
            && self.refusals.is_multiple_of(every)
        {
            let start = self.stopwatch.now();
            self.dc.explain(request)?;
            self.recorder.explained(self.since(start));
        }
        Ok(())
    }

    fn end(&self) -> End {
        let memory = self.stopwatch.peak_memory();
        End {
            hosts: self.dc.topology().hosts().len(),
            slots: u64::from(self.slots()),
            taken: u64::from(self.taken()),
            tenants: self.here.len(),
            queues: queues_over(&self.dc),
            memory,
        }
    }
}

/// Returns the number of queues with traffic, and of those that may exceed their capacity if all
/// tenants send at their guarantees, regardless of the policy's checks.
fn queues_over(dc: &Datacentre) -> (u64, u64) {
    // Locality reserves the traffic of all tenants, without checks.
    let mut sent = Datacentre::new(dc.topology().clone(), Policy::Locality);
    let tenants = dc
        .tenants()
        .map(|(id, tenant)| (id, tenant.request, tenant.placement.clone()));
    // Tenants that were admitted before fit at their place.
    let restored = sent.restore_all(tenants);
    debug_assert_eq!(restored, Ok(()));
    let (mut used, mut over) = (0, 0);
    for port in ports(dc.topology()) {
        if sent.load(port).is_none() {
            continue;
        }
        used += 1;
        let limit = sent.topology().port(port).backlog_limit;
        over += u64::from(sent.bound(port).is_none_or(|bound| bound.backlog > limit));
    }
    (used, over)
}
