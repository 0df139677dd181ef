use super::*;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const RATE: &str = "20mbit";
const REQUESTS: usize = 60;

fn link(host: &str, end: &str) -> bool {
    let inner = format!("{host}{end}");
    let number = LINKS.iter().position(|link| *link == end).unwrap() + 1;
    namespace(&inner)
        && run(&format!(
            "ip -n {host} link add {end} type veth peer name eth0 netns {inner}"
        ))
        && run(&format!("ip -n {inner} link set eth0 up"))
        && run(&format!(
            "ip -n {inner} addr add 10.9.0.{number}/24 dev eth0"
        ))
}

/// The sockets of one side; they may be used from anywhere.
fn inside<T: Send>(host: &Host, end: &str, work: impl FnOnce() -> io::Result<T> + Send) -> T {
    let path = path_of(&format!("{}{end}", host.name));
    netns::within(&path, work).unwrap().unwrap()
}

/// A connection from `client` to port 80 of `server`, which is 10.9.0.`number`.
fn connected(host: &Host, client: &str, server: &str, number: u8) -> (TcpStream, TcpStream) {
    let listener = inside(host, server, || TcpListener::bind("0.0.0.0:80"));
    let near = inside(host, client, || {
        TcpStream::connect((Ipv4Addr::new(10, 9, 0, number), 80))
    });
    let far = listener.accept().unwrap().0;
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
    }
    (near, far)
}

/// A request; returns how long the server took for it, and how long the client waited, by their own
/// clocks.
fn ask(
    client: &mut TcpStream,
    server: &mut TcpStream,
    between: impl FnOnce(),
    answer: usize,
) -> [u64; 2] {
    let sent = timer::now().0;
    client.write_all(&[1; 200]).unwrap();
    server.read_exact(&mut [0; 200]).unwrap();
    let read = timer::now().0;
    between();
    let took = timer::now().0 - read;
    server.write_all(&vec![2; answer]).unwrap();
    client.read_exact(&mut vec![0; answer]).unwrap();
    [took, timer::now().0 - sent]
}

/// Sends a burst of datagrams from the neighbour to the outside.
fn bulk(sender: &UdpSocket, count: usize) {
    for _ in 0..count {
        let _ = sender.send_to(&[0; 1400], (Ipv4Addr::new(10, 9, 0, 3), 9));
    }
}

/// An answer waits behind a neighbour's burst: 100 datagrams take 58 ms.
fn waits_behind_a_neighbour(answer: usize, burst: u32) {
    let Some(mut host) = Host::new(Nanos(20_000_000), link) else {
        return;
    };
    host.shape(RATE, burst, 400_000);
    let (mut client, mut server) = connected(&host, OUTSIDE, GUEST, 1);
    let sender = inside(&host, NEIGHBOUR, || UdpSocket::bind("0.0.0.0:0"));
    let _sink = inside(&host, OUTSIDE, || UdpSocket::bind("0.0.0.0:9"));
    bulk(&sender, 1);
    std::thread::sleep(Duration::from_millis(20));
    let between = || {
        std::thread::sleep(Duration::from_millis(30));
        bulk(&sender, 100);
    };
    let [took, whole] = ask(&mut client, &mut server, between, answer);
    let requests = host.slow_requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    let [.., taken, answered, left] = request.times.map(|time| time.0);
    assert!(answered - taken >= took, "{request:?}");
    let waited = left - answered;
    assert!((25_000_000..=whole - took).contains(&waited), "{request:?}");
    assert_eq!(request.interface, host.index(OUTSIDE));
    assert_eq!(request.occupant, Occupant::Guest(1), "{request:?}");
    assert!(request.occupant_bytes > 60_000, "{request:?}");
    assert!(request.own_bytes < 20_000, "{request:?}");
    assert!(request.waited.outward.0 >= 25_000_000);
    assert_eq!((request.lost, request.neighbour), (0, None));
    let behind = host.read(0).behind;
    let key = (Direction::Out, request.interface, Occupant::Guest(1));
    assert!(behind.contains_key(&key), "{behind:?}");
    assert!(host.read(0).queue.outward.longest >= 25_000_000);
}

#[test]
fn an_answer_behind_a_neighbours_bulk_names_the_neighbour() {
    waits_behind_a_neighbour(100, 10_000);
}

/// A queue segments frames that are too long for it: the first segment has another address.
#[test]
fn an_answer_that_the_queue_segments_is_followed() {
    waits_behind_a_neighbour(12_000, 3_000);
}

#[test]
fn a_full_queue_drops_the_neighbours_packets_for_a_reason() {
    let Some(host) = Host::new(Nanos(20_000_000), link) else {
        return;
    };
    host.shape(RATE, 10_000, 20_000);
    let sender = inside(&host, NEIGHBOUR, || UdpSocket::bind("0.0.0.0:0"));
    let _sink = inside(&host, OUTSIDE, || UdpSocket::bind("0.0.0.0:9"));
    bulk(&sender, 1);
    std::thread::sleep(Duration::from_millis(20));
    bulk(&sender, 300);
    let drops = host.drops(1, Direction::Out);
    let total: u64 = drops.iter().map(|(_, count)| count).sum();
    assert!((150..300).contains(&total), "{drops:?}");
    let named = drops.iter().all(|(name, _)| name.contains("qdisc"));
    let old = drops.iter().all(|(name, _)| name.is_empty());
    assert!(named || old, "{drops:?}");
    assert!(host.drops(0, Direction::Out).is_empty());
    assert!(host.drops(1, Direction::In).is_empty());
}

#[test]
fn losses_of_a_guest_make_it_retransmit() {
    let Some(host) = Host::new(Nanos(20_000_000), link) else {
        return;
    };
    host.shape(RATE, 10_000, 12_000);
    let (mut client, mut server) = connected(&host, OUTSIDE, GUEST, 1);
    let reader = std::thread::spawn(move || client.read_exact(&mut vec![0; 2_000_000]));
    server.write_all(&vec![0; 2_000_000]).unwrap();
    reader.join().unwrap().unwrap();
    let measured = host.read(0);
    assert!(measured.retransmitted.outward > 0, "{measured:?}");
    assert_eq!(measured.retransmitted.inward, 0);
    assert!(!host.drops(0, Direction::Out).is_empty());
}

#[test]
fn a_reader_that_does_not_read_closes_its_window() {
    for (direction, client, server, number) in [
        (Direction::Out, OUTSIDE, GUEST, 1),
        (Direction::In, GUEST, OUTSIDE, 3),
    ] {
        let Some(host) = Host::new(Nanos(20_000_000), link) else {
            return;
        };
        let (mut client, mut server) = connected(&host, client, server, number);
        let timeout = Some(Duration::from_millis(300));
        client.set_write_timeout(timeout).unwrap();
        // Until nothing more goes in.
        while client.write_all(&[0; 10_000]).is_ok() {}
        let reader = std::thread::spawn(move || {
            server.set_read_timeout(timeout).unwrap();
            while server.read(&mut [0; 10_000]).is_ok_and(|length| length > 0) {}
        });
        reader.join().unwrap();
        let measured = host.read(0);
        let [of, other] = match direction {
            Direction::Out => [measured.closed.outward, measured.closed.inward],
            Direction::In => [measured.closed.inward, measured.closed.outward],
        };
        assert!(of > 0 && other == 0, "{direction:?}: {measured:?}");
        let time = measured.closed_time;
        let longest = time.inward.0.max(time.outward.0);
        assert!(longest >= 100_000_000, "{time:?}");
    }
}

#[test]
fn two_guests_are_never_mixed_up() {
    let Some(mut host) = Host::new(Nanos(0), link) else {
        return;
    };
    let guests = [(GUEST, 1, 2), (NEIGHBOUR, 2, 25)];
    let own = std::thread::scope(|scope| {
        let threads = guests.map(|(end, number, think)| {
            let (mut client, mut server) = connected(&host, OUTSIDE, end, number);
            scope.spawn(move || {
                let think = || std::thread::sleep(Duration::from_millis(think));
                (0..REQUESTS).fold([0, 0], |[took, whole], _| {
                    let of = ask(&mut client, &mut server, think, 500);
                    [took + of[0], whole + of[1]]
                })
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    for request in host.slow_requests() {
        let number = request.slot + 1;
        assert_eq!(request.guest.ip().to_string(), format!("10.9.0.{number}"));
        let ascending = request.times.is_sorted() && request.began <= request.times[0];
        assert!(ascending, "{request:?}");
    }
    for (slot, [took, whole]) in (0..).zip(own) {
        let measured = host.read(slot);
        assert_eq!(measured.served.whole.count(), REQUESTS as u64);
        assert_eq!(measured.made.begun, 0);
        assert!((took..=whole).contains(&measured.served.core.sum));
        assert!((took..=whole).contains(&measured.served.whole.sum));
    }
}

#[test]
fn a_guest_that_asks_another_is_on_both_sides_of_a_request() {
    let Some(mut host) = Host::new(Nanos(0), link) else {
        return;
    };
    let (mut client, mut server) = connected(&host, NEIGHBOUR, GUEST, 1);
    let think = || std::thread::sleep(Duration::from_millis(10));
    ask(&mut client, &mut server, think, 500);
    let mut kinds: Vec<_> = host.slow_requests();
    kinds.sort_by_key(|request| request.slot);
    let [answered, made] = kinds.as_slice() else {
        panic!("{kinds:?}");
    };
    assert_eq!((answered.kind, answered.slot), (Kind::Served, 0));
    assert_eq!((made.kind, made.slot), (Kind::Made, 1));
    assert_eq!(answered.guest, made.peer);
    assert_eq!((answered.neighbour, made.neighbour), (Some(1), Some(0)));
    assert!(answered.times[3].0 - answered.times[2].0 >= 10_000_000);
    assert!(made.times[2].0 - made.times[1].0 >= 10_000_000);
}
