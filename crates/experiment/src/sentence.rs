//! The result of a run in one sentence, for readers of nothing else. Pure.

use crate::{Mistakes, Name};
use serde::Deserialize;
use tailbound_report::{Series, Statistic, Variant, Verdict, human};

/// A comparison of two variants in one sentence.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sentence {
    /// Counted things: "small answers".
    what: String,
    /// Verb: "were complete within".
    did: String,
    /// Series of their latencies.
    series: Name,
    /// Variant with the mechanism.
    at: Name,
    /// Its replacement if it did not run.
    instead: Option<Name>,
    /// Variant without the mechanism.
    from: Name,
}

impl Sentence {
    /// Adds the mistakes of the sentence, in an experiment of these variants.
    pub(crate) fn check(&self, variants: &[Variant], mistakes: &mut Mistakes) {
        let named = [Some(&self.at), self.instead.as_ref(), Some(&self.from)];
        for name in named.into_iter().flatten() {
            let known = variants.iter().map(|variant| variant.name.as_str());
            mistakes.known("variant", name, known);
        }
        let series = variants.iter().flat_map(|variant| variant.series.keys());
        mistakes.known("series", &self.series, series.map(String::as_str));
    }

    /// Returns the sentence. Every report shows checks and noise beside it, so it has neither.
    pub(crate) fn tell(&self, verdict: Verdict, variants: &[Variant]) -> String {
        match verdict {
            Verdict::Noisy => {
                "This computer was too busy to judge: stop other programs, or run it \
                 with --repeat 3."
                    .to_owned()
            }
            Verdict::NotTested => "No check could be tested on this computer: `tailbound doctor` \
                 names what is missing."
                .to_owned(),
            Verdict::Pass | Verdict::Fail => format!("{}.", self.compared(variants)),
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
            return format!("No latency of {} was measured", self.what);
        };
        let fewest = with.stats.count.min(without.stats.count);
        let Some(statistic) = Statistic::furthest(fewest) else {
            return format!("{fewest} {} are too few for figures", self.what);
        };
        let share = match statistic {
            Statistic::P999 => "999 of 1,000",
            Statistic::P99 => "99 of 100",
            Statistic::P90 => "9 of 10",
            _ => "Half of the",
        };
        let figure = |series: &Series| human(series.stats.get(statistic) as f64, &series.unit);
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
        sentence().tell(verdict, variants)
    }

    #[test]
    fn the_sentence_has_the_highest_percentile_of_its_samples() {
        for (samples, share) in [
            (10_000, "999 of 1,000 answers came within 1 us"),
            (9_999, "99 of 100 answers came within 1 us"),
            (999, "9 of 10 answers came within 1 us"),
            (99, "Half of the answers came within 1 us"),
            (19, "19 answers are too few for figures"),
        ] {
            let variants = [
                variant("fixed", samples, 1_000),
                variant("bare", 20_000, 5_000_000),
            ];
            for verdict in [Verdict::Pass, Verdict::Fail] {
                let said = tell(verdict, &variants);
                assert!(said.starts_with(share), "{said}");
            }
        }
    }

    #[test]
    fn the_next_variant_replaces_one_that_did_not_run() {
        let variants = [variant("half", 2_000, 2_000), variant("bare", 2_000, 3_000)];
        assert_eq!(
            tell(Verdict::Fail, &variants),
            "99 of 100 answers came within 2 us, and 3.00 us without tailbound."
        );
        let said = tell(Verdict::Pass, &variants[..1]);
        assert_eq!(said, "No latency of answers was measured.");
    }

    #[test]
    fn an_undecided_sentence_names_the_next_step_without_figures() {
        let variants = [
            variant("fixed", 2_000, 2_000),
            variant("bare", 2_000, 3_000),
        ];
        for (verdict, step) in [
            (Verdict::Noisy, "--repeat 3"),
            (Verdict::NotTested, "tailbound doctor"),
        ] {
            let said = tell(verdict, &variants);
            assert!(said.contains(step), "{said}");
            assert!(!said.contains(" us"), "{said}");
        }
    }
}
