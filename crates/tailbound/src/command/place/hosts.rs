//! `tailbound place hosts`, `host`, `drain`, `fail`, `restore`.

use super::enforcement::{cells, sentences};
use super::request::{count, machines};
use super::service::Service;
use super::tables::{affected, numbers, ports};
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use tailbound_api::{CpuUse, Host, HostChange, HostState};
use tailbound_placement::Thousandths;
use tailbound_report::{Paint, Table};

/// State of hosts for new VMs.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum State {
    /// Hosts that accept VMs
    Open,
    /// Hosts that are closed to new VMs
    Drained,
    /// Hosts that have failed
    Failed,
}

/// Arguments of `tailbound place hosts`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// List only hosts in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    #[command(flatten)]
    service: Service,
}

impl List {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let state = self.state.map(|state| match state {
            State::Open => HostState::Open,
            State::Drained => HostState::Drained,
            State::Failed => HostState::Failed,
        });
        let all = self
            .service
            .all_pages(|client, after| client.hosts(state, after))?;
        self.service
            .print("place-hosts", &all, |paint| list(&all.items, paint));
        Ok(Exit::Holds)
    }
}

fn list(hosts: &[Host], paint: Paint) -> String {
    if hosts.is_empty() {
        return "no hosts\n".to_owned();
    }
    let head = [
        "host",
        "in",
        "state",
        "used",
        "slots",
        "guarantees",
        "revision",
        "wrong",
    ];
    let mut table = Table::new(&head, &[1, 2, 5, 7]);
    for host in hosts {
        let [follows, revision, wrong] = cells(host, paint);
        table.row([
            host.name.as_str(),
            &host.path.join(", "),
            host.state.word(),
            &host.used.to_string(),
            &host.slots.to_string(),
            &follows,
            &revision,
            &wrong,
        ]);
    }
    table.render(paint)
}

/// Arguments of `tailbound place host`.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The host
    host: String,
    #[command(flatten)]
    service: Service,
}

impl Show {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let host = self.service.ask(|client| client.host(&self.host))?;
        self.service
            .print("place-host", &host, |paint| show(&host, paint));
        Ok(Exit::Holds)
    }
}

fn show(host: &Host, paint: Paint) -> String {
    let mut out = format!(
        "{} in {}: {}, {} of {} slots used\n",
        host.name,
        if host.path.is_empty() {
            "the core".to_owned()
        } else {
            host.path.join(", ")
        },
        state(host.state, paint),
        host.used,
        host.slots
    );
    out += &sentences(&host.said, paint);
    if host.reserved_cpu != CpuUse::default() {
        out += &cpu(host, paint);
    }
    if let Some(classes) = host.other_classes {
        let line = format!(
            "its classes differ from the topology's, {classes}: the guarantees of its machines \
                do not hold, and it gets no machines"
        );
        // Writing to a String does not fail.
        let _ = writeln!(out, "{}", paint.bad(&line));
    }
    if !host.vms.is_empty() {
        let mut table = Table::new(&["tenant", "id", "machines", "numbers"], &[3]);
        for run in &host.vms {
            table.row([
                format!("{}/{}", run.owner, run.name),
                run.tenant.0.to_string(),
                run.count.to_string(),
                numbers(run.first, run.count),
            ]);
        }
        // Writing to a String does not fail.
        let _ = write!(out, "\n{}", table.render(paint));
    }
    if !host.ports.is_empty() {
        let _ = write!(out, "\n{}", ports(&host.ports, paint));
    }
    out
}

/// Returns the reserved CPU of a host, and its capacity.
fn cpu(host: &Host, paint: Paint) -> String {
    let CpuUse { cpu, threads } = host.reserved_cpu;
    let (cpu, vcpus) = (Thousandths(cpu), count(threads, "vCPU"));
    let Some(keeps) = host.said.cpu else {
        let line = format!("{cpu} of a CPU reserved for {vcpus}, and the host keeps none");
        return format!("{}\n", paint.bad(&line));
    };
    let most = keeps.left();
    let line = format!(
        "{cpu} of {} of a CPU reserved, for {vcpus} of {}",
        Thousandths(most.cpu),
        most.threads
    );
    let holds = keeps.check_sum(host.reserved_cpu).is_ok();
    format!("{}\n", if holds { line } else { paint.bad(&line) })
}

fn state(state: HostState, paint: Paint) -> String {
    match state {
        HostState::Open => paint.good(state.word()),
        HostState::Drained => paint.doubtful(state.word()),
        HostState::Failed => paint.bad(state.word()),
    }
}

/// Arguments of `tailbound place drain`.
#[derive(Debug, clap::Args)]
pub(super) struct Drain {
    #[command(flatten)]
    change: Change,
}

/// Arguments of `tailbound place fail`.
#[derive(Debug, clap::Args)]
pub(super) struct Fail {
    #[command(flatten)]
    change: Change,
}

/// Arguments of `tailbound place restore`.
#[derive(Debug, clap::Args)]
pub(super) struct Restore {
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// A host, or a rack or pod (all of its hosts)
    node: String,
    #[command(flatten)]
    service: Service,
}

impl Drain {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.change.run(HostState::Drained)
    }
}

impl Fail {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.change.run(HostState::Failed)
    }
}

impl Restore {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.change.run(HostState::Open)
    }
}

impl Change {
    fn run(self, state: HostState) -> Result<Exit, Failure> {
        let change = self
            .service
            .ask(|client| client.set_hosts(&self.node, state))?;
        self.service.print("place-hosts-change", &change, |paint| {
            changed(&change, paint)
        });
        Ok(Exit::Holds)
    }
}

fn changed(change: &HostChange, paint: Paint) -> String {
    let hosts = count(change.hosts.into(), "host");
    let mut out = format!("{}: {hosts} {}", change.node, state(change.state, paint));
    if change.affected.is_empty() {
        out += if change.state == HostState::Open {
            "\n"
        } else {
            ", no tenant has machines there\n"
        };
        return out;
    }
    let lost: u32 = change.affected.iter().map(|tenant| tenant.lost).sum();
    // Writing to a String does not fail.
    let _ = write!(
        out,
        ", {} there; tailbound place relocate TENANT moves them\n\n{}",
        machines(lost),
        affected(&change.affected, paint)
    );
    out
}
