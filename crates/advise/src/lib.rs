//! Advice on a guarantee: the least {B, S, `S_in`, d, Bmax} for the machines of a tenant, computed
//! from recorded traffic, with its price in slots.
//!
//! Read [`Question`] (the demand in the user's words), [`Traffic`] (the recorded messages) and
//! [`advise`] first. The result, [`Advice`], has a frontier of [`Point`]s, from a small bandwidth
//! with a large burst to the reverse. Each point is chosen on the first half of the messages and
//! judged on the second half.
//!
//! The replay is exact: a message waits for its guarantee if and only if the leaky bucket of its
//! machine is above S after the message (the continuous-state algorithm of ITU-T I.371). All
//! machines of a tenant have the same guarantee, as in Jang et al., *Silo: Predictable Message
//! Latency in the Cloud* (SIGCOMM 2015), 4.1. A price is the number of slots that one of many equal
//! tenants takes of a full data centre, by the project's own admission.
//!
//! The crate has no clock, threads or I/O. Do not use it for traffic that was recorded behind a
//! full queue: the queue has removed the bursts.

mod advice;
mod bucket;
mod confidence;
mod judge;
mod plateau;
mod price;
mod question;
mod side;
mod sizing;
mod traffic;
mod usage;

pub use advice::{Advice, AdviseError, Point, advise};
pub use bucket::LeakyBucket;
pub use confidence::most_likely;
pub use judge::{Judgement, Verdict, Waits, judge};
pub use plateau::{Plateau, PlateauDetector};
pub use price::{DEFAULT_TOPOLOGY, Fabric, Price, Tuple};
pub use question::{Question, QuestionError, Share};
pub use traffic::{Direction, Kind, MachineId, Message, Silence, Traffic, wire_size};
pub use usage::{Usage, UsageOf, usage};
