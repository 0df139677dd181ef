//! Models of hypervisors' schedulers: which vCPU gets a pCPU, and when.
//!
//! Use this crate to simulate the waits of guests for a CPU in virtual time, or to bound the delay
//! of a CPU reservation ([`reservation`]). It sets nothing on a real host: `tailbound-agent` does.
//! It does not model caches, hyper-threads or guests with several vCPUs.
//!
//! Read [`Scheduler`] first: a policy, with the same interface as in Xen. [`Machine`] runs vCPUs on
//! pCPUs under a policy; it owns the time and can be stepped beside a model of packets.
//! [`Simulation`] assigns a [`Workload`] to each vCPU and reports latencies. [`credit`] is Xen's
//! credit scheduler with the rules from 3.3 to 4.17, [`eevdf`] is the fair scheduler of Linux, and
//! [`sched_deadline`] its deadline scheduler.
//!
//! Times are whole nanoseconds, and random numbers come from one seed. Two runs of the same input
//! are equal byte by byte on every computer.

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
