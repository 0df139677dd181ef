//! One run of a variant, from its daemons to its figures.
//!
//! [`Crew`] is the variant's children: daemons, VMs and programs in guests. [`service`] is the
//! placement service among them. The start of each load returns a [`Load`], which can turn its
//! outcomes into figures. [`readings::Readings`] is what was read on this computer while samples counted,
//! and [`collect`] makes a [`Measurement`] of all of it.

mod collect;
mod crew;
mod load;
mod probe;
mod readings;
mod requests;
mod rings;
mod service;
mod traffic;
mod workflows;

use crate::LabError;
use crate::experiment::{LabExperiment, Quota, Variant};
use crate::measurement::Measurement;
use crate::session::Session;
use crate::topology::Topology;
use crate::vm::Machines;
use crew::Crew;
use load::Load;
use tailbound_sys::cgroup::{self, Confinement};
use tailbound_sys::root::Root;
use tailbound_units::Nanos;

/// Longest wait for late answers.
const GRACE: Nanos = Nanos::from_secs(5);
/// File in the run's directory: the vCPU agent's changes.
pub(crate) const CLASSES: &str = "classes.json";

/// Context that all variants of a run share.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) experiment: &'a LabExperiment,
    pub(crate) topology: &'a Topology,
    pub(crate) session: &'a Session,
    pub(crate) seed: u64,
    /// The VMs' shared files, if there are VMs.
    pub(crate) machines: Option<Machines>,
}

/// Runs a variant once and reports progress to `announce`.
pub(crate) fn run<'a>(
    context: &'a Context<'a>,
    variant: &'a Variant,
    announce: &mut dyn FnMut(&str),
) -> Result<Measurement, LabError> {
    announce("setting up");
    let mut crew = Crew::new(context, variant);
    service::start(&mut crew)?;
    crew.start_daemons()?;
    let promises = service::admit(&mut crew)?;
    crew.start_machines()?;
    let mut loads = start_loads(&mut crew)?;
    let (record, readings) = readings::take(&mut crew, &mut loads, announce)?;
    let mut measured = collect::collect(&crew, &loads, &record, &readings)?;
    measured.promises = promises;
    announce("taking down");
    crew.supervisor.end()?;
    Ok(measured)
}

/// Starts all loads of a variant. Each waits for its servers before its clients start, because they
/// connect then.
fn start_loads<'a>(crew: &mut Crew<'a>) -> Result<Vec<Load<'a>>, LabError> {
    let (experiment, variant) = (crew.experiment(), crew.variant);
    let mut loads = Vec::new();
    macro_rules! start {
        ($($kind:ident: $start:path,)*) => {
            $(for load in variant.running(&experiment.$kind) {
                loads.push($start(crew, load)?);
            })*
        };
    }
    workflows::start_nodes(crew)?;
    // Measuring tasks are first among those that send packets.
    start!(
        etc: requests::etc,
        shuffle: requests::shuffle,
        query: requests::query,
        bulk: requests::bulk,
        ping: requests::ping,
        hog: requests::hog,
        wakeup: requests::wakeup,
        watch: traffic::watch,
        meter: traffic::meter,
        message: traffic::message,
        transfer: traffic::transfer,
        rtp: traffic::rtp,
        iperf: traffic::iperf,
        flood: traffic::flood,
        probe: probe::probe,
        duty: probe::duty,
    );
    loads.extend(workflows::start(crew)?);
    crew.supervisor.wait_ready(0)?;
    Ok(loads)
}

/// Makes a control group for a guest's VM.
pub(crate) fn confinement(quota: &Quota, guest: &str) -> std::io::Result<Confinement> {
    let name = format!("tailbound-lab-{}-{guest}", std::process::id());
    let quota = cgroup::Quota {
        runtime: quota.runtime,
        period: quota.period,
    };
    Confinement::new(&Root::default(), &name, quota)
}
