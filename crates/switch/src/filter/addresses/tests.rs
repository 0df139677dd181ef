use super::*;
use crate::reason::Reason;
use crate::test_frames::*;
use proptest::prelude::*;

const UPLINK: PortIndex = PortIndex(0);
const A: GuestId = GuestId::first(7);
const B: GuestId = GuestId::first(9);
const ROUTER: Mac = Mac([2, 9, 9, 9, 9, 9]);
const NOBODY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

/// Returns a link-local address that is made of a secret.
fn secret(n: u64) -> Ipv6Addr {
    let identifier = 0x1234_5678_0000_0000 | n;
    Ipv6Addr::from(u128::from(identifier) | 0xfe80 << 112)
}

/// Guests A and B, and the outside.
struct Bench {
    book: AddressBook,
    forwarding: Forwarding,
    now: Nanos,
}

impl Bench {
    fn new() -> Self {
        let ports = [(MAC_A, PortIndex(1)), (MAC_B, PortIndex(2))];
        let mut bench = Self {
            book: AddressBook::default(),
            forwarding: Forwarding::new(3, Some(UPLINK), ports),
            now: Nanos::from_secs(1000),
        };
        bench.configure(
            &filter(MAC_A, vec![A6.into()]),
            &filter(MAC_B, vec![B6.into()]),
        );
        bench
    }

    fn reconfigure(&mut self, guests: [(GuestId, Option<&SpoofFilter>); 2]) {
        let mut configured = Configured::default();
        for (guest, filter) in guests {
            if let Some(filter) = filter {
                configured.add(guest, filter);
            }
        }
        self.book.reconfigure(configured);
        for (guest, filter) in guests {
            self.book.review(guest, filter);
        }
    }

    fn configure(&mut self, a: &SpoofFilter, b: &SpoofFilter) {
        self.reconfigure([(A, Some(a)), (B, Some(b))]);
    }

    fn check(&mut self, guest: GuestId, payload: &[u8]) -> Result<(), Reason> {
        let (mac, own, port) = if guest == A {
            (MAC_A, A6, 1)
        } else {
            (MAC_B, B6, 2)
        };
        let frame = ethernet(Mac::BROADCAST, mac, 0x86dd, payload);
        let mut sender = Sender {
            now: self.now,
            guest,
            port: PortIndex(port),
            book: &mut self.book,
            forwarding: &self.forwarding,
        };
        let packet = packet(&frame, None).expect("well formed");
        filter(mac, vec![own.into()]).check(&packet, &mut sender)
    }

    /// The guest sends a datagram from an address.
    fn send(&mut self, guest: GuestId, from: Ipv6Addr) -> Result<(), Reason> {
        self.check(guest, &ipv6(from, B6, 17, &udp(1, 2, b"x")))
    }

    /// The guest probes an address.
    fn ask(&mut self, guest: GuestId, target: Ipv6Addr) -> Result<(), Reason> {
        self.check(guest, &ipv6(NOBODY, B6, 58, &solicitation(target)))
    }

    fn advertise(&mut self, guest: GuestId, target: Ipv6Addr) -> Result<(), Reason> {
        let (mac, own) = if guest == A { (MAC_A, A6) } else { (MAC_B, B6) };
        self.check(guest, &ipv6(own, B6, 58, &advertisement(target, mac)))
    }

    /// A station outside sends neighbour discovery.
    fn outside(&mut self, mac: Mac, from: Ipv6Addr, message: &[u8]) {
        let frame = ethernet(Mac::BROADCAST, mac, 0x86dd, &ipv6(from, B6, 58, message));
        let packet = packet(&frame, None).expect("well formed");
        self.book.hear(self.now, &packet, None);
    }
}

/// Makes a filter that also permits chosen addresses in the prefix of its own ones.
fn filter(mac: Mac, own: Vec<Prefix>) -> SpoofFilter {
    let prefix = "fd77::/64".parse().expect("a prefix");
    SpoofFilter::new(mac, own).with_slaac([prefix], SpoofFilter::MOST_ADDRESSES)
}

fn solicitation(target: Ipv6Addr) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
}

fn router_advertisement() -> Vec<u8> {
    let mut message = vec![0; 16];
    message[0] = 134;
    message
}

#[test]
fn an_address_is_the_guests_that_shows_it_first() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(A, secret(1)), Ok(()));
    assert_eq!(bench.send(A, secret(1)), Ok(()));
    // To answer, to ask and to send is to claim it: all three are A's alone.
    assert_eq!(bench.advertise(B, secret(1)), Err(Reason::SpoofedNeighbour));
    assert_eq!(bench.ask(B, secret(1)), Err(Reason::SpoofedNeighbour));
    assert_eq!(bench.send(B, secret(1)), Err(Reason::SpoofedIp));
    assert_eq!(bench.advertise(A, secret(1)), Ok(()));
    // One that was never asked for, as after a restart of the host.
    assert_eq!(bench.send(B, secret(2)), Ok(()));
    assert_eq!(bench.send(A, secret(2)), Err(Reason::SpoofedIp));
}

#[test]
fn a_configured_address_belongs_to_its_guest_only() {
    let mut bench = Bench::new();
    let own_link_local = A_LINK_LOCAL;
    assert_eq!(bench.send(A, own_link_local), Ok(()));
    assert_eq!(bench.send(B, own_link_local), Err(Reason::SpoofedIp));
    assert_eq!(bench.ask(B, own_link_local), Err(Reason::SpoofedNeighbour));
    assert_eq!(bench.send(B, A6), Err(Reason::SpoofedIp));
    // In another one's whole prefix, and made of another one's MAC.
    let whole = |text: &str| vec![A6.into(), text.parse::<Prefix>().expect("a prefix")];
    let inside: Ipv6Addr = "fd77::1234:0:0:1".parse().expect("an address");
    bench.configure(
        &filter(MAC_A, whole("fd77::1234:0:0:0/80")),
        &filter(MAC_B, vec![B6.into()]),
    );
    assert_eq!(bench.send(B, inside), Err(Reason::SpoofedIp));
    let of_a: Ipv6Addr = "fd77::ff:fe00:1".parse().expect("an address");
    assert_eq!(bench.send(B, of_a), Err(Reason::SpoofedIp));
    assert_eq!(bench.send(A, of_a), Ok(()));
}

#[test]
fn addresses_that_people_give_are_not_to_be_chosen() {
    let mut bench = Bench::new();
    for text in [
        "fe80::1",
        "fe80::",
        "fd77::ffff:ffff",
        "fe80::fdff:ffff:ffff:fffe",
    ] {
        let address = text.parse().expect("an address");
        assert_eq!(bench.send(A, address), Err(Reason::SpoofedIp), "{text}");
    }
    let elsewhere = "fd78::1234:5678:0:1".parse().expect("an address");
    assert_eq!(bench.send(A, elsewhere), Err(Reason::SpoofedIp));
    assert_eq!(bench.ask(A, elsewhere), Ok(()), "to ask is no claim");
}

#[test]
fn a_station_outside_keeps_its_address_and_a_router_gets_it_back() {
    let mut bench = Bench::new();
    bench.outside(ROUTER, secret(1), &advertisement(secret(1), ROUTER));
    assert_eq!(bench.send(A, secret(1)), Err(Reason::SpoofedIp));
    assert_eq!(bench.advertise(A, secret(1)), Err(Reason::SpoofedNeighbour));
    // If an address is made of a station's MAC, the station need not announce it.
    let made = Ipv6Addr::from(0xfe80 << 112 | u128::from(u64::from_be_bytes(ROUTER.eui64())));
    bench.forwarding.learn(bench.now, UPLINK, ROUTER);
    assert_eq!(bench.send(A, made), Err(Reason::SpoofedIp));
    // A station is too late where a guest was first, a router is not.
    assert_eq!(bench.send(A, secret(2)), Ok(()));
    bench.outside(ROUTER, secret(2), &advertisement(secret(2), ROUTER));
    assert_eq!(bench.send(A, secret(2)), Ok(()));
    bench.outside(ROUTER, secret(2), &router_advertisement());
    assert_eq!(bench.send(A, secret(2)), Err(Reason::SpoofedIp));
}

#[test]
fn a_guest_that_comes_from_another_host_brings_its_addresses() {
    let mut bench = Bench::new();
    bench.outside(MAC_A, secret(1), &advertisement(secret(1), MAC_A));
    assert_eq!(bench.send(B, secret(1)), Err(Reason::SpoofedIp));
    assert_eq!(bench.send(A, secret(1)), Ok(()));
    assert_eq!(bench.send(B, secret(1)), Err(Reason::SpoofedIp));
}

#[test]
fn a_guest_at_its_address_limit_loses_idle_addresses() {
    let mut bench = Bench::new();
    for n in 0..16 {
        assert_eq!(bench.send(A, secret(n)), Ok(()));
    }
    bench.now += AddressBook::IDLE - Nanos(1);
    for n in 1..16 {
        assert_eq!(bench.send(A, secret(n)), Ok(()));
    }
    assert_eq!(bench.send(A, secret(99)), Err(Reason::AddressLimit));
    assert_eq!(bench.ask(A, secret(99)), Err(Reason::AddressLimit));
    bench.now += Nanos(1);
    assert_eq!(bench.send(A, secret(99)), Ok(()));
    assert_eq!(bench.send(A, secret(0)), Err(Reason::AddressLimit));
    assert_eq!(bench.send(B, secret(0)), Ok(()), "it is free again");
    // Silence alone takes nothing away.
    bench.now += Nanos::from_secs(1_000_000);
    assert_eq!(bench.send(B, secret(1)), Err(Reason::SpoofedIp));
}

#[test]
fn chosen_addresses_survive_a_reload_and_end_with_their_guest() {
    let mut bench = Bench::new();
    assert_eq!(bench.send(A, secret(1)), Ok(()));
    assert_eq!(bench.send(B, secret(2)), Ok(()));
    assert_eq!(bench.send(B, secret(3)), Ok(()));
    // 3 is A's by configuration now.
    let a = filter(MAC_A, vec![A6.into(), secret(3).into()]);
    bench.configure(&a, &filter(MAC_B, vec![B6.into()]));
    assert_eq!(bench.send(B, secret(1)), Err(Reason::SpoofedIp));
    assert_eq!(bench.send(A, secret(2)), Err(Reason::SpoofedIp));
    assert_eq!(bench.send(B, secret(3)), Err(Reason::SpoofedIp));
    bench.reconfigure([(A, None), (B, Some(&filter(MAC_B, vec![B6.into()])))]);
    assert!(!bench.book.by_guest.contains_key(&A));
    assert_eq!(bench.send(B, secret(1)), Ok(()));
}

#[test]
fn addresses_learned_outside_are_bounded_and_expire() {
    let mut bench = Bench::new();
    let hear = |bench: &mut Bench, n| {
        bench.outside(ROUTER, secret(n), &advertisement(secret(n), ROUTER));
    };
    for n in 0..AddressBook::MOST_HEARD as u64 + 100 {
        hear(&mut bench, n);
    }
    assert_eq!(bench.book.heard.len(), AddressBook::MOST_HEARD);
    // A cleanup that was too early delays the next one by a second.
    let (idle, second) = (bench.now + AddressBook::IDLE, Nanos::from_secs(1));
    for (now, known) in [
        (idle - Nanos(1), AddressBook::MOST_HEARD),
        (idle, AddressBook::MOST_HEARD),
        (idle - Nanos(1) + second, 1),
    ] {
        bench.now = now;
        hear(&mut bench, 1 << 20);
        assert_eq!(bench.book.heard.len(), known, "at {now}");
    }
}

proptest! {
    /// No address ever has two guests, and no guest exceeds its maximum.
    #[test]
    fn an_address_has_one_guest(
        events in prop::collection::vec((any::<bool>(), 0u64..40, 0u8..4, 0u64..400), 1..300),
    ) {
        let mut bench = Bench::new();
        let mut holders: HashMap<Ipv6Addr, GuestId> = HashMap::new();
        for (is_a, n, what, seconds) in events {
            let guest = if is_a { A } else { B };
            let address = secret(n);
            bench.now += Nanos::from_secs(seconds / 10);
            let result = match what {
                0 => bench.send(guest, address),
                1 => bench.ask(guest, address),
                2 => bench.advertise(guest, address),
                _ => {
                    bench.outside(ROUTER, address, &router_advertisement());
                    Err(Reason::SpoofedIp)
                }
            };
            let book = &bench.book;
            holders.clear();
            for (guest, chosen) in &book.by_guest {
                prop_assert!(chosen.len() <= SpoofFilter::MOST_ADDRESSES);
                for chosen in chosen {
                    prop_assert_eq!(holders.insert(chosen.address, *guest), None);
                }
            }
            prop_assert_eq!(&holders, &book.chosen);
            prop_assert_eq!(result.is_ok(), book.chosen.get(&address) == Some(&guest) && what < 3);
        }
    }
}
