//! Everything that can be asked of the service.

use crate::exchange::{Call, Exchange, Target, shown};
use crate::{ClientError, Guarantees, Settings, SettingsError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tailbound_api::{
    Explanation, Host, HostChange, HostGuarantees, HostState, NewTenant, Page, PairBound, Resize,
    Status, Tenant, TopologyDiff, TopologyState,
};
use tailbound_placement::{Request, Spec, TenantId};
use ureq::http::Method;

/// How many items of a list are asked for at once.
const PAGE: &str = "500";

/// Which tenants a list is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFilter {
    /// Of this owner alone.
    pub owner: Option<String>,
    /// Of this name alone.
    pub name: Option<String>,
}

/// The placement service, from outside. Clones share their connections.
///
/// Every change carries an idempotency key, made for each call and kept when it
/// is tried again, also at another replica: it is made once, however often the
/// connection is lost.
///
/// Of several replicas the next one is asked when one is away or has no leader;
/// the one that answered last is asked first.
#[derive(Debug, Clone)]
pub struct Client {
    exchange: Exchange,
}

type Answer<T> = Result<T, ClientError>;

impl Client {
    /// A client; nothing is asked yet.
    ///
    /// # Errors
    /// The address is none, or a file cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        Ok(Self {
            exchange: Exchange::new(settings)?,
        })
    }

    /// Ends what this client and its clones wait for, on whatever thread; they
    /// can be used no more.
    pub fn shutdown(&self) {
        self.exchange.shutdown();
    }

    /// Admits a tenant.
    pub fn create(&self, tenant: &NewTenant) -> Answer<Tenant> {
        self.change(Method::POST, Target::new(&["tenants"]), Some(tenant))
    }

    /// A page of tenants, in ascending order of their numbers, after the one
    /// that a page before named.
    pub fn tenants(&self, filter: &TenantFilter, after: Option<&str>) -> Answer<Page<Tenant>> {
        let target = Target::new(&["tenants"])
            .query("limit", Some(PAGE))
            .query("after", after)
            .query("owner", filter.owner.as_deref())
            .query("name", filter.name.as_deref());
        self.read(target)
    }

    /// A tenant.
    pub fn tenant(&self, id: TenantId) -> Answer<Tenant> {
        self.read(tenant(id, &[]))
    }

    /// Gives a tenant another number of machines.
    pub fn resize(&self, id: TenantId, vms: u32) -> Answer<Tenant> {
        self.change(Method::PATCH, tenant(id, &[]), Some(&Resize { vms }))
    }

    /// Takes everything away that a tenant has.
    pub fn delete(&self, id: TenantId) -> Answer<()> {
        let call = Call::change(Method::DELETE, tenant(id, &[]), None);
        self.exchange.send(&call).map(|_| ())
    }

    /// Moves a tenant's machines off hosts that are closed.
    pub fn relocate(&self, id: TenantId) -> Answer<Tenant> {
        self.change::<(), _>(Method::POST, tenant(id, &["relocate"]), None)
    }

    /// How long a frame takes at most between two machines of a tenant.
    pub fn bound(&self, id: TenantId, from: u32, to: u32) -> Answer<PairBound> {
        let target = tenant(id, &["bound"])
            .query("from", Some(&from.to_string()))
            .query("to", Some(&to.to_string()));
        self.read(target)
    }

    /// Whether a request would pass now, and where it would go.
    pub fn fit(&self, request: &Request) -> Answer<Explanation> {
        self.ask(Target::new(&["fit"]), request)
    }

    /// The same, and if not, what would.
    pub fn explain(&self, request: &Request) -> Answer<Explanation> {
        self.ask(Target::new(&["explain"]), request)
    }

    /// A page of hosts, after the one that a page before named; with a state,
    /// only those that have it.
    pub fn hosts(&self, state: Option<HostState>, after: Option<&str>) -> Answer<Page<Host>> {
        let target = Target::new(&["hosts"])
            .query("limit", Some(PAGE))
            .query("after", after)
            .query("state", state.map(HostState::word));
        self.read(target)
    }

    /// A host, what runs there and its ports.
    pub fn host(&self, name: &str) -> Answer<Host> {
        self.read(Target::new(&["hosts", name]))
    }

    /// Opens or closes a host, or all of a rack or pod.
    pub fn set_hosts(&self, node: &str, state: HostState) -> Answer<HostChange> {
        let verb = match state {
            HostState::Open => "restore",
            HostState::Drained => "drain",
            HostState::Failed => "fail",
        };
        self.change::<(), _>(Method::POST, Target::new(&["hosts", node, verb]), None)
    }

    /// What a host has to keep to.
    pub fn guarantees(&self, host: &str) -> Answer<HostGuarantees> {
        self.read(Target::new(&["hosts", host, "guarantees"]))
    }

    /// The same, as it changes. Ends with an error when nothing is heard for
    /// `silence`; the service says something every ten seconds. Once it has
    /// ended, the next call begins at the next replica.
    pub fn follow(&self, host: &str, silence: Duration) -> Answer<Guarantees> {
        let call = Call::read(Target::new(&["hosts", host, "guarantees", "stream"]));
        Guarantees::open(self.exchange.clone(), call, host, silence)
    }

    /// The data centre in force.
    pub fn topology(&self) -> Answer<TopologyState> {
        self.read(Target::new(&["topology"]))
    }

    /// What another topology would change.
    pub fn diff(&self, spec: &Spec) -> Answer<TopologyDiff> {
        self.ask(Target::new(&["topology", "diff"]), spec)
    }

    /// Puts another topology in force; with a revision, only if that is still
    /// the one in force.
    pub fn apply(&self, spec: &Spec, revision: Option<u64>) -> Answer<TopologyDiff> {
        let body = Some(json(spec));
        let call = Call::change(Method::PUT, Target::new(&["topology"]), body);
        self.answer(&call.if_match(revision))
    }

    /// The service and the data centre in short.
    pub fn status(&self) -> Answer<Status> {
        self.read(Target::new(&["status"]))
    }

    fn read<T: DeserializeOwned>(&self, target: Target) -> Answer<T> {
        self.answer(&Call::read(target))
    }

    fn ask<B: Serialize, T: DeserializeOwned>(&self, target: Target, body: &B) -> Answer<T> {
        self.answer(&Call::ask(target, json(body)))
    }

    fn change<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        target: Target,
        body: Option<&B>,
    ) -> Answer<T> {
        self.answer(&Call::change(method, target, body.map(json)))
    }

    fn answer<T: DeserializeOwned>(&self, call: &Call) -> Answer<T> {
        let (body, replica) = self.exchange.send(call)?;
        serde_json::from_slice(&body).map_err(|error| {
            let what = format!("{error} in {}", shown(&body));
            replica.unexpected(call, &what)
        })
    }
}

fn tenant(id: TenantId, rest: &[&str]) -> Target {
    let id = id.0.to_string();
    Target::new(&[&["tenants", id.as_str()], rest].concat())
}

fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("documents have strings as keys and values that serialize")
}
