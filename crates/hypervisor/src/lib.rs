//! Models of hypervisors' schedulers: which vCPU gets a pCPU, and when.
//!
//! Read [`Scheduler`] first: the policy alone, cut as Xen cuts it. [`Machine`]
//! runs vCPUs on pCPUs under a policy; it owns time and can be stepped from
//! outside, next to a model of packets. [`Simulation`] puts a [`Workload`] on
//! each vCPU and reports latencies. [`credit`] is Xen's credit scheduler with
//! its rules from 3.3 to 4.17. [`sched_deadline`] is Linux's, and [`reservation`] says what one
//! of its reservations is worth.
//!
//! Everything is virtual time in whole nanoseconds; random numbers come from
//! one seed. Two runs of the same input give the same bytes on every machine.

pub mod credit;
pub mod credit2;
pub mod edf;
pub mod eevdf;
#[cfg(test)]
mod exact;
mod guests;
mod host;
mod ids;
mod machine;
pub mod netif;
mod random;
pub mod reservation;
pub mod rtds;
pub mod sched_deadline;
mod scheduler;
mod simulation;
#[cfg(test)]
mod testing;
mod timers;
mod workload;

pub use credit::{Credit, CreditConfig, XenVersion};
pub use credit2::{Credit2, Credit2Config};
pub use edf::{DomainClass, EdfConfig, EdfCredit, EdfError};
pub use eevdf::{Eevdf, EevdfConfig, EevdfError};
pub use guests::{Guests, Happening, SimulationConfig};
pub use host::{DEFAULT_WEIGHT, Domain, Host, HostError, Vcpu};
pub use ids::{DomainId, PcpuId, PcpuSet, VcpuId};
pub use machine::{Costs, Event, Machine, VcpuStats};
pub use rtds::{Reservation, Rtds, RtdsError};
pub use sched_deadline::{Enforcement, SchedDeadline, SchedDeadlineError};
pub use scheduler::{Current, Scheduler, Slice, Wake};
pub use simulation::{Sample, Simulation};
pub use workload::{Arrivals, Load, Task, Via, Workload, WorkloadError};
