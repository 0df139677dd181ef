//! A blocking client of the placement service.
//!
//! Use it in programs that admit, list or delete tenants, or that follow a host's guarantees.
//! [`Client`] sends the requests of `tailbound-api` and returns their answers; it repeats requests
//! with their idempotency key and tries further replicas. [`Guarantees`] is the stream of a host's
//! guarantees, and [`Events`] that of changes of tenants' states.
//!
//! All calls block. An asynchronous program calls them on a separate thread, or uses
//! `tailbound-api` with its own HTTP client.

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
