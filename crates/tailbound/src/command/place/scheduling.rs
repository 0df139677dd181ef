//! `tailbound place candidates`, `reserve`, `confirm`, `cancel`, `reservations`, `put`, `batch`,
//! `adopt`: the API for schedulers, from the command line.

use super::enforcement::confirmed;
use super::name::TenantName;
use super::request::{count, read, read_machine, read_request};
use super::service::{Service, TENANT};
use super::summary::summary;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use tailbound_api::client::Client;
use tailbound_api::{
    Adoption, AdoptionReport, Batch, BatchResult, Candidate, CandidateQuestion, CandidateQuestions,
    HostMachines, MachineRef, NewReservation, PinnedHost, Reservation, ReservationId,
    ReservationState, TenantRef,
};
use tailbound_report::{NOTHING, Paint, Table};
use tailbound_units::Nanos;

/// A number of machines on a host in the format of the command line: `HOST`, or `HOST:N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct On(pub(super) PinnedHost);

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, vms) = text.rsplit_once(':').unwrap_or((text, "1"));
        let vms = vms.parse().ok().filter(|vms| *vms > 0);
        match vms.filter(|_| !host.is_empty()) {
            Some(vms) => Ok(Self(PinnedHost {
                host: host.to_owned(),
                vms,
            })),
            None => Err("write HOST or HOST:N, as in a-1:3".to_owned()),
        }
    }
}

/// Arguments of `tailbound place candidates`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing is reserved. For a tenant, the verdict is that of `place reserve`. For a \
    request of a file, the hosts of the other machines are not known, and only the host and its \
    own link are checked; with both, the file counts if there is no such tenant. Exit code: 0 a host fits; 1 no host fits; 2 failed."
)]
#[command(group(clap::ArgGroup::new("what").args(["tenant", "file"]).required(true).multiple(true)))]
pub(super) struct Candidates {
    /// The tenant that would get more machines: its ID or OWNER/NAME
    tenant: Option<String>,
    /// The request of a new tenant, as for `place create --file`
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The number of machines on each host
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    vms: u32,
    /// Check this host; all hosts without. Repeatable
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    service: Service,
}

impl Candidates {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = self.file.as_deref().map(read_request).transpose()?;
        let question = CandidateQuestion {
            tenant: self.tenant.clone().map(TenantRef::Name),
            request,
            vms: self.vms,
            hosts: (!self.hosts.is_empty()).then(|| self.hosts.clone()),
        };
        let questions = CandidateQuestions {
            requests: vec![question],
        };
        let answers = self.service.ask(|client| client.candidates(&questions))?;
        let all = answers.answers.iter();
        let all: Vec<&Candidate> = all.flat_map(|answer| &answer.candidates).collect();
        let fitting = all.iter().filter(|candidate| candidate.fits).count();
        self.service.print("place-candidates", &answers, |paint| {
            candidates(&all, fitting, paint)
        });
        Ok(Exit::holds(fitting > 0))
    }
}

fn candidates(all: &[&Candidate], fitting: usize, paint: Paint) -> String {
    let word = if fitting > 0 {
        paint.good("FITS")
    } else {
        paint.bad("DOES NOT FIT")
    };
    let mut table = Table::new(&["host", "more", "bandwidth", "burst", "refusal"], &[4]);
    for candidate in all {
        let refusal = candidate.refusal.as_ref();
        table.row([
            candidate.host.clone(),
            candidate.headroom.vms.to_string(),
            candidate.headroom.bandwidth.to_string(),
            candidate.headroom.burst.to_string(),
            refusal.map_or_else(|| NOTHING.to_owned(), |it| it.sentence.clone()),
        ]);
    }
    let hosts = count(all.len() as u64, "host");
    format!("{word}  {fitting} of {hosts}\n\n{}", table.render(paint))
}

/// Arguments of `tailbound place reserve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reserved machines count in every guarantee and under the quota. Without \
    `place confirm` they are released after --ttl, which each leader counts anew. A tenant that \
    does not exist is created with them. Exit code: 0 done; 1 refused; 2 failed."
)]
pub(super) struct Reserve {
    /// The tenant's NAME or OWNER/NAME
    tenant: String,
    /// The host of a machine, or of N machines. Repeatable
    #[arg(long, value_name = "HOST[:N]", required = true)]
    on: Vec<On>,
    /// The time to live, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Nanos,
    /// The request of each machine of a new tenant, as for `place create --file`; its number of
    /// machines is ignored
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Your name of a machine, in the order of the hosts. Repeatable
    #[arg(long = "machine", value_name = "NAME")]
    machines: Vec<String>,
    /// Release the other reserved places of these machines; a confirmed one stays
    #[arg(long, requires = "machines")]
    replace: bool,
    #[command(flatten)]
    service: Service,
}

impl Reserve {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (owner, name) = match self.tenant.split_once('/') {
            Some((owner, name)) => (Some(owner.to_owned()), name.to_owned()),
            None => (None, self.tenant.clone()),
        };
        let new = NewReservation {
            tenant: name,
            owner,
            request: self.file.as_deref().map(read_machine).transpose()?,
            placement: self.on.into_iter().map(|On(host)| host).collect(),
            ttl: self.ttl,
            machines: self.machines,
            replace: self.replace,
        };
        let reservation = self.service.ask(|client| client.reserve(&new))?;
        print(&self.service, &reservation, "RESERVED");
        Ok(Exit::Holds)
    }
}

/// Kind of a reservation's JSON document.
const RESERVATION: &str = "place-reservation";

fn print(service: &Service, reservation: &Reservation, word: &str) {
    service.print(RESERVATION, reservation, |paint| {
        let mut table = Table::new(&["machine", "host", "name"], &[0, 1, 2]);
        for machine in &reservation.machines {
            let name = machine.name.as_deref().unwrap_or(NOTHING);
            table.row([&*machine.vm, &*machine.host, name]);
        }
        format!(
            "{}  reservation {} of {}/{}, id {}{}\n\n{}",
            paint.good(word),
            reservation.id,
            reservation.owner,
            reservation.name,
            reservation.tenant.0,
            left(reservation),
            table.render(paint)
        )
    });
}

fn left(reservation: &Reservation) -> String {
    match reservation.expires_in {
        Some(left) => format!(", for {left}"),
        None => String::new(),
    }
}

/// Arguments of `tailbound place confirm`.
#[derive(Debug, clap::Args)]
pub(super) struct Confirm {
    /// The reservation's ID
    reservation: ReservationId,
    #[command(flatten)]
    service: Service,
}

impl Confirm {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let id = self.reservation;
        let reservation = self.service.ask(|client| client.confirm(id))?;
        print(&self.service, &reservation, "CONFIRMED");
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place cancel`.
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    /// The reservation's ID
    reservation: ReservationId,
    #[command(flatten)]
    service: Service,
}

/// JSON document of `--output json`: the service's answer is empty.
#[derive(Debug, Serialize)]
struct CancelledReservation {
    id: ReservationId,
}

impl Cancel {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let id = self.reservation;
        self.service.ask(|client| client.cancel(id))?;
        self.service
            .print("place-cancelled", &CancelledReservation { id }, |paint| {
                format!("{}  reservation {id}\n", paint.good("CANCELLED"))
            });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place reservations`.
#[derive(Debug, clap::Args)]
pub(super) struct Reservations {
    /// Show this reservation only, also a confirmed one
    reservation: Option<ReservationId>,
    #[command(flatten)]
    service: Service,
}

impl Reservations {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if let Some(id) = self.reservation {
            let reservation = self.service.ask(|client| client.reservation(id))?;
            let word = match reservation.state {
                ReservationState::Open => "OPEN",
                ReservationState::Confirmed => "CONFIRMED",
            };
            print(&self.service, &reservation, word);
            return Ok(Exit::Holds);
        }
        let all = self.service.all_pages(Client::reservations)?;
        self.service
            .print("place-reservations", &all, |paint| list(&all.items, paint));
        Ok(Exit::Holds)
    }
}

fn list(reservations: &[Reservation], paint: Paint) -> String {
    if reservations.is_empty() {
        return "no open reservations\n".to_owned();
    }
    let head = ["reservation", "tenant", "machines", "time to live", "left"];
    let mut table = Table::new(&head, &[1]);
    for reservation in reservations {
        let left = reservation.expires_in;
        table.row([
            reservation.id.to_string(),
            format!("{}/{}", reservation.owner, reservation.name),
            reservation.machines.len().to_string(),
            reservation.ttl.to_string(),
            left.map_or_else(|| NOTHING.to_owned(), |left| left.to_string()),
        ]);
    }
    table.render(paint)
}

/// Arguments of `tailbound place put`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Machines of open reservations are not counted. A tenant without any other \
    machine is deleted. Exit code: 0 done; 1 refused; 2 failed."
)]
pub(super) struct Put {
    /// The tenant's ID, name, or OWNER/NAME
    tenant: TenantName,
    /// The host
    host: String,
    /// The number of machines on the host
    #[arg(long, value_name = "N")]
    vms: u32,
    /// Remove this machine: its number, or the name of its reservation. Repeatable; the highest
    /// numbers without
    #[arg(long, value_name = "MACHINE")]
    remove: Vec<String>,
    #[command(flatten)]
    service: Service,
}

/// JSON document of a tenant that is gone.
#[derive(Debug, Serialize)]
pub(super) struct DeletedTenant {
    pub(super) id: u64,
}

impl Put {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        let id = self.tenant.id(&self.service, &client)?;
        let remove = self.remove.iter().map(|machine| match machine.parse() {
            Ok(number) => MachineRef::Number(number),
            Err(_) => MachineRef::Name(machine.clone()),
        });
        let machines = HostMachines {
            vms: self.vms,
            remove: remove.collect(),
        };
        let put = client.put_machines(id, &self.host, &machines);
        let Some(tenant) = put.map_err(|error| self.service.failure(error))? else {
            self.service
                .print("place-delete", &DeletedTenant { id: id.0 }, |paint| {
                    format!("{}  id {}\n", paint.good("DELETED"), id.0)
                });
            return Ok(Exit::Holds);
        };
        let tenant = confirmed(&client, tenant);
        self.service.print(TENANT, &tenant, |paint| {
            summary(&paint.good("PUT"), &tenant, paint)
        });
        Ok(Exit::Holds)
    }
}

/// Arguments of `tailbound place batch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file has up to 100 operations, as in the API: JSON if its name ends in .json, \
    TOML otherwise. All are made in one transaction, or none. Exit code: 0 done; 1 refused; 2 \
    failed."
)]
pub(super) struct MakeBatch {
    /// The file with the operations
    file: PathBuf,
    #[command(flatten)]
    service: Service,
}

impl MakeBatch {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let batch: Batch = read(&self.file)?;
        let result = self.service.ask(|client| client.batch(&batch))?;
        self.service
            .print("place-batch", &result, |paint| made(&result, paint));
        Ok(Exit::Holds)
    }
}

fn made(result: &BatchResult, paint: Paint) -> String {
    let mut out = format!(
        "{}  {}\n",
        paint.good("DONE"),
        count(result.tenants.len() as u64, "operation")
    );
    for tenant in result.tenants.iter().flatten() {
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "{}/{}, id {}: {}",
            tenant.owner,
            tenant.name,
            tenant.id.0,
            count(tenant.request.vms.into(), "machine")
        );
    }
    out
}

/// Arguments of `tailbound place adopt`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file has tenants with their placements, as in the API: JSON if its name ends \
    in .json, TOML otherwise. Nothing that runs is refused. Tenants that do not fit where they run \
    are listed, and `place audit` lists them later. A repetition adopts nothing twice. Exit code: 0 \
    all fit; 1 some do not fit; 2 failed."
)]
pub(super) struct Adopt {
    /// The file with the tenants
    file: PathBuf,
    #[command(flatten)]
    service: Service,
}

impl Adopt {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let adoption: Adoption = read(&self.file)?;
        let report = self.service.ask(|client| client.adopt(&adoption))?;
        self.service
            .print("place-adoption", &report, |paint| adopted(&report, paint));
        Ok(Exit::holds(report.misfits.is_empty()))
    }
}

fn adopted(report: &AdoptionReport, paint: Paint) -> String {
    let word = if report.misfits.is_empty() {
        paint.good("ADOPTED")
    } else {
        paint.bad("ADOPTED, AND NOT ALL FITS")
    };
    let mut out = format!("{word}  {}", count(report.adopted, "tenant"));
    if report.present > 0 {
        let _ = write!(out, ", and {} were there", report.present);
    }
    out.push('\n');
    for misfit in &report.misfits {
        let not = if misfit.adopted { "" } else { " (not adopted)" };
        let _ = writeln!(out, "{}{not}: {}", misfit.tenant, misfit.sentence);
    }
    out
}
