//! `tailbound place status`: one screen of the service, its replicas and all known faults.

use super::request::count;
use super::service::Service;
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};
use tailbound_api::client::{Client, ClientError, faults};
use tailbound_api::{Code, Fault, Faults, Role};
use tailbound_control::server::Expiry;
use tailbound_placement::Policy;
use tailbound_report::{Paint, Table};

/// The largest difference in seconds of two computers' clocks that is no fault.
const CLOCKS: u64 = 5;

/// Arguments of `tailbound place status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows each replica of --url, and all faults with their begin, the first names and \
    the reason. A tenant's token gets no faults."
)]
pub(super) struct Status {
    #[command(flatten)]
    service: Service,
}

/// JSON document of `--output json`: the API's, except that `version` is this program's in every
/// document.
#[derive(Debug, Serialize)]
struct Document<'s> {
    service_version: &'s str,
    role: Role,
    leader: Option<&'s str>,
    revision: u64,
    policy: Policy,
    #[serde(flatten)]
    totals: Totals,
    #[serde(flatten)]
    health: &'s Health,
}

#[derive(Debug, Serialize)]
struct Totals {
    tenants: u64,
    pending: u64,
    degraded: u64,
    hosts: u64,
    open_hosts: u64,
    slots: u64,
    used: u64,
}

/// A replica of the service, as it answers.
#[derive(Debug, Serialize)]
struct Replica {
    url: String,
    role: Option<Role>,
    version: Option<String>,
    revision: Option<u64>,
    /// The reason why it does not answer.
    error: Option<String>,
    /// The difference between its clock and this computer's, in seconds.
    #[serde(skip)]
    clock: Option<u64>,
}

/// The state of the replicas, and all faults.
#[derive(Debug, Serialize)]
struct Health {
    /// The replicas; none if there is one address.
    replicas: Vec<Replica>,
    /// The faults of the answering replica; `None` if the token may not read them.
    faults: Option<Vec<Fault>>,
    /// Faults that the replicas' answers show.
    differences: Vec<Difference>,
}

/// A fault that a comparison of the replicas shows.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    kind: &'static str,
    names: Vec<String>,
    why: String,
}

impl Status {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let status = self.service.ask(Client::status)?;
        let all = self.service.ask(|client| match faults(client) {
            Ok(Faults { faults, .. }) => Ok(Some(faults)),
            Err(ClientError::Problem(problem)) if problem.code == Code::Forbidden => Ok(None),
            // A service of an earlier version.
            Err(ClientError::Problem(problem)) if problem.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        })?;
        let replicas = self.service.replicas()?;
        let replicas = replicas.into_iter();
        let replicas: Vec<_> = replicas
            .map(|(url, client)| examine(url, &client))
            .collect();
        let health = Health {
            differences: differences(&replicas),
            replicas,
            faults: all,
        };
        let document = Document {
            service_version: &status.version,
            role: status.role,
            leader: status.leader.as_deref(),
            revision: status.revision,
            policy: status.policy,
            totals: Totals {
                tenants: status.tenants,
                pending: status.pending,
                degraded: status.degraded,
                hosts: status.hosts,
                open_hosts: status.open_hosts,
                slots: status.slots,
                used: status.used,
            },
            health: &health,
        };
        self.service.print("place-status", &document, |paint| {
            text(&status) + &health.text(paint)
        });
        Ok(Exit::Holds)
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Queries one replica.
fn examine(url: String, client: &Client) -> Replica {
    match client.status() {
        Ok(status) => Replica {
            url,
            role: Some(status.role),
            version: Some(status.version),
            revision: Some(status.revision),
            error: None,
            clock: faults(client).ok().map(|it| it.time.abs_diff(now())),
        },
        Err(error) => Replica {
            url,
            role: None,
            version: None,
            revision: None,
            error: Some(error.to_string()),
            clock: None,
        },
    }
}

/// Returns the faults that a comparison of the replicas shows.
fn differences(replicas: &[Replica]) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut add = |kind, names: Vec<&Replica>, why: String| {
        if !names.is_empty() {
            let names = names.iter().map(|it| it.url.clone()).collect();
            differences.push(Difference { kind, names, why });
        }
    };
    let away: Vec<_> = replicas.iter().filter(|it| it.error.is_some()).collect();
    let why = away.first().and_then(|it| it.error.clone());
    add("replica-away", away, why.unwrap_or_default());
    let first = replicas.iter().find_map(|it| it.version.as_ref());
    let others = |it: &&Replica| it.version.is_some() && it.version.as_ref() != first;
    let others: Vec<_> = replicas.iter().filter(others).collect();
    let why = others.first().and_then(|it| it.version.as_ref()).zip(first);
    let why = why.map(|(other, first)| format!("version {other}, and others have {first}"));
    add("versions-differ", others, why.unwrap_or_default());
    let late = |it: &&Replica| it.clock.is_some_and(|clock| clock > CLOCKS);
    let late: Vec<_> = replicas.iter().filter(late).collect();
    let why = late.first().and_then(|it| it.clock);
    let why = why.map(|clock| format!("its clock differs from this computer's by {clock} s"));
    add("clock-differs", late, why.unwrap_or_default());
    let leaders: Vec<_> = replicas
        .iter()
        .filter(|it| it.role == Some(Role::Leader))
        .collect();
    if leaders.len() > 1 {
        add(
            "several-leaders",
            leaders,
            "each replica uses a store of its own".to_owned(),
        );
    }
    differences
}

impl Health {
    fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        if self.replicas.len() > 1 {
            let mut table = Table::new(&["replica", "role", "version", "revision"], &[3]);
            for replica in &self.replicas {
                let role = match replica.role {
                    Some(Role::Leader) => "leader".to_owned(),
                    Some(Role::Follower) => "follower".to_owned(),
                    None => paint.bad("away"),
                };
                let version = replica.version.as_deref().unwrap_or("-");
                let revision = replica
                    .revision
                    .map_or_else(|| "-".to_owned(), |it| it.to_string());
                table.row([replica.url.as_str(), &role, version, &revision]);
            }
            let _ = write!(text, "\n{}", table.render(paint));
        }
        let known = self.faults.iter().flatten();
        let mut table = Table::new(&["fault", "since", "number", "names", "why"], &[2]);
        let mut rows = 0;
        for fault in known {
            rows += 1;
            let more = fault.count - (fault.names.len() as u64).min(fault.count);
            let mut names = fault.names.join(", ");
            if more > 0 {
                let _ = write!(names, ", and {more} more");
            }
            table.row([
                paint.bad(fault.kind.word()),
                Expiry::at(fault.since).to_string(),
                fault.count.to_string(),
                names,
                fault.why.clone(),
            ]);
        }
        for difference in &self.differences {
            rows += 1;
            table.row([
                paint.bad(difference.kind),
                "-".to_owned(),
                difference.names.len().to_string(),
                difference.names.join(", "),
                difference.why.clone(),
            ]);
        }
        match (rows, &self.faults) {
            (0, Some(_)) => text + "no faults\n",
            (0, None) => text,
            _ => format!("{text}\n{}", table.render(paint)),
        }
    }
}

fn text(status: &tailbound_api::Status) -> String {
    let role = match (status.role, &status.leader) {
        (Role::Leader, _) => "the leader".to_owned(),
        (Role::Follower, Some(leader)) => format!("a follower of {leader}"),
        (Role::Follower, None) => "a follower that knows of no leader".to_owned(),
    };
    let tenths = (u128::from(status.used) * 1_000)
        .checked_div(u128::from(status.slots))
        .unwrap_or_default();
    format!(
        "tailbound {}, {role}, revision {}, policy {}\n{}, {} pending, {} degraded; {} of {} slots \
         used ({}.{}%), {} of {} hosts open\n",
        status.version,
        status.revision,
        status.policy.name(),
        count(status.tenants, "tenant"),
        status.pending,
        status.degraded,
        status.used,
        status.slots,
        tenths / 10,
        tenths % 10,
        status.open_hosts,
        status.hosts,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_api::FaultKind;

    fn replica(url: &str, role: Role, version: &str, clock: u64) -> Replica {
        Replica {
            url: url.to_owned(),
            role: Some(role),
            version: Some(version.to_owned()),
            revision: Some(7),
            error: None,
            clock: Some(clock),
        }
    }

    #[test]
    fn a_difference_of_replicas_is_named_and_equal_ones_have_none() {
        use Role::{Follower, Leader};
        let good = || vec![replica("a", Leader, "1", 0), replica("b", Follower, "1", 5)];
        assert_eq!(differences(&good()), []);
        let away = Replica {
            role: None,
            version: None,
            error: Some("no answer".to_owned()),
            ..replica("c", Follower, "1", 0)
        };
        for (kind, other) in [
            ("versions-differ", replica("c", Follower, "2", 0)),
            ("clock-differs", replica("c", Follower, "1", 60)),
            ("replica-away", away),
        ] {
            let mut all = good();
            all.push(other);
            let found = differences(&all);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].kind, &*found[0].names),
                (kind, &["c".to_owned()][..])
            );
        }
        let mut all = good();
        all.push(replica("c", Leader, "1", 0));
        assert_eq!(differences(&all)[0].kind, "several-leaders");
    }

    #[test]
    fn a_screen_has_each_fault_with_its_begin_names_and_reason() {
        let fault = Fault {
            kind: FaultKind::HostsSilent,
            count: 7,
            names: vec!["a-1".to_owned(), "a-2".to_owned()],
            since: 1_796_009_405,
            why: "it is silent".to_owned(),
        };
        let mut health = Health {
            replicas: Vec::new(),
            faults: Some(vec![fault]),
            differences: Vec::new(),
        };
        let text = health.text(Paint(false));
        for part in [
            "hosts-silent",
            "2026-11-30T03:30:05Z",
            "7",
            "a-1, a-2, and 5 more",
            "it is silent",
        ] {
            assert!(text.contains(part), "{text}");
        }
        health.faults = Some(Vec::new());
        assert_eq!(health.text(Paint(false)), "no faults\n");
        health.faults = None;
        assert_eq!(health.text(Paint(false)), "");
    }
}
