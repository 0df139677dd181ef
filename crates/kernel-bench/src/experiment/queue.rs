//! The BPF qdisc of an uplink beside `fq`, in one run: what each adds to a frame, burst and peak of what leaves, and
//! the wait of small messages beside bulk to another destination.

use crate::Outcome;
use crate::experiment::edge::{self, Costs, FAST, guaranteed};
use crate::experiment::stages;
use crate::figures::{Figures, Unit};
use crate::network::Guest;
use std::path::Path;
use tailbound_sys::departures::Log;
use tailbound_sys::edge::{Edge, PIN, UplinkQueue, UplinkRules, supports_bpf_queue};
use tailbound_units::Rate;

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let is_supported = match supports_bpf_queue() {
        Ok(()) => true,
        Err(why) => {
            eprintln!("no BPF qdisc: {why}");
            false
        }
    };
    figures.add("supported", u64::from(is_supported), Unit::Count);
    if !is_supported {
        return Ok(());
    }
    let network = edge::network()?;
    let [guest, other, outside] = network;
    stages::add_idle(guest, outside)?;
    let [mut costs, mut best] = [guest, other].map(|guest| Costs {
        base: Vec::new(),
        guest,
        outside,
    });
    costs.measure(figures, "bridge")?;
    best.measure(figures, "bridge.other")?;
    for (name, queue) in [("fq", UplinkQueue::Fq), ("bpf", UplinkQueue::Bpf)] {
        let before = edge::state()?;
        let mut of_queue = Figures::default();
        let mut both = [&mut costs, &mut best];
        measure(&mut of_queue, network, &mut both, queue)?;
        figures.add_all(name, of_queue);
        edge::is_as_before(&before)?;
    }
    Ok(())
}

/// Attaches a guest with a guarantee, another one without rules, and an uplink with the queue.
fn measure(
    figures: &mut Figures,
    network: [Guest; 3],
    costs: &mut [&mut Costs; 2],
    queue: UplinkQueue,
) -> Outcome<()> {
    let [guest, other, outside] = network;
    let mut edge = Edge::open(Path::new(PIN))?;
    let rules = UplinkRules {
        queue,
        ..UplinkRules::default()
    };
    edge.attach_uplink(outside.port(), &rules)?;
    let fast = guaranteed(guest, FAST, Rate::from_mbit(100_000));
    edge.attach_guest(guest.port(), &fast)?;
    costs[0].measure(figures, "more")?;
    costs[1].measure(figures, "more.best-effort")?;
    edge::add_programs(figures, guest, outside)?;
    let mut host = edge::Host {
        edge,
        log: Log::load(4096)?,
        guest,
        other,
        outside,
    };
    host.burst(figures)?;
    host.packets(figures)?;
    let edge::Host { edge, log, .. } = host;
    let mut host = stages::Host {
        edge,
        log,
        guest,
        outside,
    };
    host.edge.set(guest.port(), &stages::rules())?;
    host.measure(figures, "one")?;
    let destinations = stages::destinations(outside);
    host.edge.set_destinations(guest.port(), &destinations)?;
    host.measure(figures, "two")?;
    let late = host.edge.lateness()?.ok_or("lateness is not measured")?;
    figures.add("late.frames", late.frames(), Unit::Count);
    figures.add("late.host.max", late.max.0, Unit::Nanos);
    let counters = host.edge.counters(guest.port())?;
    figures.add("drops", counters.dropped(), Unit::Count);
    host.edge.remove()?;
    if Path::new(PIN).exists() {
        return Err("pins are left".into());
    }
    Ok(())
}
