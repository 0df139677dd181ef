//! Deterministic network calculus in exact arithmetic: worst-case backlog and delay of queues.
//!
//! An [`ArrivalCurve`] bounds the traffic from above, a [`ServiceCurve`] bounds the service from
//! below. [`ArrivalCurve::delay`] and [`ArrivalCurve::backlog`] are the two distances between them.
//! [`Guarantee`] makes the curves of Silo's tenants. [`Network`] bounds every flow of a
//! feed-forward network, and [`NetworkFile`] reads one.
//!
//! Do not use it for networks with cycles, for average or probable delays, or for queues that drop
//! frames: all bounds assume that no frame is lost.
//!
//! ```
//! use tailbound_netcalc::{ArrivalCurve, Ratio, ServiceCurve};
//! use tailbound_units::{Bytes, Nanos, Rate};
//!
//! // A flow of 100 Mbit/s with bursts of 15 KB at a port of 1 Gbit/s.
//! let flow = ArrivalCurve::token_bucket(Rate::from_mbit(100), Bytes(15_000));
//! let port = ServiceCurve::rate_latency(Rate::from_mbit(1_000), Nanos::ZERO);
//! let delay = flow.delay(&port)?.finite();
//! assert_eq!(delay, Some(Ratio::whole(120_000))); // nanoseconds
//! # Ok::<(), tailbound_netcalc::Overflow>(())
//! ```
//!
//! All numbers are exact [`Ratio`]s. An operation that would overflow returns an error. Floating
//! point is not used.
//!
//! The formulae are those of Le Boudec and Thiran, *Network Calculus* (Springer LNCS 2050), and
//! Jang et al., *Silo: Predictable Message Latency in the Cloud* (SIGCOMM 2015). Each item names
//! its section.

mod arrival;
mod bound;
mod deviation;
mod guarantee;
mod late;
mod network;
mod priority;
mod ratio;
mod service;
#[cfg(test)]
mod testing;

pub use arrival::{ArrivalCurve, TokenBucket};
pub use bound::Bound;
pub use guarantee::{Guarantee, hose};
pub use late::late_host;
pub use network::{
    Bounds, ClassBounds, Flow, FlowBounds, FlowId, Network, NetworkError, NetworkFile, Port,
    PortBounds, PortId,
};
pub use ratio::{Overflow, Ratio};
pub use service::{RateLatency, ServiceCurve};
