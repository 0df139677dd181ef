//! What may be promised: tenants, guarantees, and the loads between them.

use super::{MAX_DURATION, Problem, gap, is_plain, plain, problem, unique};
use crate::experiment::{
    Etc, Experiment, Guaranteed, Name, Pacing, Pipeline, Shuffle, Variant, Wire,
};
use std::collections::BTreeSet;
use tailbound_dataplane::{GuestId, Pacer, Packet};
use tailbound_units::{Bytes, Nanos, Rate};

/// What memcached keeps in one item as it is started here.
const LARGEST_VALUE: Bytes = Bytes(100_000);

impl Experiment {
    pub(super) fn check_tenants(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for (tenant, guests) in &self.tenant {
            let Some(first) = guests.first() else {
                return Err(problem(
                    &self.name,
                    format!("tenant {tenant:?} has no guest"),
                ));
            };
            if !is_plain(tenant, 40) || tenant.contains(|c: char| c.is_uppercase() || c == '_') {
                let rule = "use small letters, digits and -, as the placement service does";
                return Err(problem(first, format!("tenant name {tenant:?}: {rule}")));
            }
            for guest in guests {
                self.guest(guest)?;
                unique(&mut seen, guest, "tenant of guest")?;
            }
        }
        for (set, members) in &self.guarantee {
            let mut seen = BTreeSet::new();
            for guaranteed in members {
                if !self.tenant.contains_key(guaranteed.tenant.get_ref()) {
                    let known: Vec<_> = self.tenant.keys().map(String::as_str).collect();
                    let message = format!(
                        "there is no tenant {:?}: there are {}",
                        guaranteed.tenant.get_ref(),
                        known.join(", ")
                    );
                    return Err(problem(&guaranteed.tenant, message));
                }
                unique(&mut seen, &guaranteed.tenant, "guarantee of tenant")?;
                if guaranteed.delay.is_some_and(|delay| delay > MAX_DURATION) {
                    let message = format!("delay: at most {MAX_DURATION}");
                    return Err(problem(&guaranteed.tenant, message));
                }
            }
            self.check_sums(set, members)?;
        }
        Ok(())
    }

    /// Guarantees that no placement could keep are refused.
    fn check_sums(&self, set: &str, members: &[Guaranteed]) -> Result<(), Problem> {
        for (host, guests) in &self.hosts {
            let of_guest = |guest: &Name| {
                let (tenant, _) = self.tenant_of(guest.get_ref())?;
                let mut members = members.iter();
                members.find(|member| member.tenant.get_ref() == tenant)
            };
            let bandwidths = guests.iter().filter_map(of_guest);
            let sum: u128 = bandwidths
                .map(|member| u128::from(member.bandwidth.as_bit_s()))
                .sum();
            if sum > u128::from(self.link_rate.as_bit_s()) {
                let message = format!(
                    "host {host} would guarantee {sum} bit/s in {set:?}, more than its link of {}",
                    self.link_rate
                );
                let at = members.first().map_or(&self.name, |member| &member.tenant);
                return Err(problem(at, message));
            }
        }
        Ok(())
    }

    /// A variant's guarantees must be what its pacer takes.
    pub(super) fn check_guarantees(&self, variant: &Variant) -> Result<(), Problem> {
        let pacing = self.pacing(variant);
        if pacing.is_some() && self.wire != Wire::Ethernet {
            let rule =
                "a pacer counts all that is on the wire: the experiment needs wire = \"ethernet\"";
            return Err(problem(&variant.name, rule));
        }
        let Some(set) = &variant.guarantees else {
            return Ok(());
        };
        let Some(members) = self.guarantee.get(set.get_ref()) else {
            let known: Vec<_> = self.guarantee.keys().map(String::as_str).collect();
            let message = format!(
                "there is no [[guarantee.{}]]: there are {}",
                set.get_ref(),
                known.join(", ")
            );
            return Err(problem(set, message));
        };
        let Some(pacing) = pacing else {
            return Err(problem(set, "guarantees need a pipeline with a pacer"));
        };
        for member in members {
            taken(pacing, member, self.link_rate)
                .map_err(|message| problem(&member.tenant, message))?;
        }
        Ok(())
    }

    pub(super) fn check_etc(&self, etc: &Etc) -> Result<(), Problem> {
        for client in &etc.clients {
            self.two_guests(&etc.server, client)?;
        }
        if etc.clients.is_empty() || !(1..=100).contains(&etc.workers) {
            return Err(problem(&etc.name, "needs a client, and 1 to 100 workers"));
        }
        if etc.largest < Bytes(16) || etc.largest > LARGEST_VALUE {
            let message = format!("largest {}: choose 16B to {LARGEST_VALUE}", etc.largest);
            return Err(problem(&etc.name, message));
        }
        gap(&etc.name, etc.mean_gap)
    }

    pub(super) fn check_shuffle(&self, shuffle: &Shuffle) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for guest in &shuffle.guests {
            self.guest(guest)?;
            unique(&mut seen, guest, "shuffling guest")?;
        }
        let named = |guest: &str| shuffle.guests.iter().any(|name| name.get_ref() == guest);
        let hosts: BTreeSet<&str> = self
            .guests()
            .filter(|(_, guest)| named(guest))
            .map(|(host, _)| host)
            .collect();
        if hosts.len() < 2 {
            let rule = "needs guests on two hosts: who shares one does not use the wire";
            return Err(problem(&shuffle.name, rule));
        }
        plain(&shuffle.name, 40)
    }
}

/// What a pipeline with a pacer may say beside it.
pub(super) fn check_pacer(pipeline: &Pipeline, pacing: &Pacing, link: Rate) -> Result<(), String> {
    let config = pipeline.config.get_ref();
    let only_meter = tailbound_dataplane::PipelineConfig {
        meter: config.meter,
        ..tailbound_dataplane::PipelineConfig::default()
    };
    if pipeline.nic_queue.is_some() || *config != only_meter {
        return Err("beside a pacer a pipeline has a meter at most".into());
    }
    if pacing.batch > Nanos::from_secs(1) || pacing.catch_up > Nanos::from_secs(1) {
        return Err("batch and catch_up: at most 1s".into());
    }
    pacer(pacing, link).map(drop)
}

/// The pacer itself knows its rules.
fn taken(pacing: &Pacing, guaranteed: &Guaranteed, link: Rate) -> Result<(), String> {
    let guarantee = guaranteed.config(pacing, link);
    pacer(pacing, link)?
        .set_guest(Nanos::ZERO, GuestId(0), Some(&guarantee))
        .map_err(|refused| refused.to_string())
}

fn pacer(pacing: &Pacing, link: Rate) -> Result<Pacer<Packet>, String> {
    Pacer::new(&pacing.config(link)).map_err(|refused| refused.to_string())
}
