//! What an experiment of a simulator is about, where the simulator knows several
//! things: exactly one of them is in its file.

use crate::Threads;
use tailbound_experiment::{ExperimentError, Found, Mistakes, Run, Section};
use tailbound_report::Variant;

/// What is simulated, under a key of its own.
pub(crate) trait Scenario {
    /// Finds what cannot be simulated.
    fn check(&self, section: &mut Section<'_>);

    /// The variants with the names of all that will be measured. It must not panic on
    /// what cannot be simulated.
    fn outline(&self) -> Vec<Variant>;

    /// Simulates it.
    ///
    /// # Errors
    /// A variant that came to no end.
    fn run(&self, run: &mut Run<'_, Threads>) -> Result<Found, ExperimentError>;
}

/// The scenarios of an experiment: the key of each, and what is there.
pub(crate) type Scenarios<'s, const N: usize> = [(&'static str, Option<&'s dyn Scenario>); N];

/// A scenario under its key.
pub(crate) fn under<'s, S: Scenario>(
    key: &'static str,
    scenario: Option<&'s S>,
) -> (&'static str, Option<&'s dyn Scenario>) {
    (key, scenario.map(|scenario| scenario as &dyn Scenario))
}

/// Sees that there is one scenario, and that it can be simulated.
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

/// The variants of all scenarios.
pub(crate) fn outline<const N: usize>(scenarios: &Scenarios<'_, N>) -> Vec<Variant> {
    let there = scenarios.iter().filter_map(|(_, scenario)| *scenario);
    there.flat_map(Scenario::outline).collect()
}

/// Simulates the one scenario.
pub(crate) fn run<const N: usize>(
    scenarios: &Scenarios<'_, N>,
    run: &mut Run<'_, Threads>,
) -> Result<Found, ExperimentError> {
    let mut there = scenarios.iter().filter_map(|(_, scenario)| *scenario);
    let only = there.next().expect("a checked experiment has a scenario");
    let mut found = only.run(run)?;
    found.condition("virtual_time", true);
    Ok(found)
}
