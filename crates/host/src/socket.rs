//! The control socket: adds and removes guests without an edited file, and shows the daemon's
//! state.
//!
//! A request is a line of JSON, as is its answer ([`Request`], [`Answer`]). [`Client`] connects to
//! the daemon of a configuration. In the daemon a thread accepts, reads and writes (`server`). The
//! packet loop receives complete requests, and never waits for a client.

mod client;
mod connection;
mod server;
mod status;
mod traced;
mod wire;

pub use client::{Client, ClientError};
pub(crate) use server::{LoopRequest, Reply, Server, TrialRequest};
pub(crate) use status::View;
pub use status::{
    Bucket, Count, Guarantee, GuaranteedBy, Guest, GuestSource, HostStatus, Limit, Limits, Link,
    PacketLoop, Port, ServiceStatus, Waits,
};
pub(crate) use traced::Trace;
pub use traced::{TRACE_FRAMES, TraceFrame, Wait};
pub use wire::{Answer, Outcome, Request, SNOOP_FLOWS, SnoopFlow, VERSION, Wrong};

/// The extension of the socket's name, behind a dot.
pub(crate) const SUFFIX: &str = "sock";
