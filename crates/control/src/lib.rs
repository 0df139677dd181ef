//! The placement service.
//!
//! Read [`ledger::Ledger`] (the state, pure) and [`service::Service`] (who
//! decides and who reads) first. [`store`] is where the ledger is kept; a call is
//! answered when it is durable there. [`audit`] recomputes every promise from
//! what a store has, without the code that decided it; [`backup`] writes all of it as text.

pub mod audit;
pub mod backup;
mod kept;
pub mod ledger;
pub mod replica;
pub mod server;
pub mod service;
pub mod store;
