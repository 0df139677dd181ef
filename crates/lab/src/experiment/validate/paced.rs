//! Checks of tenants, guarantees, and the loads between them.

use super::{Checker, MAX_DURATION, is_plain};
use crate::experiment::{Guaranteed, GuaranteesBy, Pacing, Pipeline, Variant, Wire};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use tailbound_dataplane::{GuestId, Pacer, Packet, PipelineConfig};
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos, Rate};

/// Sizes of an item that memcached accepts with the lab's arguments.
const LARGEST_VALUES: RangeInclusive<Bytes> = Bytes(16)..=Bytes(100_000);

impl Checker<'_, '_> {
    pub(super) fn check_tenants(&mut self) {
        for (tenant, guests) in &self.lab.tenant {
            if guests.is_empty() {
                self.mistakes
                    .top()
                    .at("tenant", format!("tenant {tenant:?} has no guest"));
            }
            if !is_plain(tenant, 40) || tenant.contains(|c: char| c.is_uppercase() || c == '_') {
                let rule = "use small letters, digits and -, as the placement service does";
                self.mistakes
                    .top()
                    .at("tenant", format!("tenant name {tenant:?}: {rule}"));
            }
            self.check_guest_names(guests);
        }
        self.mistakes
            .unique("tenant of guest", self.lab.tenant.values().flatten());
        for (set, members) in &self.lab.guarantee {
            for guaranteed in members {
                let known = self.lab.tenant.keys().map(String::as_str);
                self.mistakes.known("tenant", &guaranteed.tenant, known);
                if guaranteed.delay.is_some_and(|delay| delay > MAX_DURATION) {
                    self.wrong(&guaranteed.tenant, format!("delay: at most {MAX_DURATION}"));
                }
            }
            self.mistakes
                .unique("guarantee of tenant", members.iter().map(|it| &it.tenant));
            if let Err(message) = self.check_sums(set, members, self.lab.link_rate) {
                self.mistakes.top().at("guarantee", message);
            }
        }
    }

    /// Refuses guarantees that no placement could keep on links of `link`.
    fn check_sums(&self, set: &str, members: &[Guaranteed], link: Rate) -> Result<(), String> {
        for (host, guests) in &self.lab.hosts {
            let of_guest = |guest: &Name| {
                let (tenant, _) = self.lab.tenant_of(guest.get_ref())?;
                let mut members = members.iter();
                members.find(|member| member.tenant.get_ref() == tenant)
            };
            let bandwidths = guests.iter().filter_map(of_guest);
            let sum: u128 = bandwidths
                .map(|member| u128::from(member.bandwidth.as_bit_s()))
                .sum();
            if sum > u128::from(link.as_bit_s()) {
                return Err(format!(
                    "host {host} would guarantee {sum} bit/s in {set:?}, more than its link of {link}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that the pacer of a variant accepts the variant's guarantees.
    pub(super) fn check_guarantees(&mut self, variant: &Variant) {
        let pacing = self.lab.pacing(variant);
        if pacing.is_some() && self.lab.wire != Wire::Ethernet {
            let rule =
                "a pacer counts bytes on the wire: set wire = \"ethernet\" in the experiment";
            self.wrong(&variant.name, rule);
        }
        let Some(set) = &variant.guarantees else {
            if variant.guarantees_by == GuaranteesBy::Service {
                let rule = "guarantees_by = \"service\" needs `guarantees` to admit";
                self.wrong(&variant.name, rule);
            }
            return;
        };
        self.mistakes.known(
            "guarantee",
            set,
            self.lab.guarantee.keys().map(String::as_str),
        );
        let Some(pacing) = pacing else {
            return self.wrong(set, "guarantees need a pipeline with a pacer");
        };
        for member in self.lab.guarantees(variant) {
            if let Err(message) = check_accepted(pacing, member, self.lab.link_rate) {
                self.wrong(&member.tenant, message);
            }
        }
        let link = pacing.link(self.lab.link_rate);
        if link < self.lab.link_rate
            && let Err(message) = self.check_sums(set.get_ref(), self.lab.guarantees(variant), link)
        {
            self.wrong(set, format!("{message} without traffic past the pacer"));
        }
    }

    /// Checks the loads for measurements of guarantees.
    pub(super) fn check_paced(&mut self) {
        for etc in &self.lab.etc {
            for client in &etc.clients {
                self.check_two_guests(&etc.server, client);
            }
            if etc.clients.is_empty() || !(1..=100).contains(&etc.workers) {
                self.wrong(&etc.name, "needs a client, and 1 to 100 workers");
            }
            self.within(&etc.name, "largest", etc.largest, LARGEST_VALUES);
            self.gap(&etc.name, etc.mean_gap);
        }
        for shuffle in &self.lab.shuffle {
            self.check_guest_names(&shuffle.guests);
            self.mistakes
                .unique("shuffling guest", shuffle.guests.iter());
            let named = |guest: &str| shuffle.guests.iter().any(|name| name.get_ref() == guest);
            let guests = self.lab.guests().filter(|(_, guest)| named(guest));
            let hosts: BTreeSet<&str> = guests.map(|(host, _)| host).collect();
            if hosts.len() < 2 {
                let rule = "needs guests on two hosts: guests of one host do not use the wire";
                self.wrong(&shuffle.name, rule);
            }
        }
    }
}

/// Checks a pipeline with a pacer: it may only have a meter besides.
pub(super) fn check_pacer(pipeline: &Pipeline, pacing: &Pacing, link: Rate) -> Result<(), String> {
    let config = pipeline.config.get_ref();
    let meter_alone = PipelineConfig {
        meter: config.meter,
        ..PipelineConfig::default()
    };
    if pipeline.nic_queue.is_some() || *config != meter_alone {
        return Err("a pacer segments and queues by itself: keep only `meter`".into());
    }
    if pacing.batch > Nanos::from_secs(1) || pacing.catch_up > Nanos::from_secs(1) {
        return Err("batch and catch_up: at most 1s".into());
    }
    pacer(pacing, link).map(drop)
}

/// Checks a guarantee by the pacer's own rules.
fn check_accepted(pacing: &Pacing, guaranteed: &Guaranteed, link: Rate) -> Result<(), String> {
    let guarantee = guaranteed.config(pacing, link);
    pacer(pacing, link)?
        .set_guest(Nanos::ZERO, GuestId::first(0), Some(&guarantee))
        .map_err(|refused| refused.to_string())
}

fn pacer(pacing: &Pacing, link: Rate) -> Result<Pacer<Packet>, String> {
    Pacer::new(&pacing.config(link)).map_err(|refused| refused.to_string())
}
