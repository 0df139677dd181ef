//! Three daemons that exchange rates by UDP, on real interfaces.

mod support;

use std::fmt::Write;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Daemon, Guest, Kind, Nic, command, long_datagram, plugged_in, sandboxed, until};

/// Not a test of its own: the process of the daemons below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// B of each machine, in bits a second, and S, in bytes.
const BANDWIDTH: u64 = 40_000_000;
const BURST: u64 = 15_000;
/// The credit of two hosts that are late: 10 ms of 100 Mbit/s each.
const CAUGHT_UP: u64 = 2 * 125_000;

/// Returns the address of host `number`.
fn address(number: u8) -> String {
    format!("127.0.0.1:{}", 4800 + u16::from(number))
}

/// Returns the configuration of host `number` of three, with its first peer at `first`.
fn config(number: u8, guest: &Guest, key: &Path, first: &str) -> String {
    let mut peers = String::new();
    let mut at = first.to_owned();
    for peer in (1..=3).filter(|peer| *peer != number) {
        if !peers.is_empty() {
            at = address(peer);
        }
        write!(
            peers,
            "[[hose.peer]]\nhost = \"h{peer}\"\naddress = {at:?}\n"
        )
        .unwrap();
    }
    format!(
        "metrics = \"127.0.0.1:{metrics}\"\n\
         [uplink]\n\
         port = {{ kind = \"af-packet\", interface = \"up{number}\" }}\n\
         pacer = {{ link = \"100Mbit/s\", batch = \"5ms\", catch_up = \"10ms\", \
         voids = false, work_conserving = false }}\n\
         {guest}\
         vm = \"acme/web/{number}\"\n\
         guarantee = {{ bandwidth = \"{BANDWIDTH}bit/s\", burst = \"{BURST}B\", \
         burst_rate = \"100Mbit/s\", horizon = \"10ms\" }}\n\
         [hose]\n\
         host = \"h{number}\"\n\
         listen = {listen:?}\n\
         jitter = \"100ms\"\n\
         key_file = \"{key}\"\n\
         machines = {{ \"acme/web\" = 3 }}\n\
         {peers}",
        metrics = 9470 + u16::from(number),
        guest = guest.section(),
        listen = address(number),
        key = key.display(),
    )
}

/// A bridge with a port for each of three hosts.
fn wire() {
    command("ip", &["link", "add", "wire", "type", "bridge"]);
    command("ip", &["link", "set", "wire", "up"]);
    for number in 1..=3 {
        let (up, port) = (format!("up{number}"), format!("port{number}"));
        command(
            "ip",
            &["link", "add", &up, "type", "veth", "peer", "name", &port],
        );
        command("ip", &["link", "set", &port, "master", "wire", "up"]);
        command("ip", &["link", "set", &up, "up"]);
        plugged_in(&port, None);
    }
}

/// Bytes on the wire that came to `nic` from the guests with these addresses
/// while `send` was called again and again.
fn received(nic: &mut Nic, from: [u8; 2], time: Duration, mut send: impl FnMut()) -> [u64; 2] {
    let mut bytes = [0; 2];
    let start = Instant::now();
    while start.elapsed() < time {
        send();
        for packet in nic.receive() {
            let frame = packet.bytes();
            let place = from.iter().position(|number| frame[11] == *number);
            if let Some(place) = place {
                bytes[place] += frame.len() as u64 + 24;
            }
        }
    }
    bytes
}

/// A secret that all hosts share, in a file of `directory`.
fn secret(directory: &Path) -> PathBuf {
    let key = directory.join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o400)).unwrap();
    key
}

/// Forwards to the first host the datagrams to the returned address, and keeps copies.
fn overheard() -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let tap = UdpSocket::bind("127.0.0.1:0").unwrap();
    let through = tap.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let copies = Arc::clone(&seen);
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok(len) = tap.recv(&mut buffer) {
            let _ = tap.send_to(&buffer[..len], address(1));
            copies.lock().unwrap().push(buffer[..len].to_vec());
        }
    });
    (through, seen)
}

/// A datagram as long as a frame may be.
fn full_frame(from: &Guest, to: &Guest) -> Vec<u8> {
    long_datagram(to.mac, from.mac, [10, 77, 0, from.mac[5]], 7, 1514)
}

/// Sends the first host copies of earlier datagrams, the same with a flipped bit, and garbage.
fn forge(heard: &[Vec<u8>]) {
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in heard {
        attacker.send_to(datagram, address(1)).unwrap();
        let mut forged = datagram.clone();
        forged[90] ^= 1;
        attacker.send_to(&forged, address(1)).unwrap();
        attacker.send_to(b"garbage", address(1)).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn three_daemons_share_a_receivers_bandwidth_despite_forgery() {
    sandboxed(
        "three_daemons_share_a_receivers_bandwidth_despite_forgery",
        || {
            wire();
            let directory = tempfile::tempdir().unwrap();
            let key = secret(directory.path());
            // What the second host sends to the first passes here.
            let (through, heard) = overheard();
            let guests = [1, 2, 3].map(|number| Guest::new(Kind::Veth, number));
            let daemons = [
                Daemon::start(&config(1, &guests[0], &key, &address(2))),
                Daemon::start(&config(2, &guests[1], &key, &through)),
                Daemon::start(&config(3, &guests[2], &key, &address(1))),
            ];
            for daemon in &daemons {
                until("the peers", || {
                    daemon.metric("tailbound_hose_peers{state=\"alive\"}") == Some(2.0)
                        && daemon.metric("tailbound_hose_pairs{state=\"known\"}") == Some(2.0)
                });
            }

            let [mut to, mut one, mut other] = [0, 1, 2].map(|place| guests[place].nic());
            let [first, second] = [1, 2].map(|from| full_frame(&guests[from], &guests[0]));
            // Until each has sent its burst and is held to its rate.
            received(&mut to, [2, 3], Duration::from_millis(300), || {
                one.send(&first);
                other.send(&second);
            });
            // A daemon that has no CPU for a while sends less: one of ten seconds must do.
            let shared = (0..10).any(|_| {
                let start = Instant::now();
                let bytes = received(&mut to, [2, 3], Duration::from_secs(1), || {
                    one.send(&first);
                    other.send(&second);
                });
                // Never more than the hose lets through; what waited before, or was
                // late, may come on top.
                let passed = start.elapsed().as_nanos() as u64;
                let most = BANDWIDTH / 8 * passed / 1_000_000_000 + 2 * BURST + CAUGHT_UP;
                assert!(bytes[0] + bytes[1] <= most * 101 / 100, "{bytes:?}, {most}");
                println!("{bytes:?}");
                bytes[0].min(bytes[1]) > most / 10
            });
            assert!(shared, "never a tenth for each");
            assert!(daemons[0].metric("tailbound_hose_pairs{state=\"receiving\"}") == Some(2.0));
            // The receiver's host measures that both stay within their grants.
            let inward = |admission: &str| {
                let labels = format!("{{guest=\"g1\",admission={admission:?}}}");
                daemons[0].metric(&format!("tailbound_inward_packets_total{labels}"))
            };
            assert!(inward("conforming") > Some(300.0));
            assert_eq!(
                (inward("exceeding"), inward("unannounced")),
                (Some(0.0), Some(0.0))
            );

            let dropped = |reason: &str| {
                let name = format!("tailbound_hose_messages_dropped_total{{reason={reason:?}}}");
                daemons[0].metric(&name).unwrap_or(0.0)
            };
            let heard = heard.lock().unwrap().clone();
            forge(&heard[heard.len() - 50..]);
            until("the replayed", || {
                dropped("duplicate") + dropped("old") >= 50.0
            });
            until("the forged", || dropped("mac") >= 50.0);
            until("the garbage", || dropped("length") >= 50.0);
            let peers = daemons[0].metric("tailbound_hose_peers{state=\"alive\"}");
            assert_eq!(peers, Some(2.0));
            assert_eq!(
                daemons[0].metric("tailbound_hose_rates_refused_total{}"),
                Some(0.0)
            );
        },
    );
}
