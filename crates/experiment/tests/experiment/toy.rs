//! A kind of experiment whose measurements are in its file, and a sound one of this kind.

use serde::Deserialize;
use std::cell::Cell;
use tailbound_document::{Document, Mistake};
use tailbound_experiment::{
    Catalogue, Cause, ChartSpec, Curve, Disturbance, Experiment, ExperimentError, Harm, Loaded,
    Mistakes, Name, Noise, Run, RunOutput, Source,
};
use tailbound_report::{Bound, Results, Series, Stats, Variant, empty_histogram};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Toy {
    #[serde(default)]
    watched: bool,
    variant: Vec<ToyVariant>,
    #[serde(default)]
    chart: Vec<ChartSpec>,
}

/// The figures of a variant: `samples` of `rtt`, 2,000 by default, and the value `rate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToyVariant {
    name: Name,
    x: Option<f64>,
    #[serde(default)]
    rtt: u64,
    #[serde(default)]
    rate: f64,
    unavailable: Option<String>,
    promised: Option<u64>,
    #[serde(default)]
    stolen: u64,
    /// Latency of disturbed samples.
    stolen_rtt: Option<u64>,
    #[serde(default)]
    disturbed: Option<String>,
    /// The harm of the disturbance: "slower" or "lost"; by default a delay.
    harm: Option<String>,
    /// The largest share of delayed samples, by default all.
    delayed: Option<f64>,
    /// Samples of `rtt` that took something else, and how long they took.
    #[serde(default)]
    late: u64,
    #[serde(default)]
    late_rtt: u64,
    /// The percentage of the CPUs that others used.
    share: Option<f64>,
    samples: Option<u64>,
    #[serde(default)]
    unanswered: u64,
}

impl ToyVariant {
    fn measure(&self) -> Variant {
        let mut variant = Variant {
            unavailable: self.unavailable.clone(),
            ..Variant::of_values(self.name.get_ref(), [("rate", self.rate, "op/s")])
        };
        let mut samples = empty_histogram();
        if self.rtt > 0 {
            let count = self.samples.unwrap_or(2_000);
            let in_time = count - self.stolen - self.late;
            samples.record_n(self.rtt, in_time).unwrap();
            samples.record_n(self.late_rtt, self.late).unwrap();
        }
        let mut rtt = Series::of("ns", &samples);
        if self.stolen > 0 {
            let took = self.stolen_rtt.unwrap_or(self.rtt);
            samples.record_n(took, self.stolen).unwrap();
            rtt.all = Stats::from_histogram(&samples);
        }
        rtt.hit.stolen = self.stolen;
        rtt.unanswered = self.unanswered;
        variant.series.insert("rtt".to_owned(), rtt);
        let bounds = self.promised.iter().flat_map(|promised| {
            // The computed part is smaller here.
            [("promised", *promised), ("computed", promised * 4 / 5)].map(|(name, value)| Bound {
                name: name.to_owned(),
                value,
            })
        });
        variant.bounds.insert("rtt".to_owned(), bounds.collect());
        variant
    }
}

impl Experiment for Toy {
    /// Counts its runs.
    type Options = Cell<u32>;
    type Error = ExperimentError;

    const CATALOGUE: Catalogue = Catalogue {
        folder: "toys",
        embedded: &[("one", SOUND)],
    };

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        mistakes.names("variant", self.variant.iter().map(|it| &it.name));
        mistakes.top().count("variant", self.variant.len(), 1..=10);
    }

    fn outline(&self) -> Vec<Variant> {
        self.variant.iter().map(ToyVariant::measure).collect()
    }

    fn charts(&self) -> &[ChartSpec] {
        &self.chart
    }

    fn curves(&self) -> Vec<Curve> {
        let point = |it: &ToyVariant| Some((it.x?, it.name.get_ref().clone()));
        vec![Curve {
            name: "toy".to_owned(),
            points: self.variant.iter().filter_map(point).collect(),
        }]
    }

    fn run(&self, run: &mut Run<'_, Cell<u32>>) -> Result<RunOutput, Self::Error> {
        run.options.set(run.options.get() + 1);
        let disturbed = self.variant.iter().filter_map(|it| {
            Some(Disturbance {
                variant: it.name.get_ref().clone(),
                figures: Some(vec![it.disturbed.clone()?]).filter(|it| it[0] != "all"),
                cause: match it.share {
                    Some(share) => Cause::Share("other programs used", share, "of the CPUs"),
                    None => Cause::Event("a neighbour took the core".to_owned()),
                },
                harm: match it.harm.as_deref() {
                    None => Harm::Delayed(it.delayed.unwrap_or(1.0)),
                    Some("slower") => Harm::Slower,
                    Some("lost") => Harm::Lost,
                    Some(other) => panic!("{other}"),
                },
            })
        });
        let noise = if self.watched {
            Noise::Watched(disturbed.collect())
        } else {
            Noise::Virtual
        };
        Ok(RunOutput {
            variants: self.variant.iter().map(ToyVariant::measure).collect(),
            noise,
            ..RunOutput::default()
        })
    }
}

pub(crate) const SOUND: &str = r#"
name = "one"
title = "t"
source = "s"

[[variant]]
name = "before"
x = 1
rtt = 1000
rate = 200

[[variant]]
name = "after"
x = 2
rtt = 250
rate = 196
promised = 500

[[variant]]
name = "spare"
rtt = 400
rate = 100

[[chart]]
name = "rates"
title = "t"
x = { label = "x" }
y = { label = "rate", unit = "op/s" }
of = ["rate"]
paper = [{ name = "paper", points = [[1, 200], [2, 190]] }]

[[check]]
name = "faster"
kind = "reduction"
of = "rtt.p99"
from = "before"
at = ["after"]
at_least = 0.5
source = "s"
"#;

/// Returns [`SOUND`] with replacements.
pub(crate) fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(SOUND.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

pub(crate) fn load(text: &str) -> Result<Loaded<Toy>, String> {
    let source = Source {
        text: text.to_owned(),
        file: "x.toml".to_owned(),
    };
    Loaded::parse(&source).map_err(|error| error.to_string())
}

/// Runs the experiment of a sound text.
pub(crate) fn run_text(text: &str) -> Results {
    let loaded = load(text).unwrap();
    loaded.run(1, &Cell::new(0), &mut |_| {}).unwrap()
}

pub(crate) fn run(changes: &[(&str, &str)]) -> Results {
    run_text(&with(changes))
}

/// A check of `spare` that fails.
pub(crate) const MORE: &str = "\n[[check]]\nname = \"more\"\nof = \"rate\"\nat = [\"spare\"]\nat_most = 1\n\
                    source = \"s\"\n";

/// The replacement that watches for disturbances.
pub(crate) const WATCHED: (&str, &str) = ("source = \"s\"\n", "source = \"s\"\nwatched = true\n");
