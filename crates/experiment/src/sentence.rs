//! What came out of a run in one sentence, for who reads nothing else. Pure.

use crate::verdict::told;
use crate::{Mistakes, Name, Noise};
use serde::Deserialize;
use tailbound_report::{CheckResult, Outcome, Series, Statistic, Variant, Verdict, human};

/// What the sentence is about.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sentence {
    /// What is counted, in words: "small answers".
    what: String,
    /// What becomes of them, in words: "were complete within".
    did: String,
    /// The series of their latencies.
    series: Name,
    /// The variant with what is under test,
    at: Name,
    /// the one to look at where that did not run,
    instead: Option<Name>,
    /// and the one without it.
    from: Name,
}

/// Percentiles in words, the furthest first.
const IN_WORDS: [(Statistic, &str); 4] = [
    (Statistic::P999, "999 of 1,000"),
    (Statistic::P99, "99 of 100"),
    (Statistic::P90, "9 of 10"),
    (Statistic::P50, "half of the"),
];

impl Sentence {
    /// Finds what is wrong with it in an experiment of these variants.
    pub(crate) fn check(&self, variants: &[Variant], mistakes: &mut Mistakes) {
        let named = [Some(&self.at), self.instead.as_ref(), Some(&self.from)];
        for name in named.into_iter().flatten() {
            let known = variants.iter().map(|variant| variant.name.as_str());
            mistakes.known("variant", name, known);
        }
        let series = variants.iter().flat_map(|variant| variant.series.keys());
        mistakes.known("series", &self.series, series.map(String::as_str));
    }

    /// The sentence. `why` is the verdict's own reason.
    pub(crate) fn tell(
        &self,
        verdict: Verdict,
        why: &str,
        checks: &[CheckResult],
        variants: &[Variant],
        noise: &Noise,
    ) -> String {
        match verdict {
            Verdict::Noisy => {
                format!("This computer was too busy with other things for a verdict: {why}.")
            }
            Verdict::NotTested => format!("Nothing was tested on this computer: {why}."),
            Verdict::Pass => format!(
                "It works on this machine: {}; {}.",
                self.compared(variants),
                told(noise, variants)
            ),
            Verdict::Fail => format!(
                "{} of {} checks failed on this machine: {}; {}.",
                checks
                    .iter()
                    .filter(|it| it.outcome() == Outcome::Fail)
                    .count(),
                checks.len(),
                self.compared(variants),
                told(noise, variants)
            ),
        }
    }

    fn compared(&self, variants: &[Variant]) -> String {
        let series = |name: &Name| {
            let mut variants = variants.iter();
            let variant = variants.find(|variant| variant.name == *name.get_ref())?;
            variant.series.get(self.series.get_ref())
        };
        let instead = || self.instead.as_ref().and_then(series);
        let (Some(with), Some(without)) = (series(&self.at).or_else(instead), series(&self.from))
        else {
            return format!("what {} took was not measured", self.what);
        };
        let fewest = with.stats.count.min(without.stats.count);
        let mut words = IN_WORDS.iter();
        let carried = words.find(|(statistic, _)| fewest >= statistic.wanted_samples());
        let Some((statistic, share)) = carried else {
            return format!("{fewest} {} are too few for figures", self.what);
        };
        let figure = |series: &Series| human(series.stats.get(*statistic) as f64, &series.unit);
        format!(
            "{share} {} {} {}, and {} without tailbound",
            self.what,
            self.did,
            figure(with),
            figure(without)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Disturbance};
    use tailbound_report::empty_histogram;

    fn sentence() -> Sentence {
        let text = "what = \"answers\"\ndid = \"came within\"\nseries = \"rtt\"\nat = \"fixed\"\n\
                    instead = \"half\"\nfrom = \"bare\"\n";
        toml::from_str(text).unwrap()
    }

    fn variant(name: &str, samples: u64, latency: u64) -> Variant {
        let mut histogram = empty_histogram();
        histogram.record_n(latency, samples).unwrap();
        let mut variant = Variant {
            name: name.to_owned(),
            ..Variant::default()
        };
        let series = Series::of("ns", &histogram);
        variant.series.insert("rtt".to_owned(), series);
        variant
    }

    fn tell(verdict: Verdict, variants: &[Variant]) -> String {
        let noise = Noise::Watched(vec![Disturbance {
            variant: "bare".into(),
            figures: Some(Vec::new()),
            cause: Cause::Event("a neighbour computed".into()),
            harm: crate::Harm::Either,
        }]);
        sentence().tell(verdict, "the reason", &[], variants, &noise)
    }

    #[test]
    fn it_tells_the_furthest_percentile_that_the_samples_carry_and_the_noise() {
        for (samples, share) in [
            (10_000, "999 of 1,000 answers came within 1 us"),
            (9_999, "99 of 100 answers came within 1 us"),
            (999, "9 of 10 answers came within 1 us"),
            (99, "half of the answers came within 1 us"),
            (19, "19 answers are too few for figures"),
        ] {
            let variants = [
                variant("fixed", samples, 1_000),
                variant("bare", 20_000, 5_000_000),
            ];
            let said = tell(Verdict::Pass, &variants);
            let start = format!("It works on this machine: {share}");
            assert!(said.starts_with(&start), "{said}");
            assert!(
                said.ends_with(" was disturbed, a neighbour computed in variant bare."),
                "{said}"
            );
        }
    }

    #[test]
    fn where_a_variant_did_not_run_the_next_is_told() {
        let variants = [variant("half", 2_000, 2_000), variant("bare", 2_000, 3_000)];
        let said = tell(Verdict::Fail, &variants);
        assert!(
            said.contains("came within 2 us, and 3.00 us without tailbound"),
            "{said}"
        );
    }

    #[test]
    fn without_a_verdict_it_tells_why_there_is_none() {
        for verdict in [Verdict::Noisy, Verdict::NotTested] {
            let said = tell(verdict, &[]);
            assert!(said.ends_with(": the reason."), "{said}");
            assert!(!said.contains("works"), "{said}");
        }
    }
}
