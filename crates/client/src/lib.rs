//! What is said to the placement service, and what it answers.

mod types;

pub use types::*;
