//! The packet loop allocates nothing for a packet after its warm-up.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use tailbound_dataplane::{
    EgressConfig, Guarantee, PacedPipelineConfig, PacerConfig, Packet, PipelineConfig, Pool,
};
use tailbound_switch::port::{BURST, Burst, More, Outgoing, Port, Received, TransmitResult};
use tailbound_switch::{GuestConfig, Mac, PortIndex, Switch, SwitchConfig};
use tailbound_units::{Bytes, Nanos, Rate};

const GUEST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const GATEWAY: Mac = Mac([2, 9, 9, 9, 9, 9]);

/// A wire that takes everything, and always has this many full frames to receive.
struct Endless(usize);

impl Port for Endless {
    fn receive(&mut self, _now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        for _ in 0..BURST.min(self.0) {
            let mut buffer = pool.buffer(Pool::SMALL);
            let frame = &mut buffer[Packet::HEADROOM..][..1514];
            frame.fill(0);
            frame[..6].copy_from_slice(&GATEWAY.0);
            frame[6..12].copy_from_slice(&GUEST.0);
            frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
            frame[16..18].copy_from_slice(&1500u16.to_be_bytes());
            frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
            burst.frames.push(Received {
                buffer,
                start: Packet::HEADROOM,
                len: 1514,
                virtio: None,
            });
        }
        Ok(More::No)
    }

    fn transmit(
        &mut self,
        _now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let packets = outgoing.len() as u64;
        outgoing.clear();
        Ok(TransmitResult {
            packets,
            ..TransmitResult::default()
        })
    }
}

/// Runs the switch, with the guest's port readable once in each of these milliseconds.
fn run(switch: &mut Switch, ports: &mut [Option<Box<dyn Port>>], milliseconds: Range<u64>) {
    for millisecond in milliseconds {
        let mut now = Nanos::from_secs(1) + Nanos::from_millis(millisecond);
        let end = now + Nanos::from_millis(1);
        switch.handle_readable(PortIndex(1));
        loop {
            assert!(switch.poll(now, ports).gone.is_empty());
            match switch.poll_at(ports) {
                Some(at) if at < end => now = now.max(at),
                _ => break,
            }
        }
    }
}

fn sent(switch: &mut Switch, ports: &mut [Option<Box<dyn Port>>]) -> u64 {
    let snapshot = switch.snapshot(ports);
    snapshot.uplink.expect("there is one").port.sent.0
}

#[test]
fn a_warm_data_path_allocates_no_memory() {
    let link = Rate::from_mbit(1000);
    let guarantee = Guarantee::new(Rate::from_mbit(100), Bytes(15_380), link);
    for (paced, guarantee) in [(true, Some(guarantee)), (true, None), (false, None)] {
        let uplink = if paced {
            EgressConfig::Pacer(PacedPipelineConfig::new(PacerConfig::strict(link)))
        } else {
            EgressConfig::Pipeline(PipelineConfig::default())
        };
        let config = SwitchConfig {
            outside: None,
            uplink: Some(uplink),
            guests: vec![GuestConfig {
                guarantee,
                ..GuestConfig::new("g", GUEST)
            }],
            classes: None,
        };
        let mut switch = Switch::new(config).expect("no rule is broken");
        let mut ports: Vec<Option<Box<dyn Port>>> = vec![
            Some(Box::new(Endless(0))),
            // Twice the guarantee.
            Some(Box::new(Endless(16))),
        ];
        // Until as much waits as a guest may have wait.
        run(&mut switch, &mut ports, 0..500);
        let before = sent(&mut switch, &mut ports);
        let counted = allocation_counter::measure(|| {
            run(&mut switch, &mut ports, 500..550);
        });
        let sent = sent(&mut switch, &mut ports);
        assert!(sent > before + 400, "{sent} after {before}");
        assert_eq!(counted.count_total, 0, "paced: {paced}, {guarantee:?}");
    }
}
