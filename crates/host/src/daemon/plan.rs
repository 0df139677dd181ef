//! Plans the ports and the forwarding of a configuration.

use super::clock::Clock;
use super::inherit::{self, InheritedPorts};
use super::open::{OffloadCheck, OpenContext, Side};
use super::{HostError, open};
use crate::config::{Config, PortConfig};
use crate::guarantees::Guarantees;
use tailbound_dataplane::{Coverage, EgressConfig, PacedPipelineConfig};
use tailbound_switch::port::Port;
use tailbound_switch::{GuestConfig, SpoofFilter, SwitchConfig, UPLINK};

/// All settings for opening a port.
#[derive(Debug)]
pub(super) struct PortPlan {
    pub(super) name: String,
    pub(super) port: PortConfig,
    /// The key of the port's descriptor ([`inherit::key`]), if the port is nothing more.
    pub(super) key: Option<String>,
    /// True if its frames have launch times instead of voids between them.
    wants_launch_times: bool,
    side: Side,
    /// The CPU that the packet loop is bound to.
    cpu: Option<u32>,
}

/// Returns the ports to open, in the order of the switch's ports, and the switch's configuration:
/// that of `config`, with the guarantees and limits that `guarantees` derives from it.
pub(super) fn plan(config: &Config, guarantees: &Guarantees) -> (Vec<PortPlan>, SwitchConfig) {
    let uplink = config.uplink.iter().map(|uplink| PortPlan {
        name: UPLINK.to_owned(),
        port: uplink.port.clone(),
        key: inherit::key(&uplink.port),
        wants_launch_times: uplink.pacer.as_ref().is_some_and(|pacer| !pacer.voids),
        side: Side::Uplink,
        cpu: config.cpu,
    });
    let guests = config.guests.iter().map(|guest| PortPlan {
        name: guest.name.clone(),
        port: guest.port.clone(),
        key: inherit::key(&guest.port),
        wants_launch_times: false,
        side: Side::Guest(guest.mac),
        cpu: config.cpu,
    });
    let ports = uplink.chain(guests).collect();
    let egress = config.uplink.as_ref().map(|uplink| match &uplink.pacer {
        Some(pacer) => EgressConfig::Pacer(PacedPipelineConfig {
            pacer: pacer.clone(),
            classes: config.classes.unwrap_or_default(),
            meter: config
                .classified(&uplink.pipeline, uplink.link(), true)
                .meter,
            priority_tag: uplink.priority_tag,
        }),
        None => EgressConfig::Pipeline(config.classified(&uplink.pipeline, uplink.link(), true)),
    });
    let guests = config.guests.iter();
    let guests = guests.zip(guarantees.wanted().zip(guarantees.limits()));
    let guests = guests.map(|(guest, (guarantee, limits))| GuestConfig {
        name: guest.name.clone(),
        mac: guest.mac,
        filter: guest.anti_spoofing.then(|| {
            SpoofFilter::new(guest.mac, guest.ip.iter().copied())
                .with_slaac(guest.slaac.iter().copied(), guest.chosen_addresses)
                .with_dhcp_server(guest.dhcp_server)
                .with_guard(guest.guard)
        }),
        groups: Some(guest.groups),
        unknown: Some(guest.unknown),
        limit: limits.out,
        guarantee,
        coverage: if config.is_in_hose(guest) {
            Coverage::LimitedDestinations
        } else {
            Coverage::AllDestinations
        },
        pipeline: limits.pipeline,
        snoop: guest.snoop,
    });
    let switch = SwitchConfig {
        uplink: egress,
        outside: config.uplink.as_ref().map(|uplink| uplink.groups),
        guests: guests.collect(),
        classes: config
            .classes
            .map(|classes| classes.with_urgent(guarantees.delay_marks())),
    };
    (ports, switch)
}

impl PortPlan {
    /// Returns true for a guest's port, false for the uplink's.
    pub(super) const fn is_guest(&self) -> bool {
        matches!(self.side, Side::Guest(_))
    }

    /// Opens the port, or continues with the descriptor that was `inherited` for it.
    pub(super) fn open(
        &self,
        clock: &Clock,
        inherited: &mut InheritedPorts,
    ) -> Result<Box<dyn Port>, HostError> {
        self.open_as(clock, inherited, OffloadCheck::Before)
    }

    /// Opens a port again after it was missing, while the packet loop waits.
    pub(super) fn open_again(&self, clock: &Clock) -> Result<Box<dyn Port>, HostError> {
        let port = self.open_as(clock, &mut InheritedPorts::default(), OffloadCheck::Later)?;
        open::review([&self.port].into_iter());
        Ok(port)
    }

    fn open_as(
        &self,
        clock: &Clock,
        inherited: &mut InheritedPorts,
        offload_check: OffloadCheck,
    ) -> Result<Box<dyn Port>, HostError> {
        let opening = OpenContext {
            side: self.side,
            cpu: self.cpu,
            epoch: clock.epoch(),
        };
        let port = open::open(&self.port, opening, inherited, offload_check);
        let port = port.map_err(|source| HostError::Port {
            name: self.name.clone(),
            port: Box::new(self.port.clone()),
            source: Box::new(source),
        })?;
        if self.wants_launch_times && !port.launch_times() {
            tracing::warn!(
                port = self.name, interface = %self.port,
                "its frames leave up to a batch early: there are no voids between them, and the \
                 port keeps no launch times; leave `voids = false` out"
            );
        }
        Ok(port)
    }
}
