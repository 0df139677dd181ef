//! Runs an experiment of the lab.

use crate::LabError;
use crate::bounds;
use crate::build;
use crate::disturbed::Disturbances;
use crate::experiment::{GuaranteesBy, LabExperiment, NamedLoad, Variant};
use crate::guest::CONGESTION_CONTROL;
use crate::hosts;
use crate::machine::load_average;
use crate::measurement::Measurement;
use crate::place;
use crate::refusals::Refusals;
use crate::rounds::rounds;
use crate::session::{Session, Tool, require};
use crate::summarise;
use crate::topology::{GuestPort, Topology};
use crate::variant::{self, Context};
use crate::vcpu_share;
use crate::vm::{Kernel, Machines};
use std::path::PathBuf;
use std::time::Duration;
use tailbound_experiment::{
    Catalogue, ChartSpec, Curve, Document, Experiment, Mistake, Mistakes, RunOutput, catalogue,
    unknown_word,
};

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
    fn run(&self, run: &mut tailbound_experiment::Run<'_, Options>) -> Result<RunOutput, LabError> {
        let options = run.options;
        let chosen = choose(self, options)?;
        require(tools_of(self, &chosen))?;
        let session = Session::enter(options.keep)?;
        // The kernel accepts a deadline only for threads that may run on all CPUs.
        let machines = machines(self, &chosen, options, &session);
        let why_not = machines
            .as_ref()
            .and_then(|machines| machines.as_ref().err());
        let refusals = Refusals::find(self, &session, why_not)?;
        let leave = session.cpus.leave_shared_core();
        leave.map_err(LabError::io("leaving the shared core"))?;
        let topology = build_topology(self, &chosen, &session)?;
        let context = Context {
            experiment: self,
            topology: &topology,
            session: &session,
            seed: run.seed,
            machines: machines.and_then(Result::ok),
        };
        let mut output = conditions(&context, options);
        let runs = |variant: &&&Variant| refusals.runs(self, variant);
        let running: Vec<&Variant> = chosen.iter().filter(runs).copied().collect();
        let names: Vec<&str> = running
            .iter()
            .map(|it| it.name.get_ref().as_str())
            .collect();
        let about = Duration::from(self.duration) + Duration::from(self.warmup) + AROUND;
        let measured = rounds(
            &names,
            options.repeat,
            Some(about),
            run.progress,
            |index, _, announce| variant::run(&context, running[index], announce),
        )?;
        self.summarise(&chosen, &refusals, measured, &mut output)?;
        Ok(output)
    }
}

impl LabExperiment {
    /// Adds the measurements of the variants that ran to the result, and the refusals of the
    /// others.
    fn summarise(
        &self,
        chosen: &[&Variant],
        refusals: &Refusals,
        measured: Vec<Vec<Measurement>>,
        output: &mut RunOutput,
    ) -> Result<(), LabError> {
        let all = measured.iter().flatten();
        let stolen: u64 = all.map(|it| it.stolen.as_nanos()).sum();
        output.condition("stolen_ns", stolen);
        let losses = vcpu_share::interrupts(measured.iter().flatten());
        output.condition("interrupts_at_once_ns", losses.interrupts.as_nanos());
        output.condition("interrupts_thousandths", losses.long_run.thousandths());
        output.condition("load_average_after", load_average());
        let mut disturbances = Disturbances::default();
        let mut measured = measured.into_iter();
        for variant in chosen {
            let name = variant.name.get_ref();
            let repeats = refusals.runs(self, variant).then(|| measured.next());
            let Some(mut repeats) = repeats.flatten() else {
                let refusal = refusals.of(self, variant);
                let unavailable = refusal.map(|why| summarise::unavailable(name, why));
                output.variants.extend(unavailable);
                continue;
            };
            if let Some(why) = disturbances.add_runs(name, &mut repeats) {
                output.variants.push(summarise::unavailable(name, &why));
                continue;
            }
            if let Some(line) = repeats.iter().find_map(|repeat| repeat.line.as_ref()) {
                output.condition(format!("probe_{name}"), line.as_str());
            }
            let promises = repeats.iter().find_map(|repeat| repeat.promises.as_ref());
            let mut bounds = bounds::of(self, variant, promises);
            vcpu_share::add(self, variant, &repeats, &mut bounds)
                .map_err(LabError::io("asking what reservations are worth"))?;
            vcpu_share::count(self, variant, &bounds, &mut repeats);
            let mut summary = summarise::variant(name, &repeats);
            summary.bounds = bounds;
            disturbances.add_figures(self, &summary, &repeats);
            output.variants.push(summary);
        }
        disturbances.finish(output);
        Ok(())
    }
}

fn build_topology(
    experiment: &LabExperiment,
    chosen: &[&Variant],
    session: &Session,
) -> Result<Topology, LabError> {
    let topology = Topology::new(experiment, guest_port());
    if chosen.iter().any(|variant| variant.pipeline.is_some()) {
        build::build(&topology)?;
    } else {
        build::namespaces(&topology)?;
    }
    if topology.hosts_talk {
        hosts::make_key(session.directory()).map_err(LabError::io("making the hosts' key"))?;
    }
    let asks = |variant: &&Variant| variant.guarantees_by == GuaranteesBy::Service;
    if chosen.iter().any(asks) && place::refusal(&session.program).is_none() {
        place::prepare(&session.program, session.directory(), &topology.hosts)?;
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
    session: &Session,
) -> Option<Result<Machines, String>> {
    if !chosen
        .iter()
        .any(|variant| experiment.has_machines(variant))
    {
        return None;
    }
    let kernel = Kernel::find(options.guest_kernel.as_deref());
    Some(kernel.and_then(|kernel| {
        let tools = tools_of(experiment, chosen);
        // `ip` sets up the links.
        let tools = tools.iter().map(|(program, _)| *program).chain(["ip"]);
        let tools: Vec<&str> = tools.collect();
        let directory = session.directory();
        let prepared = Machines::prepare(&kernel, &session.program, &tools, directory);
        prepared.map_err(|error| error.to_string())
    }))
}

/// Returns the programs that the variants' loads run beside the lab's own.
fn tools_of(experiment: &LabExperiment, chosen: &[&Variant]) -> Vec<Tool> {
    let etc = variants_with(chosen, &experiment.etc).then_some(("memcached", "memcached"));
    let iperf = variants_with(chosen, &experiment.iperf).then_some(("iperf3", "iperf3"));
    etc.into_iter().chain(iperf).collect()
}

/// Returns whether one of the variants has one of these loads.
fn variants_with<L: NamedLoad>(chosen: &[&Variant], loads: &[L]) -> bool {
    let mut chosen = chosen.iter();
    chosen.any(|variant| variant.running(loads).next().is_some())
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

fn conditions(context: &Context<'_>, options: &Options) -> RunOutput {
    let (experiment, session) = (context.experiment, context.session);
    let mut output = session.found(experiment.duration, options.repeat);
    let class = if session.real_time {
        "SCHED_FIFO"
    } else {
        "short slices, nice by rank"
    };
    output.condition("warmup_ns", experiment.warmup.as_nanos());
    output.condition("infrastructure_class", class);
    if experiment
        .variant
        .iter()
        .any(|variant| variant.pipeline.is_some())
    {
        output.condition("link_bit_s", experiment.link_rate.as_bit_s());
        output.condition("switch_buffer_bytes", experiment.switch_buffer.as_u64());
        output.condition("guest_port", context.topology.guest_port.name());
        output.condition("congestion_control", CONGESTION_CONTROL);
    }
    if let Some(machines) = &context.machines {
        output.condition("guest_accelerator", machines.accelerator.name());
    }
    if session.cpus.count == 1 {
        output.condition("note", "guests, daemons and monitor share the only CPU");
    }
    output
}
