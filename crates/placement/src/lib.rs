//! Which hosts get a tenant's machines, so that every promise holds at worst.
//!
//! Read [`Request`] (what a tenant asks for) and [`Datacentre`] first:
//! [`Datacentre::fit`] finds a [`Placement`] or says which rule refused,
//! [`Datacentre::admit`] also reserves it, [`Datacentre::release`] undoes it to
//! the bit. [`Datacentre::explain`] looks for the nearest request that would
//! have passed. The tree of hosts is a [`Topology`], made of a [`Spec`].
//!
//! The rules are those of Jang et al., *Silo: Predictable Message Latency in the
//! Cloud* (SIGCOMM 2015), 4.2; the [`Policy`] chooses weaker ones to compare
//! with. All numbers are integers; nothing here has a clock, threads or I/O, and
//! a decision depends on the state alone.

mod datacentre;
mod load;
mod request;
mod topology;

pub use datacentre::{
    AdmitError, Affected, Datacentre, Explanation, Near, Overload, Placement, Refusal, Tenant,
    TenantId,
};
pub use load::{LINES, Line, Load};
pub use request::{FaultDomains, Guarantee, Policy, Request, RequestError};
pub use topology::{
    Direction, GroupSpec, HostSpec, NodeId, Port, PortId, Resources, Spec, SpecError, Spread,
    Topology, Uniform, UplinkSpec,
};
