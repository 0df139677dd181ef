//! The placement service: admission and placement of tenants, over HTTP.
//!
//! This crate adds names, owners, durability, replicas and the HTTP API to the decisions of
//! `tailbound-placement`. Use it to run or embed the service. For decisions without a service use
//! `tailbound-placement`; to call a running service use `tailbound-api`.
//!
//! Read [`ledger::Ledger`] (the state, without I/O) and [`service::Service`] (one thread that
//! decides, many readers) first. A call is answered once its changes are durable in a [`store`].
//! [`replica`] runs several services over one etcd store, [`server`] is the HTTP API, [`audit`]
//! recomputes every guarantee from a store without the code that decided it, and [`backup`] writes
//! a store as text.

pub mod audit;
pub mod backup;
mod expiry;
mod fair;
mod kept;
pub mod ledger;
pub mod replica;
pub mod server;
pub mod service;
pub mod store;
