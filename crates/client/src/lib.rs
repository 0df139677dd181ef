//! A blocking client of the placement service.
//!
//! [`Client`] sends the requests of `tailbound-api` and returns their answers;
//! [`Guarantees`] is the stream of what a host has to keep to, [`Events`] that of what becomes of
//! promises. A program that must
//! not block calls them on a thread of its own.

mod backoff;
mod client;
mod error;
mod exchange;
mod lines;
mod random;
mod stream;

pub use backoff::Backoff;
pub use client::{Client, TenantFilter};
pub use error::{ClientError, SettingsError, UnreachableReplica};
pub use exchange::Settings;
pub use random::random;
pub use stream::{Events, Guarantees};
