//! Deterministic network calculus in exact arithmetic: what a queue can hold
//! and how long a frame can wait in it, at worst.
//!
//! Read [`ArrivalCurve`] (how much may come) and [`ServiceCurve`] (how much is
//! served at least) first. [`ArrivalCurve::delay`] and
//! [`ArrivalCurve::backlog`] are the two distances between them; [`Guarantee`]
//! makes the curves of Silo's tenants; [`Network`] bounds every flow of a whole
//! feed-forward network, and [`NetworkFile`] reads one.
//!
//! All numbers are [`Ratio`]s: exact, and an operation that would overflow says
//! so instead. Nothing here uses floating point.
//!
//! Formulae follow Le Boudec and Thiran, *Network Calculus* (Springer LNCS
//! 2050), and Jang et al., *Silo: Predictable Message Latency in the Cloud*
//! (SIGCOMM 2015); each item names its section.

mod arrival;
mod bound;
mod deviation;
mod guarantee;
mod network;
mod ratio;
mod service;
#[cfg(test)]
mod testing;

pub use arrival::{ArrivalCurve, TokenBucket};
pub use bound::Bound;
pub use guarantee::{Guarantee, hose};
pub use network::{
    Bounds, ClassBounds, Flow, FlowBounds, FlowId, Network, NetworkError, NetworkFile, Port,
    PortBounds, PortId,
};
pub use ratio::{Overflow, Ratio};
pub use service::{RateLatency, ServiceCurve};
