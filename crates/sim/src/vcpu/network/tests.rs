//! Hosts with obvious results.

use super::frame::End;
use super::mail::{Mail, News};
use super::net::TalkingHost;
use super::net::{Net, Notice, Station};
use super::transfers::{self, Plan, Transfer};
use crate::scheduler::AnyScheduler;
use crate::tcp::TcpConfig;
use crate::xen_host::Steps;
use tailbound_hypervisor::netif::NetifConfig;
use tailbound_hypervisor::{
    Costs, Credit, CreditConfig, Domain, Guests, Host, Load, Machine, SimulationConfig, VcpuId,
    XenVersion,
};
use tailbound_units::{Bytes, Nanos};

/// A host with a driver domain, a receiver and `others` that never sleep.
fn host(others: u32, netif: NetifConfig, steps: Steps) -> TalkingHost {
    let mut host = Host::new(1).unwrap();
    for _ in 0..2 + others {
        let domain = host.add_domain(Domain::default()).unwrap();
        host.add_vcpu(domain).unwrap();
    }
    let credit: AnyScheduler = Box::new(Credit::new(CreditConfig::xen(XenVersion::V3_3), &host));
    let machine = Machine::new(&host, credit, Costs::default());
    let mut guests: Guests<_, _> = Guests::new(machine, SimulationConfig::default());
    for other in 0..others {
        guests.start_load(VcpuId(2 + other), Load::Endless);
    }
    TalkingHost::new(guests, netif, steps, || None)
}

fn transfers(host: TalkingHost, tcp: TcpConfig, size: u64) -> (Vec<Transfer>, u64) {
    let stations = vec![Station::Bare, Station::Guest(0, VcpuId(1))];
    let mut net = Net::new(tcp, vec![host], stations);
    let plan = Plan {
        size: Bytes(size),
        count: 20,
        parallel: 1,
        pause: Nanos::from_millis(100),
        seed: 3,
    };
    let done = transfers::run(&mut net, plan, Nanos::from_secs(1_000)).unwrap();
    (done, net.hosts()[0].dropped())
}

#[test]
fn an_idle_host_receives_at_the_rate_of_slow_start() {
    let quiet = host(0, NetifConfig::default(), Steps::PAPER);
    let (done, dropped) = transfers(quiet, TcpConfig::PAPER, 100_000);
    assert_eq!((done.len(), dropped), (20, 0));
    for transfer in &done {
        let took = transfer.sent.1 - transfer.sent.0;
        // Handshake, five flights, the end: seven round trips of 0.1 to 0.4 ms.
        assert!(took > Nanos::from_micros(700), "{took}");
        assert!(took < Nanos::from_millis(4), "{took}");
        assert_eq!(transfer.resent, (0, 0));
        // Never faster than its bytes are copied.
        assert!(transfer.throughput(Bytes(100_000)) <= 1_000_000_000);
    }
}

#[test]
fn each_flight_waits_until_the_driver_domain_receives_acks() {
    let steps = Steps {
        hears: Nanos::from_millis(10),
        ..Steps::PAPER
    };
    let quiet = host(0, NetifConfig::default(), steps);
    let (done, _) = transfers(quiet, TcpConfig::PAPER, 100_000);
    for transfer in &done {
        // 70 segments in flights that grow by half, from 3 on: the seventh has the last, six
        // times 10 ms behind the first.
        let took = (transfer.received.1 - transfer.received.0).as_millis_f64();
        assert!((59.5..60.5).contains(&took), "{took} ms");
    }
}

#[test]
fn a_full_ring_drops_frames_and_tcp_still_delivers_every_byte() {
    let tight = NetifConfig {
        least_target: 48,
        queue: 0,
        ..NetifConfig::default()
    };
    let steps = Steps {
        hears: Nanos::from_millis(10),
        ..Steps::PAPER
    };
    let (done, dropped) = transfers(host(0, tight, steps), TcpConfig::TODAY, 600_000);
    assert!(dropped > 0);
    assert_eq!(done.len(), 20);
    assert!(done.iter().any(|transfer| transfer.resent.0 > 0));
}

#[test]
fn busy_neighbours_make_a_transfer_wait_for_their_slices() {
    let alone = transfers(
        host(0, NetifConfig::default(), Steps::PAPER),
        TcpConfig::PAPER,
        1_000,
    );
    let beside = transfers(
        host(2, NetifConfig::default(), Steps::PAPER),
        TcpConfig::PAPER,
        1_000,
    );
    let longest = |done: &[Transfer]| {
        let took = done.iter().map(|it| it.sent.1 - it.sent.0).max();
        took.unwrap().as_millis_f64()
    };
    assert!(longest(&alone.0) < 1.0);
    // It sleeps between segments and so wakes in BOOST, but behind a neighbour that was
    // woken by nothing it never waits; what it waits for is its own debt.
    assert!(longest(&beside.0) < 200.0);
}

/// Two guests of two quiet hosts.
fn two_guests() -> Net {
    let quiet = || host(0, NetifConfig::default(), Steps::PAPER);
    let stations = vec![Station::Guest(0, VcpuId(1)), Station::Guest(1, VcpuId(1))];
    Net::new(TcpConfig::PAPER, vec![quiet(), quiet()], stations)
}

#[test]
fn messages_arrive_in_order_from_both_ends_of_a_connection() {
    let mut mail = Mail::new(two_guests());
    let end = mail.open(0, 1);
    let mut due: Vec<(End, u32)> = Vec::new();
    for number in 0..20 {
        // The one that accepts has no connection yet.
        let from = if number % 2 == 0 { end } else { end.peer() };
        mail.send(from, 1 + u64::from(number) * 997, number);
        due.push((from.peer(), number));
    }
    let mut came = Vec::new();
    while came.len() < due.len() {
        match mail.poll(Nanos::from_secs(10)).expect("all arrive") {
            News::Message(end, number) => came.push((end, number)),
            News::Wake(token) => panic!("nobody asked for {token}"),
        }
    }
    for end in [end, end.peer()] {
        let of = |all: &[(End, u32)]| -> Vec<u32> {
            all.iter()
                .filter(|(at, _)| *at == end)
                .map(|(_, it)| *it)
                .collect()
        };
        assert_eq!(of(&came), of(&due));
    }
}

#[test]
fn a_computing_guest_still_receives_frames_before_its_wake() {
    let mut mail: Mail<()> = Mail::new(two_guests());
    let end = mail.open(0, 1);
    mail.net.compute(1, Nanos::from_millis(50), 7);
    mail.send(end, 100, ());
    // The message is not held up by the 50 ms, but by a slice: the guest woke in BOOST, as the
    // driver domain does.
    assert!(matches!(
        mail.poll(Nanos::from_secs(1)),
        Some(News::Message(..))
    ));
    assert!(
        mail.net.now() < Nanos::from_millis(32),
        "{}",
        mail.net.now()
    );
    assert!(matches!(
        mail.poll(Nanos::from_secs(1)),
        Some(News::Wake(7))
    ));
    let took = mail.net.now();
    assert!(
        Nanos::from_millis(50) <= took && took < Nanos::from_millis(52),
        "{took}"
    );
}

#[test]
fn a_ping_of_an_idle_guest_takes_its_wire_and_cpu_time() {
    let stations = vec![Station::Bare, Station::Guest(0, VcpuId(1))];
    let quiet = host(0, NetifConfig::default(), Steps::PAPER);
    let mut net = Net::new(TcpConfig::PAPER, vec![quiet], stations);
    let end = net.link(0, 1);
    net.ping(end);
    assert_eq!(net.poll(Nanos::from_secs(1)), Some(Notice::Ready(end)));
    // Twice the wire, the NIC's 20 us, and some microseconds of CPU time.
    assert!(net.now() > Nanos::from_micros(96), "{}", net.now());
    assert!(net.now() < Nanos::from_micros(150), "{}", net.now());
    let marks = net.hosts()[0].marks();
    let order = [
        marks.arrived,
        marks.bridged,
        marks.taken,
        marks.answered,
        marks.left,
    ];
    assert!(
        order.is_sorted() && marks.arrived > Nanos::ZERO,
        "{order:?}"
    );
}
