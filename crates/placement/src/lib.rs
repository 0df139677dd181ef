//! Admission of tenants: finds hosts for a tenant's machines so that every guarantee holds in the
//! worst case.
//!
//! Use this crate to decide about placements inside a program, or to explore a topology. For a
//! service with names, owners, durability and an HTTP API, use `tailbound-control`. The crate
//! enforces nothing on hosts: a pacer must hold each machine to its guarantee.
//!
//! Read [`Request`] (a tenant's request) and [`Datacentre`] first. [`Datacentre::fit`] finds a
//! [`Placement`] or returns the rule that refuses, [`Datacentre::admit`] also reserves it, and
//! [`Datacentre::release`] restores the previous state exactly. [`Datacentre::explain`] finds the
//! nearest requests that would be admitted. A [`Topology`] is built from a [`Spec`].
//!
//! The rules are those of Jang et al., *Silo: Predictable Message Latency in the Cloud* (SIGCOMM
//! 2015), 4.2; other values of [`Policy`] are weaker rules for comparison. All numbers are
//! integers. The crate has no clock, threads or I/O, and a decision depends on the state alone.
//!
//! ```
//! use tailbound_placement::{Datacentre, Policy, Request, Spec, TenantId};
//!
//! let tree = r#"
//!     frame = "1538B"
//!     [[group]]
//!     name = "rack"
//!     uplink = { rate = "40Gbit/s", buffer = "500KB" }
//!     [[host]]
//!     name = "host"
//!     group = "rack"
//!     count = 3
//!     slots = 8
//!     uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "250KB" }
//! "#;
//! let mut dc = Datacentre::new(Spec::from_toml(tree)?.build()?, Policy::Silo);
//! let request: Request = toml::from_str(
//!     r#"
//!     vms = 9
//!     guarantee = { bandwidth = "1Gbit/s", burst = "100KB", delay = "1ms", burst_rate = "10Gbit/s" }
//!     "#,
//! )?;
//! let report = dc.explain(&request)?.expect("300 KB are too small");
//! for adjustment in &report.nearest {
//!     println!("{adjustment} would pass");
//! }
//! let smaller = report.nearest[0].apply(&request);
//! dc.admit(TenantId(1), &smaller)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cpu;
mod datacentre;
mod host;
mod load;
mod pool;
mod request;
mod topology;

pub use cpu::{CpuReservation, CpuUse, Message, Thousandths};
pub use datacentre::{
    Adjustment, AdmitError, AffectedTenant, Bound, Datacentre, MoveError, Placement,
    PlacementError, PortOverload, RefusalReport, Tenant, TenantId, bound_of_class, pinned,
};
pub use host::{HostLimits, HostOffer, HostRule, Lateness};
pub use load::{AffineCurve, CURVES, Load};
pub use pool::{CpuLatency, HostCpu};
pub use request::{
    DEFAULT_BURSTS, FaultDomains, Guarantee, KEEPS_DELAY_CLASSES, KEEPS_INWARD_BURSTS, Policy,
    Request, RequestError,
};
pub use topology::{
    DelayClassError, DelayClassSpec, Diff, Difference, Direction, GroupSpec, HostSpec,
    MAX_DELAY_CLASSES, NodeDiff, NodeId, Port, PortId, Resources, Spec, SpecError, Spread,
    Topology, Uniform, UplinkSpec, diff,
};
