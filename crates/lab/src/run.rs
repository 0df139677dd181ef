//! An experiment from its TOML to its verdict.

use crate::LabError;
use crate::bounds;
use crate::build;
use crate::charts;
use crate::check;
use crate::cpus::Cpus;
use crate::experiment::{BulkTool, Experiment, PingTool, QueryTool, Variant};
use crate::guest::CONGESTION_CONTROL;
use crate::hosts;
use crate::lock::Lock;
use crate::machine::{self, load_average, watch_signals};
use crate::processes::Rank;
use crate::progress::Progress;
use crate::refusals::Refusals;
use crate::run_dir::RunDir;
use crate::summarise;
use crate::topology::{GuestPort, Topology};
use crate::variant::{self, Measured, Scene};
use crate::vm;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tailbound_report::Results;
use tailbound_sys::process::find_program;
use tailbound_sys::sched::probe;
use tailbound_sys::user_namespace::{self, Privilege};
use tailbound_units::{Nanos, Rate};

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of one of the embedded experiments, or a file.
    pub experiment: String,
    /// In place of the experiment's own link rate.
    pub link_rate: Option<Rate>,
    /// In place of the experiment's own duration.
    pub duration: Option<Nanos>,
    /// Only these variants.
    pub variants: Option<Vec<String>>,
    /// Every arrival follows from it.
    pub seed: u64,
    /// How often each variant runs, in turn.
    pub repeat: u32,
    /// What guests that are machines boot; otherwise the newest in `/boot`.
    pub guest_kernel: Option<PathBuf>,
    /// Whether the run's files are kept.
    pub keep: bool,
}

/// Runs an experiment. Moves this process into namespaces of its own, so it must
/// have a single thread, and cannot go back.
///
/// # Errors
/// See [`LabError`]. Nothing of the run is left then, either.
pub fn run(options: &Options) -> Result<Results, LabError> {
    let experiment = load(options)?;
    let chosen = choose(&experiment, options)?;
    require_tools(&experiment, &chosen)?;
    let _lock = Lock::take()?;
    let privilege = user_namespace::enter()?;
    let signal = watch_signals()?;
    let cpus = Cpus::detect().map_err(LabError::io("asking for the CPUs"))?;
    let real_time = Rank::Monitor
        .real_time()
        .is_some_and(|policy| probe(policy).is_ok());
    let run_dir =
        RunDir::create(options.keep).map_err(LabError::io("making a directory for the run"))?;
    // A deadline is admitted only to threads that may run everywhere.
    let kernel = vm::kernel(options.guest_kernel.as_deref());
    let refusals = Refusals::find(&experiment, &run_dir, &kernel, real_time)?;
    cpus.leave_shared_core()
        .map_err(LabError::io("leaving the shared core"))?;
    let topology = Topology::new(&experiment, guest_port());
    if chosen.iter().any(|variant| variant.pipeline.is_some()) {
        build::build(&topology)?;
    } else {
        build::namespaces(&topology)?;
    }
    if topology.hosts_talk {
        hosts::make_key(run_dir.path()).map_err(LabError::io("making the hosts' key"))?;
    }
    let scene = Scene {
        experiment: &experiment,
        topology: &topology,
        cpus,
        real_time,
        run_dir: &run_dir,
        program: std::env::current_exe().map_err(LabError::io("looking for this program"))?,
        seed: options.seed,
        kernel,
        signal,
    };

    let mut conditions = conditions(&scene, options, privilege);
    let mut measured: Vec<Vec<Measured>> = chosen.iter().map(|_| Vec::new()).collect();
    let mut progress = Progress::new();
    let runs = |variant: &Variant| refusals.runs(&experiment, variant);
    let total = chosen.iter().filter(|variant| runs(variant)).count() * options.repeat as usize;
    let mut done = 0;
    for _ in 0..options.repeat {
        for (variant, repeats) in chosen.iter().zip(&mut measured) {
            if !runs(variant) {
                continue;
            }
            done += 1;
            let head = format!("[{done}/{total}] {}", variant.name.get_ref());
            let mut announce = |what: &str| progress.show(&format!("{head}: {what}"));
            repeats.push(variant::run(&scene, variant, &mut announce)?);
        }
    }
    progress.clear();

    let stolen: u64 = measured.iter().flatten().map(|m| m.stolen.as_nanos()).sum();
    conditions.insert("stolen_ns".into(), json!(stolen));
    for (variant, repeats) in chosen.iter().zip(&measured) {
        if let Some(line) = repeats.iter().find_map(|repeat| repeat.line.as_ref()) {
            conditions.insert(format!("probe_{}", variant.name.get_ref()), json!(line));
        }
    }
    conditions.insert("load_average_after".into(), json!(load_average()));
    let variants = chosen
        .iter()
        .zip(&measured)
        .filter_map(|(variant, repeats)| {
            let name = variant.name.get_ref();
            match (refusals.of(&experiment, variant), repeats.is_empty()) {
                (_, false) => {
                    let mut summary = summarise::variant(name, repeats);
                    summary.bounds = bounds::of(&experiment, variant);
                    Some(summary)
                }
                (Some(why), true) => Some(summarise::unavailable(name, why)),
                (None, true) => None,
            }
        });
    let variants: Vec<_> = variants.collect();
    let checks = check::evaluate(&experiment.check, &variants);
    let on_core = experiment.on_shared_core();
    let (verdict, verdict_reason) = check::verdict(&experiment.check, &on_core, &variants, &checks);
    let charts = charts::draw(&experiment, &variants);
    Ok(Results {
        schema: tailbound_report::SCHEMA,
        experiment: experiment.name.get_ref().clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        seed: options.seed,
        conditions,
        variants,
        charts,
        checks,
        verdict,
        verdict_reason,
    })
}

fn load(options: &Options) -> Result<Experiment, LabError> {
    let (text, file) = crate::experiment::source_text(&options.experiment)?;
    let mut experiment = Experiment::parse(&text, &file)?;
    experiment.link_rate = options.link_rate.unwrap_or(experiment.link_rate);
    experiment.duration = options.duration.unwrap_or(experiment.duration);
    experiment.recheck(&text, &file)?;
    Ok(experiment)
}

fn choose<'a>(experiment: &'a Experiment, options: &Options) -> Result<Vec<&'a Variant>, LabError> {
    let Some(names) = &options.variants else {
        return Ok(experiment.variant.iter().collect());
    };
    let known = |name: &String| experiment.variant.iter().any(|v| v.name.get_ref() == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = experiment
            .variant
            .iter()
            .map(|v| v.name.get_ref().as_str())
            .collect();
        return Err(LabError::UnknownVariant {
            experiment: experiment.name.get_ref().clone(),
            name: unknown.clone(),
            known: known.join(", "),
        });
    }
    let wanted = |variant: &&Variant| names.contains(variant.name.get_ref());
    Ok(experiment.variant.iter().filter(wanted).collect())
}

/// Sees that the programs are there that the experiment names as load.
fn require_tools(experiment: &Experiment, chosen: &[&Variant]) -> Result<(), LabError> {
    let runs = |name: &crate::experiment::Name| {
        let mut loads = chosen.iter().flat_map(|variant| &variant.loads);
        loads.any(|load| load.get_ref() == name.get_ref())
    };
    let mut needed: Vec<(&'static str, &'static str)> = Vec::new();
    if experiment
        .query
        .iter()
        .any(|q| q.tool == QueryTool::Memcached && runs(&q.name))
        || experiment.etc.iter().any(|etc| runs(&etc.name))
    {
        needed.push(("memcached", "memcached"));
    }
    if experiment
        .bulk
        .iter()
        .any(|b| b.tool == BulkTool::Iperf3 && runs(&b.name))
    {
        needed.push(("iperf3", "iperf3"));
    }
    if experiment
        .ping
        .iter()
        .any(|p| p.tool == PingTool::Ping && runs(&p.name))
    {
        needed.push(("ping", "iputils-ping"));
    }
    for (program, package) in needed {
        if find_program(program).is_none() {
            return Err(LabError::Missing { program, package });
        }
    }
    Ok(())
}

/// TAPs where they can be opened, as guests of virtual machines have them.
fn guest_port() -> GuestPort {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if opened.is_ok() {
        GuestPort::Tap
    } else {
        GuestPort::Veth
    }
}

fn conditions(
    scene: &Scene<'_>,
    options: &Options,
    privilege: Privilege,
) -> BTreeMap<String, Value> {
    let experiment = scene.experiment;
    let network = experiment
        .variant
        .iter()
        .any(|variant| variant.pipeline.is_some());
    let mut conditions = machine::conditions(privilege, &scene.cpus);
    let class = if scene.real_time {
        "SCHED_FIFO"
    } else {
        "short slices, nice by rank"
    };
    conditions.extend([
        ("duration_ns".into(), json!(experiment.duration.as_nanos())),
        ("warmup_ns".into(), json!(experiment.warmup.as_nanos())),
        ("repeat".into(), json!(options.repeat)),
        ("infrastructure_class".into(), json!(class)),
    ]);
    if network {
        conditions.extend([
            ("link_bit_s".into(), json!(experiment.link_rate.as_bit_s())),
            (
                "switch_buffer_bytes".into(),
                json!(experiment.switch_buffer.as_u64()),
            ),
            ("guest_port".into(), json!(scene.topology.guest_port.name())),
            ("congestion_control".into(), json!(CONGESTION_CONTROL)),
        ]);
    }
    if scene.cpus.count == 1 {
        let note = "guests, daemons and monitor share the only CPU";
        conditions.insert("note".into(), json!(note));
    }
    conditions
}
