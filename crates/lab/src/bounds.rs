//! Bounds of the latencies that a variant's loads measure: those that its guarantees promise, and
//! those that network calculus computes. Pure.
//!
//! The promised bound is Silo's message latency (4.1): M/Bmax + d for a message of at most S, and
//! (M - S)/B more for the rest of a longer message, for each direction. The computed bound replaces
//! d by the longest wait of a frame in this data centre: in its host for a batch and for the bursts
//! of the host's other guests, and at the switch's port for the bursts of all permitted senders.
//! Neither bound includes processing times.

use crate::experiment::{Guaranteed, LabExperiment, Pacing, SwitchMode, Variant, Watch};
use std::collections::BTreeMap;
use tailbound_experiment::{COMPUTED, Name, PROMISED};
use tailbound_netcalc::{Flow, Network, Port, PortId};
use tailbound_report::Bound;
use tailbound_units::{Bytes, Nanos, Rate};

/// Overhead of a TCP segment on the wire in bytes: Ethernet's 14 B and 24 B around a frame, IPv4's
/// 20 B, TCP's 32 B with time stamps.
const TCP: u64 = 90;
/// An echo request of 56 B on the wire.
const ECHO: Bytes = Bytes(122);
/// Size of a request for a value: `get`, a key of at most 250 B, and its end.
const GET: u64 = 256;
/// Overhead of a value in an answer, in bytes: the head with the key, and the end.
const AROUND_VALUE: u64 = 280;

/// One message of a load: its possible senders and receivers, and its size on the wire.
struct Leg<'a> {
    from: Vec<&'a Name>,
    to: Vec<&'a Name>,
    size: Bytes,
}

/// Delay that the placement service promised to each tenant.
pub(crate) type Promises = BTreeMap<String, Nanos>;

/// Returns the bounds of each series that the variant's loads measure, if there are any. If the
/// placement service made promises, these are the promised delays.
pub(crate) fn of(
    experiment: &LabExperiment,
    variant: &Variant,
    service: Option<&Promises>,
) -> BTreeMap<String, Vec<Bound>> {
    let mut bounds = BTreeMap::new();
    let Some(pacing) = experiment.pacing(variant) else {
        return bounds;
    };
    let setting = BoundContext {
        experiment,
        variant,
        pacing,
        service,
    };
    for (series, legs) in paths_of_series(experiment, variant) {
        let named = [(PROMISED, false), (COMPUTED, true)];
        let series_bounds: Vec<Bound> = named
            .into_iter()
            .filter_map(|(name, computed)| {
                let each = legs.iter().map(|leg| setting.latency(leg, computed));
                let sum = each.sum::<Option<u64>>()?;
                Some(Bound {
                    name: name.to_owned(),
                    value: sum,
                })
            })
            .collect();
        if !series_bounds.is_empty() {
            bounds.insert(series.to_owned(), series_bounds);
        }
    }
    for watch in variant.running(&experiment.watch) {
        if let Some(delay) = setting.watched(watch) {
            let bound = Bound {
                name: COMPUTED.to_owned(),
                value: delay.as_nanos(),
            };
            bounds.insert(watch.series.clone(), vec![bound]);
        }
    }
    bounds
}

/// Returns the longest wait of a conforming frame in a host before the wire; `None` without a
/// bound.
pub(crate) fn own_queue(
    experiment: &LabExperiment,
    variant: &Variant,
    pacing: &Pacing,
    host: &str,
) -> Option<Nanos> {
    let setting = BoundContext {
        experiment,
        variant,
        pacing,
        service: None,
    };
    setting.uplink(host)
}

/// Returns the messages behind each sample of each running load.
fn paths_of_series<'a>(
    experiment: &'a LabExperiment,
    variant: &Variant,
) -> Vec<(&'a str, Vec<Leg<'a>>)> {
    let mut paths = Vec::new();
    let leg = |from: &Vec<&'a Name>, to: &Vec<&'a Name>, size| Leg {
        from: from.clone(),
        to: to.clone(),
        size,
    };
    let round = |[asks, answers]: [Vec<&'a Name>; 2], [there, back]: [Bytes; 2]| {
        vec![leg(&asks, &answers, there), leg(&answers, &asks, back)]
    };
    for etc in variant.running(&experiment.etc) {
        let ends = [etc.clients.iter().collect(), vec![&etc.server]];
        let sizes = [Bytes(GET), etc.largest + Bytes(AROUND_VALUE)];
        paths.push((etc.series.as_str(), round(ends, sizes.map(by_tcp))));
    }
    for query in variant.running(&experiment.query) {
        let ends = [vec![&query.client], query.servers.iter().collect()];
        let sizes = [Bytes(8), query.answer];
        paths.push((query.series.as_str(), round(ends, sizes.map(by_tcp))));
    }
    for ping in variant.running(&experiment.ping) {
        let ends = [vec![&ping.from], vec![&ping.to]];
        paths.push((ping.series.as_str(), round(ends, [ECHO; 2])));
    }
    // A message that starts at a random time may be queued behind an unbounded number of other
    // messages of its guest.
    let messages = variant.running(&experiment.message);
    for message in messages.filter(|load| load.every.is_some()) {
        let [from, to] = [&message.from, &message.to].map(|names| names.iter().collect());
        // A VM's own kernel and vCPU are before one ring and behind the other.
        let series = message.ring.as_ref().unwrap_or(&message.series);
        paths.push((series.as_str(), vec![leg(&from, &to, message.size)]));
    }
    paths
}

/// Returns the size of a message with this payload on the wire, as TCP segments.
fn by_tcp(payload: Bytes) -> Bytes {
    Bytes(payload.as_u64() + payload.as_u64().div_ceil(1448) * TCP)
}

/// Limit of the VMs that send to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// {B, S} of each sender.
    Senders,
    /// {`B_i`, S} of each pair: B of each receiver in total.
    Pairs,
}

struct BoundContext<'a> {
    experiment: &'a LabExperiment,
    variant: &'a Variant,
    pacing: &'a Pacing,
    service: Option<&'a Promises>,
}

impl<'a> BoundContext<'a> {
    fn link(&self) -> Rate {
        self.experiment.link_rate
    }

    fn guaranteed(&self, guest: &str) -> Option<&'a Guaranteed> {
        self.experiment.guarantee_of(self.variant, guest)
    }

    /// Returns the longest time of a leg's message in nanoseconds; `None` if a guest on the path
    /// has no guarantee, or without a bound.
    fn latency(&self, leg: &Leg<'_>, computed: bool) -> Option<u64> {
        let mut longest = 0;
        for from in &leg.from {
            let sender = self.guaranteed(from.get_ref())?;
            let shape = self.shaped(sender, leg.size);
            for to in &leg.to {
                let delay = if computed {
                    let [from, to] = [from, to].map(|guest| self.host_of(guest.get_ref()));
                    self.network(from?, to?)?
                } else {
                    self.promised(sender)?
                };
                longest = longest.max(shape.saturating_add(delay).as_nanos());
            }
        }
        Some(longest)
    }

    /// Returns the delay d of a tenant.
    fn promised(&self, sender: &Guaranteed) -> Option<Nanos> {
        match self.service {
            Some(promises) => promises.get(sender.tenant.get_ref()).copied(),
            None => sender.delay,
        }
    }

    /// Returns the delay of a message in the sender's own token buckets.
    fn shaped(&self, sender: &Guaranteed, size: Bytes) -> Nanos {
        let fast = size.min(sender.burst);
        let slow = Bytes(size.as_u64() - fast.as_u64());
        let burst = sender.burst_rate(self.pacing, self.link()).time_for(fast);
        burst.saturating_add(sender.bandwidth.time_for(slow))
    }

    fn host_of(&self, guest: &str) -> Option<&'a str> {
        self.experiment.host_of(guest)
    }

    /// Returns the longest wait of a conforming frame between two hosts.
    fn network(&self, from: &str, to: &str) -> Option<Nanos> {
        let uplink = self.uplink(from)?;
        let hosts = self.experiment.hosts.keys();
        // Bytes that all hosts' uplinks may bunch up arrive at this port together.
        let bunched = hosts
            .map(|host| self.uplink(host))
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .max()?;
        Some(uplink.saturating_add(self.port(to, bunched)?))
    }

    /// Returns the bound at a host's own uplink: the bursts of its guests, after a batch that was
    /// begun and the largest backlog of the wire.
    fn uplink(&self, host: &str) -> Option<Nanos> {
        let guests = self.experiment.hosts.get(host)?;
        let members = guests
            .iter()
            .filter_map(|guest| self.guaranteed(guest.get_ref()));
        let flows = members
            .map(|member| self.traffic(member, member.bandwidth, member.burst, 1, Nanos::ZERO));
        let wait = self.pacing.batch.saturating_add(self.pacing.catch_up);
        let mut flows = flows.collect::<Option<Vec<_>>>()?;
        flows.extend(self.beside());
        self.bound(flows, wait)
    }

    /// Returns the traffic that a host sends past its pacer, which is also the traffic of this kind
    /// from all other hosts: bursts of one frame of each other host.
    fn beside(&self) -> Option<Traffic> {
        let rate = self.pacing.beside;
        let others = self.experiment.hosts.len() as u64 - 1;
        let burst = Bytes(self.pacing.frame().as_u64() * others);
        (rate > Rate::ZERO).then(|| Traffic {
            rate,
            burst,
            burst_rate: self.link(),
        })
    }

    /// Returns the bound at the switch's port towards a host: the traffic of each tenant's VMs
    /// elsewhere to those of this host, by the tighter limit: of the senders, or of their pairs.
    fn port(&self, host: &str, bunched: Nanos) -> Option<Nanos> {
        let limits = [Limit::Senders, Limit::Pairs].into_iter();
        limits
            .filter_map(|limit| self.port_by(host, bunched, limit))
            .min()
    }

    /// Returns the bound at this port by one of the limits.
    fn port_by(&self, host: &str, bunched: Nanos, limit: Limit) -> Option<Nanos> {
        let here = self.experiment.hosts.get(host)?;
        let mut flows = Vec::new();
        for member in self.experiment.guarantees(self.variant) {
            let machines = self.experiment.tenant.get(member.tenant.get_ref())?;
            let inside = |guest: &&Name| here.iter().any(|g| g.get_ref() == guest.get_ref());
            let receivers = machines.iter().filter(inside).count() as u64;
            let senders = machines.len() as u64 - receivers;
            if senders == 0 || receivers == 0 {
                continue;
            }
            // Without rates agreed between hosts, the traffic to a receiver has no limit.
            let by_pairs = limit == Limit::Pairs && receivers < senders;
            let (sending, bursts) = match self.pacing.hose {
                Some(_) if by_pairs => {
                    let pair = member.burst;
                    (receivers, pair.as_u64().checked_mul(receivers)?)
                }
                _ => (senders, member.burst.as_u64()),
            };
            let rate = Rate(member.bandwidth.as_bit_s().checked_mul(sending)?);
            let bursts = Bytes(bursts.checked_mul(senders)?);
            flows.push(self.traffic(member, rate, bursts, senders, bunched)?);
        }
        flows.extend(self.beside());
        let all = self.experiment.guests();
        let mut others = all.filter(|(_, guest)| self.guaranteed(guest).is_none());
        let wait = match (others.next().is_some(), self.variant.switch) {
            (false, _) => Nanos::ZERO,
            // One best-effort frame may be in transmission.
            (true, SwitchMode::TagsHonoured) => self.link().time_for(self.pacing.frame()),
            (true, SwitchMode::TagsIgnored) => return None,
        };
        self.bound(flows, wait)
    }

    /// Returns the longest wait of a message's datagram in a watched port, if each sender keeps to
    /// its share of its receiver's bandwidth.
    fn watched(&self, watch: &Watch) -> Option<Nanos> {
        let host = watch.host.get_ref();
        let mut network = Network::new(self.pacing.frame(), true);
        let port = network.add_port(self.wire(Nanos::ZERO));
        let mut uplinks = BTreeMap::new();
        let loads = self.variant.running(&self.experiment.message);
        for load in loads.filter(|load| !load.to.is_empty()) {
            let receiver = |sender: usize| &load.to[sender % load.to.len()];
            for (index, from) in load.from.iter().enumerate() {
                let to = receiver(index).get_ref();
                if self.host_of(to) != Some(host) {
                    continue;
                }
                let all = 0..load.from.len();
                let senders = all.filter(|&other| receiver(other).get_ref() == to).count();
                let share = self.guaranteed(to)?.bandwidth.as_bit_s() / senders as u64;
                let sender = self.guaranteed(from.get_ref())?;
                let uplink = uplinks
                    .entry(self.host_of(from.get_ref())?)
                    .or_insert_with(|| network.add_port(self.wire(Nanos::ZERO)));
                let rate = Rate(share).min(sender.bandwidth);
                let traffic = Traffic {
                    rate,
                    burst: sender.burst,
                    burst_rate: self.member_rate(sender),
                };
                network.add_flow(traffic.flow(vec![*uplink, port]));
            }
        }
        first_delay(&network)
    }

    /// Returns the link behind a port with this latency.
    fn wire(&self, latency: Nanos) -> Port {
        Port {
            name: String::new(),
            rate: self.link(),
            latency,
            buffer: None,
        }
    }

    /// Returns the traffic of `machines` VMs of a tenant with this average rate and these bursts,
    /// each of them bunched up over at most `bunched`.
    fn traffic(
        &self,
        member: &Guaranteed,
        rate: Rate,
        burst: Bytes,
        machines: u64,
        bunched: Nanos,
    ) -> Option<Traffic> {
        let burst = burst
            .as_u64()
            .checked_add(rate.bytes_in(bunched).as_u64())?;
        let fast = self.member_rate(member).as_bit_s().checked_mul(machines)?;
        Some(Traffic {
            rate,
            burst: Bytes(burst),
            burst_rate: Rate(fast).max(rate),
        })
    }

    fn member_rate(&self, member: &Guaranteed) -> Rate {
        member.burst_rate(self.pacing, self.link())
    }

    /// Returns the delay of a port that all these flows share.
    fn bound(&self, flows: Vec<Traffic>, latency: Nanos) -> Option<Nanos> {
        if flows.is_empty() {
            return Some(latency);
        }
        let mut network = Network::new(self.pacing.frame(), true);
        let port = network.add_port(self.wire(latency));
        for traffic in flows {
            network.add_flow(traffic.flow(vec![port]));
        }
        first_delay(&network)
    }
}

/// Traffic of one or more senders.
struct Traffic {
    /// The average rate.
    rate: Rate,
    burst: Bytes,
    /// The rate of the burst.
    burst_rate: Rate,
}

impl Traffic {
    /// Returns the flow of this traffic on a path.
    fn flow(self, path: Vec<PortId>) -> Flow {
        Flow {
            name: String::new(),
            path,
            rate: self.rate,
            burst: self.burst,
            burst_rate: Some(self.burst_rate),
            priority: 0,
            deadline: None,
        }
    }
}

/// Returns the longest delay of a network's first port.
fn first_delay(network: &Network) -> Option<Nanos> {
    let bounds = network.bounds().ok()?;
    let classes = bounds.ports.first()?.classes.iter();
    classes.map(|class| class.delay).max()?.to_nanos().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::testing::{embedded, parse};

    fn bounds(change: impl Fn(&str) -> String, variant: &str) -> BTreeMap<String, Vec<Bound>> {
        bounds_of("memcached", change, variant)
    }

    fn bounds_of(
        name: &str,
        change: impl Fn(&str) -> String,
        variant: &str,
    ) -> BTreeMap<String, Vec<Bound>> {
        let experiment = parse(&change(&embedded(name))).unwrap();
        let mut variants = experiment.variant.iter();
        let variant = variants.find(|v| v.name.get_ref() == variant).unwrap();
        of(&experiment, variant, None)
    }

    fn named(bounds: &BTreeMap<String, Vec<Bound>>, name: &str) -> Option<u64> {
        let mut latency = bounds.get("latency")?.iter();
        latency.find(|bound| bound.name == name).map(|b| b.value)
    }

    #[test]
    fn memcacheds_promise_is_200_times_that_of_silo() {
        // Silo, 6.1: 2.01 ms, two ways of 1 ms and two messages at 1 Gbit/s.
        let promised = named(&bounds(str::to_owned, "req-3"), "promised").unwrap();
        assert!((401_800_000..403_000_000).contains(&promised), "{promised}");
    }

    #[test]
    fn a_watched_port_has_the_bound_of_silos_figure() {
        // `tailbound calc experiments/networks/silo-figure-5a.toml` and `-5b.toml`, at
        // a hundredth of the rates; a frame is 38 B longer here.
        for (variant, calculated) in [("a", 33_804_800), ("b", 28_355_200)] {
            let bounds = bounds_of("burst", str::to_owned, variant);
            let delay = bounds["queue_delay"][0].value;
            assert!(delay.abs_diff(calculated) < 100_000, "{variant}: {delay}");
        }
    }

    #[test]
    fn the_services_delay_replaces_the_requested_one_in_bounds() {
        let experiment = parse(&embedded("memcached")).unwrap();
        let variant = experiment
            .variant
            .iter()
            .find(|v| v.name.get_ref() == "req-3");
        let delay = |name: &str| {
            let promises = Promises::from([(name.to_owned(), Nanos::from_millis(7))]);
            named(
                &of(&experiment, variant.unwrap(), Some(&promises)),
                "promised",
            )
        };
        let asked = named(&of(&experiment, variant.unwrap(), None), "promised").unwrap();
        let told = delay("memcached").unwrap();
        // Two ways, of 200 ms each in the experiment.
        assert_eq!(asked - told, 2 * (200 - 7) * 1_000_000);
        assert_eq!(delay("bulk"), None);
    }

    #[test]
    fn messages_at_random_moments_have_no_bound() {
        assert_eq!(bounds_of("noisy", str::to_owned, "quiet"), BTreeMap::new());
    }

    #[test]
    fn a_variant_without_guarantees_has_no_bound() {
        assert_eq!(bounds(str::to_owned, "unprotected"), BTreeMap::new());
    }

    #[test]
    fn a_computed_bound_requires_hose_rates() {
        let hose = |with: &str| {
            let with = with.to_owned();
            move |text: &str| {
                let pacer = text.lines().find(|line| line.starts_with("pacer = "));
                text.replace(pacer.unwrap(), &with)
            }
        };
        let without = bounds(hose("pacer = { batch = \"5ms\" }"), "req-3");
        // 12 machines of 15.96 Mbit/s may send to one port of 50 Mbit/s.
        assert_eq!(named(&without, "computed"), None);
        let with = bounds(hose("pacer = { batch = \"5ms\", hose = \"1ms\" }"), "req-3");
        let computed = named(&with, "computed").unwrap();
        assert!(computed < named(&with, "promised").unwrap(), "{computed}");
        // A batch, three frames of others at the uplink and twelve at the port, each way.
        assert!(computed > 2 * (5_000_000 + 15 * 246_080), "{computed}");
        let alone = |text: &str| text.replace("beside = \"1.2Mbit/s\"", "");
        let more = named(&bounds(str::to_owned, "req-3-hose"), "computed").unwrap()
            - named(&bounds(alone, "req-3-hose"), "computed").unwrap();
        // Three frames of others at the uplink and three at the port, each way.
        assert!(more > 2 * 6 * 246_080, "{more}");
    }
}
