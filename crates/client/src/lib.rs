//! What is said to the placement service, and what it answers.
//!
//! The types of the wire are below; [`Client`] asks, and [`Guarantees`] is the
//! stream of what a host has to keep to. Everything blocks; a program that must
//! not uses a thread.

mod backoff;
mod client;
mod error;
mod exchange;
mod lines;
mod names;
mod random;
mod stream;
mod types;

pub use backoff::Backoff;
pub use client::{Client, TenantFilter};
pub use error::{Away, ClientError, SettingsError};
pub use exchange::Settings;
pub use names::{NameError, VmName};
pub use random::random;
pub use stream::Guarantees;
pub use types::*;
