//! The whole pacer, in virtual time.

mod burst;
mod cap;
mod change;
mod cuts;
mod elastic;
mod flows;
mod harness;
mod hose;
mod late;
mod local;
mod queues;
mod rates;
mod rules;
mod schedule;
mod tree;
mod urgent;
mod wire;

use super::*;
use tailbound_units::{Bytes, Rate};
