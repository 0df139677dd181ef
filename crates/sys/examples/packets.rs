//! Prints once a second how packets of interfaces fare: `packets [-s SHIFT] IFACE...`, as root.
//! Times are a median and a 99th percentile since the start, in microseconds.

use std::time::Duration;
use tailbound_sys::bpf_program::count_cost;
use tailbound_sys::packets::{Direction, Event, Histogram, Reason, Settings, Tracer};
use tailbound_units::Nanos;

fn times(histogram: &Histogram) -> String {
    let [middle, late] = [0.5, 0.99].map(|share| histogram.quantile(share).0 / 1000);
    format!("{middle}/{late} ({})", histogram.count())
}

fn print(tracer: &Tracer, name: &str, slot: u32) -> Result<(), Box<dyn std::error::Error>> {
    let of = tracer.read(slot)?;
    println!(
        "{name}: packets {}/{} bytes {}/{} | in: queue {} host {} ring {} | out: queue {} host {}",
        of.packets.inward,
        of.packets.outward,
        of.bytes.inward,
        of.bytes.outward,
        times(&of.queue.inward),
        times(&of.host.inward),
        times(&of.ring),
        times(&of.queue.outward),
        times(&of.host.outward),
    );
    println!(
        "  served {} guest {} | made {} beyond {} | round trip outer {} guest {} | \
         retransmitted {}/{} of {}/{} | closed {}/{}",
        times(&of.served.whole),
        times(&of.served.core),
        times(&of.made.whole),
        times(&of.made.core),
        times(&of.round_trip_outer),
        times(&of.round_trip_guest),
        of.retransmitted.inward,
        of.retransmitted.outward,
        of.segments.inward,
        of.segments.outward,
        of.closed.inward,
        of.closed.outward,
    );
    for ((direction, reason), count) in &of.drops {
        let place = match (tracer.reason(*reason), reason) {
            (Some(name), _) => name.to_owned(),
            (None, Reason::Number(number)) => format!("reason {number}"),
            (None, Reason::Location(address)) => format!("{address:#x}"),
        };
        println!("  dropped {direction:?}: {count} {place}");
    }
    for ((direction, ifindex, occupant), delay) in &of.behind {
        let way = match direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let wait = delay.wait.0 / 1000;
        let packets = delay.packets;
        println!("  {way}: {packets} waited {wait} µs at {ifindex} behind {occupant:?}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let mut sample_shift = 0;
    if names.first().is_some_and(|first| first == "-s") {
        sample_shift = names.get(1).ok_or("-s takes a number")?.parse()?;
        names.drain(..2);
    }
    let mut tracer = Tracer::load(&Settings {
        slots: names.len() as u32,
        slow: Nanos(10_000_000),
        sample_shift,
    })?;
    let _counted = count_cost()?;
    for line in tracer.missing() {
        println!("missing: {line}");
    }
    for (slot, name) in (0..).zip(&names) {
        let ifindex = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))?;
        tracer.follow(ifindex.trim().parse()?, slot)?;
    }
    loop {
        let before = tracer.cost()?;
        std::thread::sleep(Duration::from_secs(1));
        for (slot, name) in (0..).zip(&names) {
            print(&tracer, name, slot)?;
        }
        tracer.events(|event| {
            if let Event::Slow(request) = event {
                println!("  {request:?}");
            }
        });
        for ((name, time, runs), (_, time_before, runs_before)) in tracer.cost()?.iter().zip(before)
        {
            let (time, runs) = (time.0 - time_before.0, runs - runs_before);
            let each = time.checked_div(runs).unwrap_or(0);
            println!("  {name}: {runs} runs, {each} ns each");
        }
    }
}
