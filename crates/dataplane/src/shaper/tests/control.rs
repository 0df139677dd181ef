//! Control packets that bypass the queue, and their budget.

use super::harness::{Bench, GuestFrame, constant};
use crate::shaper::{BucketConfig, ControlConfig, ShaperConfig, WindowConfig};
use crate::{Control, PacketRecord, Shaper};
use tailbound_units::{Nanos, Rate};

const LIMIT: Rate = Rate::from_mbit(4);

fn smooth(control: ControlConfig) -> ShaperConfig {
    ShaperConfig::SmoothWindow(WindowConfig {
        control,
        ..WindowConfig::new(LIMIT)
    })
}

fn record(id: u64, control: Option<Control>, port: u16) -> PacketRecord {
    PacketRecord {
        id,
        port,
        control,
        ..PacketRecord::new(if control.is_some() { 66 } else { 1514 })
    }
}

/// A shaper in which data of port 1 waits.
fn waiting() -> Shaper<PacketRecord> {
    let mut shaper = Shaper::new(&smooth(ControlConfig::default())).expect("sound");
    for id in 0..20 {
        shaper.push(Nanos::ZERO, record(id, None, 1));
    }
    while shaper.pull(Nanos::ZERO).is_some() {}
    assert!(shaper.backlog().packets > 5);
    shaper
}

fn passes(shaper: &mut Shaper<PacketRecord>, control: Control, port: u16) -> bool {
    shaper.push(Nanos::ZERO, record(99, Some(control), port));
    let next = shaper.pull(Nanos::ZERO);
    next.is_some_and(|queued| queued.frame.id == 99)
}

#[test]
fn control_packets_bypass_queued_data() {
    for control in [
        Control::Opening,
        Control::Acknowledgement,
        Control::Neighbour,
        Control::Echo,
    ] {
        assert!(passes(&mut waiting(), control, 1), "{control:?}");
    }
    assert!(!passes(&mut waiting(), Control::Name, 1));
}

/// A RST that overtakes the data of its connection makes its peer drop what it has not read.
#[test]
fn closing_segments_wait_for_the_data_of_their_connection() {
    assert!(!passes(&mut waiting(), Control::Closing, 1));
    assert!(passes(&mut waiting(), Control::Closing, 2));
    let mut shaper = Shaper::new(&ShaperConfig::Bucket(BucketConfig::new(LIMIT))).expect("sound");
    assert!(passes(&mut shaper, Control::Closing, 1));
}

#[test]
fn dns_packets_bypass_by_option_and_long_packets_never() {
    let control = ControlConfig {
        dns: true,
        ..ControlConfig::default()
    };
    let mut shaper = Shaper::new(&smooth(control)).expect("sound");
    assert!(passes(&mut shaper, Control::Name, 1));
    let before = shaper.stats().at_once.packets;
    let echo = PacketRecord {
        control: Some(Control::Echo),
        ..PacketRecord::new(129)
    };
    shaper.push(Nanos::ZERO, echo);
    assert_eq!(shaper.stats().at_once.packets, before);
}

/// A guest that sends only control packets gets the budget and no more; connections open even then.
#[test]
fn a_flood_of_control_packets_gets_its_budget() {
    let mut bench = Bench::new(&smooth(ControlConfig::default()));
    let end = Nanos::from_secs(10);
    let gap = Nanos::from_micros(50);
    let flood = (0..200_000).map(|i| GuestFrame {
        control: Some(Control::Acknowledgement),
        ..GuestFrame::data(Nanos(i * gap.0), 66)
    });
    bench.run(flood, end);
    let stats = bench.shaper.stats();
    let allowed = LIMIT.percent(5).bytes_in(end).0 + 64 * 128;
    assert!(stats.at_once.bytes <= allowed, "{} B", stats.at_once.bytes);
    assert!(stats.at_once.bytes > allowed / 2);
    assert!(bench.worst_second() <= 500_000 + 10_000 + 1514);
    // All the same a connection is opened at once.
    assert!(passes(&mut bench.shaper, Control::Opening, 3));
}

/// Packets that bypassed the queue are charged: the waiting data gets less by their length.
#[test]
fn bypassing_control_packets_are_charged_to_the_limit() {
    let mut bench = Bench::new(&smooth(ControlConfig::default()));
    let end = Nanos::from_secs(10);
    let data = constant(1514, 8e6, (Nanos::ZERO, end));
    let acks = (0..10_000).map(|i| GuestFrame {
        control: Some(Control::Acknowledgement),
        ..GuestFrame::data(Nanos(i * 1_000_000 + 1), 66)
    });
    let mut all: Vec<_> = data.chain(acks).collect();
    all.sort_by_key(|sent| sent.at);
    bench.run(all, end);
    for second in &bench.seconds()[1..] {
        assert!(second.abs_diff(500_000) < 2_500, "{second} B");
    }
    assert!(bench.shaper.stats().at_once.bytes > 100_000);
}

#[test]
fn control_packets_without_a_budget_are_queued() {
    let control = ControlConfig {
        percent: 0,
        ..ControlConfig::default()
    };
    let mut shaper = Shaper::new(&smooth(control)).expect("sound");
    shaper.push(Nanos::ZERO, record(1, Some(Control::Opening), 1));
    assert_eq!(shaper.stats().at_once.packets, 0);
}
