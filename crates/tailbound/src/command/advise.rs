//! `tailbound advise`: the least guarantee that recorded traffic needs, as text, JSON and page.

mod document;
mod page;
mod text;

use super::place::{Service, TenantName};
use super::sim::guest;
use crate::exit::{Exit, Failure};
use document::{Document, DryRun, UsageResult};
use std::path::PathBuf;
use tailbound_advise::{Advice, DEFAULT_TOPOLOGY, Fabric, Question, Verdict, advise, usage};
use tailbound_sim::replay::Guest;
use tailbound_sim::traffic::RecordedTraffic;

/// Arguments of `tailbound advise`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The advice holds as long as the traffic stays as recorded. Exit code: 0 at most \
    the allowed share of the second half of the messages was late; 1 more was late, no guarantee \
    has a place, or the service refuses it; 2 there is no answer: a recording is invalid, or has \
    faults that may make the advice wrong."
)]
pub(crate) struct Args {
    /// Captures (pcap, pcapng) or logs of flows of all machines of a tenant. A log is CSV, JSON
    /// lines or Parquet with `time_ns,guest,destination,bytes`, a row a message
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    /// The demand on messages between machines, as in "8 KB within 1 ms at 99.99 %"
    #[arg(long, value_name = "QUESTION")]
    question: Question,
    /// A machine of the tenant and its address in captures; for logs, the name alone. Repeatable
    #[arg(long = "guest", value_name = "NAME[=MAC]", value_parser = guest)]
    guests: Vec<Guest>,
    /// The number of machines of the tenant [default: those of the recordings, at least two]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    machines: Option<u32>,
    /// The topology for the price (TOML, as of `tailbound place`) [default: a pod of 1,600 slots
    /// with hosts on 10Gbit/s]
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Query whether the service would admit the best guarantee; nothing is reserved
    #[arg(long)]
    dry_run: bool,
    /// Report the part of the guarantee of this tenant of the service that the traffic used
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantName>,
    /// Write advise.json, a page and a plot into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    service: Service,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        self.check_guests()?;
        let fabric = self.fabric()?;
        let recorded =
            RecordedTraffic::read(&self.recordings, &self.guests).map_err(Failure::new)?;
        let traffic = &recorded.traffic;
        let machines = (self.machines).unwrap_or((traffic.machines().len() as u32).max(2));
        let advice = advise(traffic, self.question, machines, &fabric).map_err(|error| {
            let exit = match error {
                tailbound_advise::AdviseError::NoPlace { .. } => Exit::DoesNotHold,
                _ => Exit::CouldNotRun,
            };
            Failure::with(exit, error)
        })?;
        let document = Document {
            dry_run: self.dry_run(&advice)?,
            usage: self.usage(&recorded)?,
            ..Document::new(&self, &recorded, &advice, machines)
        };
        if let Some(directory) = &self.out {
            page::write(&document, directory)?;
        }
        (self.service).print("advise", &document, |paint| text::text(&document, paint));
        Ok(exit(&document, advice.best().judgement.verdict))
    }

    fn check_guests(&self) -> Result<(), Failure> {
        for (place, guest) in self.guests.iter().enumerate() {
            let before = &self.guests[..place];
            if before.iter().any(|before| before.name == guest.name) {
                let message = format!("machine {} is named twice", guest.name);
                return Err(Failure::wrong_arguments(message));
            }
        }
        Ok(())
    }

    fn fabric(&self) -> Result<Fabric, Failure> {
        let Some(path) = &self.topology else {
            return Ok(Fabric::from_toml(DEFAULT_TOPOLOGY).expect("a test reads it"));
        };
        let named =
            |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
        Fabric::from_toml(&text).map_err(|error| named(&error))
    }

    /// Queries whether the service would admit the best guarantee.
    fn dry_run(&self, advice: &Advice) -> Result<Option<DryRun>, Failure> {
        if !self.dry_run {
            return Ok(None);
        }
        let request = &advice.best().request;
        let answer = self.service.ask(|client| client.explain(request))?;
        Ok(Some(DryRun::new(answer)))
    }

    /// Reads the guarantee of the tenant, and compares it with the traffic.
    fn usage(&self, recorded: &RecordedTraffic) -> Result<Option<UsageResult>, Failure> {
        let Some(name) = &self.tenant else {
            return Ok(None);
        };
        let id = name.id(&self.service, &self.service.client()?)?;
        let tenant = self.service.ask(|client| client.tenant(id))?;
        let shown = format!("{}/{}", tenant.owner, tenant.name);
        let Some(guarantee) = tenant.request.guarantee else {
            return Err(Failure::new(format!("tenant {shown} has no guarantee")));
        };
        let guarantee_use = usage(&recorded.traffic, guarantee.bandwidth, guarantee.burst);
        Ok(Some(UsageResult::new(
            shown,
            &guarantee,
            &recorded.traffic,
            &guarantee_use,
        )))
    }
}

/// Returns the exit code of a document.
fn exit(document: &Document, verdict: Verdict) -> Exit {
    if document.faults.iter().any(|fault| fault.decisive) {
        return Exit::CouldNotRun;
    }
    let admitted = document.dry_run.as_ref().is_none_or(|dry_run| dry_run.fits);
    Exit::holds(verdict != Verdict::Missed && admitted)
}
