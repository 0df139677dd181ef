//! The content of one scrape: the counters of loop, agent and service connection.

use crate::control::WatchStatus;
use crate::guarantees::Guarantees;
use crate::hose::HoseSnapshot;
use crate::inventory::Inventory;
use std::fmt::Error;
use std::sync::Arc;
use tailbound_agent::meters::AgentSnapshot;
use tailbound_metrics::{Encoder, Histogram, Kind, Labels, Unit, counter, gauge};
use tailbound_switch::{Link, PortSnapshot, Snapshot, Sojourn};
use tailbound_units::Nanos;

/// The content of one scrape.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exposition {
    /// The packet loop's counters, if there is a packet loop.
    pub(crate) host: Option<HostCounts>,
    /// The vCPU agent's measurements, if there is an agent.
    pub(crate) vcpus: Option<AgentSnapshot>,
    /// The state of the connection to the placement service, if one is configured.
    pub(crate) watch: Option<WatchStatus>,
}

/// The counters of the packet loop.
#[derive(Debug, Clone)]
pub(crate) struct HostCounts {
    /// The counters of the switch.
    pub(crate) snapshot: Arc<Snapshot>,
    /// The guarantees of the placement service and the configuration.
    pub(crate) guarantees: Arc<Guarantees>,
    /// The counters of the exchange of rates, if there is one.
    pub(crate) hose: Option<HoseSnapshot>,
    /// The number of applied reloads.
    pub(crate) reloads_applied: u64,
    /// The number of refused reloads.
    pub(crate) reloads_refused: u64,
    /// The times of the packet loop's work beside packets.
    pub(crate) aside: AsideTimes,
    /// The class of the packet loop.
    pub(crate) class: ClassState,
    /// The ports.
    pub(crate) inventory: Arc<Inventory>,
}

/// The CPU time of the packet loop's turns with work beside packets.
#[derive(Debug, Clone, Default)]
pub(crate) struct AsideTimes {
    /// The time of each turn.
    pub(crate) turns: Histogram,
    /// The longest time.
    pub(crate) longest: Nanos,
}

impl AsideTimes {
    pub(crate) fn record(&mut self, time: Nanos) {
        self.turns.record(time);
        self.longest = self.longest.max(time);
    }
}

/// The class of the packet loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClassState {
    /// True for a real-time class.
    pub(crate) is_real_time: bool,
    /// The number of times that it was left, as the loop had packets without end.
    pub(crate) left: u64,
}

impl HostCounts {
    /// Returns the samples that `samples` makes of each port.
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

impl tailbound_metrics::Exposition for Exposition {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        if let Some(host) = &self.host {
            host.encode(encoder)?;
            super::pacing::encode(&host.snapshot, encoder)?;
            super::inward::encode(&host.snapshot, encoder)?;
            super::limits::encode(&host.snapshot, encoder)?;
            super::snoop::encode(&host.snapshot, encoder)?;
            if let Some(hose) = &host.hose {
                crate::hose::metrics::encode(hose, encoder)?;
            }
        }
        if let Some(watch) = self.watch {
            super::control::encode_status(watch, encoder)?;
            if let Some(host) = &self.host {
                let guarantees = host.guarantees.snapshot();
                super::control::encode_guarantees(&guarantees, encoder)?;
                if let Some(vcpus) = &self.vcpus {
                    let reservations = &vcpus.reservations;
                    super::control::encode_unpromised(&guarantees, reservations, encoder)?;
                }
            }
        }
        match &self.vcpus {
            Some(vcpus) => tailbound_agent::metrics::encode(vcpus, encoder),
            None => Ok(()),
        }
    }
}

impl HostCounts {
    fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        self.encode_crossed(encoder)?;
        self.encode_interfaces(encoder)?;
        self.encode_queued(encoder)?;
        gauge(
            encoder,
            "tailbound_port_up",
            "1 while the port's interface is there, or its guest uses its card",
            &self.per_port(|port| vec![([label(port)], u64::from(port.link == Link::Up))]),
        )?;
        let guests = self.snapshot.guests.iter();
        let drained = guests.clone().filter(|guest| guest.drained);
        gauge(
            encoder,
            "tailbound_guest_drained",
            "1 while the guest's port is not read, as it is drained",
            &drained
                .map(|guest| ([("guest", guest.port.name.clone())], 1))
                .collect::<Vec<_>>(),
        )?;
        let away = guests.clone().filter(|guest| guest.port.link == Link::Away);
        gauge(
            encoder,
            "tailbound_guest_away",
            "1 while the guest is on another host or nowhere, as its card is not in use",
            &away
                .map(|guest| ([("guest", guest.port.name.clone())], 1))
                .collect::<Vec<_>>(),
        )?;
        let borrowing = guests.clone().filter(|guest| guest.port.borrowed.0 > 0);
        gauge(
            encoder,
            "tailbound_guest_memory_bytes",
            "memory of the guest that is charged to this process, which touched it first",
            &borrowing
                .map(|guest| ([("guest", guest.port.name.clone())], guest.port.borrowed.0))
                .collect::<Vec<_>>(),
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
        self.encode_class(encoder)?;
        self.encode_aside(encoder)?;
        self.sojourns(encoder)
    }

    /// Encodes the class of the packet loop.
    fn encode_class(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        encoder
            .family(
                "tailbound_loop_real_time",
                "1 if the packet loop has a real-time class: without one the loop is late on a busy host",
                Unit::None,
                Kind::Gauge,
            )?
            .number(u64::from(self.class.is_real_time))?;
        counter::<0>(
            encoder,
            "tailbound_loop_class_left",
            "Times that the packet loop left its real-time class, as it had packets without end",
            &[([], self.class.left)],
        )
    }

    /// Encodes the times of the packet loop's work beside packets.
    fn encode_aside(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        let mut turns = encoder.family(
            "tailbound_loop_aside",
            "CPU time of the packet loop's turns in which it did something beside packets",
            Unit::Seconds,
            Kind::Histogram,
        )?;
        turns.histogram(&self.aside.turns)?;
        encoder
            .family(
                "tailbound_loop_aside_max",
                "The longest of them",
                Unit::Seconds,
                Kind::Gauge,
            )?
            .number(self.aside.longest.as_secs_f64())
    }

    /// Encodes each port's received, sent and dropped packets.
    fn encode_crossed(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
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

    /// Encodes the drops of interfaces behind packet sockets.
    fn encode_interfaces(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        counter(
            encoder,
            "tailbound_interface_drops",
            "Packets sent to the port and dropped by its interface since its creation, because \
                the peer (for example a VM) does not receive them",
            &self.per_port(|port| {
                let dropped = self.inventory.dropped_by_interface(&port.name);
                dropped
                    .map(|count| ([label(port)], count))
                    .into_iter()
                    .collect()
            }),
        )
    }

    /// Encodes the queue, the meter and the segmentation of each port.
    fn encode_queued(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
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
                vec![of("small", port.meter.small), of("lowest", port.meter.bulk)]
            }),
        )?;
        counter(
            encoder,
            "tailbound_meter_over_budget",
            "Packets of small flows beyond their guest's budget or the common budget",
            &self.per_port(|port| vec![([label(port)], port.meter.over_budget)]),
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

    fn sojourns(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
        let mut family = encoder.family(
            "tailbound_sojourn",
            "Queueing delay of a guest's packets in software queues",
            Unit::Seconds,
            Kind::Histogram,
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
                family.with(&labels)?.histogram(histogram)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_metrics::Format;

    #[test]
    fn in_protobuf_500_guests_with_full_histograms_are_a_megabyte_at_most() {
        let mut histogram = tailbound_metrics::Histogram::default();
        for micros in 1..5_000 {
            histogram.record(tailbound_units::Nanos::from_micros(micros));
        }
        let guest = |number: usize| {
            let sojourn = |direction| Sojourn {
                direction,
                class: "best_effort",
                histogram: histogram.clone(),
            };
            tailbound_switch::GuestSnapshot {
                id: tailbound_dataplane::GuestId::first(number as u32),
                port: PortSnapshot {
                    name: format!("guest-{number}"),
                    ..PortSnapshot::default()
                },
                drained: false,
                limit: None,
                sojourns: vec![sojourn("sent"), sojourn("received")],
                inward: None,
                pacing: None,
                snoop: None,
            }
        };
        let exposition = Exposition {
            host: Some(HostCounts {
                snapshot: Arc::new(Snapshot {
                    guests: (0..500).map(guest).collect(),
                    ..Snapshot::default()
                }),
                guarantees: Arc::default(),
                hose: None,
                reloads_applied: 0,
                reloads_refused: 0,
                aside: AsideTimes::default(),
                class: ClassState::default(),
                inventory: Arc::default(),
            }),
            ..Exposition::default()
        };
        let protobuf = Format::Protobuf
            .encode(exposition.clone())
            .expect("written");
        assert!(protobuf.len() < 1_000_000, "{} bytes", protobuf.len());
        let text = Format::Text.encode(exposition).expect("written");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("le=\"32.0\"") && text.ends_with("# EOF\n"));
    }
}
