//! Runs an experiment of the lab.

use crate::LabError;
use crate::bounds;
use crate::build;
use crate::core_use::CpuUse;
use crate::cpus::Cpus;
use crate::disturbed;
use crate::experiment::{BulkTool, GuaranteesBy, LabExperiment, PingTool, QueryTool, Variant};
use crate::guest::CONGESTION_CONTROL;
use crate::hosts;
use crate::lock::Lock;
use crate::machine::{self, load_average, watch_signals};
use crate::place;
use crate::processes::Rank;
use crate::refusals::Refusals;
use crate::run_dir::RunDir;
use crate::summarise;
use crate::topology::{GuestPort, Topology};
use crate::variant::{self, Context, Measured};
use crate::vcpu_share;
use crate::vm::{Kernel, Machines};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tailbound_experiment::{
    Catalogue, ChartSpec, Curve, Document, Experiment, Found, Mistake, Mistakes, Noise, Progress,
    catalogue, unknown_word,
};
use tailbound_sys::process::find_program;
use tailbound_sys::user_namespace::{self, Privilege};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only these variants.
    pub variants: Option<Vec<String>>,
    /// Number of runs of each variant, in turn.
    pub repeat: u32,
    /// Kernel of guests that are VMs; the default is the newest in `/boot`.
    pub guest_kernel: Option<PathBuf>,
    /// Keep the run's files.
    pub keep: bool,
}

/// Approximate time for the setup and removal of a variant.
const AROUND: Duration = Duration::from_secs(2);

impl Experiment for LabExperiment {
    type Options = Options;
    type Error = LabError;

    const CATALOGUE: Catalogue = catalogue!(
        "experiments": "traps", "host-queue", "switch-queue", "vcpu", "vcpu-classes", "probe",
        "burst", "noisy", "limits", "memcached", "machines", "snoop-throughput", "snoop-close",
        "path", "reserved",
        "rtp-vcpu", "workflows",
    );

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        let mut experiment: Self = document.whole()?;
        experiment.expand();
        Ok(experiment)
    }

    fn check(&mut self, _: &str, mistakes: &mut Mistakes) {
        self.find_mistakes(mistakes);
    }

    fn outline(&self) -> Vec<tailbound_report::Variant> {
        let outline = |variant: &Variant| tailbound_report::Variant {
            bounds: bounds::of(self, variant, None),
            ..self.outline_of(variant)
        };
        self.variant.iter().map(outline).collect()
    }

    fn charts(&self) -> &[ChartSpec] {
        &self.chart
    }

    fn curves(&self) -> Vec<Curve> {
        self.families()
    }

    /// Moves this process into namespaces of its own, so it must have a single thread, and cannot
    /// return. An error also leaves no state of the run.
    fn run(&self, run: &mut tailbound_experiment::Run<'_, Options>) -> Result<Found, LabError> {
        let (options, progress) = (run.options, &mut run.progress);
        let chosen = choose(self, options)?;
        require_tools(self, &chosen)?;
        let _lock = Lock::take()?;
        // In namespaces of its own the process sees paths from the computer's root, which may
        // differ from this process's root.
        let program = std::env::current_exe().map_err(LabError::io("looking for this program"))?;
        let privilege = user_namespace::enter()?;
        let signal = watch_signals()?;
        let cpus = Cpus::detect().map_err(LabError::io("asking for the CPUs"))?;
        let real_time = Rank::real_time_is_allowed();
        let run_dir =
            RunDir::create(options.keep).map_err(LabError::io("making a directory for the run"))?;
        // The kernel accepts a deadline only for threads that may run on all CPUs.
        let machines = machines(self, &chosen, options, &program, &run_dir);
        let why_not = machines
            .as_ref()
            .and_then(|machines| machines.as_ref().err());
        let refusals = Refusals::find(self, &program, &run_dir, why_not, real_time)?;
        cpus.leave_shared_core()
            .map_err(LabError::io("leaving the shared core"))?;
        let topology = build_topology(self, &chosen, &program, &run_dir)?;
        let context = Context {
            experiment: self,
            topology: &topology,
            cpus,
            real_time,
            run_dir: &run_dir,
            program,
            seed: run.seed,
            machines: machines.and_then(Result::ok),
            signal,
        };
        let mut found = conditions(&context, options, privilege);
        let run = Run {
            context: &context,
            chosen,
            refusals,
        };
        let mut measured = run.measure(options.repeat, progress)?;
        run.summarise(&mut measured, &mut found)?;
        Ok(found)
    }
}

/// The selected variants of a run, and the variants that cannot run here.
struct Run<'r> {
    context: &'r Context<'r>,
    chosen: Vec<&'r Variant>,
    refusals: Refusals,
}

impl Run<'_> {
    /// Returns the measurements of each selected variant in each round.
    fn measure(
        &self,
        repeat: u32,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Vec<Measured>>, LabError> {
        let mut measured: Vec<Vec<Measured>> = self.chosen.iter().map(|_| Vec::new()).collect();
        let runs = |variant: &Variant| self.refusals.runs(self.context.experiment, variant);
        let number = self.chosen.iter().filter(|variant| runs(variant)).count();
        let total = number * repeat as usize;
        let begun = Instant::now();
        let one = Duration::from(self.context.experiment.duration)
            + Duration::from(self.context.experiment.warmup)
            + AROUND;
        let about = one.as_secs_f64() * total as f64;
        let mut done = 0;
        for _ in 0..repeat {
            for (variant, repeats) in self.chosen.iter().zip(&mut measured) {
                if !runs(variant) {
                    continue;
                }
                done += 1;
                let variant_name = variant.name.get_ref();
                let mut announce = |what: &str| {
                    let passed = begun.elapsed().as_secs();
                    progress(&format!(
                        "{passed} s of about {about:.0} s, variant {variant_name} ({done} of \
                         {total}): {what}"
                    ));
                };
                let before = CpuUse::read(std::iter::empty());
                let ran = variant::run(self.context, variant, &mut announce);
                repeats.push(ran.or_else(|error| disturbed::lost(error, before))?);
            }
        }
        Ok(measured)
    }

    fn summarise(&self, measured: &mut [Vec<Measured>], found: &mut Found) -> Result<(), LabError> {
        let experiment = self.context.experiment;
        let all = measured.iter().flatten();
        let stolen: u64 = all.map(|it| it.stolen.as_nanos()).sum();
        found.condition("stolen_ns", stolen);
        let taken = vcpu_share::interrupts(measured.iter().flatten());
        found.condition("interrupts_at_once_ns", taken.interrupts.as_nanos());
        found.condition("interrupts_thousandths", taken.long_run.thousandths());
        found.condition("load_average_after", load_average());
        let mut disturbed = Vec::new();
        let mut most_taken = 0.0_f64;
        for (variant, repeats) in self.chosen.iter().zip(measured) {
            let name = variant.name.get_ref();
            if repeats.is_empty() {
                let refusal = self.refusals.of(experiment, variant);
                let unavailable = refusal.map(|why| summarise::unavailable(name, why));
                found.variants.extend(unavailable);
                continue;
            }
            disturbed.extend(disturbed::of_runs(name, repeats));
            let taken = repeats.iter().filter_map(|repeat| repeat.cpus_taken);
            most_taken = taken.fold(most_taken, |most, it| most.max(it.others));
            if let Some(why) = disturbed::take_lost(repeats) {
                found.variants.push(summarise::unavailable(name, &why));
                continue;
            }
            if let Some(line) = repeats.iter().find_map(|repeat| repeat.line.as_ref()) {
                found.condition(format!("probe_{name}"), line.as_str());
            }
            let promises = repeats.iter().find_map(|repeat| repeat.promises.as_ref());
            let mut bounds = bounds::of(experiment, variant, promises);
            vcpu_share::add(experiment, variant, repeats, &mut bounds)
                .map_err(LabError::io("asking what reservations are worth"))?;
            vcpu_share::count(experiment, variant, &bounds, repeats);
            let mut summary = summarise::variant(name, repeats);
            summary.bounds = bounds;
            disturbed.extend(disturbed::of_figures(experiment, &summary, repeats));
            found.variants.push(summary);
        }
        found.condition("used_by_others", most_taken);
        found.noise = Noise::Watched(disturbed);
        Ok(())
    }
}

fn build_topology(
    experiment: &LabExperiment,
    chosen: &[&Variant],
    program: &Path,
    run_dir: &RunDir,
) -> Result<Topology, LabError> {
    let topology = Topology::new(experiment, guest_port());
    if chosen.iter().any(|variant| variant.pipeline.is_some()) {
        build::build(&topology)?;
    } else {
        build::namespaces(&topology)?;
    }
    if topology.hosts_talk {
        hosts::make_key(run_dir.path()).map_err(LabError::io("making the hosts' key"))?;
    }
    let asks = |variant: &&Variant| variant.guarantees_by == GuaranteesBy::Service;
    if chosen.iter().any(asks) && place::refusal(program).is_none() {
        place::prepare(program, run_dir.path(), &topology.hosts)?;
    }
    Ok(topology)
}

fn choose<'a>(
    experiment: &'a LabExperiment,
    options: &Options,
) -> Result<Vec<&'a Variant>, LabError> {
    let all = experiment.variant.iter();
    let Some(names) = &options.variants else {
        return Ok(all.collect());
    };
    let known: Vec<&str> = all.clone().map(|it| it.name.get_ref().as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let message = unknown_word("variant", unknown, &known);
        return Err(LabError::UnknownVariant(message));
    }
    Ok(all.filter(|it| names.contains(it.name.get_ref())).collect())
}

/// Returns the VMs' shared files, or the reason why VMs are unavailable; `None` if no variant needs
/// VMs.
fn machines(
    experiment: &LabExperiment,
    chosen: &[&Variant],
    options: &Options,
    program: &Path,
    run_dir: &RunDir,
) -> Option<Result<Machines, String>> {
    if !chosen
        .iter()
        .any(|variant| experiment.has_machines(variant))
    {
        return None;
    }
    let kernel = Kernel::find(options.guest_kernel.as_deref());
    Some(kernel.and_then(|kernel| {
        let tools = tools_in_machines(experiment, chosen);
        let prepared = Machines::prepare(&kernel, program, &tools, run_dir.path());
        prepared.map_err(|error| error.to_string())
    }))
}

/// Returns the programs that guests run, beside this one.
fn tools_in_machines(experiment: &LabExperiment, chosen: &[&Variant]) -> Vec<&'static str> {
    // `ip` sets up the links.
    let mut tools = vec!["ip"];
    tools.extend(tools_of(experiment, chosen).map(|(program, _)| program));
    tools.sort_unstable();
    tools.dedup();
    tools
}

/// Returns the programs that the variants' loads name, each with its package.
fn tools_of<'e>(
    experiment: &'e LabExperiment,
    chosen: &'e [&Variant],
) -> impl Iterator<Item = (&'static str, &'static str)> + 'e {
    chosen.iter().flat_map(|variant| {
        let mut queries = variant.running(&experiment.query);
        let mut bulks = variant.running(&experiment.bulk);
        let mut pings = variant.running(&experiment.ping);
        let memcached = queries.any(|it| it.tool == QueryTool::Memcached)
            || variant.running(&experiment.etc).next().is_some();
        let iperf3 = bulks.any(|it| it.tool == BulkTool::Iperf3)
            || variant.running(&experiment.iperf).next().is_some();
        let ping = pings.any(|it| it.tool == PingTool::Ping);
        [
            memcached.then_some(("memcached", "memcached")),
            iperf3.then_some(("iperf3", "iperf3")),
            ping.then_some(("ping", "iputils-ping")),
        ]
        .into_iter()
        .flatten()
    })
}

/// Checks that the programs that the experiment names as load are installed.
fn require_tools(experiment: &LabExperiment, chosen: &[&Variant]) -> Result<(), LabError> {
    match tools_of(experiment, chosen).find(|(program, _)| find_program(program).is_none()) {
        Some((program, package)) => Err(LabError::Missing { program, package }),
        None => Ok(()),
    }
}

/// Returns TAPs if this process can open them, as for VMs; veth pairs otherwise.
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

fn conditions(context: &Context<'_>, options: &Options, privilege: Privilege) -> Found {
    let experiment = context.experiment;
    let mut found = Found {
        conditions: machine::conditions(privilege, &context.cpus),
        ..Found::default()
    };
    let class = if context.real_time {
        "SCHED_FIFO"
    } else {
        "short slices, nice by rank"
    };
    found.condition("duration_ns", experiment.duration.as_nanos());
    found.condition("warmup_ns", experiment.warmup.as_nanos());
    found.condition("repeat", options.repeat);
    found.condition("infrastructure_class", class);
    if experiment
        .variant
        .iter()
        .any(|variant| variant.pipeline.is_some())
    {
        found.condition("link_bit_s", experiment.link_rate.as_bit_s());
        found.condition("switch_buffer_bytes", experiment.switch_buffer.as_u64());
        found.condition("guest_port", context.topology.guest_port.name());
        found.condition("congestion_control", CONGESTION_CONTROL);
    }
    if let Some(machines) = &context.machines {
        found.condition("guest_accelerator", machines.accelerator.name());
    }
    if context.cpus.count == 1 {
        found.condition("note", "guests, daemons and monitor share the only CPU");
    }
    found
}
