//! The rounds of a run, in which its variants take turns.

use crate::LabError;
use crate::core_use::{CpuUse, CpusTaken};
use crate::disturbed;
use crate::measurement::Measurement;
use std::time::{Duration, Instant};
use tailbound_experiment::Progress;

/// Measures each variant once per round (A B C A B C ...), so that a change of the computer's speed
/// affects all of them. `about` is the approximate time of one measurement, if it is known.
/// `measure` receives the index of a name, the number of the round from 1, and a receiver of
/// progress messages.
pub(crate) fn rounds(
    names: &[&str],
    repeat: u32,
    about: Option<Duration>,
    progress: &mut Progress<'_>,
    mut measure: impl FnMut(usize, u32, &mut dyn FnMut(&str)) -> Result<Measurement, LabError>,
) -> Result<Vec<Vec<Measurement>>, LabError> {
    let mut measured: Vec<Vec<Measurement>> = names.iter().map(|_| Vec::new()).collect();
    let total = names.len() * repeat as usize;
    let whole = about.map_or_else(String::new, |one| {
        format!(" of about {:.0} s", one.as_secs_f64() * total as f64)
    });
    let begun = Instant::now();
    let mut done = 0;
    for round in 1..=repeat {
        for (index, (name, repeats)) in names.iter().zip(&mut measured).enumerate() {
            done += 1;
            let mut announce = |phase: &str| {
                let passed = begun.elapsed().as_secs();
                progress(&format!(
                    "{passed} s{whole}, variant {name} ({done} of {total}): {phase}"
                ));
            };
            let before = CpuUse::read(std::iter::empty());
            let ran = measure(index, round, &mut announce);
            repeats.push(ran.or_else(|error| disturbed::lost(error, taken(before)))?);
        }
    }
    Ok(measured)
}

/// Returns the shares of all CPUs taken since a reading. All children must have ended.
pub(crate) fn taken(before: Option<CpuUse>) -> Option<CpusTaken> {
    before?.taken(&CpuUse::read(std::iter::empty())?)
}
