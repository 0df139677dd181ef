//! Frames of admitted tenants in delay classes: hosts' own pacers, a switch with a queue for each
//! class, and the bounds of admission.
//!
//! A rack is filled with tenants of all classes. Then one host is attacked: all other machines of
//! each tenant there send their whole burst to it together, again and again, as soon as their
//! guarantees permit it. `TAILBOUND_PERIODS=3500` attacks with 10 million frames instead of 290,000.

use std::collections::{BTreeMap, VecDeque};
use tailbound_dataplane::pacer::DelayClass;
use tailbound_dataplane::pipeline::{Coverage, Outgoing, PacedPipeline, PacedPipelineConfig};
use tailbound_dataplane::{Classes, Fabric, Guarantee, GuestId, Mark, PacerConfig, PacketRecord};
use tailbound_placement::{
    Datacentre, Direction, FaultDomains, NodeId, Policy, PortId, Request, Spec, TenantId,
    bound_of_class,
};
use tailbound_units::{Bytes, Nanos, Rate};

const LINK: Rate = Rate::from_mbit(10_000);
/// A full frame on the wire.
const FRAME: Bytes = Bytes(1538);
/// Time at which buckets are full.
const START: Nanos = Nanos::from_secs(1);
const PERIODS: u64 = 100;
/// The guest without a guarantee on each host.
const BEST_EFFORT: u32 = 99;

/// Ten hosts behind 10 Gbit/s ports with 800 KB, and two delay classes.
const TREE: &str = r#"
frame = "1538B"
[[delay_class]]
queue = "50us"
mark = { dscp = 56, pcp = 7 }
[[delay_class]]
queue = "200us"
mark = { dscp = 48, pcp = 6 }
[[group]]
name = "r"
uplink = { rate = "10Gbit/s", buffer = "800KB" }
[[host]]
name = "h"
group = "r"
count = 10
slots = 8
uplink = { rate = "10Gbit/s", buffer = "800KB", up_buffer = "400KB" }
"#;

/// Silo's class A with faster bursts, this number of machines on as many hosts, and a delay.
fn request(vms: u32, delay: &str) -> Request {
    let text = format!(
        r#"
        vms = {vms}
        guarantee = {{ bandwidth = "250Mbit/s", burst = "15380B", burst_rate = "5Gbit/s", bursts = 1, delay = "{delay}" }}
        "#
    );
    let request: Request = toml::from_str(&text).expect("a request");
    Request {
        domains: Some(FaultDomains {
            height: 0,
            count: vms,
        }),
        ..request
    }
}

/// Admits tenants in turn, with these delays, until none fits.
fn filled(delays: &[&str]) -> Datacentre {
    let topology = Spec::from_toml(TREE).expect("a tree");
    let topology = topology.build().expect("no rule is broken");
    let mut dc = Datacentre::new(topology, Policy::Silo);
    let mut id = 0;
    let mut refused = 0;
    while refused < delays.len() as u64 {
        let vms = 3 + (id % 7) as u32;
        let delay = delays[id as usize % delays.len()];
        let request = dc.topology().with_class(request(vms, delay));
        match dc.admit(TenantId(id), &request) {
            Ok(_) => refused = 0,
            Err(_) => refused += 1,
        }
        id += 1;
    }
    dc
}

/// A frame at the switch.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Nanos,
    class: Option<u8>,
    is_guaranteed: bool,
}

/// The pacer of one host, and the tenants of its guests.
struct Host {
    pipeline: PacedPipeline<PacketRecord>,
    /// By guest: class and number of the frames of a burst, if the tenant is at the attacked host.
    guests: Vec<(Option<u8>, u64)>,
    free: Nanos,
}

impl Host {
    fn new() -> Self {
        let pacer = PacerConfig {
            voids: false,
            ..PacerConfig::strict(LINK)
        };
        let config = PacedPipelineConfig {
            classes: Classes::of(Fabric::GuaranteesFirst),
            ..PacedPipelineConfig::new(pacer)
        };
        Self {
            pipeline: PacedPipeline::new(config).expect("no rule is broken"),
            guests: Vec::new(),
            free: Nanos::ZERO,
        }
    }

    fn add(&mut self, request: &Request, sends: bool) {
        let given = request.guarantee.expect("all have one");
        let burst_rate = given.burst_rate.expect("all have one");
        let mut guarantee = Guarantee::new(given.bandwidth, given.burst, burst_rate);
        let mark = |number| Mark {
            dscp: 64 - 8 * number,
            pcp: 8 - number,
        };
        guarantee.class = given
            .class
            .and_then(|number| DelayClass::new(number, mark(number)));
        let guest = GuestId::first(self.guests.len() as u32);
        let pacer = self.pipeline.pacer_mut();
        pacer
            .set_guest(Nanos::ZERO, guest, Some(&guarantee))
            .expect("no rule is broken");
        let frames = if sends { given.burst.0 / FRAME.0 } else { 0 };
        self.guests.push((given.class, frames));
    }

    /// Lets all guests burst at `now`, and best effort send beside them; returns all frames until
    /// `next`.
    fn burst(&mut self, now: Nanos, next: Nanos, arrivals: &mut Vec<Arrival>) {
        for (guest, (_, frames)) in (0..).zip(&self.guests) {
            let frame = PacketRecord {
                guest,
                destination: 7,
                cut: false,
                ..PacketRecord::on_wire(FRAME.0)
            };
            let frames = (0..*frames).map(|_| frame);
            self.pipeline.push(now, frames, Coverage::AllDestinations);
        }
        let other = PacketRecord {
            guest: BEST_EFFORT,
            destination: 8,
            cut: false,
            ..PacketRecord::on_wire(FRAME.0)
        };
        self.pipeline
            .push(now, (0..40).map(|_| other), Coverage::AllDestinations);
        while let Some(at) = self.pipeline.poll_at().filter(|at| *at < next) {
            let Self {
                pipeline,
                guests,
                free,
            } = self;
            let wire = |outgoing: Outgoing<PacketRecord>, _| {
                let Outgoing::Frame { frame, launch_at } = outgoing else {
                    return;
                };
                let begin = (*free).max(launch_at.expect("there are no voids"));
                *free = begin + LINK.time_for(FRAME);
                let guest = guests.get(frame.guest as usize);
                arrivals.push(Arrival {
                    at: *free,
                    class: guest.and_then(|guest| guest.0),
                    is_guaranteed: guest.is_some(),
                });
            };
            pipeline.pull(at.max(now), wire, |_, _| {});
        }
    }
}

/// Number of attacks of a host.
fn periods() -> u64 {
    let set = std::env::var("TAILBOUND_PERIODS").ok();
    set.map_or(PERIODS, |text| text.parse().expect("a number"))
}

/// Returns the longest time from a frame's arrival at the port down to a host to its last bit's
/// departure, by class, with frames of the tenants for which `sends` is true.
fn attack(
    dc: &Datacentre,
    victim: NodeId,
    sends: impl Fn(Option<u8>) -> bool,
) -> BTreeMap<Option<u8>, (u64, Nanos)> {
    let hosts = dc.topology().hosts();
    let mut senders: Vec<Host> = hosts.iter().map(|_| Host::new()).collect();
    for (_, tenant) in dc.tenants() {
        let placed = tenant.placement.hosts();
        let has_victim = placed.iter().any(|(host, _)| *host == victim);
        let sends = has_victim && sends(tenant.request.class());
        for (host, count) in placed.iter().filter(|(host, _)| *host != victim) {
            let at = hosts.iter().position(|it| it == host).expect("a host");
            for _ in 0..*count {
                senders[at].add(&tenant.request, sends);
            }
        }
    }
    // Up to nine machines with bursts of 15,380 B to one of 250 Mbit/s.
    let period = Nanos(9 * 15_380 * 8 * 4);
    let mut arrivals = Vec::new();
    for number in 0..periods() {
        let now = START + Nanos(period.0 * number);
        for host in &mut senders {
            host.burst(now, now + period, &mut arrivals);
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    through_a_port(arrivals)
}

/// Serves each class before those below it.
fn through_a_port(arrivals: Vec<Arrival>) -> BTreeMap<Option<u8>, (u64, Nanos)> {
    let mut queues = [const { VecDeque::<Arrival>::new() }; 4];
    let mut longest: BTreeMap<Option<u8>, (u64, Nanos)> = BTreeMap::new();
    let mut arrivals = arrivals.into_iter().peekable();
    let mut now = START;
    loop {
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            let queue = match (arrival.class, arrival.is_guaranteed) {
                (Some(class), _) => usize::from(class) - 1,
                (None, true) => 2,
                (None, false) => 3,
            };
            queues[queue].push_back(arrival);
        }
        let Some(next) = queues.iter_mut().find_map(VecDeque::pop_front) else {
            match arrivals.peek() {
                Some(arrival) => now = arrival.at,
                None => return longest,
            }
            continue;
        };
        now += LINK.time_for(FRAME);
        if next.is_guaranteed {
            let (count, most) = longest.entry(next.class).or_default();
            *count += 1;
            *most = (*most).max(now.since(next.at));
        }
    }
}

fn down(host: NodeId) -> PortId {
    PortId {
        node: host,
        direction: Direction::Down,
    }
}

#[test]
fn no_frame_is_above_the_bound_of_its_class() {
    let dc = filled(&["100us", "400us", "1500us", "100us", "1500us"]);
    let mut worst: BTreeMap<Option<u8>, (u64, f64)> = BTreeMap::new();
    for victim in dc.topology().hosts() {
        for (class, (count, longest)) in attack(&dc, *victim, |_| true) {
            let port = down(*victim);
            let bound = bound_of_class(&dc, class, port).expect("it was admitted");
            let capacity = dc.topology().of_class(class).expect("it exists");
            let capacity = capacity.port(port).capacity;
            assert!(bound.delay <= capacity, "{bound:?} over {capacity}");
            assert!(longest <= bound.delay, "{class:?}: {longest}, {bound:?}");
            let (frames, tightness) = worst.entry(class).or_default();
            *frames += count;
            *tightness = tightness.max(longest.0 as f64 / bound.delay.0 as f64);
        }
    }
    println!("frames and worst wait of the bound: {worst:?}");
    assert_eq!(worst.len(), 3, "{worst:?}");
    for (class, (frames, tightness)) in worst {
        assert!(frames > 10_000 && tightness > 0.3, "{class:?}: {tightness}");
    }
}

#[test]
fn a_lower_class_makes_a_higher_one_late_by_a_frame_at_most() {
    let dc = filled(&["100us", "1500us", "400us"]);
    let frame = LINK.time_for(FRAME);
    for victim in dc.topology().hosts() {
        let all = attack(&dc, *victim, |_| true);
        for (class, highest) in [(Some(1), 1), (Some(2), 2)] {
            let alone = attack(&dc, *victim, |it| it.is_some_and(|it| it <= highest));
            let (Some((_, with)), Some((_, without))) = (all.get(&class), alone.get(&class)) else {
                continue;
            };
            // One frame at the sender's uplink, and one at the port.
            assert!(
                with.0 <= without.0 + 2 * frame.0,
                "class {class:?}: {with} beside lower classes, {without} without"
            );
        }
    }
}
