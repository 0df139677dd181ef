//! Shared parts of experiments that measure backends in turn: namespaces of their own, and rounds.

use crate::LabError;
use crate::core_use::CpuUse;
use crate::cpus::Cpus;
use crate::disturbed;
use crate::lock::Lock;
use crate::machine;
use crate::processes::{Rank, Ready, Start, Supervisor};
use crate::run_dir::RunDir;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tailbound_experiment::{Found, Noise, Run};
use tailbound_report::Variant;
use tailbound_sys::user_namespace::{self, Privilege};
use tailbound_units::Nanos;

/// Options of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// Length of each load's measurement.
    pub duration: Nanos,
    /// Number of measurements of each backend, in turn.
    pub repeat: u32,
}

/// Namespaces and files of the backends. Dropping the place removes all of them.
pub(crate) struct Place {
    _lock: Lock,
    privilege: Privilege,
    /// A reading of the CPU times at the beginning.
    before: Option<CpuUse>,
    pub(crate) run_dir: RunDir,
    /// This program.
    pub(crate) program: PathBuf,
    pub(crate) cpus: Cpus,
    /// True if real-time classes may be set.
    pub(crate) real_time: bool,
    /// The signal that ends the run, or 0.
    pub(crate) signal: Arc<AtomicUsize>,
}

impl Place {
    /// Moves this process into namespaces of its own, as a run of the lab does.
    pub(crate) fn enter() -> Result<Self, LabError> {
        // The path of this program must be read before: afterwards the kernel reports it from the
        // computer's root.
        let program = std::env::current_exe().map_err(LabError::io("looking for this program"))?;
        Ok(Self {
            _lock: Lock::take()?,
            privilege: user_namespace::enter()?,
            before: CpuUse::read(std::iter::empty()),
            signal: machine::watch_signals()?,
            run_dir: RunDir::create(false)
                .map_err(LabError::io("making a directory for the run"))?,
            program,
            cpus: Cpus::detect().map_err(LabError::io("asking for the CPUs"))?,
            real_time: Rank::real_time_is_allowed(),
        })
    }

    /// Starts a daemon with this configuration in a namespace, and waits until it is ready.
    /// Returns its place.
    pub(crate) fn daemon(
        &self,
        supervisor: &mut Supervisor<'_>,
        config: &str,
        netns: &Path,
    ) -> Result<usize, LabError> {
        let path = self.run_dir.path().join("host.toml");
        std::fs::write(&path, config).map_err(LabError::file("writing", &path))?;
        let first = supervisor.len();
        let daemon = supervisor.start(Start {
            name: "the host's daemon".to_owned(),
            program: self.program.clone(),
            args: vec!["host".into(), "--config".into(), path.display().to_string()],
            netns,
            cpus: self.cpus.all,
            policy: None,
            ready: Ready::Stderr("ready"),
            ends: false,
        })?;
        supervisor.wait_ready(first)?;
        Ok(daemon)
    }

    /// Returns an output with the conditions of this run, and without measurements.
    pub(crate) fn found(&self, options: &Options) -> Found {
        let mut found = Found {
            conditions: machine::conditions(self.privilege, &self.cpus),
            ..Found::default()
        };
        found.condition("duration_ns", options.duration.as_nanos());
        found.condition("repeat", options.repeat);
        found
    }

    /// Adds the measured variants, and the use of the computer by others during the measurement.
    pub(crate) fn add(&self, variants: Vec<Variant>, found: &mut Found) {
        // All children have ended.
        let after = CpuUse::read(std::iter::empty());
        let taken = self.before.zip(after);
        let taken = taken.and_then(|(before, after)| before.taken(&after));
        let taken = taken.unwrap_or_default();
        found.condition("used_by_others", taken.others);
        let names = variants.iter().map(|variant| variant.name.as_str());
        found.noise = Noise::Watched(
            names
                .flat_map(|it| disturbed::of_taken(it, taken))
                .collect(),
        );
        found.variants = variants;
    }
}

/// Measures all backends once per round, in `repeat` rounds (A B C A B C ...), so that a change of
/// the computer's speed affects all of them.
pub(crate) fn in_turn<B: Copy + Ord, M, O>(
    run: &mut Run<'_, O>,
    repeat: u32,
    backends: &[B],
    name: impl Fn(B) -> &'static str,
    mut measure: impl FnMut(B) -> Result<M, LabError>,
) -> Result<BTreeMap<B, Vec<M>>, LabError> {
    let mut measured: BTreeMap<B, Vec<M>> = BTreeMap::new();
    for round in 1..=repeat {
        for &backend in backends {
            (run.progress)(&format!("[{round}/{repeat}] {}", name(backend)));
            let of_backend = measured.entry(backend).or_default();
            of_backend.push(measure(backend)?);
        }
    }
    Ok(measured)
}
