//! Virtual machines' cards by vhost-user, through a real daemon: with a driver of our own
//! and with DPDK's.

#[path = "vhost/cards.rs"]
mod cards;
#[path = "../../vhost/tests/support/mod.rs"]
mod machine;
#[path = "vhost/qemu.rs"]
mod qemu;
mod support;
#[path = "vhost/testpmd.rs"]
mod testpmd;
#[path = "vhost/traffic.rs"]
mod traffic;

use cards::{Cards, frame};
use machine::{Build, Machine};
use qemu::{Qemu, dhcp, offer};
use rustix::process::Signal;
use std::collections::BTreeSet;
use support::{Daemon, Guest, Kind, METRICS, sandboxed, until};
use testpmd::{Numbers, Testpmd};
use traffic::Traffic;

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

#[test]
fn machines_reach_each_other_and_outlive_the_daemon() {
    let name = "machines_reach_each_other_and_outlive_the_daemon";
    sandboxed(name, || {
        let cards = Cards::new();
        let config = cards.config(2);
        let mut daemon = Daemon::start(&config);
        let build = Build {
            entries: 64,
            ..Build::default()
        };
        let mut one = Machine::start(&cards.socket(1), build);
        let mut two = Machine::start(&cards.socket(2), build);
        let mut mark = 0;
        for _ in 0..3 {
            for _ in 0..30 {
                mark += 1;
                one.send(0, [0; 10], &frame(1, 2, mark));
                let got = machine::until("a frame", || two.receive(0, true));
                assert_eq!(got.1, frame(1, 2, mark));
                two.send(0, [0; 10], &frame(2, 1, mark));
                let got = machine::until("a frame", || one.receive(0, true));
                assert_eq!(got.1, frame(2, 1, mark));
            }
            // It is killed with frames in the ring that it has not seen.
            daemon.stop();
            let first = mark + 1;
            for _ in 0..20 {
                mark += 1;
                one.send(0, [0; 10], &frame(1, 2, mark));
            }
            daemon.signal(rustix::process::Signal::KILL);
            drop(daemon);
            daemon = Daemon::start(&config);
            two.reconnect(&cards.socket(2));
            one.reconnect(&cards.socket(1));
            for mark in first..=mark {
                let got = machine::until("a frame", || two.receive(0, true));
                assert_eq!(got.1, frame(1, 2, mark));
            }
        }
    });
}

#[test]
fn rings_cross_a_takeover_under_traffic_and_no_frame_is_lost() {
    let name = "rings_cross_a_takeover_under_traffic_and_no_frame_is_lost";
    sandboxed(name, || {
        let cards = Cards::new();
        let mut daemon = Daemon::start(&cards.config(2));
        let mut handed_over = 0;
        // A machine may be so busy that the old one does not answer in time: then it is not
        // asked any longer.
        for _ in 0..10 {
            let mut traffic = Traffic::new(&cards);
            for _ in 0..100 {
                traffic.turn();
            }
            std::thread::scope(|scope| {
                let ended = scope.spawn(|| daemon.take_over());
                while !ended.is_finished() {
                    traffic.turn();
                }
            });
            let asked = machine::request::GET_FEATURES;
            let same = traffic
                .machines
                .iter_mut()
                .all(|one| one.monitor.ask(asked, &[]).is_ok());
            if !same {
                continue;
            }
            for _ in 0..100 {
                traffic.turn();
            }
            traffic.settle();
            assert_eq!(traffic.lost(), [const { Vec::<u32>::new() }; 2]);
            handed_over += 1;
            if handed_over == 3 {
                return;
            }
        }
        panic!("only {handed_over} of 10 were handed over");
    });
}

#[test]
fn a_daemon_that_is_killed_under_traffic_loses_no_more_than_it_had_taken() {
    // Of each port a burst that was received and one on its way out; nothing waits longer
    // than that here.
    const TAKEN: u32 = 2 * 32;
    let name = "a_daemon_that_is_killed_under_traffic_loses_no_more_than_it_had_taken";
    sandboxed(name, || {
        let cards = Cards::new();
        let config = cards.config(2);
        let mut daemon = Daemon::start(&config);
        let mut traffic = Traffic::new(&cards);
        let mut killed_at = Vec::new();
        for round in 0..5 {
            for _ in 0..100 + 37 * round {
                traffic.turn();
            }
            daemon.signal(rustix::process::Signal::KILL);
            drop(daemon);
            // The number of frames that the daemon had taken from each ring.
            let taken =
                [0, 1].map(|from| traffic.next[from] - u32::from(traffic.outstanding(from)));
            killed_at.push(taken);
            for _ in 0..20 {
                traffic.turn();
            }
            daemon = Daemon::start(&config);
            // A frame for one who does not receive yet would be lost on a link that is down.
            for (machine, number) in traffic.machines.iter_mut().zip(1..) {
                machine.monitor = machine::Monitor::connect(&cards.socket(number));
                machine.negotiate().expect("agreed");
            }
            for ring in [0, 1] {
                for machine in &mut traffic.machines {
                    machine.start_ring(ring).expect("started");
                }
            }
        }
        for _ in 0..100 {
            traffic.turn();
        }
        traffic.settle();
        for (to, lost) in traffic.lost().iter().enumerate() {
            for number in lost {
                let had_it = |taken: &&[u32; 2]| {
                    let taken = taken[1 - to];
                    *number < taken && *number + TAKEN >= taken
                };
                assert!(
                    killed_at.iter().any(|taken| had_it(&taken)),
                    "{number} was in its ring still: {killed_at:?}"
                );
            }
        }
    });
}

/// The sum of a counter's samples that begin like that.
fn total(daemon: &Daemon, sample: &str) -> f64 {
    let text = daemon.metrics().unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with(sample));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

#[test]
fn all_frames_for_a_stalled_guest_are_accounted_for() {
    const FRAMES: u32 = 5000;
    let name = "all_frames_for_a_stalled_guest_are_accounted_for";
    sandboxed(name, || {
        let cards = Cards::new();
        let daemon = Daemon::start(&cards.config(2));
        let mut one = Machine::start(&cards.socket(1), Build::default());
        let up = |number: usize| {
            let sample = format!("tailbound_port_up{{port=\"g{number}\"}}");
            daemon.metric(&sample)
        };
        assert_eq!((up(1), up(2)), (Some(1.0), Some(0.0)));
        // Frames that it does not take: no buffer is offered again.
        let mut two = Machine::start(&cards.socket(2), Build::default());
        until("the second card", || up(2) == Some(1.0));
        for n in 0..FRAMES {
            machine::until("room", || {
                (one.rings[1].next.wrapping_sub(one.used(1)) < 16).then_some(())
            });
            one.send(0, [0; 10], &frame(1, 2, n as u8));
        }
        let received = "tailbound_packets_total{port=\"g1\",direction=\"received\"}";
        until("all of them", || {
            daemon.metric(received) == Some(FRAMES.into())
        });
        let counts = || {
            let counts = [
                total(
                    &daemon,
                    "tailbound_packets_total{port=\"g2\",direction=\"sent\"}",
                ),
                total(&daemon, "tailbound_drops_total{port=\"g2\""),
                total(&daemon, "tailbound_backlog_packets{port=\"g2\""),
            ];
            counts.map(|count| count as u64)
        };
        let [sent, dropped, waiting] = counts();
        assert_eq!(sent, 16, "as many as it has buffers");
        assert!(waiting > 900, "{waiting} wait where they are seen");
        assert_eq!(sent + dropped + waiting, u64::from(FRAMES));
        let stalled = std::time::Instant::now();
        until("a while", || stalled.elapsed().as_millis() > 300);
        let mut got = 0;
        until("what waited", || {
            while two.receive(0, true).is_some() {
                got += 1;
            }
            got == sent + waiting
        });
        until("the counters", || counts() == [sent + waiting, dropped, 0]);
        // The histogram shows how long they waited.
        let sum = "tailbound_sojourn_seconds_sum{guest=\"g1\"";
        let waited = total(&daemon, sum);
        assert!(waited > 0.3 * 900.0, "{waited} s in all");
    });
}

#[test]
fn memory_that_shrinks_costs_one_guest_its_port_for_a_while() {
    let name = "memory_that_shrinks_costs_one_guest_its_port_for_a_while";
    sandboxed(name, || {
        let cards = Cards::new();
        let daemon = Daemon::start(&cards.config(3));
        let mut machines =
            [1, 2, 3].map(|number| Machine::start(&cards.socket(number), Build::default()));
        let exchange = |machines: &mut [Machine; 3], from: u8, to: u8, mark| {
            let sent = frame(from, to, mark);
            machines[usize::from(from) - 1].send(0, [0; 10], &sent);
            let receiver = &mut machines[usize::from(to) - 1];
            let got = machine::until("a frame", || receiver.receive(0, true));
            assert_eq!(got.1, sent);
        };
        exchange(&mut machines, 1, 2, 1);
        rustix::fs::ftruncate(&machines[0].file, 0).expect("shrunk");
        machines[0].kick_anyway(1);
        let up = "tailbound_port_up{port=\"g1\"}";
        until("the port is lost", || daemon.metric(up) == Some(0.0));
        exchange(&mut machines, 2, 3, 2);
        // Another machine in its place.
        machines[0] = Machine::start(&cards.socket(1), Build::default());
        until("the port is back", || daemon.metric(up) == Some(1.0));
        exchange(&mut machines, 1, 2, 3);
        exchange(&mut machines, 3, 1, 4);
    });
}

#[test]
fn a_monitor_that_makes_its_calls_wait_stops_no_other_guest_and_no_sigterm() {
    let name = "a_monitor_that_makes_its_calls_wait_stops_no_other_guest_and_no_sigterm";
    sandboxed(name, || {
        let cards = Cards::new();
        let mut daemon = Daemon::start(&cards.config(3));
        let mut machines =
            [1, 2, 3].map(|number| Machine::start(&cards.socket(number), Build::default()));
        for ring in &machines[0].rings {
            machine::make_wait(&ring.call);
            machine::make_wait(&ring.error);
        }
        machines[0].send(0, [0; 10], &frame(1, 2, 1));
        let got = machine::until("a frame", || machines[1].receive(0, true));
        assert_eq!(got.1, frame(1, 2, 1));
        for mark in 2..100 {
            machines[1].send(0, [0; 10], &frame(2, 3, mark));
            let got = machine::until("a frame", || machines[2].receive(0, true));
            assert_eq!(got.1, frame(2, 3, mark));
            // Each calls the driver that is not to be called.
            machines[1].send(0, [0; 10], &frame(2, 1, mark));
            machine::until("a frame", || machines[0].receive(0, true));
        }
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success(), "{}", daemon.log());
    });
}

#[test]
fn the_firmware_of_a_card_in_qemu_gets_an_address() {
    let name = "the_firmware_of_a_card_in_qemu_gets_an_address";
    sandboxed(name, || {
        let cards = Cards::new();
        let _daemon = Daemon::start(&cards.config(2));
        let Some(_qemu) = Qemu::start(&cards, 1) else {
            return;
        };
        let mut server = Machine::start(&cards.socket(2), Build::default());
        let said = |server: &mut Machine, wanted| {
            let (_, frame) = server.receive(0, true)?;
            let (kind, message) = dhcp(&frame)?;
            (kind == wanted).then(|| message.to_vec())
        };
        // It boots by emulation first, beside whatever else runs here.
        let start = std::time::Instant::now();
        let discover = loop {
            if let Some(discover) = said(&mut server, 1) {
                break discover;
            }
            assert!(
                start.elapsed() < std::time::Duration::from_secs(90),
                "no DISCOVER"
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(
            discover[28..34],
            [2, 0, 0, 0, 0, 1],
            "it names its own station"
        );
        server.send(0, [0; 10], &offer(&discover));
        let request = loop {
            if let Some(request) = said(&mut server, 3) {
                break request;
            }
            assert!(
                start.elapsed() < std::time::Duration::from_mins(2),
                "no REQUEST"
            );
            // It may have asked again.
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        let asks = [50, 4, 10, 0, 0, 9];
        assert!(
            request.windows(6).any(|option| option == asks),
            "it got the offer"
        );
    });
}

#[test]
fn dpdk_sends_frames_from_card_to_card() {
    let name = "dpdk_sends_frames_from_card_to_card";
    sandboxed(name, || {
        let cards = Cards::new();
        let daemon = Daemon::start(&cards.config(2));
        for arguments in [
            &["--forward-mode=mac", "--tx-first"][..],
            &[
                "--forward-mode=mac",
                "--tx-first",
                "--tx-offloads=0x8000",
                "--rxd=256",
                "--txd=256",
            ],
        ] {
            // Checksums left to the card, and rings of another size.
            let Some(testpmd) = Testpmd::start(&cards, arguments) else {
                return;
            };
            until("frames in a circle", || {
                let received = testpmd.received();
                received.len() == 2 && received.iter().all(|count| *count > 5_000)
            });
            // It is killed amid its traffic. What it had sent is in its cards' rings, was
            // dropped as they were gone, or waits; the next one is served as the first was.
            drop(testpmd);
            for (from, to) in [(1, 2), (2, 1)] {
                let up = format!("tailbound_port_up{{port=\"g{to}\"}}");
                until("the card is gone", || daemon.metric(&up) == Some(0.0));
                let received =
                    format!("tailbound_packets_total{{port=\"g{from}\",direction=\"received\"}}");
                let there = [
                    format!("tailbound_packets_total{{port=\"g{to}\",direction=\"sent\"}}"),
                    format!("tailbound_drops_total{{port=\"g{to}\""),
                    format!("tailbound_backlog_packets{{port=\"g{to}\""),
                ];
                until("every frame accounted for", || {
                    let there: f64 = there.iter().map(|sample| total(&daemon, sample)).sum();
                    daemon.metric(&received) == Some(there)
                });
            }
        }
        drop(daemon);
    });
}

#[test]
fn a_daemon_that_restarts_under_dpdks_traffic_goes_on_with_all_that_the_ring_holds() {
    /// The part of the ring's 1,024 frames that a killed daemon may have held: a received burst, a
    /// sent burst, and the frames that waited for the guest's guarantee.
    const TAKEN: usize = 4 * 32;
    const KILLS: usize = 2;
    let name = "a_daemon_that_restarts_under_dpdks_traffic_goes_on_with_all_that_the_ring_holds";
    sandboxed(name, || {
        let cards = Cards::new();
        let listener = Guest::new(Kind::Veth, 2);
        // A guest's guarantee is what keeps frames in its ring; and so slow that the listener's
        // socket loses none for seconds.
        let config = format!(
            "metrics = {METRICS:?}\n\
             [uplink]\nport = {{ kind = \"pcap\", write = {:?} }}\n\
             pacer = {{ link = \"100Mbit/s\", batch = \"1ms\" }}\n\
             [[guest]]\nname = \"g1\"\nmac = \"00:01:02:03:04:00\"\nanti_spoofing = false\n\
             guarantee = {{ bandwidth = \"1Mbit/s\", burst = \"3KB\", burst_rate = \"1Mbit/s\" }}\n\
             port = {{ kind = \"vhost-user\", socket = {:?}, mode = \"client\" }}\n\
             [[guest]]\nname = \"g2\"\nmac = \"00:01:02:03:04:01\"\nanti_spoofing = false\n\
             port = {{ kind = \"af-packet\", interface = \"g2\" }}\n",
            cards.0.path().join("uplink.pcap"),
            cards.socket(1),
        );
        let Some(_testpmd) = Testpmd::generate(&cards) else {
            return;
        };
        let mut came = Numbers {
            nic: listener.nic(),
            all: BTreeSet::new(),
        };
        let mut daemon = Daemon::start(&config);
        let mut restart = |signal| {
            came.more(300);
            daemon.signal(signal);
            let ended = daemon.wait();
            assert_eq!(ended.success(), signal == Signal::TERM, "{}", daemon.log());
            daemon = Daemon::start(&config);
            came.more(300)
        };
        let [_, first_half] = [Signal::TERM; 2].map(&mut restart);
        let [_, all] = [Signal::KILL; KILLS].map(&mut restart);
        let missing = came.missing();
        let (asked, killed): (Vec<u32>, Vec<u32>) = missing
            .filter(|number| *number < all)
            .partition(|number| *number < first_half);
        eprintln!(
            "{}frames lost of DPDK's by {KILLS} kills: {}",
            support::MEASURED,
            killed.len()
        );
        assert!(
            asked.is_empty(),
            "lost by a daemon that was asked to end: {asked:?}"
        );
        assert!(
            killed.len() <= KILLS * TAKEN,
            "{} lost: {killed:?}",
            killed.len()
        );
    });
}
