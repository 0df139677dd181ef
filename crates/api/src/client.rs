//! A blocking client of the placement service (feature `client`).
//!
//! Use it in programs that admit, list or delete tenants, or that follow a host's guarantees.
//! [`Client`] has one method for each operation of the API; it repeats requests with their
//! idempotency key and tries further replicas. [`HostStream`] is the stream of a host's guarantees,
//! and [`Changes`] are those of tenants' states, tenants, hosts and the audit.
//!
//! All calls block. An asynchronous program calls them on a separate thread, or uses the types of
//! this crate with its own HTTP client.

mod backoff;
mod documents;
mod error;
mod exchange;
mod lines;
mod machines;
mod random;
mod stream;
mod tokens;

pub use backoff::Backoff;
pub use error::{ClientError, SettingsError, UnreachableReplica};
pub use exchange::Settings;
pub use random::random;
pub use stream::{Change, Changes, HostStream};
pub use tokens::{issue_token, revoke_token, tokens};

use crate::{
    Adoption, AdoptionReport, AuditEntry, Batch, BatchResult, CandidateAnswers, CandidateQuestions,
    Explanation, Faults, HoseKeys, Host, HostChange, HostGuarantees, HostLine, HostMachines,
    HostReport, HostState, MoveVm, NewReservation, NewTenant, Page, PairBound, Reservation,
    ReservationId, Status, Tenant, TenantPatch, TenantState, TopologyDiff, TopologyState, VmLimit,
};
use documents::json;
use exchange::{Call, Exchange, Target, shown};
use std::time::Duration;
use tailbound_placement::{Request, Spec, TenantId};
use ureq::http::Method;

/// The number of items of one page of a list.
const PAGE: &str = "500";

/// Selects the tenants of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFilter {
    /// Owner of the tenants; all owners without.
    pub owner: Option<String>,
    /// Name of the tenants; all names without.
    pub name: Option<String>,
    /// State of the tenants; all states without.
    pub state: Option<TenantState>,
}

/// A blocking client of the placement service. Clones share their connections.
///
/// Every change carries an idempotency key that is made for each call and kept for every attempt,
/// also at another replica: the change is made once, however often the connection is lost.
///
/// If a replica is away or knows no leader, the next one is asked. The replica that answered last
/// is asked first.
#[derive(Debug, Clone)]
pub struct Client {
    exchange: Exchange,
}

type Answer<T> = Result<T, ClientError>;

impl Client {
    /// Makes a client and sends nothing yet.
    ///
    /// # Errors
    /// The address is not a URL of a service, or a file cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        Ok(Self {
            exchange: Exchange::new(settings)?,
        })
    }

    /// Ends the requests of this client and its clones on all threads. The client and its clones
    /// cannot be used any more.
    pub fn shutdown(&self) {
        self.exchange.shutdown();
    }

    /// Admits a tenant.
    pub fn create(&self, tenant: &NewTenant) -> Answer<Tenant> {
        self.exchange
            .change(Method::POST, Target::new(&["tenants"]), Some(tenant))
    }

    /// Returns a page of tenants in ascending order of their numbers, beginning behind `after`,
    /// which is the `next` of the page before.
    pub fn tenants(&self, filter: &TenantFilter, after: Option<&str>) -> Answer<Page<Tenant>> {
        let target = Target::new(&["tenants"])
            .query("limit", Some(PAGE))
            .query("after", after)
            .query("owner", filter.owner.as_deref())
            .query("name", filter.name.as_deref())
            .query("state", filter.state.map(TenantState::word));
        self.exchange.read(target)
    }

    /// Returns a tenant.
    pub fn tenant(&self, id: TenantId) -> Answer<Tenant> {
        self.exchange.read(tenant(id, &[]))
    }

    /// Changes the number of a tenant's machines.
    pub fn resize(&self, id: TenantId, vms: u32) -> Answer<Tenant> {
        let patch = TenantPatch {
            vms: Some(vms),
            guarantee: None,
        };
        self.exchange
            .change(Method::PATCH, tenant(id, &[]), Some(&patch))
    }

    /// Changes a tenant whose last change is `expected`.
    pub fn patch(&self, id: TenantId, patch: &TenantPatch, expected: u64) -> Answer<Tenant> {
        let call = Call::change(Method::PATCH, tenant(id, &[]), Some(json(patch)));
        self.exchange.answer(&call.if_match(Some(expected)))
    }

    /// Deletes a tenant.
    pub fn delete(&self, id: TenantId) -> Answer<()> {
        let call = Call::change(Method::DELETE, tenant(id, &[]), None);
        self.exchange.send(&call).map(|_| ())
    }

    /// Moves a tenant's machines off hosts that are closed.
    pub fn relocate(&self, id: TenantId) -> Answer<Tenant> {
        self.exchange
            .change::<(), _>(Method::POST, tenant(id, &["relocate"]), None)
    }

    /// Moves a machine of a tenant to another host, or ends the move.
    pub fn move_vm(&self, id: TenantId, step: &MoveVm) -> Answer<Tenant> {
        self.exchange
            .change(Method::POST, tenant(id, &["move"]), Some(step))
    }

    /// Limits what each machine of a tenant may send and be sent.
    pub fn limit(&self, id: TenantId, limit: &VmLimit) -> Answer<Tenant> {
        self.exchange
            .change(Method::POST, tenant(id, &["limit"]), Some(limit))
    }

    /// Returns how long a frame takes at most between two machines of a tenant.
    pub fn bound(&self, id: TenantId, from: u32, to: u32) -> Answer<PairBound> {
        let target = tenant(id, &["bound"])
            .query("from", Some(&from.to_string()))
            .query("to", Some(&to.to_string()));
        self.exchange.read(target)
    }

    /// Sets the number of a tenant's machines on a host. Returns None if the tenant had no other
    /// machine and is deleted.
    pub fn put_machines(
        &self,
        id: TenantId,
        host: &str,
        machines: &HostMachines,
    ) -> Answer<Option<Tenant>> {
        let target = tenant(id, &["hosts", host]);
        let call = Call::change(Method::PUT, target, Some(json(machines)));
        let (body, replica) = self.exchange.send(&call)?;
        if body.is_empty() {
            return Ok(None);
        }
        let read = serde_json::from_slice(&body).map(Some);
        read.map_err(|error| {
            let what = format!("{error} in {}", shown(&body));
            replica.unexpected(&call, &what)
        })
    }

    /// Returns the verdicts on hosts for more machines.
    pub fn candidates(&self, questions: &CandidateQuestions) -> Answer<CandidateAnswers> {
        self.exchange.ask(Target::new(&["candidates"]), questions)
    }

    /// Reserves machines on hosts for a time to live.
    pub fn reserve(&self, new: &NewReservation) -> Answer<Reservation> {
        self.exchange
            .change(Method::POST, Target::new(&["reservations"]), Some(new))
    }

    /// Returns a page of open reservations, beginning behind `after`.
    pub fn reservations(&self, after: Option<&str>) -> Answer<Page<Reservation>> {
        let target = Target::new(&["reservations"])
            .query("limit", Some(PAGE))
            .query("after", after);
        self.exchange.read(target)
    }

    /// Returns a reservation.
    pub fn reservation(&self, id: ReservationId) -> Answer<Reservation> {
        self.exchange.read(reservation(id, &[]))
    }

    /// Makes the machines of a reservation part of its tenant.
    pub fn confirm(&self, id: ReservationId) -> Answer<Reservation> {
        self.exchange
            .change::<(), _>(Method::POST, reservation(id, &["confirm"]), None)
    }

    /// Cancels a reservation.
    pub fn cancel(&self, id: ReservationId) -> Answer<()> {
        let call = Call::change(Method::DELETE, reservation(id, &[]), None);
        self.exchange.send(&call).map(|_| ())
    }

    /// Makes all of some changes, or none.
    pub fn batch(&self, batch: &Batch) -> Answer<BatchResult> {
        self.exchange
            .change(Method::POST, Target::new(&["batch"]), Some(batch))
    }

    /// Records tenants whose machines run already.
    pub fn adopt(&self, adoption: &Adoption) -> Answer<AdoptionReport> {
        self.exchange
            .change(Method::POST, Target::new(&["adopt"]), Some(adoption))
    }

    /// Returns whether a request would be admitted now, and where its machines would go.
    pub fn fit(&self, request: &Request) -> Answer<Explanation> {
        self.exchange.ask(Target::new(&["fit"]), request)
    }

    /// Returns the same, and if it would be refused, which requests would be admitted.
    pub fn explain(&self, request: &Request) -> Answer<Explanation> {
        self.exchange.ask(Target::new(&["explain"]), request)
    }

    /// Returns a page of hosts, beginning behind `after`; only those in `state` if it is given.
    pub fn hosts(&self, state: Option<HostState>, after: Option<&str>) -> Answer<Page<Host>> {
        let target = Target::new(&["hosts"])
            .query("limit", Some(PAGE))
            .query("after", after)
            .query("state", state.map(HostState::word));
        self.exchange.read(target)
    }

    /// Returns a host, its machines and its ports.
    pub fn host(&self, name: &str) -> Answer<Host> {
        self.exchange.read(Target::new(&["hosts", name]))
    }

    /// Opens or closes a host, or all of a rack or pod.
    pub fn set_hosts(&self, node: &str, state: HostState) -> Answer<HostChange> {
        let verb = match state {
            HostState::Open => "restore",
            HostState::Drained => "drain",
            HostState::Failed => "fail",
        };
        self.exchange
            .change::<(), _>(Method::POST, Target::new(&["hosts", node, verb]), None)
    }

    /// Returns the guarantees of a host's machines.
    pub fn guarantees(&self, host: &str) -> Answer<HostGuarantees> {
        self.exchange
            .read(Target::new(&["hosts", host, "guarantees"]))
    }

    /// Returns a stream of the same as it changes. It ends with an error when nothing is received
    /// for `silence`; the service sends a line every ten seconds. After its end the next call
    /// begins at the next replica.
    pub fn follow(&self, host: &str, silence: Duration) -> Answer<HostStream<HostGuarantees>> {
        let call = Call::read(Target::new(&["hosts", host, "guarantees", "stream"]));
        HostStream::open(self.exchange.clone(), call, host, silence)
    }

    /// Returns the same stream for the host itself. With a `mark` it also has the changes of the
    /// host's keys since that mark.
    pub fn follow_host(
        &self,
        host: &str,
        mark: Option<&str>,
        silence: Duration,
    ) -> Answer<HostStream<HostLine>> {
        let call = Call::read(Target::new(&["hosts", host, "guarantees", "stream"]));
        HostStream::open(self.exchange.clone(), call.keys(mark), host, silence)
    }

    /// Reports a host's capacity for guarantees, and the guarantees that it follows.
    pub fn report(&self, host: &str, report: &HostReport) -> Answer<()> {
        let call = Call::ask(Target::new(&["hosts", host, "report"]), json(report));
        self.exchange.send(&call.timed()).map(|_| ())
    }

    /// Returns a stream of changes from now on, or after `since`. It ends as that of
    /// [`Self::follow`] does.
    ///
    /// # Errors
    /// Among others the problem [`Code::Expired`](crate::Code::Expired): the service has forgotten
    /// changes after `since`.
    pub fn changes<T: Change>(&self, since: Option<u64>, silence: Duration) -> Answer<Changes<T>> {
        let since = since.map(|since| since.to_string());
        let target = Target::new(T::PATH).query("since", since.as_deref());
        Changes::open(self.exchange.clone(), Call::read(target), silence)
    }

    /// Returns the keys with which a host signs its messages about rates to other hosts. There are
    /// no epochs in the answer if the host has the keys of this mark.
    pub fn hose_keys(&self, host: &str, mark: &str) -> Answer<HoseKeys> {
        let call = Call::read(Target::new(&["hosts", host, "hose-keys"]));
        self.exchange.answer(&call.keys(Some(mark)))
    }

    /// Returns the topology in force.
    pub fn topology(&self) -> Answer<TopologyState> {
        self.exchange.read(Target::new(&["topology"]))
    }

    /// Returns what another topology would change.
    pub fn diff(&self, spec: &Spec) -> Answer<TopologyDiff> {
        self.exchange.ask(Target::new(&["topology", "diff"]), spec)
    }

    /// Replaces the topology; with a revision, only if that is still the one in force.
    pub fn apply(&self, spec: &Spec, revision: Option<u64>) -> Answer<TopologyDiff> {
        let body = Some(json(spec));
        let call = Call::change(Method::PUT, Target::new(&["topology"]), body);
        self.exchange.answer(&call.if_match(revision))
    }

    /// Returns a summary of the service and the data centre.
    pub fn status(&self) -> Answer<Status> {
        self.exchange.read(Target::new(&["status"]))
    }

    /// Returns a backup of all that the service keeps, as text.
    pub fn backup(&self) -> Answer<String> {
        let call = Call::read(Target::new(&["backup"]));
        let (body, replica) = self.exchange.send(&call)?;
        String::from_utf8(body).map_err(|error| replica.unexpected(&call, &error.to_string()))
    }
}

/// Returns the faults that the service knows of.
///
/// # Errors
/// Among others the problem [`Code::Forbidden`](crate::Code::Forbidden): the token is a tenant's or a
/// host's.
pub fn faults(client: &Client) -> Answer<Faults> {
    client.exchange.read(Target::new(&["faults"]))
}

/// Returns a page of the audit: entries with numbers above `since`, or the oldest ones.
///
/// # Errors
/// Among others the problem [`Code::Expired`](crate::Code::Expired): the service has forgotten the
/// next entry.
pub fn audit(client: &Client, since: Option<u64>) -> Answer<Page<AuditEntry>> {
    let since = since.map(|since| since.to_string());
    let target = Target::new(&["audit"])
        .query("limit", Some(PAGE))
        .query("since", since.as_deref());
    client.exchange.read(target)
}

fn tenant(id: TenantId, rest: &[&str]) -> Target {
    let id = id.0.to_string();
    Target::new(&[&["tenants", id.as_str()], rest].concat())
}

fn reservation(id: ReservationId, rest: &[&str]) -> Target {
    let id = id.to_string();
    Target::new(&[&["reservations", id.as_str()], rest].concat())
}
