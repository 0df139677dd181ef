//! Allocations of a host while rates are exchanged.

use super::net::{Faults, INTERVAL, Net, address, machine};
use crate::{Destination, FlowKey, GuestId, Usage};
use tailbound_units::{Bytes, Nanos, Rate};

const B: Rate = Rate::from_mbit(1000);

#[test]
fn a_sample_and_its_divisions_allocate_nothing() {
    let machines = (0..9).map(|host| vec![machine(host, 0, B, 9)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 5);
    net.run_for(Nanos::from_millis(5));
    for other in 1..9 {
        net.demand((other, 0), (0, 0), u64::MAX);
        net.demand((0, 0), (other, 0), u64::MAX);
    }
    net.run_for(Nanos::from_millis(20));
    let stats = net.hosts[0].state.stats(net.now);
    assert_eq!((stats.open, stats.granted), (8, 8));
    let clock = net.clock(0) + INTERVAL;
    let host = &mut net.hosts[0].state;
    let allocated = allocation_counter::measure(|| {
        for other in 1..9 {
            let flow = FlowKey {
                guest: GuestId(0),
                destination: Destination::Address(address(other, 0)),
            };
            let usage = Usage {
                taken: Bytes(15_000),
                lacks: Bytes(1538),
                waiting: true,
                queued: Bytes(1538),
            };
            host.handle_usage(clock, flow, usage);
        }
        host.handle_sample_end(clock);
        host.recompute(clock);
    });
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
}
