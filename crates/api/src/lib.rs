//! The types of the placement service's HTTP API: requests, answers and errors.
//!
//! Nothing here does I/O. `tailbound-client` sends and receives these types, and
//! `tailbound-control` answers with them.

mod limit;
mod measured;
mod message;
mod moving;
mod names;
mod standing;
mod types;

pub use limit::{InLimit, LimitError, LimitKind, OutLimit, VmLimit};
pub use measured::*;
pub use message::MessageBound;
pub use moving::{MoveEnd, MoveStep, MoveVm, Moving};
pub use names::{NameError, VmName};
pub use standing::*;
pub use tailbound_classes::{Classes, Fabric};
pub use tailbound_placement::{CpuReservation, CpuUse, HostCpu, HostLimits, TenantId, Thousandths};
pub use types::*;
