//! Converts samples to figures: one variant's repeats become its part of the result.

use crate::measurement::{MeasuredSeries, Measurement};
use crate::noise::SampleClass;
use std::collections::{BTreeMap, BTreeSet};
use tailbound_report::{Hit, Series, Statistic, Stats, Value, Variant, empty_histogram};

/// Returns the part of a variant that ran, once or several times.
pub(crate) fn variant(name: &str, repeats: &[Measurement]) -> Variant {
    let mut variant = Variant {
        name: name.to_owned(),
        ..Variant::default()
    };
    if let Some(flaw) = repeats.iter().find_map(|repeat| repeat.flaw.clone()) {
        variant.unavailable = Some(flaw);
        return variant;
    }
    let names: BTreeSet<_> = repeats.iter().flat_map(|it| it.series.keys()).collect();
    for name in names {
        let runs: Vec<_> = repeats.iter().filter_map(|r| r.series.get(name)).collect();
        variant.series.insert(name.clone(), series(&runs));
    }
    for (name, (unit, _)) in repeats.iter().flat_map(|repeat| &repeat.values) {
        let runs: Vec<f64> = repeats
            .iter()
            .filter_map(|r| r.values.get(name))
            .map(|(_, v)| *v)
            .collect();
        variant.values.insert(name.clone(), value(unit, runs));
    }
    variant
}

/// Returns a variant that could not run here.
pub(crate) fn unavailable(name: &str, why: &str) -> Variant {
    Variant {
        name: name.to_owned(),
        unavailable: Some(why.to_owned()),
        ..Variant::default()
    }
}

/// Returns the median of the runs' figures, and their range.
pub(crate) fn value(unit: &str, mut runs: Vec<f64>) -> Value {
    runs.sort_by(f64::total_cmp);
    let middle = match runs.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => runs[n / 2],
        n => f64::midpoint(runs[n / 2 - 1], runs[n / 2]),
    };
    let spread = (runs.len() > 1).then(|| [runs[0], runs[runs.len() - 1]]);
    Value {
        unit: unit.to_owned(),
        value: middle,
        spread,
    }
}

fn series(runs: &[&MeasuredSeries]) -> Series {
    let of = |run: &MeasuredSeries, keep: &dyn Fn(SampleClass) -> bool| {
        let mut histogram = run.counted.clone().unwrap_or_else(empty_histogram);
        for (sample, class) in run.samples.iter().zip(&run.classes) {
            if keep(*class) {
                let counted = histogram.record(sample.latency().as_nanos().max(1));
                counted.expect("it grows to the whole of 64 bits");
            }
        }
        histogram
    };
    let kept: Vec<_> = runs
        .iter()
        .map(|run| of(run, &|class| !class.is_hit()))
        .collect();
    let all: Vec<_> = runs.iter().map(|run| of(run, &|_| true)).collect();
    let count = |wanted: SampleClass| {
        let classes = runs.iter().flat_map(|run| &run.classes);
        classes.filter(|class| **class == wanted).count() as u64
    };
    let (stats, spread) = over_repeats(&kept);
    Series {
        unit: "ns".to_owned(),
        stats,
        all: over_repeats(&all).0,
        hit: Hit {
            ours: count(SampleClass::Ours),
            stolen: count(SampleClass::Stolen),
        },
        unexplained: count(SampleClass::Unexplained),
        unanswered: runs.iter().map(|run| run.unanswered).sum(),
        spread,
    }
}

type Spread = BTreeMap<String, [u64; 2]>;

/// Returns the median of each statistic over the repeats and its range; the histogram and the count
/// include all repeats.
fn over_repeats(runs: &[hdrhistogram::Histogram<u64>]) -> (Stats, Option<Spread>) {
    let mut merged = empty_histogram();
    for run in runs {
        // Both histograms grow as needed, so the values of one fit the other.
        let _ = merged.add(run);
    }
    let mut stats = Stats::from_histogram(&merged);
    if runs.len() < 2 {
        return (stats, None);
    }
    let each: Vec<Stats> = runs.iter().map(Stats::from_histogram).collect();
    let mut spread = Spread::new();
    for statistic in Statistic::ALL {
        let mut figures: Vec<u64> = each.iter().map(|stats| stats.get(statistic)).collect();
        figures.sort_unstable();
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            1 => figures[middle],
            _ => u64::midpoint(figures[middle - 1], figures[middle]),
        };
        spread.insert(
            statistic.key().to_owned(),
            [figures[0], figures[figures.len() - 1]],
        );
        match statistic {
            Statistic::P50 => stats.p50 = median,
            Statistic::P90 => stats.p90 = median,
            Statistic::P99 => stats.p99 = median,
            Statistic::P999 => stats.p99_9 = median,
            Statistic::Max => stats.max = median,
            Statistic::Mean => stats.mean = median,
            Statistic::Count => {}
        }
    }
    (stats, Some(spread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Sample;
    use tailbound_units::Nanos;

    fn run(latencies: &[(u64, SampleClass)]) -> MeasuredSeries {
        let sample = |latency: u64| Sample {
            arrival: 0,
            start: Nanos(1000),
            end: Nanos(1000 + latency),
        };
        MeasuredSeries {
            samples: latencies
                .iter()
                .map(|(latency, _)| sample(*latency))
                .collect(),
            classes: latencies.iter().map(|(_, class)| *class).collect(),
            unanswered: 1,
            counted: None,
        }
    }

    #[test]
    fn a_latency_of_more_than_a_second_is_kept_as_it_is() {
        let series = series(&[&run(&[(3_000_000_000, SampleClass::OnTime)])]);
        let off = series.stats.max.abs_diff(3_000_000_000);
        assert!(off < 3_000_000, "{}", series.stats.max);
    }

    #[test]
    fn hit_samples_are_set_apart_and_still_shown() {
        let run = run(&[
            (100, SampleClass::OnTime),
            (200, SampleClass::Unexplained),
            (900, SampleClass::Stolen),
            (800, SampleClass::Ours),
        ]);
        let series = series(&[&run]);
        assert_eq!((series.stats.count, series.stats.max), (2, 200));
        assert_eq!((series.all.count, series.all.max), (4, 900));
        assert_eq!(series.hit, Hit { ours: 1, stolen: 1 });
        assert_eq!((series.unexplained, series.unanswered), (1, 1));
        assert_eq!(series.spread, None);
    }

    #[test]
    fn repeats_give_the_median_and_the_range_of_each_figure() {
        let runs = [100, 400, 200].map(|latency| run(&[(latency, SampleClass::OnTime); 3]));
        let series = series(&runs.iter().collect::<Vec<_>>());
        assert_eq!(series.stats.p99, 200);
        assert_eq!(series.spread.unwrap()["p99"], [100, 400]);
        assert_eq!((series.stats.count, series.unanswered), (9, 3));
        assert_eq!(series.stats.histogram().unwrap().len(), 9);
    }

    #[test]
    fn the_median_of_two_values_lies_between_them() {
        let value = value("bit/s", vec![3.0, 1.0]);
        assert_eq!((value.value, value.spread), (2.0, Some([1.0, 3.0])));
    }

    #[test]
    fn a_flawed_repeat_makes_the_variant_unavailable() {
        let flawed = Measurement {
            flaw: Some("elsewhere".into()),
            ..Measurement::default()
        };
        let variant = variant("periodic", &[Measurement::default(), flawed]);
        assert_eq!(variant.unavailable.as_deref(), Some("elsewhere"));
    }
}
