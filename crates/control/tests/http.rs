//! The service over HTTP.

mod api;
mod api_answers;
mod api_audit;
mod api_faults;
mod api_limits;
mod api_refusals;
mod api_running;
mod api_scheduling;
mod api_store;
mod api_support;
mod api_tls;
mod api_tokens;
mod generated;
mod openapi;
mod schemathesis;
