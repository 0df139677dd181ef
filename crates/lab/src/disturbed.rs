//! Disturbances of a run by other use of the computer, and variants that it ended.

use crate::LabError;
use crate::core_use::CpusTaken;
use crate::experiment::LabExperiment;
use crate::measurement::{FOREIGN_SHARE, Measurement};
use crate::summarise;
use tailbound_experiment::{Cause, Disturbance, Harm, Noise, RunOutput};
use tailbound_report::Variant;

/// Share of a core used by other programs, above which the work on that core cannot be judged.
const MAX_FOREIGN_SHARE: f64 = 0.03;
/// Share of delayed samples for each unit share of a core's time that other programs used: the
/// samples that began in this time, and an equal number that were queued behind them.
const DELAYED_BY_SHARE: f64 = 2.0;
/// Upper limit of the share of a core that the kernel's own threads use.
const LEAST_FOREIGN_SHARE: f64 = 0.005;
/// Share of all CPUs used by other programs or other VMs, above which no figure of the variant may
/// fail. Its resolution with ticks of 10 ms is about 2 % in a run of three seconds.
const MAX_TAKEN_SHARE: f64 = 0.05;

/// Returns the causes of excessive use of all CPUs, if there are any.
fn too_much(cpu_loss: CpusTaken) -> Vec<Cause> {
    let shares = [
        ("other programs used", cpu_loss.others),
        ("the hypervisor took", cpu_loss.stolen),
    ];
    let too_much = shares
        .into_iter()
        .filter(|(_, share)| *share > MAX_TAKEN_SHARE);
    too_much
        .map(|(who, share)| Cause::Share(who, share * 100.0, "of the CPUs"))
        .collect()
}

/// Disturbances of a run, collected variant by variant: the same rule for every kind of experiment.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    found: Vec<Disturbance>,
    /// The largest share of all CPUs that other programs used.
    used_by_others: f64,
}

impl Disturbances {
    /// Adds the disturbances of a variant's runs, and removes lost runs. Returns the reason of the
    /// first one if no run is left.
    pub(crate) fn add_runs(
        &mut self,
        variant: &str,
        repeats: &mut Vec<Measurement>,
    ) -> Option<String> {
        self.found.extend(of_runs(variant, repeats));
        let cpu_loss = repeats.iter().filter_map(|repeat| repeat.cpus_taken);
        let most = self.used_by_others;
        self.used_by_others = cpu_loss.fold(most, |most, it| most.max(it.others));
        take_lost(repeats)
    }

    /// Adds the disturbances of single figures of a variant.
    pub(crate) fn add_figures(
        &mut self,
        experiment: &LabExperiment,
        summary: &Variant,
        repeats: &[Measurement],
    ) {
        self.found.extend(of_figures(experiment, summary, repeats));
    }

    /// Adds the noise of the run to its result.
    pub(crate) fn finish(self, output: &mut RunOutput) {
        output.condition("used_by_others", self.used_by_others);
        output.noise = Noise::Watched(self.found);
    }
}

/// Turns the error of a variant's run into a lost run if other use of the computer may have caused
/// it, which took these shares of all CPUs meanwhile; returns the error otherwise.
pub(crate) fn lost(error: LabError, cpu_loss: Option<CpusTaken>) -> Result<Measurement, LabError> {
    let is_busy = cpu_loss.is_some_and(|cpu_loss| !too_much(cpu_loss).is_empty());
    let why = match &error {
        // Other programs take CPU time from a child; they send it no signal, and the placement
        // service's refusal is its decision.
        LabError::Child { who, what, stderr }
            if !["panicked", "refused: "]
                .iter()
                .any(|it| stderr.contains(it))
                && !what.contains("killed by ") =>
        {
            let last = stderr.lines().last().unwrap_or_default();
            format!("{who} {what} {last}").trim_end().to_owned()
        }
        LabError::Io { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => {
            error.to_string()
        }
        _ => return Err(error),
    };
    if !is_busy {
        return Err(error);
    }
    Ok(Measurement {
        lost: Some(why),
        cpus_taken: cpu_loss,
        ..Measurement::default()
    })
}

/// Removes the lost runs; returns the reason of the first one if no run is left.
fn take_lost(repeats: &mut Vec<Measurement>) -> Option<String> {
    let why = repeats.iter().find_map(|repeat| repeat.lost.clone());
    repeats.retain(|repeat| repeat.lost.is_none());
    why.filter(|_| repeats.is_empty())
}

/// Disturbances of a variant's runs by other use, and by runs that were lost.
fn of_runs(variant: &str, repeats: &[Measurement]) -> Vec<Disturbance> {
    let lost: Vec<&String> = repeats.iter().filter_map(|it| it.lost.as_ref()).collect();
    // A flaw also leaves a variant without figures: the kernel moves a guest away from a core that
    // other programs fill.
    let is_flawed = repeats.iter().any(|repeat| repeat.flaw.is_some());
    let harm = if is_flawed || lost.len() == repeats.len() {
        Harm::Lost
    } else {
        Harm::Slower
    };
    let runs = lost.into_iter().map(|why| Disturbance {
        variant: variant.to_owned(),
        figures: None,
        cause: Cause::Event(why.clone()),
        harm,
    });
    // The median of the repeats, as for figures.
    let median = |of: fn(&CpusTaken) -> f64| {
        let shares = repeats.iter().filter_map(|it| it.cpus_taken.as_ref());
        summarise::value("", shares.map(of).collect()).value
    };
    let cpu_loss = CpusTaken {
        others: median(|it| it.others),
        stolen: median(|it| it.stolen),
    };
    let cpu_loss = too_much(cpu_loss).into_iter().map(|cause| Disturbance {
        variant: variant.to_owned(),
        figures: None,
        cause,
        harm,
    });
    runs.chain(cpu_loss).collect()
}

/// Disturbances of single figures of a variant.
fn of_figures(
    experiment: &LabExperiment,
    summary: &Variant,
    repeats: &[Measurement],
) -> Vec<Disturbance> {
    let disturbance = |figures, cause, harm| Disturbance {
        variant: summary.name.clone(),
        figures: Some(figures),
        cause,
        harm,
    };
    let foreign = summary.values.get(FOREIGN_SHARE);
    let foreign = foreign.map_or(0.0, |value| value.value);
    let (series, values): (Vec<_>, Vec<_>) = experiment
        .on_shared_core()
        .into_iter()
        .partition(|figure| summary.series.contains_key(figure));
    let limits = [(series, LEAST_FOREIGN_SHARE), (values, MAX_FOREIGN_SHARE)];
    let delayed = limits.into_iter().filter(|(_, limit)| foreign > *limit);
    let delayed = delayed.map(|(figures, _)| {
        let cause = Cause::Share("other programs used", foreign * 100.0, "of the shared core");
        let harm = Harm::Delayed(foreign * DELAYED_BY_SHARE);
        disturbance(figures, cause, harm)
    });
    let spoiled = repeats.iter().find_map(|it| it.spoiled.as_ref());
    let spoiled = spoiled.map(|(figure, why)| {
        let cause = Cause::Event(why.clone());
        disturbance(vec![(*figure).to_owned()], cause, Harm::Slower)
    });
    delayed.chain(spoiled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(others: f64, stolen: f64) -> CpusTaken {
        CpusTaken { others, stolen }
    }

    fn measured(others: f64) -> Measurement {
        Measurement {
            cpus_taken: Some(taken(others, 0.0)),
            ..Measurement::default()
        }
    }

    fn child(stderr: &str) -> LabError {
        LabError::Child {
            who: "the client".into(),
            what: "died:".into(),
            stderr: stderr.into(),
        }
    }

    #[test]
    fn more_than_a_twentieth_of_the_cpus_disturbs_every_figure_of_the_variant() {
        assert_eq!(of_runs("a", &[measured(0.05)]), []);
        let found = of_runs("a", &[measured(0.06)]);
        let share = Cause::Share("other programs used", 6.0, "of the CPUs");
        assert_eq!((&found[0].figures, &found[0].cause), (&None, &share));
        assert_eq!((found.len(), found[0].harm), (1, Harm::Slower));
        // As the figures are, it is the median of the repeats.
        assert_eq!(of_runs("a", &[0.9, 0.01, 0.02].map(measured)), []);
        assert_eq!(too_much(taken(0.0, 0.06)).len(), 1);
        assert_eq!(too_much(taken(0.9, 0.9)).len(), 2);
    }

    #[test]
    fn a_child_that_ends_too_soon_is_an_error_unless_others_use_the_computer() {
        let busy = Some(taken(0.9, 0.0));
        let lost = lost(child("one\ntoo many wait"), busy).unwrap();
        let why = "the client died: too many wait";
        assert_eq!(lost.lost.as_deref(), Some(why));
        for (error, taken) in [
            (child("one"), None),
            (child("one"), Some(taken(0.01, 0.0))),
            (child("thread panicked at"), busy),
            (
                child("tailbound: refused: a delay of 1ms cannot be promised"),
                busy,
            ),
            (LabError::UnknownVariant("x".into()), busy),
            (LabError::Interrupted { signal: 15 }, busy),
        ] {
            assert!(super::lost(error, taken).is_err());
        }
    }

    #[test]
    fn a_child_that_a_signal_killed_is_an_error_however_busy_the_computer_is() {
        let killed = LabError::Child {
            who: "host B's daemon".into(),
            what: "died: killed by SIGKILL".into(),
            stderr: String::new(),
        };
        assert!(lost(killed, Some(taken(0.9, 0.0))).is_err());
    }

    #[test]
    fn a_variant_is_lost_where_no_run_of_it_has_figures() {
        let lost = || Measurement {
            lost: Some("too slow".into()),
            ..measured(0.9)
        };
        let mut all = vec![lost(), lost()];
        let found = of_runs("a", &all);
        assert!(found.iter().all(|it| it.harm == Harm::Lost), "{found:?}");
        assert_eq!(take_lost(&mut all).as_deref(), Some("too slow"));
        let flawed = |others| Measurement {
            flaw: Some("elsewhere".into()),
            ..measured(others)
        };
        assert_eq!(of_runs("a", &[flawed(0.9)])[0].harm, Harm::Lost);
        assert_eq!(of_runs("a", &[flawed(0.0)]), []);
        let mut some = vec![lost(), measured(0.0)];
        let found = of_runs("a", &some);
        assert!(found.iter().all(|it| it.harm == Harm::Slower), "{found:?}");
        assert_eq!((take_lost(&mut some), some.len()), (None, 1));
    }
}
