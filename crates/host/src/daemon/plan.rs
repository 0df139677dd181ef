//! From a configuration to what is opened and forwarded.

use super::{Clock, HostError, open};
use crate::config::UPLINK;
use crate::config::{Config, PortConfig};
use tailbound_switch::port::Port;
use tailbound_switch::{Guard, LinkConfig, Mac, Pacing};

/// What a port was opened from.
#[derive(Debug)]
pub(super) struct LinkPlan {
    pub(super) name: String,
    pub(super) port: PortConfig,
    /// Its frames have launch times instead of voids between them.
    wants_launch_times: bool,
    mac: Option<Mac>,
}

/// What to open and what to forward, for each port of `config`: the uplink
/// first.
pub(super) fn plan(config: &Config) -> (Vec<LinkPlan>, Vec<LinkConfig>) {
    let uplink = config.uplink.iter().map(|uplink| {
        let plan = LinkPlan {
            name: UPLINK.to_owned(),
            port: uplink.port.clone(),
            wants_launch_times: uplink.pacer.as_ref().is_some_and(|pacer| !pacer.voids),
            mac: None,
        };
        let link = LinkConfig {
            name: UPLINK.to_owned(),
            pipeline: uplink.pipeline.clone(),
            pacing: uplink.pacer.clone().map(|pacer| Pacing {
                pacer,
                meter: uplink.pipeline.meter,
                priority_tag: uplink.priority_tag,
                hose: config.hose.is_some(),
            }),
            ..LinkConfig::default()
        };
        (plan, link)
    });
    let guests = config.guests.iter().map(|guest| {
        let plan = LinkPlan {
            name: guest.name.clone(),
            port: guest.port.clone(),
            wants_launch_times: false,
            mac: Some(guest.mac),
        };
        let guard = guest
            .anti_spoofing
            .then(|| Guard::new(guest.mac, guest.ip.iter().copied()));
        let link = LinkConfig {
            name: guest.name.clone(),
            guest: Some((guest.mac, guard)),
            vm: guest.vm.clone(),
            ips: guest.ip.clone(),
            guarantee: guest.guarantee,
            pipeline: guest.pipeline.clone(),
            ..LinkConfig::default()
        };
        (plan, link)
    });
    uplink.chain(guests).unzip()
}

impl LinkPlan {
    pub(super) fn open(&self, clock: &Clock) -> Result<Box<dyn Port>, HostError> {
        let port =
            open::open(&self.port, self.mac, clock.epoch).map_err(|source| HostError::Port {
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
