//! Converts the outcomes of a variant's processes to series and values.

use super::crew::Crew;
use super::load::{Load, Reading};
use super::readings::Readings;
use super::workflows;
use crate::LabError;
use crate::experiment::VcpuMode;
use crate::guest::Outcome;
use crate::measurement::{FOREIGN_SHARE, Measurement};
use crate::monitor::{CPUS_EVERY, Record, THREADS_EVERY};
use crate::noise::Losses;
use tailbound_units::Nanos;

/// Smallest share of the reserved guests' work on the shared core. With a smaller share, the
/// variant is flawed.
const SHARED_CORE_SHARE: f64 = 0.99;

pub(super) fn collect(
    crew: &Crew<'_>,
    loads: &[Load<'_>],
    record: &Record,
    readings: &Readings<'_>,
) -> Result<Measurement, LabError> {
    let stolen = Losses {
        lost: record.stolen.values().collect(),
        margin: CPUS_EVERY,
        passages: None,
    };
    let mut measured = Measurement {
        stolen: Nanos(stolen.lost.iter().map(|lost| lost.total().as_nanos()).sum()),
        taken: record.taken,
        cpus_taken: readings.cpus_taken,
        ..Measurement::default()
    };
    for load in loads {
        let waited = load.on_path.iter();
        let waited = waited.filter_map(|child| record.waited.get(&crew.pid(*child)));
        let ours = Losses {
            lost: waited.flatten().collect(),
            margin: THREADS_EVERY,
            passages: load.passages,
        };
        let late = load.late.as_ref().and_then(|late| late.child);
        let reading = Reading {
            crew,
            record,
            counted: readings.counted,
            daemon_cpu: &readings.daemon_cpu,
            stolen: &stolen,
            ours: &ours,
            output: late.map_or(Ok(String::new()), |child| output(crew, child))?,
        };
        let outcomes = load.outcomes.iter().map(|path| Outcome::read(path));
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        (load.read)(&reading, outcomes, &mut measured)?;
    }
    workflows::add_selection(crew, &mut measured)?;
    if let Some(error) = crew.clock_error() {
        measured.value("machine_clock_error", "ms", error.as_secs_f64() * 1e3);
    }
    if let Some(time) = readings.throttled {
        measured.value("throttled", "s", time.as_secs_f64());
    }
    if let Some(share) = readings.foreign_share {
        measured.value(FOREIGN_SHARE, "", share);
    }
    if crew.variant.vcpu == VcpuMode::Periodic {
        check_shared_core(crew, readings.brought_back, &mut measured)?;
    }
    Ok(measured)
}

fn output(crew: &Crew<'_>, child: usize) -> Result<String, LabError> {
    let path = &crew.supervisor.member(child).stdout;
    std::fs::read_to_string(path).map_err(LabError::file("reading", path))
}

/// Adds the share of the reserved guests' work that was done on the shared core.
fn check_shared_core(
    crew: &Crew<'_>,
    brought_back: u64,
    measured: &mut Measurement,
) -> Result<(), LabError> {
    let shared_core = crew.context.session.cpus.shared_core;
    let (mut there, mut all) = (0, 0);
    let periodic = crew.experiment().shared_core.iter();
    for guest in periodic.flat_map(|shared| &shared.periodic.guests) {
        let outcomes = crew.served.get(guest.get_ref().as_str());
        for path in outcomes.into_iter().flatten() {
            let served = Outcome::read(path)?.served;
            there += served.get(&shared_core).copied().unwrap_or(0);
            all += served.values().sum::<u64>();
        }
    }
    if all == 0 {
        return Ok(());
    }
    let share = there as f64 / all as f64;
    measured.value("shared_core_share", "", share);
    measured.value("reservation_overruns", "", brought_back as f64);
    if share < SHARED_CORE_SHARE {
        measured.flaw = Some(format!(
            "the kernel ran the guest with the reservation elsewhere: only {:.1} % of its work was done on the shared core",
            share * 100.0
        ));
    }
    Ok(())
}
