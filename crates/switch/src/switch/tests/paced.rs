//! A paced uplink, in virtual time on memory ports.

mod floods;

use super::*;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::{Class, Guarantee, PacerConfig};

const LINK: Rate = Rate::from_mbit(1000);
/// A full frame on the wire.
const FULL: u64 = 1538;

fn terms(mbit: u64) -> Guarantee {
    Guarantee::new(Rate::from_mbit(mbit), Bytes(15_380), LINK)
}

fn wire() -> PacerConfig {
    PacerConfig::new(LINK)
}

/// The links of [`Bench`] with an uplink that is paced, and what A and B are
/// guaranteed. They are the machines `t/a/0` and `t/a/1`.
fn paced(wire: &PacerConfig, a: Option<Guarantee>, b: Option<Guarantee>) -> Vec<LinkConfig> {
    let mut links = configs(&PipelineConfig::default());
    links[UPLINK].pacing = Some(Pacing {
        pacer: wire.clone(),
        meter: None,
        priority_tag: false,
        hose: false,
    });
    links[A].guarantee = a;
    links[B].guarantee = b;
    for (number, link) in (0..).zip(&mut links[A..]) {
        link.vm = Some(format!("t/a/{number}").parse().expect("a name"));
    }
    links
}

fn bench(links: Vec<LinkConfig>) -> Bench {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.switch = Switch::new(links).expect("no rule is broken");
    bench
}

/// A full frame from A or B to a station behind the uplink.
fn full(guest: usize, n: u32) -> Vec<u8> {
    frame(guest, n, 1472)
}

/// Such a frame with so many bytes of payload.
fn frame(guest: usize, n: u32, len: usize) -> Vec<u8> {
    let (mac, ip) = if guest == A { (MAC_A, A4) } else { (MAC_B, B4) };
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(len, 0);
    ethernet(
        GATEWAY,
        mac,
        0x0800,
        &ipv4(ip, FAR, 17, &udp(1, 2, &payload)),
    )
}

/// The number in a frame of [`full`], and whose it is; `None` for a void.
fn read(frame: &[u8]) -> Option<(usize, u32)> {
    if frame[..6] == frame[6..12] {
        assert_eq!(frame[12..14], [0x88, 0xb5]);
        return None;
    }
    let guest = if frame[6..12] == MAC_A.0 { A } else { B };
    let number = frame[42..46].first_chunk().expect("four bytes");
    Some((guest, u32::from_be_bytes(*number)))
}

/// The frames on a wire that sends what it is given back to back, each with the
/// byte at which it begins.
#[derive(Default)]
struct OnTheWire {
    at: u64,
    frames: Vec<(u64, usize, u32)>,
}

impl OnTheWire {
    fn take(&mut self, bench: &Bench) {
        let sent = std::mem::take(&mut bench.wires[UPLINK].borrow_mut().from_port);
        for (now, frame) in sent {
            self.at = self.at.max(LINK.bytes_in(now).0);
            if let Some((guest, n)) = read(&frame) {
                self.frames.push((self.at, guest, n));
            }
            self.at += void::on_the_wire(frame.len()).0;
        }
    }

    /// Every interval between two frames of `guest` conforms to its terms.
    fn check(&self, guest: usize, terms: &Guarantee) {
        let begins = self.frames.iter().filter(|(_, from, _)| *from == guest);
        let begins: Vec<_> = begins.map(|(at, ..)| *at).collect();
        for (first, from) in begins.iter().enumerate() {
            for (last, to) in begins.iter().enumerate().skip(first + 1).take(400) {
                let time = LINK.time_for(Bytes(to - from));
                let sent = (last - first + 1) as u64 * FULL;
                let may = terms.burst.0 + terms.bandwidth.bytes_in(time).0 + 2;
                assert!(sent <= may, "{sent} bytes in {time}, and {may} may");
            }
        }
    }

    fn numbers(&self, guest: usize) -> Vec<u32> {
        let own = self.frames.iter().filter(|(_, from, _)| *from == guest);
        own.map(|(.., n)| *n).collect()
    }
}

/// The placement service's word: megabits a second and burst of each machine.
fn word(vms: &[(u32, Option<(u64, u64)>)]) -> HostGuarantees {
    let vms = vms.iter().map(|(number, terms)| {
        let guarantee = terms.map(|(mbit, burst)| {
            serde_json::json!({"bandwidth": format!("{mbit}Mbit/s"), "burst": format!("{burst}B")})
        });
        let vm = format!("t/a/{number}");
        serde_json::json!({"vm": vm, "tenant": 1, "tenant_vms": 2, "guarantee": guarantee})
    });
    let vms: Vec<_> = vms.collect();
    let word = serde_json::json!({"host": "h", "state": "open", "revision": 1, "vms": vms});
    serde_json::from_value(word).expect("the service's own form")
}

fn held(bench: &mut Bench, guest: usize) -> Option<u64> {
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let pacing = snapshot.links[guest]
        .guarantee
        .expect("the uplink is paced");
    Some(pacing.terms?.bandwidth.0 / 1_000_000)
}

#[test]
fn a_backlogged_guest_gets_its_rate_and_no_more() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), None));
    let start = bench.now;
    for n in 0..2000 {
        bench.send(A, &full(A, n));
    }
    let mut seen = OnTheWire::default();
    bench.run(start + Nanos::from_millis(100));
    // What A could not send yet is still with its port.
    assert!(bench.wires[A].borrow().to_port.len() > 900);
    assert!(bench.switch.is_stalled(PortIndex(A)));
    seen.take(&bench);
    seen.check(A, &terms(100));
    let sent = seen.frames.len() as u64 * FULL;
    let expected = terms(100).burst.0 + Rate::from_mbit(100).bytes_in(Nanos::from_millis(100)).0;
    assert!(
        sent.abs_diff(expected) <= expected / 1000 + FULL,
        "{sent} of {expected}"
    );
    bench.run(start + Nanos::from_millis(300));
    seen.take(&bench);
    assert_eq!(seen.numbers(A), (0..2000).collect::<Vec<_>>());
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let uplink = snapshot.links[UPLINK].pacing.as_ref().expect("it is paced");
    assert_eq!(uplink.stats.guaranteed.packets, 2000);
    assert_eq!(
        snapshot.links[UPLINK].sent.0, 2000,
        "voids are counted apart"
    );
    assert_eq!(uplink.voids.0, uplink.stats.voids.packets);
    assert!(uplink.voids.1 > 2000 * FULL);
    assert!(
        snapshot.links[A]
            .guarantee
            .is_some_and(|a| a.stats.held > 0)
    );
    assert!(uplink.lateness.count() > 0);
}

#[test]
fn a_stalled_guest_reaches_its_neighbours_only_with_what_was_read_already() {
    let mut bench = bench(paced(&wire(), Some(terms(10)), None));
    // Enough to stall within a burst, with one frame for B in its middle.
    for n in 0..24 {
        bench.send(A, &full(A, n));
    }
    bench.send(A, &a_to_b(7));
    for n in 24..200 {
        bench.send(A, &full(A, n));
    }
    bench.send(A, &a_to_b(8));
    bench.settle();
    assert_eq!(
        bench.sent(B),
        [a_to_b(7)],
        "no flow of its own waits behind the uplink's"
    );
    assert!(bench.switch.is_stalled(PortIndex(A)));
    let waiting = bench.switch.links[A]
        .guest
        .as_ref()
        .expect("a guest")
        .stalled
        .len();
    assert!(waiting <= BURST, "{waiting} frames given back");
    // B is not held up by A.
    bench.send(B, &full(B, 0));
    bench.run(bench.now + Nanos::from_micros(100));
    let mut seen = OnTheWire::default();
    seen.take(&bench);
    assert_eq!(seen.numbers(B), [0]);
    bench.run(bench.now + Nanos::from_secs(1));
    assert_eq!(bench.sent(B), [a_to_b(8)]);
}

#[test]
fn a_short_frame_that_would_fit_does_not_overtake_a_long_one_that_was_given_back() {
    // A long frame takes more than half of the horizon, a short one little of it.
    let terms = Guarantee {
        horizon: Nanos::from_micros(2500),
        ..terms(10)
    };
    let mut bench = bench(paced(&wire(), Some(terms), None));
    for n in 0..BURST as u32 {
        bench.send(A, &frame(A, n, if n % 2 == 0 { 1472 } else { 4 }));
    }
    bench.run(bench.now + Nanos::from_secs(1));
    let mut seen = OnTheWire::default();
    seen.take(&bench);
    assert_eq!(seen.numbers(A), (0..BURST as u32).collect::<Vec<_>>());
}

#[test]
fn guaranteed_frames_are_high_and_all_others_and_groups_are_best_effort() {
    let mut links = paced(
        &PacerConfig {
            frame: Bytes(1542),
            ..wire()
        },
        Some(terms(100)),
        None,
    );
    if let Some(pacing) = &mut links[UPLINK].pacing {
        pacing.priority_tag = true;
    }
    let mut bench = bench(links);
    bench.send(A, &full(A, 1));
    bench.send(B, &full(B, 2));
    let who = ethernet(Mac::BROADCAST, MAC_A, 0x0806, &arp(1, MAC_A, A4, B4));
    bench.send(A, &who);
    bench.run(bench.now + Nanos::from_millis(10));
    let sent: Vec<_> = bench.sent(UPLINK);
    let sent = sent.iter().filter(|frame| frame[12..14] == [0x81, 0]);
    let mut tags: Vec<_> = sent
        .map(|frame| {
            (
                frame.len(),
                frame[6..12].to_vec(),
                frame[14],
                frame[19] >> 2,
            )
        })
        .collect();
    tags.sort();
    // Length with the tag, source, PCP in the upper three bits, DSCP.
    assert_eq!(
        tags,
        [
            (64, MAC_A.0.to_vec(), 0, who[15] >> 2),
            (1518, MAC_A.0.to_vec(), 5 << 5, 46),
            (1518, MAC_B.0.to_vec(), 0, 0),
        ]
    );
    // The guests themselves see no tag.
    assert_eq!(bench.sent(B), [who]);
}

#[test]
fn with_the_hose_what_a_machine_sends_where_no_limit_is_set_leaves_as_best_effort() {
    let mut machine = paced(&wire(), Some(terms(100)), None);
    if let Some(pacing) = &mut machine[UPLINK].pacing {
        pacing.hose = true;
    }
    let mut no_machine = machine.clone();
    no_machine[A].vm = None;
    let mut bench = bench(machine.clone());
    let far = FAR.to_ipv6_mapped().to_bits();
    let limited = Some(Rate::from_mbit(10));
    for (links, limit, dscp) in [
        (&machine, None, 0),
        (&machine, limited, 46),
        (&no_machine, None, 46),
        (&no_machine, limited, 46),
        (&machine, None, 0),
    ] {
        let now = bench.now;
        let links = links.clone();
        bench
            .switch
            .reconfigure(now, links)
            .expect("no rule is broken");
        let pacer = bench.switch.pacer().expect("the uplink is paced");
        pacer
            .set_destination(now, GuestId(0), far, limit)
            .expect("no rule is broken");
        bench.send(A, &full(A, 0));
        bench.run(bench.now + Nanos::from_millis(100));
        let sent = bench.sent(UPLINK).into_iter().find(|f| read(f).is_some());
        assert_eq!(sent.map(|frame| frame[15] >> 2), Some(dscp));
    }
    // Paced all the same.
    let pacer = bench.switch.pacer().expect("the uplink is paced");
    let stats = pacer.guest_stats(GuestId(0));
    assert_eq!(stats.map(|stats| stats.taken.packets), Some(5));
}

/// A reload that makes the link faster or slower finds destinations with limits,
/// slower than the new link can count or faster than it is.
#[test]
fn a_reload_changes_a_link_on_which_destinations_have_limits() {
    for (from, to, limit) in [
        (1000, 10_000, 1000),
        (1000, 10_000, 0),
        (10_000, 1000, 5_000_000_000),
    ] {
        let on = |mbit| PacerConfig::new(Rate::from_mbit(mbit));
        let mut bench = bench(paced(&on(from), Some(terms(100)), None));
        let now = bench.now;
        let far = FAR.to_ipv6_mapped().to_bits();
        let pacer = bench.switch.pacer().expect("the uplink is paced");
        pacer
            .set_destination(now, GuestId(0), far, Some(Rate(limit)))
            .expect("no rule is broken");
        let links = paced(&on(to), Some(terms(100)), None);
        bench
            .switch
            .reconfigure(now, links)
            .expect("no rule is broken");
        let uplink = bench.switch.links[UPLINK].paced();
        let link = uplink.map(|way| way.wire().link);
        assert_eq!(link, Some(Rate::from_mbit(to)), "a limit of {limit} bit/s");
    }
}

#[test]
fn a_meter_takes_the_high_class_from_a_flow_that_sends_much_and_the_pace_stays() {
    let mut links = paced(&wire(), Some(terms(100)), None);
    if let Some(pacing) = &mut links[UPLINK].pacing {
        pacing.meter = Some(MeterConfig {
            rate: Rate::from_mbit(1),
            burst: Bytes(4000),
            ..MeterConfig::default()
        });
    }
    let mut bench = bench(links);
    for n in 0..10 {
        bench.send(A, &full(A, n));
    }
    bench.run(bench.now + Nanos::from_millis(10));
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let meter = snapshot.links[UPLINK].meter;
    assert_eq!((meter.high, meter.best_effort), (2, 8));
    let pacing = snapshot.links[UPLINK].pacing.as_ref().expect("it is paced");
    assert_eq!(pacing.stats.guaranteed.packets, 10);
    let high = bench
        .sent(UPLINK)
        .iter()
        .filter(|frame| frame[15] >> 2 == 46)
        .count();
    assert_eq!(high, 2);
    assert_eq!(Class::default(), Class::BestEffort);
}

#[test]
fn an_uplink_that_comes_back_sends_no_more_than_is_guaranteed() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), None));
    let start = bench.now;
    for n in 0..4000 {
        bench.send(A, &full(A, n));
    }
    let mut seen = OnTheWire::default();
    bench.run(start + Nanos::from_millis(20));
    seen.take(&bench);
    let before = seen.frames.len();
    bench.wires[UPLINK].borrow_mut().gone = true;
    let gone = bench.run(start + Nanos::from_millis(21));
    assert_eq!(gone.len(), 1);
    // Half a second without an uplink: what A sends is lost, and counted.
    bench.run(start + Nanos::from_millis(500));
    assert!(
        bench.wires[A].borrow().to_port.is_empty(),
        "its port is read"
    );
    assert!(bench.drops(UPLINK, "port_missing") > 3000);
    for n in 4000..6000 {
        bench.send(A, &full(A, n));
    }
    bench.wires[UPLINK].borrow_mut().gone = false;
    let (port, wire) = MemoryPort::new();
    bench.ports[UPLINK] = Some(Box::new(port));
    bench.wires[UPLINK] = wire;
    bench.switch.writable(PortIndex(UPLINK));
    bench.run(start + Nanos::from_millis(600));
    seen.take(&bench);
    let after = &seen.frames[before..];
    assert!(after.len() > 780, "{} frames", after.len());
    seen.check(A, &terms(100));
    assert!(seen.numbers(A).is_sorted(), "nothing overtakes");
}

/// A datagram from A to B, which does not cross the uplink.
fn to_b() -> Vec<u8> {
    datagram(MAC_B, MAC_A, (A4, B4), 1)
}

#[test]
fn an_uplink_that_vanishes_while_it_is_full_holds_up_no_guest() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), None));
    let start = bench.now;
    bench.wires[UPLINK].borrow_mut().room = Some(0);
    for n in 0..200 {
        bench.send(A, &full(A, n));
    }
    bench.run(start + Nanos::from_millis(5));
    assert!(bench.switch.is_full(PortIndex(UPLINK)));
    assert!(bench.switch.is_stalled(PortIndex(A)));
    bench.wires[UPLINK].borrow_mut().gone = true;
    bench.switch.readable(PortIndex(UPLINK));
    assert_eq!(bench.run(start + Nanos::from_millis(6)).len(), 1);
    bench.send(A, &to_b());
    bench.run(start + Nanos::from_millis(500));
    assert_eq!(bench.sent(B), [to_b()]);
}

#[test]
fn a_guest_that_waits_for_an_uplink_is_read_again_once_there_is_none() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), None));
    let start = bench.now;
    for n in 0..200 {
        bench.send(A, &full(A, n));
    }
    bench.run(start + Nanos::from_millis(1));
    assert!(bench.switch.is_stalled(PortIndex(A)));
    let mut guests = paced(&wire(), None, None);
    guests.remove(UPLINK);
    bench.ports.remove(UPLINK);
    bench.wires.remove(UPLINK);
    bench
        .switch
        .reconfigure(bench.now, guests)
        .expect("no rule is broken");
    let (a, b) = (A - 1, B - 1);
    bench.send(a, &to_b());
    bench.run(start + Nanos::from_millis(500));
    assert_eq!(bench.sent(b), [to_b()]);
    assert!(bench.drops(a, "unknown_destination") > 150);
}

#[test]
fn a_port_that_is_full_stops_the_wires_clock_and_loses_nothing() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), None));
    for n in 0..300 {
        bench.send(A, &full(A, n));
    }
    let mut seen = OnTheWire::default();
    let mut random = 7u64;
    for _ in 0..400 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bench.wires[UPLINK].borrow_mut().room = Some((random >> 60) as usize);
        bench.switch.writable(PortIndex(UPLINK));
        bench.run(bench.now + Nanos::from_micros(100 + (random >> 50) % 500));
        seen.take(&bench);
    }
    bench.wires[UPLINK].borrow_mut().room = None;
    bench.switch.writable(PortIndex(UPLINK));
    bench.run(bench.now + Nanos::from_secs(1));
    seen.take(&bench);
    assert_eq!(seen.numbers(A), (0..300).collect::<Vec<_>>());
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let uplink = snapshot.links[UPLINK].pacing.as_ref().expect("it is paced");
    assert!(uplink.stats.stopped > Nanos::ZERO);
    seen.check(A, &terms(100));
}

#[test]
fn a_port_that_is_too_slow_is_given_no_batch_before_it_has_taken_the_last() {
    let mut bench = bench(paced(&wire(), Some(terms(400)), None));
    for n in 0..300 {
        bench.send(A, &full(A, n));
    }
    for _ in 0..200 {
        bench.wires[UPLINK].borrow_mut().room = Some(1);
        bench.switch.writable(PortIndex(UPLINK));
        bench.run(bench.now + Nanos::from_millis(1));
        let held = bench.switch.links[UPLINK].held.len() as u64;
        let most = LINK.bytes_in(wire().batch).0 / 84 + 1;
        assert!(held <= most, "{held} frames and voids for the port");
    }
}

#[test]
fn the_services_word_replaces_the_files_and_what_it_does_not_know_stays() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), Some(terms(50))));
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(100), Some(50))
    );
    bench
        .switch
        .set_guarantees(bench.now, word(&[(0, Some((300, 0)))]));
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(300), Some(50))
    );
    // A burst that is left out is one frame.
    let a = bench
        .switch
        .pacer()
        .and_then(|pacer| pacer.guarantee(GuestId(0)).copied());
    assert_eq!(
        a.map(|terms| (terms.burst, terms.burst_rate)),
        Some((Bytes(1538), LINK))
    );
    bench.switch.set_guarantees(bench.now, word(&[(0, None)]));
    assert_eq!((held(&mut bench, A), held(&mut bench, B)), (None, Some(50)));
    bench.switch.set_guarantees(bench.now, word(&[]));
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(100), Some(50))
    );
}

#[test]
fn a_promise_that_breaks_a_rule_is_counted_once_and_the_old_terms_stay() {
    let mut bench = bench(paced(&wire(), Some(terms(100)), None));
    for promise in [(1001, 2000), (0, 2000), (10, 100)] {
        let broken = word(&[(0, Some(promise)), (1, Some((200, 2000)))]);
        bench.switch.set_guarantees(bench.now, broken.clone());
        bench.switch.set_guarantees(bench.now, broken);
        assert_eq!(
            (held(&mut bench, A), held(&mut bench, B)),
            (Some(100), Some(200))
        );
    }
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    assert_eq!(snapshot.refusals, 3);
    assert!(snapshot.links[A].guarantee.is_some_and(|a| a.refused));
    // Together above the link, and each for itself not: one of them has to wait.
    bench
        .switch
        .set_guarantees(bench.now, word(&[(0, Some((600, 0))), (1, Some((600, 0)))]));
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(600), Some(200))
    );
    // They swap: what becomes less comes first.
    bench
        .switch
        .set_guarantees(bench.now, word(&[(0, Some((300, 0))), (1, Some((700, 0)))]));
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(300), Some(700))
    );
    bench
        .switch
        .set_guarantees(bench.now, word(&[(0, Some((700, 0))), (1, Some((300, 0)))]));
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(700), Some(300))
    );
    // Also where the one that gets less may send its bursts faster from now on.
    let slow = |mut word: HostGuarantees| {
        for vm in &mut word.vms {
            let promise = vm.guarantee.as_mut().unwrap();
            promise.burst_rate = Some(promise.bandwidth);
        }
        word
    };
    let before = slow(word(&[(0, Some((300, 0))), (1, Some((700, 0)))]));
    bench.switch.set_guarantees(bench.now, before);
    let after = word(&[(0, Some((700, 0))), (1, Some((300, 0)))]);
    bench.switch.set_guarantees(bench.now, after);
    assert_eq!(
        (held(&mut bench, A), held(&mut bench, B)),
        (Some(700), Some(300))
    );
    assert_eq!(bench.switch.snapshot(&mut bench.ports).refusals, 4);
}

#[test]
fn a_wire_on_which_its_guests_do_not_fit_is_refused_and_nothing_changes() {
    let mut bench = bench(paced(&wire(), Some(terms(600)), None));
    let slow = PacerConfig {
        link: Rate::from_mbit(500),
        ..wire()
    };
    let links = paced(&slow, Some(terms(600)), None);
    let refused = bench
        .switch
        .reconfigure(bench.now, links)
        .expect_err("too slow");
    assert!(
        refused.to_string().contains("above the link's"),
        "{refused}"
    );
    assert_eq!(held(&mut bench, A), Some(600));
    let mut fits = terms(200);
    fits.burst_rate = slow.link;
    let links = paced(&slow, Some(fits), None);
    bench.switch.reconfigure(bench.now, links).expect("it fits");
    assert_eq!(held(&mut bench, A), Some(200));
}

#[test]
fn marks_reach_the_wire_with_right_checksums() {
    let marking = Guarantee {
        mark: Some(Nanos::from_micros(200)),
        ..terms(20)
    };
    let mut bench = bench(paced(&wire(), Some(marking), None));
    // TCP with ECT(0), 8 segments each, its checksum left to the NIC.
    for n in 0..20u32 {
        let (frame, virtio) = tcp_segments(n);
        bench.wires[A]
            .borrow_mut()
            .to_port
            .push_back((frame, Some(virtio)));
    }
    bench.switch.readable(PortIndex(A));
    bench.run(bench.now + Nanos::from_secs(1));
    let (mut marked, mut segments, mut payload) = (0, 0, VecDeque::new());
    for frame in bench.sent(UPLINK) {
        if frame[..6] == frame[6..12] {
            continue;
        }
        let ip = smoltcp::wire::Ipv4Packet::new_checked(&frame[14..]).expect("IPv4");
        assert!(ip.verify_checksum());
        assert_eq!(ip.dscp(), 46);
        marked += u32::from(ip.ecn() == 3);
        let addresses = (ip.src_addr().into(), ip.dst_addr().into());
        let tcp = smoltcp::wire::TcpPacket::new_checked(ip.payload()).expect("TCP");
        assert!(tcp.verify_checksum(&addresses.0, &addresses.1));
        payload.push_back(tcp.seq_number().0);
        segments += 1;
    }
    assert_eq!(segments, 160);
    assert!(marked > 100, "{marked} marked");
    assert!(payload.make_contiguous().is_sorted());
    let snapshot = bench.switch.snapshot(&mut bench.ports);
    let guest = snapshot.links[A].guarantee.expect("the uplink is paced");
    assert_eq!(guest.stats.marked, u64::from(marked));
}

/// A TCP packet of 8 segments that takes marks, as a guest's kernel hands it over.
fn tcp_segments(n: u32) -> (Vec<u8>, [u8; 10]) {
    tcp(A, n, 8 * 1448, 1448)
}

/// The `n`th TCP packet of `len` bytes of payload from A or B, to be cut to `size`
/// each.
fn tcp(guest: usize, n: u32, len: usize, size: u16) -> (Vec<u8>, [u8; 10]) {
    let (mac, ip) = if guest == A { (MAC_A, A4) } else { (MAC_B, B4) };
    let payload = vec![n as u8; len];
    let sequence = n * payload.len() as u32;
    let mut tcp = [40_000u16, 80].map(u16::to_be_bytes).concat();
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 5 << 4, 0x10, 2, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let mut packet = ipv4(ip, FAR, 6, &tcp);
    packet[1] = 2;
    let words = packet[..20].chunks(2);
    let sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let frame = ethernet(GATEWAY, mac, 0x0800, &packet);
    let mut virtio = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0];
    virtio[4..6].copy_from_slice(&size.to_le_bytes());
    (frame, virtio)
}

#[derive(Debug, Clone)]
enum Event {
    Send(usize, u8),
    Wait(u64),
    Promise(Vec<(u32, Option<(u64, u64)>)>),
    File(Option<u64>, Option<u64>),
    Wire(u64, u64),
    /// The uplink is paced no longer, or again.
    Unpaced,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let promise = prop::option::of((1u64..700, prop_oneof![Just(0u64), 1538u64..40_000]));
    let event = prop_oneof![
        8 => (A..=B, 1u8..60).prop_map(|(guest, count)| Event::Send(guest, count)),
        8 => (1u64..3000).prop_map(Event::Wait),
        2 => prop::collection::vec((0u32..3, promise), 0..3).prop_map(Event::Promise),
        2 => (prop::option::of(1u64..500), prop::option::of(1u64..500))
            .prop_map(|(a, b)| Event::File(a, b)),
        1 => (300u64..2000, 30u64..200).prop_map(|(link, batch)| Event::Wire(link, batch)),
        1 => Just(Event::Unpaced),
    ];
    prop::collection::vec(event, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever the file and the service say, and when: no frame is lost, and none
    /// overtakes another of its flow.
    #[test]
    fn no_change_of_guarantees_or_of_the_wire_loses_or_reorders_a_frame(events in events()) {
        let roomy = |mut wire: PacerConfig| {
            wire.best_effort = QueueConfig::Fifo(FifoConfig {
                packets: 1 << 20,
                ..FifoConfig::default()
            });
            wire
        };
        let mut now_wire = roomy(wire());
        let (mut a, mut b) = (Some(terms(100)), None);
        let mut bench = bench(paced(&now_wire, a, b));
        let mut sent = [0, 0, 0];
        let mut seen = OnTheWire::default();
        for event in events {
            match event {
                Event::Send(guest, count) => {
                    for _ in 0..count {
                        bench.send(guest, &full(guest, sent[guest]));
                        sent[guest] += 1;
                    }
                }
                Event::Wait(micros) => {
                    bench.run(bench.now + Nanos::from_micros(micros));
                }
                Event::Promise(promises) => {
                    bench.switch.set_guarantees(bench.now, word(&promises));
                }
                Event::File(first, second) => {
                    (a, b) = (first.map(terms), second.map(terms));
                    let links = paced(&now_wire, a, b);
                    // Refused or not: nothing is lost.
                    let _ = bench.switch.reconfigure(bench.now, links);
                }
                Event::Wire(link, batch) => {
                    let mut wire = roomy(PacerConfig::new(Rate::from_mbit(link)));
                    wire.batch = Nanos::from_micros(batch);
                    if bench.switch.reconfigure(bench.now, paced(&wire, a, b)).is_ok() {
                        now_wire = wire;
                    }
                }
                Event::Unpaced => {
                    let mut links = paced(&now_wire, a, b);
                    links[UPLINK].pacing = None;
                    links[UPLINK].pipeline.queue = now_wire.best_effort.clone();
                    bench.switch.reconfigure(bench.now, links).expect("no rule is broken");
                    bench.run(bench.now + Nanos::from_micros(1));
                    let _ = bench.switch.reconfigure(bench.now, paced(&now_wire, a, b));
                }
            }
            seen.take(&bench);
        }
        bench.run(bench.now + Nanos::from_secs(30));
        seen.take(&bench);
        for guest in [A, B] {
            prop_assert_eq!(seen.numbers(guest), (0..sent[guest]).collect::<Vec<_>>());
        }
    }
}
