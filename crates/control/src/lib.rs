//! The placement service.
