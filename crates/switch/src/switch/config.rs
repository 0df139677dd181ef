//! Configuration of a switch, as plain data.

use crate::budget::BudgetConfig;
use crate::filter::SpoofFilter;
use crate::mac::Mac;
use tailbound_dataplane::{
    Classes, Coverage, EgressConfig, Guarantee, PipelineConfig, ShaperConfig, SnoopConfig,
};

/// The name of the uplink in logs and metrics.
pub const UPLINK: &str = "uplink";

/// Configuration of a switch. Its ports are numbered in this order: the uplink if there is one,
/// then the guests.
#[derive(Debug, Clone, Default)]
pub struct SwitchConfig {
    /// The egress of the uplink; `None` for a host without one.
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

/// Configuration of a guest's port.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// The guest's name in logs and metrics. A guest of the same name keeps its number.
    pub name: String,
    /// The guest's MAC address, unique on the host.
    pub mac: Mac,
    /// The filter of the guest's frames; `None`: all pass.
    pub filter: Option<SpoofFilter>,
    /// The budget for frames to groups (broadcast and multicast), each copy counted; `None`:
    /// unlimited.
    pub groups: Option<BudgetConfig>,
    /// The budget for frames to unknown addresses; `None`: unlimited.
    pub unknown: Option<BudgetConfig>,
    /// The limit of all traffic that the guest sends; `None`: unlimited.
    pub limit: Option<ShaperConfig>,
    /// The guarantee on a paced uplink; `None`: best effort.
    pub guarantee: Option<Guarantee>,
    /// The destinations to which the guarantee extends.
    pub coverage: Coverage,
    /// The queue in front of the guest's port.
    pub pipeline: PipelineConfig,
    /// Early acknowledgement of the guest's TCP; `None`: disabled.
    pub snoop: Option<SnoopConfig>,
}

impl GuestConfig {
    /// Makes a guest without a filter and without a guarantee, behind a FIFO.
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
