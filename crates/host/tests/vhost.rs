//! Virtual machines' cards by vhost-user, through a real daemon: with a driver of our own
//! and with DPDK's.

#[path = "../../vhost/tests/support/mod.rs"]
mod machine;
mod support;

use machine::{Build, Machine};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{Daemon, Guest, Kind, METRICS, Nic, sandboxed, until};
use tailbound_dataplane::testing::frames::{ethernet, ipv4, udp};
use tailbound_sys::probe::required::{Part, skipped};

/// Not a test of its own: the process of the daemon below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// Guests whose sockets are in a directory.
struct Cards(tempfile::TempDir);

impl Cards {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("card{number}"))
    }

    /// A configuration of `count` guests that may send in any name.
    fn config(&self, count: usize) -> String {
        let mut config = format!("metrics = {METRICS:?}\n");
        for number in 1..=count {
            let socket = self.socket(number);
            let socket = socket.display();
            write!(
                config,
                "[[guest]]\nname = \"g{number}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n\
                 anti_spoofing = false\nport = {{ kind = \"vhost-user\", socket = \"{socket}\" }}\n"
            )
            .expect("text");
        }
        config
    }
}

/// A frame from one guest to another.
fn frame(from: u8, to: u8, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; 200];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame
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

/// Two VMs that exchange numbered frames until they are stopped.
struct Traffic {
    machines: [Machine; 2],
    /// The next number of each VM, and the numbers received by each.
    next: [u32; 2],
    came: [Vec<u32>; 2],
}

impl Traffic {
    fn new(cards: &Cards) -> Self {
        let build = Build {
            entries: 64,
            ..Build::default()
        };
        Self {
            machines: [1, 2].map(|number| Machine::start(&cards.socket(number), build)),
            next: [0; 2],
            came: [Vec::new(), Vec::new()],
        }
    }

    fn numbered(from: usize, number: u32) -> Vec<u8> {
        let (from, to) = (from as u8 + 1, 2 - from as u8);
        let mut bytes = frame(from, to, 0);
        bytes[14..18].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Returns the number of chains that a VM has offered and not got back.
    fn outstanding(&self, from: usize) -> u16 {
        let machine = &self.machines[from];
        machine.rings[1].next.wrapping_sub(machine.used(1))
    }

    /// Sends one frame in each direction if there is room, and takes the received ones.
    fn turn(&mut self) {
        for from in 0..2 {
            if self.outstanding(from) < 60 {
                let bytes = Self::numbered(from, self.next[from]);
                self.machines[from].send(0, [0; 10], &bytes);
                self.next[from] += 1;
            }
        }
        self.take();
        std::thread::sleep(std::time::Duration::from_micros(100));
    }

    fn take(&mut self) {
        for (machine, came) in self.machines.iter_mut().zip(&mut self.came) {
            while let Some((_, bytes)) = machine.receive(0, true) {
                let number = bytes[14..18].first_chunk().copied();
                came.push(number.map_or(0, u32::from_be_bytes));
            }
        }
    }

    /// Stops sending, and waits until the last frame of each VM has arrived.
    fn settle(&mut self) {
        machine::until("the last frames", || {
            self.take();
            let last = [self.next[1], self.next[0]].map(|next| next.checked_sub(1));
            let is_there = self
                .came
                .iter()
                .zip(last)
                .all(|(came, last)| came.last().copied() == last);
            is_there.then_some(())
        });
    }

    /// Returns the missing numbers of each VM. Checks that the others arrived in order, and once.
    fn lost(&self) -> [Vec<u32>; 2] {
        [0, 1].map(|to| {
            let came = &self.came[to];
            assert!(came.is_sorted_by(|a, b| a < b), "in order, each once");
            let sent = 0..self.next[1 - to];
            sent.filter(|number| came.binary_search(number).is_err())
                .collect()
        })
    }
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

/// A machine that boots from the network, by emulation: the firmware of its card alone
/// drives the rings.
struct Qemu(Child, PathBuf);

impl Qemu {
    /// Starts QEMU; `None` if it is not installed.
    fn start(cards: &Cards, number: usize) -> Option<Self> {
        let log = cards.0.path().join("qemu");
        let out = std::fs::File::create(&log).expect("created");
        let socket = cards.socket(number);
        let child = Command::new("qemu-system-x86_64")
            .args([
                "-accel", "tcg", "-m", "64", "-display", "none", "-boot", "n",
            ])
            .args([
                "-no-user-config",
                "-nodefaults",
                "-serial",
                "stdio",
                "-monitor",
                "none",
            ])
            .args(["-object", "memory-backend-memfd,id=mem,size=64M,share=on"])
            .args(["-machine", "pc,memory-backend=mem"])
            .arg("-chardev")
            .arg(format!(
                "socket,id=card,path={},reconnect=1",
                socket.display()
            ))
            .args(["-netdev", "vhost-user,id=net,chardev=card"])
            .arg("-device")
            .arg(format!(
                "virtio-net-pci,netdev=net,mac=02:00:00:00:00:{number:02x}"
            ))
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("cloned"))
            .stderr(out)
            .spawn();
        match child {
            Ok(child) => Some(Self(child, log)),
            Err(error) => {
                skipped(Part::Qemu, error);
                None
            }
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.1);
            eprintln!("QEMU said:\n{}", log.unwrap_or_default());
        }
    }
}

/// Returns the kind and the content of a client's DHCP message (RFC 2131).
fn dhcp(frame: &[u8]) -> Option<(u8, &[u8])> {
    const OPTIONS: usize = 240;
    // UDP over IPv4 without options, to the port of servers.
    let is_for_server = frame.get(12..15)? == [8, 0, 0x45]
        && frame.get(23)? == &17
        && frame.get(36..38)? == [0, 67];
    let message = frame.get(42..).filter(|_| is_for_server)?;
    let mut options = message.get(OPTIONS..)?;
    while let [code, len, rest @ ..] = options {
        if *code == 53 {
            return Some((*rest.first()?, message));
        }
        options = rest.get(usize::from(*len)..)?;
    }
    None
}

/// The answer of a server at 10.0.0.1 that offers 10.0.0.9.
fn offer(discover: &[u8]) -> Vec<u8> {
    let mut message = vec![2, 1, 6, 0];
    message.extend_from_slice(&discover[4..12]);
    message.extend([0, 0, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1, 0, 0, 0, 0]);
    message.extend_from_slice(&discover[28..44]);
    message.resize(236, 0);
    message.extend([
        99, 130, 83, 99, 53, 1, 2, 54, 4, 10, 0, 0, 1, 51, 4, 0, 0, 14, 16,
    ]);
    message.extend([1, 4, 255, 255, 255, 0, 255]);
    message.resize(300, 0);
    let packet = ipv4(
        [10, 0, 0, 1].into(),
        [255; 4].into(),
        17,
        &udp(67, 68, &message),
    );
    ethernet([255; 6], [2, 0, 0, 0, 0, 2], 0x0800, &packet)
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

/// DPDK's testpmd with two cards, each of which sends to the other's station.
struct Testpmd(Child, PathBuf);

impl Testpmd {
    /// Starts two cards that connect to the daemon's sockets; `None` if testpmd is not installed.
    fn start(cards: &Cards, arguments: &[&str]) -> Option<Self> {
        let peers = [
            "--eth-peer=0,02:00:00:00:00:02",
            "--eth-peer=1,02:00:00:00:00:01",
        ];
        let devices = [1, 2].map(|number| Self::device(cards, number));
        Self::spawn(cards, &devices, &[&peers, arguments].concat())
    }

    /// Starts one card at whose socket testpmd listens, as only such a card reconnects. It sends
    /// numbered frames to the second guest, as fast as its ring permits.
    fn generate(cards: &Cards) -> Option<Self> {
        let device = Self::device(cards, 1) + ",server=1";
        let arguments = [
            "--forward-mode=flowgen",
            "--flowgen-flows=100000000",
            "--port-topology=loop",
        ];
        Self::spawn(cards, &[device], &arguments)
    }

    /// Returns the number of a frame that [`Testpmd::generate`] sent between constant stations: the
    /// number is added to the destination address.
    fn number(frame: &[u8]) -> Option<u32> {
        let is_own = frame[..12] == [0, 1, 2, 3, 4, 1, 0, 1, 2, 3, 4, 0];
        let address = frame.get(30..34)?.first_chunk()?;
        is_own.then(|| u32::from_be_bytes(*address))
    }

    fn device(cards: &Cards, number: usize) -> String {
        format!(
            "--vdev=net_virtio_user{number},path={},mac=02:00:00:00:00:{number:02x},queue_size=1024",
            cards.socket(number).display()
        )
    }

    fn spawn(cards: &Cards, devices: &[String], arguments: &[&str]) -> Option<Self> {
        let log = cards.0.path().join("testpmd");
        let out = std::fs::File::create(&log).expect("created");
        let child = Command::new("dpdk-testpmd")
            .args([
                "--lcores=0@0,1@0",
                "--no-huge",
                "-m",
                "128",
                "--no-pci",
                "--no-telemetry",
            ])
            .arg(format!("--file-prefix=t{}", std::process::id()))
            .args(devices)
            .arg("--")
            .args([
                "--total-num-mbufs=8192",
                "--stats-period=1",
                "--no-mlockall",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("cloned"))
            .stderr(out)
            .spawn();
        match child {
            Ok(child) => Some(Self(child, log)),
            Err(error) => {
                skipped(Part::Dpdk, error);
                None
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }

    /// Frames that its cards have received so far.
    fn received(&self) -> Vec<u64> {
        let log = self.log();
        let counts = log
            .lines()
            .filter_map(|line| line.trim().strip_prefix("RX-packets:"));
        let counts: Vec<u64> = counts
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        counts[counts.len().saturating_sub(2)..].to_vec()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            eprintln!("testpmd said:\n{}", self.log());
        }
    }
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

/// The numbers of frames that came.
struct Numbers {
    nic: Nic,
    all: BTreeSet<u32>,
}

impl Numbers {
    /// Waits for `count` more frames, and returns the first number that was sent after most of
    /// them.
    fn more(&mut self, count: usize) -> u32 {
        let wanted = self.all.len() + count;
        until("frames", || {
            let frames = self.nic.receive();
            let numbers = frames
                .iter()
                .filter_map(|frame| Testpmd::number(frame.bytes()));
            for number in numbers {
                assert!(self.all.insert(number), "{number} came twice");
            }
            self.all.len() >= wanted
        });
        // Those of one class may be before those of another that were sent earlier.
        let latest = self.all.iter().rev().nth(count / 2);
        latest.copied().unwrap_or_default()
    }

    /// Returns the missing numbers before the last received one.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let pairs = self.all.iter().zip(self.all.iter().skip(1));
        pairs.flat_map(|(one, next)| one + 1..*next)
    }
}
