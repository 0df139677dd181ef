//! Guarantees of guests, and the loads that show them.

use super::{GuaranteesBy, LabExperiment, Variant};
use serde::Deserialize;
use tailbound_dataplane::{Guarantee, PacerConfig, QueueConfig};
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos, Rate};

/// A host's pacer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pacing {
    /// Wire time of a batch; at least a full frame's.
    pub(crate) batch: Nanos,
    /// Largest backlog of the wire to catch up.
    #[serde(default)]
    pub(crate) catch_up: Nanos,
    /// Queue of frames without a guarantee; FQ-CoDel.
    pub(crate) best_effort: Option<QueueConfig>,
    /// Sets each frame's class as an 802.1Q priority.
    #[serde(default)]
    pub(crate) priority_tag: bool,
    /// Interval at which hosts exchange the rates of VM pairs; no exchange.
    pub(crate) hose: Option<Nanos>,
    /// Rate of traffic past the pacer (`hose`), which guarantees leave free.
    #[serde(default)]
    pub(crate) beside: Rate,
}

impl Pacing {
    /// Returns the rate that guarantees may take of a wire of `link`.
    pub(crate) fn link(&self, link: Rate) -> Rate {
        Rate(link.as_bit_s().saturating_sub(self.beside.as_bit_s()))
    }

    /// Returns the pacer's configuration on a wire of `link`.
    pub(crate) fn config(&self, link: Rate) -> PacerConfig {
        let mut config = PacerConfig::strict(link);
        config.batch = self.batch;
        config.catch_up = self.catch_up;
        config.frame = self.frame();
        if let Some(queue) = &self.best_effort {
            config.best_effort = queue.clone();
        }
        config
    }

    /// Returns the size of the longest frame on the wire: a tag adds four bytes.
    pub(crate) const fn frame(&self) -> Bytes {
        Bytes(if self.priority_tag { 1542 } else { 1538 })
    }
}

/// Silo's {B, S, Bmax} and d (4.1) of each VM of a tenant, on the wire.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guaranteed {
    /// Tenant of the VMs.
    pub(crate) tenant: Name,
    /// B: bandwidth.
    pub(crate) bandwidth: Rate,
    /// S: burst; at least a full frame.
    pub(crate) burst: Bytes,
    /// Bmax: burst rate; that of the pacer's link.
    pub(crate) burst_rate: Option<Rate>,
    /// d: longest delay of a frame between two VMs beyond its time at Bmax.
    pub(crate) delay: Option<Nanos>,
    /// Longest wait of a frame in the host before the VM's next frames stay in its ring; twice the
    /// batch, at least 2 ms.
    pub(crate) horizon: Option<Nanos>,
    /// Wait from which frames are marked (ECN); half the horizon.
    pub(crate) mark: Option<Nanos>,
}

impl Guaranteed {
    /// Returns Bmax on a wire of `link`.
    pub(crate) fn burst_rate(&self, pacing: &Pacing, link: Rate) -> Rate {
        self.burst_rate.unwrap_or_else(|| pacing.link(link))
    }

    /// Returns the guarantee for the host's configuration.
    pub(crate) fn config(&self, pacing: &Pacing, link: Rate) -> Guarantee {
        let least = Nanos(2 * pacing.batch.as_nanos()).max(Nanos::from_millis(2));
        let horizon = self.horizon.unwrap_or(least);
        let burst_rate = self.burst_rate(pacing, link);
        Guarantee {
            horizon,
            mark: Some(self.mark.unwrap_or(Nanos(horizon.as_nanos() / 2))),
            ..Guarantee::new(self.bandwidth, self.burst, burst_rate)
        }
    }
}

/// Bytes that count for a frame's time on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wire {
    /// Its bytes without FCS.
    #[default]
    Frame,
    /// All bytes on an Ethernet wire: 24 B more for preamble, FCS and gap, and at least 84 B. A
    /// pacer needs it.
    Ethernet,
}

/// Requests to memcached as in Facebook's ETC pool (Atikoglu et al., SIGMETRICS 2012, section 5).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Etc {
    /// Name.
    pub(crate) name: Name,
    /// Guest that runs memcached.
    pub(crate) server: Name,
    /// Guests that send requests.
    pub(crate) clients: Vec<Name>,
    /// Connections of each client, each with one outstanding request; 1.
    #[serde(default = "one")]
    pub(crate) workers: usize,
    /// Mean time between requests of a worker.
    pub(crate) mean_gap: Nanos,
    /// Largest value.
    pub(crate) largest: Bytes,
    /// Series of times from a request to the answer's last byte.
    pub(crate) series: String,
    /// Value of answered requests per second.
    pub(crate) value: String,
}

const fn one() -> usize {
    1
}

/// A shuffle: one endless TCP stream from each guest to every guest on another host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shuffle {
    /// Name.
    pub(crate) name: Name,
    /// Guests.
    pub(crate) guests: Vec<Name>,
    /// Value of the received rate of all guests.
    pub(crate) value: String,
}

impl LabExperiment {
    /// Returns the configuration of a variant's pacers; `None` without a pacer.
    pub(crate) fn pacing(&self, variant: &Variant) -> Option<&Pacing> {
        let pipeline = self.pipeline.get(variant.pipeline.as_ref()?.get_ref())?;
        pipeline.pacer.as_ref()
    }

    /// Returns whether hosts exchange rates in any variant.
    pub(crate) fn agrees_on_rates(&self) -> bool {
        let mut pacers = self.pipeline.values().filter_map(|p| p.pacer.as_ref());
        pacers.any(|pacing| pacing.hose.is_some())
    }

    /// Returns the guarantees of a variant.
    pub(crate) fn guarantees(&self, variant: &Variant) -> &[Guaranteed] {
        let set = variant.guarantees.as_ref();
        let set = set.and_then(|name| self.guarantee.get(name.get_ref()));
        set.map_or(&[], Vec::as_slice)
    }

    /// Returns the guarantee of a guest in a variant.
    pub(crate) fn guarantee_of(&self, variant: &Variant, guest: &str) -> Option<&Guaranteed> {
        let (tenant, _) = self.tenant_of(guest)?;
        let mut members = self.guarantees(variant).iter();
        members.find(|member| member.tenant.get_ref() == tenant)
    }

    /// Returns whether any variant uses the placement service.
    pub(crate) fn has_service(&self) -> bool {
        let mut variants = self.variant.iter();
        variants.any(|variant| variant.guarantees_by == GuaranteesBy::Service)
    }

    /// Returns the number of a host's guests with a guarantee in a variant.
    pub(crate) fn guaranteed_on(&self, variant: &Variant, host: &str) -> usize {
        let guests = self.hosts.get(host).into_iter().flatten();
        let guaranteed = guests.filter_map(|it| self.guarantee_of(variant, it.get_ref()));
        guaranteed.count()
    }

    /// Returns a guest's tenant, and the guest's index among the tenant's VMs.
    pub(crate) fn tenant_of(&self, guest: &str) -> Option<(&str, usize)> {
        self.tenant.iter().find_map(|(tenant, guests)| {
            let place = guests.iter().position(|name| name.get_ref() == guest)?;
            Some((tenant.as_str(), place))
        })
    }
}
