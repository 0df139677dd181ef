//! The measured time of a variant, and what was read on this computer meanwhile.

use super::GRACE;
use super::crew::{Crew, Role};
use super::load::Load;
use crate::LabError;
use crate::core_use::{CpusTaken, ProcessUse};
use crate::guest::now;
use crate::monitor::{self, Record};
use crate::processes::{POLL, Rank};
use crate::vm::GuestCommand;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tailbound_units::Nanos;

/// Time from the start message to the start: all children receive the message in it.
const LEAD: Nanos = Nanos::from_millis(300);
/// The same time if a child in a VM receives the message.
const MACHINES_LEAD: Nanos = Nanos::from_secs(1);
/// Time limit for missing outcomes after the end of a run.
const OUTCOME_TIMEOUT: Nanos = Nanos::from_secs(10);

/// Readings of a measured time.
#[derive(Debug, Default)]
pub(super) struct Readings<'a> {
    /// Begin and end of the time in which samples count.
    pub(super) counted: [Nanos; 2],
    /// Number of moves of a guest that had used up its reservation.
    pub(super) brought_back: u64,
    /// The share of the shared core that programs other than its guests used.
    pub(super) foreign_share: Option<f64>,
    /// The shares taken of all CPUs while samples counted.
    pub(super) cpus_taken: Option<CpusTaken>,
    /// CPU share of each host's daemon while samples counted, in percent.
    pub(super) daemon_cpu: BTreeMap<&'a str, f64>,
    /// Time in which a quota throttled VMs.
    pub(super) throttled: Option<Nanos>,
}

/// Starts the load and waits for all outcomes.
pub(super) fn take<'a>(
    crew: &mut Crew<'a>,
    loads: &mut [Load<'a>],
    announce: &mut dyn FnMut(&str),
) -> Result<(Record, Readings<'a>), LabError> {
    let (experiment, session) = (crew.experiment(), crew.context.session);
    let on_path: BTreeSet<usize> = loads.iter().flat_map(|it| &it.on_path).copied().collect();
    let pids: Vec<u32> = on_path.into_iter().map(|child| crew.pid(child)).collect();
    let monitor = monitor::start(&pids, &crew.vcpus()?, session.policy(Rank::Monitor))
        .map_err(LabError::io("starting the monitor"))?;
    let lead = if crew.has_machines() {
        MACHINES_LEAD
    } else {
        LEAD
    };
    let start = now().saturating_add(lead);
    crew.supervisor
        .start_at(&format!("{}\n", start.as_nanos()))?;
    crew.supervisor.rest(start.since(now()).into())?;
    for late in loads.iter_mut().filter_map(|load| load.late.as_mut()) {
        let command = GuestCommand::Program(late.words.clone());
        let (program, role) = (late.words[0].clone(), Role::Foreign { ends: true });
        late.child = Some(crew.start(late.guest, &program, command, role)?);
    }
    // In the middle of the warm-up: a server that accepts all its connections would use up its
    // reservation, and move to another CPU at its replenishment.
    let half = Nanos(experiment.warmup.as_nanos() / 2);
    crew.supervisor.rest(half.into())?;
    let guard = crew.give_classes()?;
    let confined = crew.confine()?;
    let from = start + experiment.warmup;
    let mut readings = Readings {
        counted: [from, from + experiment.counted_time(crew.variant)],
        ..Readings::default()
    };
    readings.watch_use(crew, announce)?;
    announce("waiting for the last answers");
    await_outcomes(crew, loads, readings.counted[1])?;
    readings.throttled = confined.map(|groups| {
        let times = groups.iter().map(|group| group.throttled().time);
        times.fold(Nanos::ZERO, |all, time| all + time)
    });
    if let Some(guard) = guard {
        readings.brought_back = guard.take_back()?;
    }
    let record = monitor.finish();
    Ok((
        record.map_err(LabError::io("watching the machine"))?,
        readings,
    ))
}

impl<'a> Readings<'a> {
    /// Waits for the end of the counted time, and measures the use of the CPUs in it.
    fn watch_use(
        &mut self,
        crew: &mut Crew<'a>,
        announce: &mut dyn FnMut(&str),
    ) -> Result<(), LabError> {
        let [from, end] = self.counted;
        let read = |crew: &Crew<'a>| (crew.core_use(), crew.cpu_use(), crew.daemon_use());
        let (mut core, mut cpus, mut of_daemons) = read(crew);
        let mut last = None;
        while now() < end {
            if now() < from {
                (core, cpus, of_daemons) = read(crew);
            }
            // Measuring children end with the time: then there is no other reading.
            last = crew.core_use().or(last);
            let passed = now().since(from).as_secs_f64();
            let of = end.since(from).as_secs_f64();
            announce(&format!("measuring, {passed:.0} s of {of:.0} s"));
            crew.supervisor
                .rest(Duration::from_millis(200).min(end.since(now()).into()))?;
        }
        self.daemon_cpu = shares(&of_daemons, &crew.daemon_use());
        let whole = core.zip(last);
        self.foreign_share = whole.and_then(|(first, last)| first.foreign(&last));
        let whole = cpus.zip(crew.cpu_use());
        self.cpus_taken = whole.and_then(|(first, last)| first.taken(&last));
        Ok(())
    }
}

/// Waits for all outcomes of a load whose tasks end by themselves.
fn await_outcomes(crew: &mut Crew<'_>, loads: &[Load<'_>], end: Nanos) -> Result<(), LabError> {
    let probes = crew.variant.running(&crew.experiment().probe);
    let probes = probes.map(|probe| probe.time_limit).max();
    let latest = end + GRACE + OUTCOME_TIMEOUT + probes.unwrap_or(Nanos::ZERO);
    let all = |crew: &Crew<'_>| {
        let of_loads = loads.iter().flat_map(|load| &load.outcomes);
        let mut outcomes = of_loads.chain(crew.served.values().flatten());
        outcomes.all(|path| path.exists())
    };
    while !(crew.supervisor.all_ended()? && all(crew)) {
        if now() > latest {
            return Err(LabError::Child {
                who: "the load".into(),
                what: "did not come to an end".into(),
                stderr: String::new(),
            });
        }
        crew.supervisor.rest(POLL)?;
    }
    Ok(())
}

/// Returns the CPU share of each daemon between two readings, in percent.
fn shares<'h>(
    first: &BTreeMap<&'h str, ProcessUse>,
    last: &BTreeMap<&'h str, ProcessUse>,
) -> BTreeMap<&'h str, f64> {
    let share =
        |(host, first): (&&'h str, &ProcessUse)| Some((*host, first.share(last.get(host)?)));
    first.iter().filter_map(share).collect()
}
