//! Converts metrics from Prometheus text to OTLP.

use crate::{attribute, text};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric::Data, number_data_point::Value,
};
use std::collections::BTreeMap;

type Labels = Vec<(String, String)>;

/// Start of the counts, and now, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) begin: u64,
    pub(crate) now: u64,
}

/// A metric of the text.
struct Family<'t> {
    name: &'t str,
    data: Data,
    /// For each set of labels: a histogram whose counts are cumulative.
    histograms: BTreeMap<Labels, HistogramDataPoint>,
}

/// Returns the metrics of a text of `OpenMetrics` 1.0. Exemplars are omitted, and metrics other
/// than counters, gauges and histograms.
pub(crate) fn of_text(page: &str, times: Times) -> Vec<Metric> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let (mut helps, mut units) = (BTreeMap::new(), BTreeMap::new());
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(help)) => {
                helps.insert(name, help);
            }
            (Some("#"), Some("UNIT"), Some(name), Some(unit)) => {
                units.insert(name, unit);
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                families.extend(Family::new(name, kind));
            }
            _ => {
                // The samples of a metric follow its type; others are omitted.
                if let (Some(sample), Some(family)) = (Sample::of(line), families.last_mut()) {
                    family.take(sample, times);
                }
            }
        }
    }
    let metrics = families.into_iter().filter_map(|family| {
        let name = family.name;
        let help = helps.get(name).copied().unwrap_or_default();
        let unit = units.get(name).copied().unwrap_or_default();
        Some(Metric {
            name: name.to_owned(),
            description: help.to_owned(),
            unit: ucum(unit).to_owned(),
            data: Some(family.end(times)?),
            ..Metric::default()
        })
    });
    metrics.collect()
}

/// Returns a unit as OTLP writes it.
fn ucum(unit: &str) -> &str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        other => other,
    }
}

/// A sample: one line with a number.
struct Sample<'t> {
    name: &'t str,
    labels: Labels,
    value: f64,
}

impl<'t> Sample<'t> {
    fn of(line: &'t str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            name,
            labels,
            value,
        })
    }
}

/// Labels and the rest of the line, after the first brace.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut all = Vec::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((all, rest));
        }
        let (name, behind) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = behind.char_indices();
        loop {
            let (at, letter) = letters.next()?;
            match letter {
                '"' => {
                    rest = &behind[at + 1..];
                    break;
                }
                '\\' => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        }
        all.push((name.to_owned(), value));
    }
}

impl<'t> Family<'t> {
    /// Returns an empty metric, or `None` for other kinds.
    fn new(name: &'t str, kind: &str) -> Option<Self> {
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match kind {
            "counter" => Data::Sum(Sum {
                aggregation_temporality: cumulative,
                is_monotonic: true,
                ..Sum::default()
            }),
            "gauge" => Data::Gauge(Gauge::default()),
            "histogram" => Data::Histogram(Histogram {
                aggregation_temporality: cumulative,
                ..Histogram::default()
            }),
            _ => return None,
        };
        Some(Self {
            name,
            data,
            histograms: BTreeMap::new(),
        })
    }

    fn take(&mut self, mut sample: Sample<'_>, times: Times) {
        let Some(part) = sample.name.strip_prefix(self.name) else {
            return;
        };
        match (&mut self.data, part) {
            (Data::Gauge(gauge), "") => gauge.data_points.push(NumberDataPoint {
                attributes: attributes(sample.labels),
                time_unix_nano: times.now,
                value: Some(Value::AsDouble(sample.value)),
                ..NumberDataPoint::default()
            }),
            (Data::Sum(sum), "_total") => sum.data_points.push(NumberDataPoint {
                attributes: attributes(sample.labels),
                start_time_unix_nano: times.begin,
                time_unix_nano: times.now,
                value: Some(Value::AsDouble(sample.value)),
                ..NumberDataPoint::default()
            }),
            (Data::Histogram(_), "_bucket") => {
                let Some(place) = sample.labels.iter().position(|(name, _)| name == "le") else {
                    return;
                };
                let (_, bound) = sample.labels.remove(place);
                let point = self.histograms.entry(sample.labels).or_default();
                point.bucket_counts.push(sample.value as u64);
                let bound = bound.parse().ok();
                let bound = bound.filter(|bound: &f64| bound.is_finite());
                point.explicit_bounds.extend(bound);
            }
            (Data::Histogram(_), "_sum") => {
                let point = self.histograms.entry(sample.labels).or_default();
                point.sum = Some(sample.value);
            }
            (Data::Histogram(_), "_count") => {
                let point = self.histograms.entry(sample.labels).or_default();
                point.count = sample.value as u64;
            }
            _ => {}
        }
    }

    /// Returns the data, or `None` without any.
    fn end(mut self, times: Times) -> Option<Data> {
        let is_empty = match &mut self.data {
            Data::Histogram(histogram) => {
                let points = self.histograms.into_iter();
                let points = points.map(|(labels, point)| ended(labels, point, times));
                histogram.data_points.extend(points);
                histogram.data_points.is_empty()
            }
            Data::Sum(sum) => sum.data_points.is_empty(),
            Data::Gauge(gauge) => gauge.data_points.is_empty(),
            Data::ExponentialHistogram(_) | Data::Summary(_) => true,
        };
        (!is_empty).then_some(self.data)
    }
}

/// Returns a histogram with the count of each bucket alone.
fn ended(labels: Labels, mut point: HistogramDataPoint, times: Times) -> HistogramDataPoint {
    let mut before = 0;
    for count in &mut point.bucket_counts {
        let own = count.saturating_sub(before);
        before = std::mem::replace(count, own);
    }
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.begin,
        time_unix_nano: times.now,
        ..point
    }
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    let labels = labels.into_iter();
    let attributes = labels.map(|(name, value)| attribute(&name, text(&value)));
    attributes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;

    const PAGE: &str = r#"# HELP place_requests Requests answered.
# TYPE place_requests counter
place_requests_total{route="/v1/tenants",said="a \"b\\\n"} 7 1700000000.0
place_requests_total 2 # {trace="x"} 1
# HELP place_slots Places.
# TYPE place_slots gauge
place_slots 632
place_slots{of="x"} +Inf
# HELP place_commit_seconds Transactions.
# TYPE place_commit_seconds histogram
# UNIT place_commit_seconds seconds
place_commit_seconds_sum{outcome="ok"} 0.5
place_commit_seconds_count{outcome="ok"} 9
place_commit_seconds_bucket{le="0.1",outcome="ok"} 4
place_commit_seconds_bucket{le="1.0",outcome="ok"} 7
place_commit_seconds_bucket{le="+Inf",outcome="ok"} 9
# TYPE place_build info
place_build_info{version="1"} 1
# TYPE place_nothing counter
# EOF
"#;

    const TIMES: Times = Times { begin: 1, now: 2 };

    fn numbers(points: &[NumberDataPoint]) -> Vec<f64> {
        points.iter().map(testing::number).collect()
    }

    #[test]
    fn counters_gauges_and_histograms_convert_to_otlp() {
        let metrics = of_text(PAGE, TIMES);
        let [counter, gauge, histogram] = &metrics[..] else {
            panic!("three metrics");
        };
        assert_eq!(counter.name, "place_requests");
        let Some(Data::Sum(sum)) = &counter.data else {
            panic!("{counter:?}");
        };
        let temporality = sum.aggregation_temporality();
        assert_eq!(temporality, AggregationTemporality::Cumulative);
        assert!(sum.is_monotonic);
        assert_eq!(numbers(&sum.data_points), [7.0, 2.0]);
        let [first, second] = [0, 1].map(|index| &sum.data_points[index].attributes);
        let said = testing::attribute(first, "said");
        assert_eq!(said.as_deref(), Some("a \"b\\\n"));
        assert!(second.is_empty());
        assert_eq!(
            (gauge.name.as_str(), gauge.description.as_str()),
            ("place_slots", "Places.")
        );
        let Some(Data::Gauge(data)) = &gauge.data else {
            panic!("{gauge:?}");
        };
        assert_eq!(numbers(&data.data_points), [632.0, f64::INFINITY]);
        assert_eq!(
            (histogram.name.as_str(), histogram.unit.as_str()),
            ("place_commit_seconds", "s")
        );
        let Some(Data::Histogram(data)) = &histogram.data else {
            panic!("{histogram:?}");
        };
        let expected = HistogramDataPoint {
            attributes: vec![attribute("outcome", text("ok"))],
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            count: 9,
            sum: Some(0.5),
            bucket_counts: vec![4, 3, 2],
            explicit_bounds: vec![0.1, 1.0],
            ..HistogramDataPoint::default()
        };
        assert_eq!(data.data_points, [expected]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(page in "(# TYPE a (counter|gauge|histogram)\n|a(_total|_bucket)?[{]?[a-z=\"\\\\,}]{0,9} [0-9.]{1,3}\n){0,9}") {
            of_text(&page, TIMES);
        }
    }
}
