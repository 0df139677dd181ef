//! `tailbound adopt --control URL`: brings the guarantees of the placement service into force for
//! adopted guests that are its machines, and reports what this host keeps.
//!
//! The rules stay in the kernel while this process or the service is away. The report has the
//! lateness J of this host: the service admits nothing here until it is known, or if it is above the
//! topology's.

mod exchange;
mod told;

use super::{Carrier, Places};
use crate::exit::{Exit, Failure};
use exchange::RateExchange;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tailbound_adopt::live::Live;
use tailbound_adopt::{
    Action, Attached, Entry, FileJournal, Host as _, Journal as _, LONGEST_PACKET, Request,
    Selection, lateness, plan,
};
use tailbound_api::client::{Client, Settings};
use tailbound_api::{HostGuarantees, HostReport};
use tailbound_host::hose::read_section;
use tailbound_sys::edge::Lateness;
use tailbound_units::{Bytes, Rate};
use told::{AdoptedVm, Situation};

/// The time between two questions for guarantees.
const QUESTION: Duration = Duration::from_secs(2);
/// The longest time between two reports: after 30 s without one a host is silent.
const REPORT: Duration = Duration::from_secs(10);
/// The longest time until a signal is noticed.
const TICK: Duration = Duration::from_millis(200);
/// The longest wait for another process that has the journal.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The placement service whose guarantees adopted guests get.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Guarantees")]
#[group(requires = "control")]
pub(super) struct Control {
    /// Follow the guarantees of the placement service at this URL for guests that are adopted with
    /// --vm, and report to it, until SIGTERM; SIGHUP measures the lateness anew; for several replicas, all URLs, separated by commas
    #[arg(
        long = "control",
        id = "control",
        value_name = "URL",
        required = false,
        requires = "link",
        conflicts_with_all = ["guests", "all", "again", "policy", "list", "rules", "named", "dry_run", "output"]
    )]
    url: String,
    /// The name of this host at the service [default: the host name]
    #[arg(long = "control-host", value_name = "NAME")]
    host: Option<String>,
    /// The file with this host's token
    #[arg(long = "control-token-file", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificate authorities (PEM) to trust for the service [default: the public ones]
    #[arg(long = "control-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The rate of this host's uplink
    #[arg(long, id = "link", value_name = "RATE", required = false)]
    link: Rate,
    /// Limit guests by destination to the rates that this host exchanges with those in the section `hose` of
    /// FILE, as `tailbound host` does
    #[arg(long, value_name = "FILE")]
    hose: Option<PathBuf>,
}

pub(super) fn run(
    places: &Places,
    control: &Control,
    packet: Option<Bytes>,
) -> Result<Exit, Failure> {
    let [ends, forgets] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    flag::register(SIGHUP, Arc::clone(&forgets))?;
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, Arc::clone(&ends))?;
    }
    // A wrong file is reported first: its mistakes do not depend on this kernel.
    let section = control.hose.as_deref().map(read_section).transpose()?;
    let mut live = places.live();
    if let Some(lack) = live.lack(true) {
        return Err(Failure::new(lack));
    }
    let here = || {
        let name = rustix::system::uname();
        name.nodename().to_string_lossy().into_owned()
    };
    let settings = Settings {
        token_file: control.token_file.clone(),
        ca_file: control.ca.clone(),
        patience: Duration::ZERO,
        timeout: REPORT,
        ..Settings::new(control.url.clone())
    };
    let host = control.host.clone().unwrap_or_else(here);
    let mut follower = Follower {
        places,
        rates: RateExchange::new(places, section, &settings, &host)?,
        warm: warm(places, &mut live)?,
        live,
        link: control.link,
        packet: packet.unwrap_or(LONGEST_PACKET),
        host,
        settings,
        failures: BTreeMap::new(),
        last: None,
        is_away: false,
    };
    let mut next = Instant::now();
    while !ends.load(Ordering::Relaxed) {
        if forgets.swap(false, Ordering::Relaxed) {
            follower.warm = warm_up(places, &mut places.live())?;
        }
        if Instant::now() >= next {
            follower.turn();
            next = Instant::now() + QUESTION;
        }
        std::thread::sleep(TICK);
    }
    Ok(Exit::Holds)
}

/// Returns the lateness of a host that was warmed up, unless enough frames of guests were counted.
fn warm(places: &Places, live: &mut Live) -> Result<Option<Lateness>, Failure> {
    let counted = live.lateness()?;
    if counted.is_some_and(|it| it.frames() >= lateness::WARM) {
        return Ok(None);
    }
    warm_up(places, live)
}

fn warm_up(places: &Places, live: &mut Live) -> Result<Option<Lateness>, Failure> {
    // No other process removes the programs meanwhile.
    let _journal = FileJournal::open_within(&places.state, MAX_WAIT)?;
    let warm = live.warm_up()?;
    match &warm {
        Some(warm) => tracing::info!(
            "warm: {} frames left at most {} late",
            warm.frames(),
            warm.max
        ),
        None => {
            tracing::warn!("this kernel does not measure lateness: no guarantee is admitted here");
        }
    }
    Ok(warm)
}

struct Follower<'f> {
    places: &'f Places,
    rates: RateExchange,
    live: Live,
    /// The lateness while the host was warmed up.
    warm: Option<Lateness>,
    link: Rate,
    /// The longest packet of guests of the service.
    packet: Bytes,
    host: String,
    settings: Settings,
    /// The reason by VM why its guarantee is not in force.
    failures: BTreeMap<String, String>,
    last: Option<(Instant, HostReport)>,
    /// True if the service did not answer the last time.
    is_away: bool,
}

impl Follower<'_> {
    /// Queries guarantees, brings them into force, and reports.
    fn turn(&mut self) {
        match self.follow() {
            Ok(()) => self.is_away = false,
            Err(error) if !self.is_away => {
                self.is_away = true;
                tracing::warn!("{}; the rules in force stay", error.message());
            }
            Err(_) => {}
        }
    }

    fn follow(&mut self) -> Result<(), Failure> {
        // Another process may have removed the programs that were open, and loaded others.
        self.live = self.places.live();
        // A new client each time: the files with the token and the CA may have changed.
        let client = Client::new(&self.settings)?;
        let guarantees = client.guarantees(&self.host)?;
        self.enforce(&guarantees)?;
        let situation = self.situation(&guarantees)?;
        let (report, guests) = (situation.report(), situation.exchanging());
        self.rates.set_guests(guests);
        let is_new = self
            .last
            .as_ref()
            .is_none_or(|(at, last)| *last != report || at.elapsed() >= REPORT);
        if is_new {
            client.report(&self.host, &report)?;
            self.last = Some((Instant::now(), report));
        }
        Ok(())
    }

    /// Adopts guests again whose guarantee differs from the service's.
    fn enforce(&mut self, guarantees: &HostGuarantees) -> Result<(), Failure> {
        self.failures.clear();
        let entries = self.places.preview().entries()?;
        for (entry, request) in told::orders(guarantees, &entries, self.packet) {
            let vm = request.vm.clone().unwrap_or_default();
            match self.adopt(entry, &request) {
                Ok(()) => tracing::info!(guest = entry.name, vm, "its guarantee is in force"),
                Err(error) => {
                    let why = error.message().to_owned();
                    tracing::warn!(guest = entry.name, vm, "{why}");
                    self.failures.insert(vm, why);
                }
            }
        }
        Ok(())
    }

    fn adopt(&mut self, entry: &Entry, request: &Request) -> Result<(), Failure> {
        let mut journal = FileJournal::open_within(&self.places.state, MAX_WAIT)?;
        let world = self.live.world(request)?;
        let selection = Selection::Patterns(vec![entry.key.clone()]);
        for mut planned in plan(&world, &selection, request, &journal.entries()?)? {
            if let Ok(planned) = &mut planned.entry {
                planned.origin = entry.origin.clone();
            }
            let planned = planned
                .entry
                .map_err(|refusal| Failure::new(refusal.to_string()))?;
            let mut carrier = Carrier {
                world: &world,
                host: &mut self.live,
                journal: &mut journal,
                is_dry: false,
            };
            let ready = carrier.host.make_ready(&planned.request);
            ready.map_err(|why| Failure::new(why.to_string()))?;
            carrier.adopt(&planned, &mut Vec::new())?;
        }
        Ok(())
    }

    fn situation<'s>(
        &'s mut self,
        guarantees: &'s HostGuarantees,
    ) -> Result<Situation<'s>, Failure> {
        let here = Live::here()?;
        let mut adopted = Vec::new();
        for entry in self.places.preview().entries()? {
            let mut is_in_force = here.boot == entry.boot && here.namespace == entry.namespace;
            let steps = entry.steps.iter();
            for step in steps.filter(|step| matches!(step.action, Action::Guest { .. })) {
                let port = self.live.port(step.port.index)?;
                is_in_force &= port.is_some_and(|port| port.attached == Some(Attached::Guest));
            }
            adopted.push(AdoptedVm::of(&entry, is_in_force));
        }
        let counted = self.live.lateness()?;
        Ok(Situation {
            said: guarantees,
            adopted,
            failures: &self.failures,
            lateness: told::both(self.warm.clone(), counted),
            link: self.link,
            packet: self.packet,
            exchanges: self.rates.is_configured(),
        })
    }
}
