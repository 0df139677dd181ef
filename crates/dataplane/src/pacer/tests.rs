//! The whole pacer, in virtual time.

mod change;
mod harness;
mod hose;
mod rates;
mod rules;
mod schedule;

use super::*;
