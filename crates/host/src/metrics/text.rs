//! A snapshot as text, in the format of `OpenMetrics` 1.0.

use crate::control::WatchStatus;
use crate::guarantees::GuaranteesSnapshot;
use crate::hose::HoseSnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use tailbound_agent::watch::AgentSnapshot;
use tailbound_metrics::{Labels, counter, gauge};
use tailbound_switch::{PortSnapshot, Snapshot, Sojourn};

/// Everything that one scrape shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exposition {
    /// What the packet loop has counted, where there is one.
    pub(crate) host: Option<HostCounts>,
    /// What the vCPU agent has measured, where there is one.
    pub(crate) vcpus: Option<AgentSnapshot>,
    /// How the connection to the placement service is, where there is to be one.
    pub(crate) watch: Option<WatchStatus>,
}

/// What the packet loop has counted.
#[derive(Debug, Clone)]
pub(crate) struct HostCounts {
    /// What the switch has counted.
    pub(crate) snapshot: Snapshot,
    /// What the placement service and the configuration guarantee.
    pub(crate) guarantees: GuaranteesSnapshot,
    /// What the exchange of rates has counted, where there is one.
    pub(crate) hose: Option<HoseSnapshot>,
    /// How many reloads were applied.
    pub(crate) reloads_applied: u64,
    /// How many reloads were refused.
    pub(crate) reloads_refused: u64,
}

impl Exposition {
    /// The text.
    pub(crate) fn text(self) -> Result<String, Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl HostCounts {
    /// One sample for each port and what `samples` makes of it.
    fn per_port<const N: usize>(
        &self,
        samples: impl Fn(&PortSnapshot) -> Vec<(Labels<N>, u64)>,
    ) -> Vec<(Labels<N>, u64)> {
        self.snapshot.ports().flat_map(samples).collect()
    }
}

fn label(port: &PortSnapshot) -> (&'static str, String) {
    ("port", port.name.clone())
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        if let Some(host) = &self.host {
            host.encode(&mut encoder)?;
            super::pacing::encode(&host.snapshot, &mut encoder)?;
            if let Some(hose) = &host.hose {
                crate::hose::metrics::encode(hose, &mut encoder)?;
            }
        }
        if let Some(watch) = self.watch {
            super::control::encode_status(watch, &mut encoder)?;
            if let Some(host) = &self.host {
                super::control::encode_guarantees(&host.guarantees, &mut encoder)?;
            }
        }
        match &self.vcpus {
            Some(vcpus) => tailbound_agent::metrics::encode(vcpus, &mut encoder),
            None => Ok(()),
        }
    }
}

impl HostCounts {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_crossed(encoder)?;
        self.encode_queued(encoder)?;
        gauge(
            encoder,
            "tailbound_port_up",
            "1 while the port's interface is there",
            &self.per_port(|port| vec![([label(port)], u64::from(port.up))]),
        )?;
        gauge::<0>(
            encoder,
            "tailbound_fdb_entries",
            "MAC addresses learned besides the guests' own",
            &[([], self.snapshot.fdb_entries as u64)],
        )?;
        let result = |result: &str, count| ([("result", result.to_owned())], count);
        counter(
            encoder,
            "tailbound_reloads",
            "Configurations that were reloaded, or refused",
            &[
                result("applied", self.reloads_applied),
                result("refused", self.reloads_refused),
            ],
        )?;
        self.sojourns(encoder)
    }

    /// What came and went by each port, and what did not.
    fn encode_crossed(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let both = |port: &PortSnapshot, received: u64, sent: u64| {
            let of = |direction: &str, value| {
                ([label(port), ("direction", direction.to_owned())], value)
            };
            vec![of("received", received), of("sent", sent)]
        };
        counter(
            encoder,
            "tailbound_packets",
            "Packets received from and sent to a port, as they crossed it",
            &self.per_port(|port| both(port, port.received.0, port.sent.0)),
        )?;
        counter(
            encoder,
            "tailbound_bytes",
            "Bytes of those packets, from the Ethernet header on",
            &self.per_port(|port| both(port, port.received.1, port.sent.1)),
        )?;
        counter(
            encoder,
            "tailbound_drops",
            "Packets dropped, by the port where and the reason why",
            &self.per_port(|port| {
                let drops = port.drops.iter();
                drops
                    .map(|(reason, count)| {
                        ([label(port), ("reason", (*reason).to_owned())], *count)
                    })
                    .collect()
            }),
        )
    }

    /// What was done to packets before each port, and what waits there.
    fn encode_queued(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        counter(
            encoder,
            "tailbound_segmented_packets",
            "Packets cut to one MTU on their way to a port",
            &self.per_port(|port| vec![([label(port)], port.segmented)]),
        )?;
        counter(
            encoder,
            "tailbound_ecn_marks",
            "Packets marked in place of dropped on their way to a port",
            &self.per_port(|port| vec![([label(port)], port.marked)]),
        )?;
        counter(
            encoder,
            "tailbound_metered_packets",
            "Packets that the meter before a port gave a class",
            &self.per_port(|port| {
                let of = |class: &str, value| ([label(port), ("class", class.to_owned())], value);
                vec![
                    of("high", port.meter.high),
                    of("best_effort", port.meter.best_effort),
                ]
            }),
        )?;
        gauge(
            encoder,
            "tailbound_backlog_packets",
            "Packets that wait for a port",
            &self.per_port(|port| vec![([label(port)], port.backlog_packets as u64)]),
        )?;
        gauge(
            encoder,
            "tailbound_backlog_bytes",
            "Bytes that wait for a port in its software queue",
            &self.per_port(|port| vec![([label(port)], port.backlog_bytes.0)]),
        )
    }

    fn sojourns(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut family = encoder.encode_descriptor(
            "tailbound_sojourn",
            "How long a guest's packets waited in software queues",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for guest in &self.snapshot.guests {
            for Sojourn {
                direction,
                class,
                histogram,
            } in &guest.sojourns
            {
                let labels = [
                    ("guest", guest.port.name.as_str()),
                    ("class", class),
                    ("direction", direction),
                ];
                let family = family.encode_family(&labels)?;
                tailbound_metrics::histogram(family, histogram)?;
            }
        }
        Ok(())
    }
}
