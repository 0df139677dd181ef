//! An experiment from its TOML to its verdict.

use super::experiment::{ChartSpec, Experiment, Leave, Point, source_text};
use super::recorder::{End, Recorder};
use super::workload::Workload;
use crate::SimError;
use crate::vcpu::check;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tailbound_placement::{
    AdmitError, Datacentre, Direction, NodeId, Policy, PortId, Request, TenantId, Topology,
};
use tailbound_report::{Chart, Line, LineStyle, Point as ChartPoint, Results, Variant};
use tailbound_units::{Bytes, Nanos};

/// What an experiment borrows of the machine it runs on. It decides nothing:
/// with any other machine the same tenants are admitted to the same hosts.
pub trait Machine {
    /// The time, from any start on.
    fn now(&self) -> Nanos;
    /// Forgets how much memory there was at most.
    fn forget_memory(&mut self);
    /// The most memory since then, if that is known.
    fn memory(&self) -> Option<Bytes>;
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of one of the embedded experiments, or a file.
    pub experiment: String,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Runs an experiment. `progress` hears how many of how many points are done.
///
/// # Errors
/// See [`SimError`].
pub fn run(
    options: &Options,
    machine: &mut dyn Machine,
    mut progress: impl FnMut(usize, usize),
) -> Result<Results, SimError> {
    let (text, file) = source_text(&options.experiment)?;
    let experiment = Experiment::parse(&text, &file)?;
    let mut variants = Vec::new();
    for (done, point) in experiment.point.iter().enumerate() {
        progress(done, experiment.point.len());
        variants.push(measure(&experiment, point, options.seed, machine)?);
    }
    let charts = experiment.chart.iter();
    let charts: Vec<Chart> = charts
        .map(|spec| draw(&experiment, spec, &variants))
        .collect();
    let checks = check::evaluate(&experiment.check, &variants, &charts);
    let (verdict, verdict_reason) = check::verdict(&checks);
    Ok(Results {
        schema: tailbound_report::SCHEMA,
        experiment: experiment.name.get_ref().clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        seed: options.seed,
        conditions: conditions(&experiment),
        variants,
        charts,
        checks,
        verdict,
        verdict_reason,
    })
}

/// One data centre with its tenants.
struct Run<'e> {
    experiment: &'e Experiment,
    point: &'e Point,
    machine: &'e mut dyn Machine,
    dc: Datacentre,
    here: Vec<TenantId>,
    recorder: Recorder,
    /// How many were refused in all.
    refusals: u32,
}

fn measure(
    experiment: &Experiment,
    point: &Point,
    seed: u64,
    machine: &mut dyn Machine,
) -> Result<Variant, SimError> {
    machine.forget_memory();
    let name = point.name.get_ref();
    let failed = |error: &dyn std::error::Error| SimError::Run {
        variant: name.clone(),
        message: error.to_string(),
    };
    let network = experiment.network(point);
    let network = network.expect("an experiment's points are checked when it is read");
    let tree = network.uniform(point.pods).spec().build();
    let tree = tree.map_err(|error| failed(&error))?;
    let mut run = Run {
        experiment,
        point,
        machine,
        dc: Datacentre::new(tree, point.policy),
        here: Vec::new(),
        recorder: Recorder::new(experiment.class.len()),
        refusals: 0,
    };
    if let Some(effort) = point.effort {
        run.dc.set_effort(effort);
    }
    let mut workload = Workload::new(&experiment.class, point, seed);
    run.all(&mut workload).map_err(|error| failed(&error))?;
    let end = run.end();
    let classes: Vec<_> = experiment
        .class
        .iter()
        .map(|it| it.name.get_ref())
        .collect();
    Ok(run.recorder.finish(name, &classes, &end))
}

impl Run<'_> {
    fn all(&mut self, workload: &mut Workload<'_>) -> Result<(), AdmitError> {
        let mut next = 0_u64;
        let mut is_measured = self.point.leave == Leave::Never;
        // Who never fills the data centre has had a fair chance by then.
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
            let start = self.machine.now();
            self.dc.release(leaving)?;
            self.recorder.released(self.since(start));
        }
        Ok(())
    }

    fn since(&self, start: Nanos) -> Nanos {
        self.machine.now().saturating_sub(start)
    }

    fn decide(&mut self, id: TenantId, class: usize, request: &Request) -> Result<(), AdmitError> {
        let start = self.machine.now();
        let answer = self.dc.admit(id, request).map(|_| ());
        let cost = (self.since(start), self.dc.last_effort());
        let refusal = match answer {
            Ok(()) => None,
            Err(AdmitError::NoPlacement(refusal)) => Some(refusal),
            Err(error) => return Err(error),
        };
        self.recorder
            .decided((class, request), refusal.as_ref(), cost);
        match refusal {
            None => self.here.push(id),
            Some(_) => self.explain(request)?,
        }
        Ok(())
    }

    /// Some refusals are explained; what is said does not matter here.
    fn explain(&mut self, request: &Request) -> Result<(), AdmitError> {
        self.refusals += 1;
        if let Some(every) = self.experiment.explain_every
            && self.refusals.is_multiple_of(every)
        {
            let start = self.machine.now();
            self.dc.explain(request)?;
            self.recorder.explained(self.since(start));
        }
        Ok(())
    }

    fn end(&self) -> End {
        let memory = self.machine.memory();
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

/// How many queues carry something, and how many of these may grow over their
/// capacity if all tenants send what they asked for, whatever the policy looked
/// at.
fn queues_over(dc: &Datacentre) -> (u64, u64) {
    // Reserves all that tenants may send, and looks at nothing.
    let mut sent = Datacentre::new(dc.topology().clone(), Policy::Locality);
    let tenants = dc
        .tenants()
        .map(|(id, tenant)| (id, tenant.request, tenant.placement.clone()));
    // What was admitted once fits where it is.
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

fn ports(topology: &Topology) -> impl Iterator<Item = PortId> {
    (0..=topology.height(NodeId::TOP)).flat_map(move |height| {
        let nodes = topology.at_height(height).iter();
        nodes.flat_map(|node| {
            [Direction::Up, Direction::Down].map(|direction| PortId {
                node: *node,
                direction,
            })
        })
    })
}

fn draw(experiment: &Experiment, spec: &ChartSpec, variants: &[Variant]) -> Chart {
    let with_x = experiment
        .point
        .iter()
        .zip(variants)
        .filter_map(|(point, variant)| Some((point.x?, variant)));
    let with_x: Vec<_> = with_x.collect();
    let lines = spec.of.iter().map(|of| Line {
        name: of.get_ref().clone(),
        style: LineStyle::Measured,
        points: with_x
            .iter()
            .map(|(x, variant)| {
                // What could not be measured leaves a gap.
                let y = check::read(variant, of.get_ref()).map_or(f64::NAN, |found| found.value);
                ChartPoint(*x, y)
            })
            .collect(),
    });
    Chart {
        name: spec.name.get_ref().clone(),
        title: spec.title.clone(),
        x: (&spec.x).into(),
        y: (&spec.y).into(),
        lines: lines.collect(),
        note: spec.note.clone(),
    }
}

fn conditions(experiment: &Experiment) -> BTreeMap<String, Value> {
    let mut conditions = BTreeMap::from([
        ("virtual_time".to_owned(), json!(false)),
        ("explain_every".to_owned(), json!(experiment.explain_every)),
    ]);
    for point in &experiment.point {
        let text = format!(
            "{} pods of {}, mean {} machines, {} requests",
            point.pods,
            point.network.get_ref(),
            point.mean_vms,
            point.requests
        );
        conditions.insert(format!("point_{}", point.name.get_ref()), json!(text));
    }
    conditions
}
