//! Converts metrics from Prometheus text to OTLP.

use crate::{attributes, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// OTLP's constant for counts since a start.
const CUMULATIVE: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric of the text.
struct Metric<'t> {
    name: &'t str,
    help: &'t str,
    unit: &'t str,
    kind: Kind,
    points: Vec<Value>,
    /// For each set of labels: the bounds and cumulative counts of buckets, and the sum.
    histograms: BTreeMap<Vec<(String, String)>, Buckets>,
}

#[derive(Default)]
struct Buckets {
    up_to: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

/// Times in OTLP's form: the start of the counts, and now.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) begin: String,
    pub(crate) now: String,
}

/// Returns OTLP's `metrics` for a text of `OpenMetrics` 1.0. Exemplars are omitted, and metrics
/// other than counters, gauges and histograms.
pub(crate) fn of_text(page: &str, times: &Times) -> Vec<Value> {
    let mut metrics: Vec<Metric<'_>> = Vec::new();
    let (mut help, mut unit) = (BTreeMap::new(), BTreeMap::new());
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), said) => {
                help.insert(name, said.unwrap_or_default());
            }
            (Some("#"), Some("UNIT"), Some(name), said) => {
                unit.insert(name, said.unwrap_or_default());
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let kind = match kind {
                    "counter" => Kind::Counter,
                    "gauge" => Kind::Gauge,
                    "histogram" => Kind::Histogram,
                    _ => continue,
                };
                metrics.push(Metric {
                    name,
                    help: "",
                    unit: "",
                    kind,
                    points: Vec::new(),
                    histograms: BTreeMap::new(),
                });
            }
            _ => {
                let Some(sample) = Sample::of(line) else {
                    continue;
                };
                // The samples of a metric follow its type; what belongs to none is left out.
                if let Some(metric) = metrics.last_mut() {
                    metric.take(sample, times);
                }
            }
        }
    }
    for metric in &mut metrics {
        metric.help = help.get(metric.name).copied().unwrap_or_default();
        metric.unit = unit.get(metric.name).copied().unwrap_or_default();
    }
    let metrics = metrics.into_iter().map(|metric| metric.json(times));
    metrics.flatten().collect()
}

/// A sample: one line with a number.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(String, String)>,
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
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
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

impl Metric<'_> {
    fn take(&mut self, mut sample: Sample<'_>, times: &Times) {
        let Some(part) = sample.name.strip_prefix(self.name) else {
            return;
        };
        match (self.kind, part) {
            (Kind::Gauge, "") => self.points.push(json!({
                "attributes": of_labels(&sample.labels),
                "timeUnixNano": times.now,
                "asDouble": number(sample.value),
            })),
            (Kind::Counter, "_total") => self.points.push(json!({
                "attributes": of_labels(&sample.labels),
                "startTimeUnixNano": times.begin,
                "timeUnixNano": times.now,
                "asDouble": number(sample.value),
            })),
            (Kind::Histogram, "_bucket") => {
                let Some(place) = sample.labels.iter().position(|(name, _)| name == "le") else {
                    return;
                };
                let (_, bound) = sample.labels.remove(place);
                let bound = match bound.as_str() {
                    "+Inf" => f64::INFINITY,
                    other => other.parse().unwrap_or(f64::NAN),
                };
                let histogram = self.histograms.entry(sample.labels).or_default();
                histogram.up_to.push((bound, sample.value as u64));
            }
            (Kind::Histogram, "_sum") => {
                self.histograms.entry(sample.labels).or_default().sum = sample.value;
            }
            (Kind::Histogram, "_count") => {
                let histogram = self.histograms.entry(sample.labels).or_default();
                histogram.count = sample.value as u64;
            }
            _ => {}
        }
    }

    /// Returns `None` without any count.
    fn json(self, times: &Times) -> Option<Value> {
        let Self {
            name,
            help,
            unit,
            kind,
            mut points,
            histograms,
        } = self;
        points.extend(
            histograms
                .iter()
                .map(|(labels, buckets)| buckets.json(labels, times)),
        );
        if points.is_empty() {
            return None;
        }
        let unit = match unit {
            "seconds" => "s",
            "bytes" => "By",
            other => other,
        };
        let mut metric = json!({"name": name, "description": help, "unit": unit});
        metric[match kind {
            Kind::Counter => "sum",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }] = match kind {
            Kind::Counter => json!({
                "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points,
            }),
            Kind::Gauge => json!({ "dataPoints": points }),
            Kind::Histogram => json!({
                "aggregationTemporality": CUMULATIVE, "dataPoints": points,
            }),
        };
        Some(metric)
    }
}

impl Buckets {
    fn json(&self, labels: &[(String, String)], times: &Times) -> Value {
        let mut before = 0;
        let counts = self.up_to.iter().map(|(_, count)| {
            let own = count.saturating_sub(before);
            before = *count;
            own.to_string()
        });
        let counts: Vec<_> = counts.collect();
        let bounds = self.up_to.iter().map(|(bound, _)| *bound);
        let bounds: Vec<_> = bounds.filter(|bound| bound.is_finite()).collect();
        json!({
            "attributes": of_labels(labels),
            "startTimeUnixNano": times.begin,
            "timeUnixNano": times.now,
            "count": self.count.to_string(),
            "sum": number(self.sum),
            "bucketCounts": counts,
            "explicitBounds": bounds,
        })
    }
}

fn of_labels(labels: &[(String, String)]) -> Value {
    attributes(
        labels
            .iter()
            .map(|(name, value)| (name.as_str(), text(value))),
    )
}

/// Writes numbers that JSON cannot express, in the form of protobuf's JSON.
fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else if value.is_nan() {
        json!("NaN")
    } else if value > 0.0 {
        json!("Infinity")
    } else {
        json!("-Infinity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn times() -> Times {
        Times {
            begin: "1".to_owned(),
            now: "2".to_owned(),
        }
    }

    #[test]
    fn counters_gauges_and_histograms_are_what_they_were() {
        let all = of_text(PAGE, &times());
        let names: Vec<_> = all.iter().map(|metric| metric["name"].clone()).collect();
        assert_eq!(
            names,
            ["place_requests", "place_slots", "place_commit_seconds"]
        );
        let counter = &all[0]["sum"];
        assert_eq!(
            (&counter["isMonotonic"], &counter["aggregationTemporality"]),
            (&json!(true), &json!(2))
        );
        let [first, second] = [0, 1].map(|index| &counter["dataPoints"][index]);
        assert_eq!(first["asDouble"], 7.0);
        assert_eq!(first["attributes"][1]["value"]["stringValue"], "a \"b\\\n");
        assert_eq!(
            (&second["asDouble"], &second["attributes"]),
            (&json!(2.0), &json!([]))
        );
        assert_eq!(all[1]["description"], "Places.");
        assert_eq!(all[1]["gauge"]["dataPoints"][1]["asDouble"], "Infinity");
        let histogram = &all[2]["histogram"]["dataPoints"][0];
        assert_eq!(all[2]["unit"], "s");
        assert_eq!(histogram["bucketCounts"], json!(["4", "3", "2"]));
        assert_eq!(histogram["explicitBounds"], json!([0.1, 1.0]));
        assert_eq!(
            (&histogram["count"], &histogram["sum"]),
            (&json!("9"), &json!(0.5))
        );
        assert_eq!(histogram["attributes"].as_array().map(Vec::len), Some(1));
    }

    proptest! {
        #[test]
        fn any_text_is_read(page in "(# TYPE a (counter|gauge|histogram)\n|a(_total|_bucket)?[{]?[a-z=\"\\\\,}]{0,9} [0-9.]{1,3}\n){0,9}") {
            of_text(&page, &times());
        }
    }
}
