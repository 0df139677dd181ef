//! The placement service of a variant with guarantees by the service: it admits the tenants, and
//! hosts enforce its guarantees and report that they do.

use super::crew::Crew;
use crate::LabError;
use crate::bounds::Promises;
use crate::experiment::{GuaranteesBy, LabExperiment, Pacing};
use crate::place;
use crate::processes::{Rank, Ready, Start};
use crate::topology::PLACE;
use serde_json::Value;
use std::io;
use std::time::{Duration, Instant};
use tailbound_units::Nanos;

/// Interval of repeated requests.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the hosts' reports.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the pacer of a variant that uses the service.
fn pacing<'a>(crew: &Crew<'a>) -> Option<&'a Pacing> {
    let pacing = crew.experiment().pacing(crew.variant)?;
    (crew.variant.guarantees_by == GuaranteesBy::Service).then_some(pacing)
}

/// Starts the service, if this variant uses it.
pub(super) fn start(crew: &mut Crew<'_>) -> Result<(), LabError> {
    let Some(pacing) = pacing(crew) else {
        return Ok(());
    };
    let directory = crew.context.session.directory();
    let tree = place::tree(crew.experiment(), crew.variant, pacing)?;
    place::begin(directory, &tree, &crew.context.topology.hosts)?;
    let service = crew.supervisor.start(Start {
        ready: Ready::Stdout("serving on"),
        ..child(crew, "the placement service", place::serve(directory))
    })?;
    crew.supervisor.wait_ready(service)
}

/// Returns a child beside the service.
fn child(crew: &Crew<'_>, name: &str, args: Vec<String>) -> Start<'static> {
    let session = crew.context.session;
    Start {
        policy: session.policy(Rank::Load),
        ..session.start(name, PLACE, args)
    }
}

/// Requests the admission of the tenants, and waits until the hosts enforce the promises; `None` if
/// this variant does not use the service.
pub(super) fn admit(crew: &mut Crew<'_>) -> Result<Option<Promises>, LabError> {
    let (experiment, variant) = (crew.experiment(), crew.variant);
    let Some(pacing) = pacing(crew) else {
        return Ok(None);
    };
    until(crew, "hosts", "a host does not report", |hosts| {
        let mut hosts = hosts["items"].as_array().into_iter().flatten();
        hosts.all(|host| host["said"]["following"] == "follows")
    })?;
    let mut promises = Promises::new();
    for member in experiment.guarantees(variant) {
        let tenant = member.tenant.get_ref();
        let guests = experiment.tenant.get(tenant).map_or(0, Vec::len);
        let link = experiment.link_rate;
        ask(crew, &place::request(member, pacing, link, guests))?;
        let name = place::tenant(tenant);
        let get = format!("get {name}");
        let answer = until(crew, &get, "a host does not keep it", |it| {
            it["standing"]["state"] == "admitted"
        })?;
        if let Some(why) = misplaced(experiment, tenant, &answer) {
            return Err(wrong(&why));
        }
        if let Some(delay) = promised(crew, &name, &answer)? {
            promises.insert(tenant.clone(), delay);
        }
    }
    Ok(Some(promises))
}

/// Returns the service's bound of a frame's wait between two VMs of a tenant on different hosts,
/// which is the same for any two; `None` if all VMs are on one host.
fn promised(crew: &mut Crew<'_>, name: &str, tenant: &Value) -> Result<Option<Nanos>, LabError> {
    let Some((from, to)) = apart(tenant) else {
        return Ok(None);
    };
    let bound = ask(crew, &format!("bound {name} {from} {to}"))?;
    let delay = bound["promised"].as_str().map(str::parse::<Nanos>);
    delay.transpose().map_err(|error| wrong(&error.to_string()))
}

/// Returns the answer of the service.
fn ask(crew: &mut Crew<'_>, words: &str) -> Result<Value, LabError> {
    let subcommand = words.split(' ').next().unwrap_or_default();
    let args = place::ask(crew.context.session.directory(), words);
    let place = crew.supervisor.start(Start {
        ends: true,
        ..child(crew, &format!("tailbound place {subcommand}"), args)
    })?;
    let answer = crew.supervisor.finish(place)?;
    serde_json::from_str(&answer).map_err(|error| wrong(&format!("{error}: {answer:?}")))
}

/// Repeats a request until its answer satisfies `is_so`.
fn until(
    crew: &mut Crew<'_>,
    words: &str,
    otherwise: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value, LabError> {
    let end = Instant::now() + OUTCOME_TIMEOUT;
    loop {
        let answer = ask(crew, words)?;
        if is_so(&answer) {
            return Ok(answer);
        }
        if Instant::now() > end {
            return Err(wrong(&format!("{otherwise}: {answer}")));
        }
        crew.supervisor.rest(RETRY_INTERVAL)?;
    }
}

fn wrong(message: &str) -> LabError {
    LabError::io("asking the placement service")(io::Error::other(message))
}

/// Returns the hosts of a tenant's VMs in the service's answer, by the VMs' numbers.
fn machines(tenant: &Value) -> impl Iterator<Item = (u64, &str)> {
    let runs = tenant["runs"].as_array().into_iter().flatten();
    runs.flat_map(|run| {
        let host = run["host"].as_str().unwrap_or_default();
        let first = run["first"].as_u64().unwrap_or(0);
        let count = run["count"].as_u64().unwrap_or(0);
        (first..first.saturating_add(count)).map(move |number| (number, host))
    })
}

/// Returns a message if the service has placed a VM of a tenant on another host than the experiment
/// its guest.
fn misplaced(experiment: &LabExperiment, tenant: &str, placed: &Value) -> Option<String> {
    let guests = experiment.tenant.get(tenant)?;
    machines(placed).find_map(|(number, host)| {
        let guest = guests.get(usize::try_from(number).ok()?)?.get_ref();
        let wanted = experiment.host_of(guest).unwrap_or_default();
        let message =
            format!("it has machine {tenant}/{number} on {host}, and {guest} is on {wanted}");
        (host != wanted).then_some(message)
    })
}

/// Returns two VMs on different hosts.
fn apart(tenant: &Value) -> Option<(u64, u64)> {
    let (first, host) = machines(tenant).next()?;
    let other = machines(tenant).find(|(_, other)| *other != host);
    other.map(|(other, _)| (first, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::testing::{embedded, parse};
    use serde_json::json;

    #[test]
    fn a_vm_placed_on_another_host_than_its_guest_is_named() {
        let experiment = parse(&embedded("machines")).unwrap();
        let run = |first: u64, host: &str| json!({ "first": first, "count": 1, "host": host });
        let right = json!({ "runs": [run(0, "A"), run(1, "B")] });
        assert_eq!(misplaced(&experiment, "app", &right), None);
        assert_eq!(apart(&right), Some((0, 1)));
        let wrong = json!({ "runs": [{ "first": 0, "count": 2, "host": "A" }] });
        assert_eq!(
            misplaced(&experiment, "app", &wrong).unwrap(),
            "it has machine app/1 on A, and B1 is on B"
        );
        assert_eq!(apart(&wrong), None);
    }
}
