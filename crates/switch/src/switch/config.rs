//! What a switch is to be, as plain data.

use crate::budget::BudgetConfig;
use crate::filter::SpoofFilter;
use crate::mac::Mac;
use tailbound_dataplane::{
    Classes, Coverage, EgressConfig, Guarantee, PipelineConfig, ShaperConfig, SnoopConfig,
};

/// The name of the uplink in logs and metrics.
pub const UPLINK: &str = "uplink";

/// What a switch is to be. Its ports are numbered in this order: the uplink where
/// there is one, then the guests.
#[derive(Debug, Clone, Default)]
pub struct SwitchConfig {
    /// What stands before the wire of the uplink; `None` for a host without one.
    pub uplink: Option<EgressConfig>,
    /// A budget for frames from outside to groups (broadcast and multicast), each copy counted;
    /// `None`: no bound.
    pub outside: Option<BudgetConfig>,
    /// The guests.
    pub guests: Vec<GuestConfig>,
    /// The classes of the fabric, by which the class of a frame from the uplink is
    /// known; without them each is of the lowest.
    pub classes: Option<Classes>,
}

/// What the port of a guest is to be.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// Its name in logs and metrics. A guest of the same name keeps its number.
    pub name: String,
    /// Its MAC address, which nobody else can have.
    pub mac: Mac,
    /// What it may send; `None`: anything.
    pub filter: Option<SpoofFilter>,
    /// What it may send to groups (broadcast and multicast), each copy counted; `None`:
    /// any number.
    pub groups: Option<BudgetConfig>,
    /// What it may send to addresses that nobody is known to have; `None`: any number.
    pub unknown: Option<BudgetConfig>,
    /// What it may send at most, wherever that goes; `None`: any amount.
    pub limit: Option<ShaperConfig>,
    /// What it is guaranteed on a paced uplink; `None`: best effort.
    pub guarantee: Option<Guarantee>,
    /// To which destinations that guarantee extends.
    pub coverage: Coverage,
    /// The queue before its port.
    pub pipeline: PipelineConfig,
    /// How far TCP is acknowledged in its place; `None`: not at all.
    pub snoop: Option<SnoopConfig>,
}

impl GuestConfig {
    /// A guest that may send anything, without a guarantee, behind a FIFO.
    pub fn new(name: impl Into<String>, mac: Mac) -> Self {
        Self {
            name: name.into(),
            mac,
            filter: None,
            groups: None,
            unknown: None,
            limit: None,
            guarantee: None,
            coverage: Coverage::default(),
            pipeline: PipelineConfig::default(),
            snoop: None,
        }
    }
}
