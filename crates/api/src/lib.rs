//! Types of the placement service's HTTP API: requests, answers and errors.
//!
//! Use this crate to build requests or read answers, for example with the HTTP library of your
//! program. To call the service, use `client` (feature `client`), which does I/O, retries and
//! streams. The server is `tailbound-control`. Without the feature the crate has no I/O and keeps
//! no state.
//!
//! A VM or container of a tenant is a *machine* in this API. Quantities are strings with a unit
//! (`"1Gbit/s"`, `"100KB"`, `"1ms"`).

mod audit;
#[cfg(feature = "client")]
pub mod client;
mod enforcement;
mod faults;
mod hose_keys;
mod limit;
mod machines;
mod measurements;
mod message;
mod moving;
mod names;
mod problem;
mod reserved;
mod scheduling;
mod streams;
mod tokens;
mod types;

pub use audit::{AuditCaller, AuditEntry, AuditLine, AuditOutcome};
pub use enforcement::*;
pub use faults::{Fault, FaultKind, Faults};
pub use hose_keys::*;
pub use limit::{InLimit, LimitError, LimitKind, OutLimit, VmLimit};
pub use machines::{Machine, MachinePut, MachineState};
pub use measurements::*;
pub use message::MessageBound;
pub use moving::{MoveEnd, MoveStep, MoveVm, Moving};
pub use names::{NameError, VmName};
pub use problem::{Code, Problem, RefusalDetail};
pub use reserved::{PinnedHost, ReservationId, ReservationRecord, ReservedMachine};
pub use scheduling::*;
pub use streams::*;
pub use tailbound_classes::{Class, Classes, Fabric};
pub use tailbound_placement::pinned::Rule;
pub use tailbound_placement::{
    CpuReservation, CpuUse, DEFAULT_BURSTS, HostCpu, HostLimits, KEEPS_DELAY_CLASSES,
    KEEPS_INWARD_BURSTS, Lateness, TenantId, Thousandths,
};
pub use tokens::{IssuedToken, NewToken, Token, TokenRole};
pub use types::*;
