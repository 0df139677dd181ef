//! The control socket: guests come and go without a file being edited, and whoever asks is
//! shown what there is.
//!
//! A request is a line of JSON, and so is its answer ([`Request`], [`Answer`]). [`Client`]
//! speaks to the daemon of a configuration. In the daemon a thread accepts, reads and writes
//! (`server`); the packet loop sees whole requests alone, and never waits for anybody here.

mod client;
mod connection;
mod server;
mod shown;
mod traced;
mod wire;

pub use client::{Client, ClientError};
pub(crate) use server::{Asked, Reply, Sending, Server};
pub(crate) use shown::View;
pub use shown::{
    Bucket, Count, Guarantee, GuaranteedBy, Guest, Kept, Limit, Limits, Link, PacketLoop, Port,
    Shown, Waits,
};
pub(crate) use traced::Trace;
pub use traced::{TRACE_FRAMES, TraceFrame, Wait};
pub use wire::{Answer, Outcome, Request, SNOOP_FLOWS, SnoopFlow, VERSION, Wrong};

/// Ends the name of the socket, behind a dot.
pub(crate) const SUFFIX: &str = "sock";
