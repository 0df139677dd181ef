//! An experiment of the vCPU simulator, of one of its kinds.

#[cfg(test)]
mod tests;

use super::network::Networks;
use super::population::Population;
use super::sweep::Sweep;
use super::{check, point};
use crate::{Threads, parallel};
use tailbound_experiment::{
    Catalogue, ChartSpec, Curve, Document, Experiment, ExperimentError, Mistake, Mistakes, Run,
    RunOutput, catalogue,
};
use tailbound_report::Variant;

/// An experiment of the vCPU simulator.
#[derive(Debug, Clone)]
pub enum VcpuExperiment {
    /// A sweep: every scheduler runs every point.
    Sweep(Sweep),
    /// A population: many nodes are judged; its file has a table `population`.
    Population(Population),
    /// Guests that receive over TCP; its file has a table `network`.
    Networks(Networks),
}

impl Experiment for VcpuExperiment {
    type Options = Threads;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue = catalogue!(
        "experiments/sim": "bobtail-fig2", "bobtail-fig3", "bobtail-fig4", "bobtail-fig5", "bobtail-fig6-7", "bobtail-fig8", "bobtail-fig9", "bobtail-selection",
        "small-is-better-table3", "qos-fig12-13", "qos-fig14-15", "qos-deadlines", "qos-fig16",
        "snoop-rtt", "snoop-sequence", "snoop-throughput", "snoop-web", "snoop-mpi", "schedulers",
    );

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        if document.has("population") {
            document.whole().map(Self::Population)
        } else if document.has("network") {
            document.whole().map(Self::Networks)
        } else {
            document.whole().map(Self::Sweep)
        }
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        match self {
            Self::Sweep(sweep) => check::sweep(sweep, mistakes),
            Self::Population(population) => population.check(mistakes),
            Self::Networks(networks) => {
                networks.check(mistakes);
                networks.try_hosts(mistakes);
            }
        }
    }

    fn outline(&self) -> Vec<Variant> {
        match self {
            Self::Sweep(sweep) => {
                let runs = sweep.runs();
                runs.map(|(scheduler, point)| point::outline(sweep, scheduler, point))
                    .collect()
            }
            Self::Population(population) => population.outline(),
            Self::Networks(networks) => networks.outline(),
        }
    }

    fn charts(&self) -> &[ChartSpec] {
        match self {
            Self::Sweep(sweep) => &sweep.chart,
            Self::Networks(networks) => &networks.chart,
            Self::Population(_) => &[],
        }
    }

    fn curves(&self) -> Vec<Curve> {
        match self {
            Self::Sweep(sweep) => sweep.curves(),
            Self::Networks(networks) => networks.curves(),
            Self::Population(_) => Vec::new(),
        }
    }

    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let mut found = match self {
            Self::Sweep(sweep) => run_sweep(sweep, run)?,
            Self::Population(population) => population.run(run)?,
            Self::Networks(networks) => networks.run(run)?,
        };
        found.condition("virtual_time", true);
        Ok(found)
    }
}

fn run_sweep(sweep: &Sweep, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
    let seed = run.seed;
    let runs: Vec<_> = sweep.runs().collect();
    let name = |&(scheduler, point): &_| sweep.variant_name(scheduler, point);
    let mut found = RunOutput::of(parallel::map(run, &runs, name, |&(scheduler, point)| {
        point::measure(sweep, scheduler, point, seed)
    })?);
    let costs = sweep.costs;
    found.condition("duration_ns", sweep.duration.as_nanos());
    found.condition("warmup_ns", sweep.warmup.as_nanos());
    found.condition("pcpus", sweep.pcpus);
    found.condition("timer_slop_ns", sweep.timer_slop.as_nanos());
    found.condition("context_switch_ns", costs.context_switch.as_nanos());
    found.condition("migration_ns", costs.migration.as_nanos());
    found.condition("cache_refill_ns", costs.cache_refill.as_nanos());
    Ok(found)
}
