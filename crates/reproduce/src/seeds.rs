//! The spread of figures over five seeds: `golden/seeds.toml`, which `scripts/seeds` writes.

use serde::Deserialize;
use std::collections::BTreeMap;
use tailbound_report::human;

/// Lowest figure, median and highest of the seeds 1 to 5.
type Spread = [f64; 3];

/// Spreads of checks, by experiment (`KIND/NAME`) and check. Figures that no seed changes, of the lab and of
/// long runs have none.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Seeds(BTreeMap<String, BTreeMap<String, Spread>>);

impl Seeds {
    /// Reads the spreads of the program.
    pub(crate) fn read() -> Result<Self, toml::de::Error> {
        toml::from_str(include_str!("../../../golden/seeds.toml"))
    }

    /// Returns the spread of a check as text, `1.2/1.4/1.5`.
    pub(crate) fn of(&self, experiment: &str, check: &str) -> Option<String> {
        let [lowest, median, highest] = *self.0.get(experiment)?.get(check)?;
        let text = |figure| human(figure, "");
        (lowest < highest).then(|| format!("{}/{}/{}", text(lowest), text(median), text(highest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_that_depend_on_the_seed_have_a_spread() {
        let text = "[\"vcpu/a\"]\nsame = [1, 1, 1]\nother = [1.04, 1.238, 20]\n";
        let seeds: Seeds = toml::from_str(text).unwrap();
        assert_eq!(seeds.of("vcpu/a", "same"), None);
        assert_eq!(seeds.of("vcpu/b", "other"), None);
        assert_eq!(seeds.of("vcpu/a", "other").unwrap(), "1.04/1.24/20");
        assert!(Seeds::read().is_ok());
    }
}
