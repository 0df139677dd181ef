//! Run of an experiment, and its figures.

use super::bench::{Bench, Figures};
use super::spec::{HostSpec, NetworkPoint, Networks, Work, variant_name};
use super::{messages, pings, transfers, web};
use crate::{Threads, parallel};
use std::collections::BTreeMap;
use tailbound_experiment::{ExperimentError, Mistakes, Run, RunOutput};
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Value, Variant};

impl Networks {
    /// Returns the variants with the names of all values.
    pub(crate) fn outline(&self) -> Vec<Variant> {
        let runs = self.runs();
        let variant = |(host, point): (&HostSpec, &NetworkPoint)| {
            let figures = match &point.work {
                Work::Transfers(_) => transfers::outline(),
                Work::Pings(_) => pings::outline(),
                Work::Web(_) => web::outline(),
                Work::Messages(_) => messages::outline(),
            };
            let mut variant = variant(host, point, figures);
            if host.against.is_some() && point.work.merit().is_some() {
                let times = Value::new("", f64::NAN);
                variant.values.insert("times".to_owned(), times);
            }
            variant
        };
        runs.map(variant).collect()
    }

    /// Builds all hosts once, because schedulers and workloads check themselves when they are
    /// created.
    pub(crate) fn try_hosts(&self, mistakes: &mut Mistakes) {
        if !mistakes.is_empty() {
            return;
        }
        for host in &self.host {
            let mut points = self.point.iter();
            let refused = points.find_map(|point| self.bench(host, point, 0).host(0).err());
            if let Some(refused) = refused {
                mistakes.at(&host.name, refused);
            }
        }
    }

    const fn bench<'b>(
        &'b self,
        host: &'b HostSpec,
        point: &'b NetworkPoint,
        seed: u64,
    ) -> Bench<'b> {
        Bench {
            networks: self,
            host,
            point,
            seed,
        }
    }

    /// Runs the whole experiment.
    pub(crate) fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError> {
        let seed = run.seed;
        let runs: Vec<_> = self.runs().collect();
        let name = |&(host, point): &(&HostSpec, &NetworkPoint)| variant_name(host, point);
        let figures = parallel::map(run, &runs, name, |&(host, point)| {
            measure(&self.bench(host, point, seed), &point.work)
        })?;
        let mut lines = Vec::new();
        let mut variants = Vec::new();
        for ((host, point), mut figures) in runs.into_iter().zip(figures) {
            let sequence = std::mem::take(&mut figures.sequence);
            let variant = variant(host, point, figures);
            if !sequence.is_empty() {
                lines.push(Line::new(&variant.name, LineStyle::Measured, sequence));
            }
            variants.push(variant);
        }
        self.compare(&mut variants);
        let mut found = RunOutput::of(variants);
        if !lines.is_empty() {
            found.charts.push(Chart {
                name: "sequence".to_owned(),
                title: "Progress of the sender: the transfer of median length".to_owned(),
                x: ChartAxis::linear("since the connection was opened", "ns"),
                y: ChartAxis::linear("sent", "B"),
                lines,
                note: None,
            });
        }
        let conditions = &self.network;
        found.condition("period_ns", conditions.period.as_nanos());
        found.condition("hears_ns", conditions.hears.as_nanos());
        found.condition("pause_ns", conditions.pause.as_nanos());
        found.condition(
            "context_switch_ns",
            conditions.costs.context_switch.as_nanos(),
        );
        Ok(found)
    }

    /// Adds to each variant its throughput relative to that of its reference host.
    fn compare(&self, variants: &mut [Variant]) {
        let done = |variant: &Variant, point: &NetworkPoint| {
            let merit = variant.values.get(point.work.merit()?)?;
            Some((variant.name.clone(), merit.value))
        };
        let runs = self.runs().zip(variants.iter());
        let done: BTreeMap<String, f64> = runs
            .filter_map(|((_, point), variant)| done(variant, point))
            .collect();
        for ((host, point), variant) in self.runs().zip(variants) {
            let Some(against) = &host.against else {
                continue;
            };
            let base = format!("{}/{}", against.get_ref(), point.name.get_ref());
            if let (Some(own), Some(base)) = (done.get(&variant.name), done.get(&base)) {
                let times = Value::new("", own / base);
                variant.values.insert("times".to_owned(), times);
            }
        }
    }
}

/// Runs the load of a point on a bench.
fn measure(bench: &Bench<'_>, work: &Work) -> Result<Figures, String> {
    match work {
        Work::Transfers(spec) => transfers::measure(bench, spec),
        Work::Pings(spec) => pings::measure(bench, spec),
        Work::Web(spec) => web::measure(bench, spec),
        Work::Messages(pattern) => messages::measure(bench, *pattern),
    }
}

fn variant(host: &HostSpec, point: &NetworkPoint, figures: Figures) -> Variant {
    Variant {
        name: variant_name(host, point),
        values: figures.values,
        series: figures.series,
        ..Variant::default()
    }
}
