//! Scenarios of a simulator: the experiment file of a simulator with several scenarios has exactly
//! one of them.

use crate::Threads;
use tailbound_experiment::{ExperimentError, Mistakes, Run, RunOutput, Section};
use tailbound_report::Variant;

/// A scenario under a key of its own.
pub(crate) trait Scenario {
    /// Checks the scenario.
    fn check(&self, section: &mut Section<'_>);

    /// Returns the variants with the names of all values. It must not panic for an invalid
    /// scenario.
    fn outline(&self) -> Vec<Variant>;

    /// Simulates the scenario.
    ///
    /// # Errors
    /// A variant that failed.
    fn run(&self, run: &mut Run<'_, Threads>) -> Result<RunOutput, ExperimentError>;
}

/// The scenarios of an experiment, each with its key; `None` if it is not in the file.
pub(crate) type Scenarios<'s, const N: usize> = [(&'static str, Option<&'s dyn Scenario>); N];

/// Returns a scenario with its key.
pub(crate) fn under<'s, S: Scenario>(
    key: &'static str,
    scenario: Option<&'s S>,
) -> (&'static str, Option<&'s dyn Scenario>) {
    (key, scenario.map(|scenario| scenario as &dyn Scenario))
}

/// Checks that there is exactly one scenario, and that it is valid.
pub(crate) fn check<const N: usize>(scenarios: &Scenarios<'_, N>, mistakes: &mut Mistakes) {
    let there = scenarios.iter().filter(|(_, scenario)| scenario.is_some());
    let number = there.count();
    if number != 1 {
        let keys = scenarios.map(|(key, _)| format!("`{key}`")).join(", ");
        mistakes.of_whole(format!("has {number} scenarios: write one of {keys}"));
    }
    for (key, scenario) in scenarios {
        if let Some(scenario) = scenario {
            scenario.check(&mut mistakes.top().table(key));
        }
    }
}

/// Returns the variants of all scenarios.
pub(crate) fn outline<const N: usize>(scenarios: &Scenarios<'_, N>) -> Vec<Variant> {
    let there = scenarios.iter().filter_map(|(_, scenario)| *scenario);
    there.flat_map(Scenario::outline).collect()
}

/// Simulates the one scenario.
pub(crate) fn run<const N: usize>(
    scenarios: &Scenarios<'_, N>,
    run: &mut Run<'_, Threads>,
) -> Result<RunOutput, ExperimentError> {
    let mut there = scenarios.iter().filter_map(|(_, scenario)| *scenario);
    let only = there.next().expect("a checked experiment has a scenario");
    let mut found = only.run(run)?;
    found.condition("virtual_time", true);
    Ok(found)
}
