//! What guests are guaranteed, and the loads that show it.

use super::{GuaranteesBy, LabExperiment, Variant};
use serde::Deserialize;
use tailbound_dataplane::{Guarantee, PacerConfig, QueueConfig};
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos, Rate};

/// What a host's pacer is told beside the link's rate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// Wire time that is handed over at once; at least a full frame's.
    pub batch: Nanos,
    /// How far the wire may fall behind what is due and catch up again.
    #[serde(default)]
    pub catch_up: Nanos,
    /// Where frames without a guarantee wait; otherwise FQ-CoDel.
    pub best_effort: Option<QueueConfig>,
    /// Whether every frame gets its class as an 802.1Q priority.
    #[serde(default)]
    pub priority_tag: bool,
    /// How often hosts tell each other what each pair of machines may send; without
    /// it a machine's guarantee does not depend on its destinations.
    pub hose: Option<Nanos>,
    /// What a host sends past its pacer, as its datagrams of `hose`: the pacer is told a
    /// link that is so much slower, or what it fills with voids would be too much.
    #[serde(default)]
    pub beside: Rate,
}

impl Pacing {
    /// What the pacer is told of a wire of `link`.
    pub(crate) fn link(&self, link: Rate) -> Rate {
        Rate(link.as_bit_s().saturating_sub(self.beside.as_bit_s()))
    }

    /// As the host's configuration has it, on a wire of `link`.
    pub(crate) fn config(&self, link: Rate) -> PacerConfig {
        let mut config = PacerConfig::strict(self.link(link));
        config.batch = self.batch;
        config.catch_up = self.catch_up;
        config.frame = self.frame();
        if let Some(queue) = &self.best_effort {
            config.best_effort = queue.clone();
        }
        config
    }

    /// The longest frame on the wire: a tag is four bytes more.
    pub(crate) const fn frame(&self) -> Bytes {
        Bytes(if self.priority_tag { 1542 } else { 1538 })
    }
}

/// What each machine of one tenant is guaranteed: Silo's {B, S, Bmax} and d (4.1).
/// Sizes and rates are those on the wire.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guaranteed {
    /// The tenant whose machines these are.
    pub tenant: Name,
    /// B.
    pub bandwidth: Rate,
    /// S, at least a full frame.
    pub burst: Bytes,
    /// Bmax; the rate of the pacer's link where it is left out.
    pub burst_rate: Option<Rate>,
    /// d, what a frame may take between two machines beyond the time that it takes
    /// at Bmax.
    pub delay: Option<Nanos>,
    /// How long a frame may wait in the host before the machine's next ones stay in
    /// its ring; twice the batch, and at least 2 ms.
    pub horizon: Option<Nanos>,
    /// From what wait on frames are marked (ECN); half the horizon.
    pub mark: Option<Nanos>,
}

impl Guaranteed {
    /// Bmax on a wire of `link`.
    pub(crate) fn burst_rate(&self, pacing: &Pacing, link: Rate) -> Rate {
        self.burst_rate.unwrap_or_else(|| pacing.link(link))
    }

    /// As the host's configuration has it.
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

/// What counts for a frame's time on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Its bytes without FCS.
    #[default]
    Frame,
    /// All that is on an Ethernet wire: 24 B more for preamble, FCS and gap, and 84 B
    /// at least. A pacer needs it.
    Ethernet,
}

/// Requests to memcached as Facebook's ETC pool has them (Atikoglu et al.,
/// SIGMETRICS 2012, section 5): key sizes, value sizes and times between requests
/// follow its distributions. Each worker asks for one value at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Etc {
    /// What variants call it.
    pub name: Name,
    /// The guest that memcached runs in.
    pub server: Name,
    /// The guests that ask.
    pub clients: Vec<Name>,
    /// Connections of each client; each carries one request at a time.
    #[serde(default = "one")]
    pub workers: usize,
    /// The mean time between two requests of a worker, as long as answers come in
    /// time; one that became due meanwhile is sent when the answer is in.
    pub mean_gap: Nanos,
    /// The size of the largest value.
    pub largest: Bytes,
    /// The series of times from sending a request to the answer's last byte.
    pub series: String,
    /// The value of requests answered in a second.
    pub value: String,
}

const fn one() -> usize {
    1
}

/// A shuffle: one endless TCP stream from each guest to each other one that is on
/// another host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shuffle {
    /// What variants call it.
    pub name: Name,
    /// The guests.
    pub guests: Vec<Name>,
    /// The value of the rate that all receive together.
    pub value: String,
}

impl LabExperiment {
    /// What the pacers of a variant are told; nothing where it has none.
    pub fn pacing(&self, variant: &Variant) -> Option<&Pacing> {
        let pipeline = self.pipeline.get(variant.pipeline.as_ref()?.get_ref())?;
        pipeline.pacer.as_ref()
    }

    /// Whether hosts tell each other rates in any variant.
    pub(crate) fn agrees_on_rates(&self) -> bool {
        let mut pacers = self.pipeline.values().filter_map(|p| p.pacer.as_ref());
        pacers.any(|pacing| pacing.hose.is_some())
    }

    /// The guarantees that hold in a variant.
    pub fn guarantees(&self, variant: &Variant) -> &[Guaranteed] {
        let set = variant.guarantees.as_ref();
        let set = set.and_then(|name| self.guarantee.get(name.get_ref()));
        set.map_or(&[], Vec::as_slice)
    }

    /// Whether the placement service is there in any variant.
    pub(crate) fn has_service(&self) -> bool {
        let mut variants = self.variant.iter();
        variants.any(|variant| variant.guarantees_by == GuaranteesBy::Service)
    }

    /// The guests of a host that are guaranteed something in a variant.
    pub(crate) fn guaranteed_on(&self, variant: &Variant, host: &str) -> usize {
        let named = |tenant: &str| {
            let mut members = self.guarantees(variant).iter();
            members.any(|member| member.tenant.get_ref() == tenant)
        };
        let guests = self.hosts.get(host).into_iter().flatten();
        let tenants = guests.filter_map(|guest| self.tenant_of(guest.get_ref()));
        tenants.filter(|(tenant, _)| named(tenant)).count()
    }

    /// A guest's tenant, and the guest's place among its machines.
    pub fn tenant_of(&self, guest: &str) -> Option<(&str, usize)> {
        self.tenant.iter().find_map(|(tenant, guests)| {
            let place = guests.iter().position(|name| name.get_ref() == guest)?;
            Some((tenant.as_str(), place))
        })
    }
}
