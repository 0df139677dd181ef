//! The daemon with a placement service that stops and starts again.

mod support;

use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::{Daemon, METRICS, sandboxed, until};

/// Not a test of its own: the process of the daemons below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

/// A minimal placement service, which sends one line to each client.
struct Service {
    address: String,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start(address: &str, line: String) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let service = Self {
            address: address.to_owned(),
            connections: Arc::default(),
            asked: Arc::default(),
        };
        let (connections, asked) = (Arc::clone(&service.connections), Arc::clone(&service.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut text = Vec::new();
                let mut byte = [0];
                while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                    text.push(byte[0]);
                }
                if text.is_empty() {
                    // The last one, which only ends this.
                    return;
                }
                let head = String::from_utf8(text).unwrap();
                if head.starts_with("POST /v1/hosts/h/report ") {
                    let _ = write!(stream, "HTTP/1.1 204 No Content\r\n\r\n");
                    continue;
                }
                asked
                    .lock()
                    .unwrap()
                    .extend(head.lines().next().map(str::to_owned));
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{line}\n");
                connections.lock().unwrap().push(stream);
            }
        });
        service
    }

    /// Stops the service.
    fn stop(self) {
        let last = TcpStream::connect(&self.address).unwrap();
        last.shutdown(Shutdown::Both).unwrap();
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

const ADDRESS: &str = "127.0.0.1:7070";

fn line(revision: u64, bandwidth: &str) -> String {
    format!(
        r#"{{"host":"h","state":"open","revision":{revision},"vms":[
        {{"vm":"acme/db/0","tenant":9,"tenant_vms":1}},
        {{"vm":"acme/web/0","tenant":7,"tenant_vms":2,"guarantee":{{"bandwidth":"{bandwidth}",
            "burst":"100KB","delay":"1ms","burst_rate":"10Gbit/s"}}}},
        {{"vm":"acme/web/1","tenant":7,"tenant_vms":2}}]}}"#
    )
    .replace('\n', " ")
}

/// A guest that writes the received frames to a file.
fn guest(directory: &Path, number: u8, vm: &str) -> String {
    let capture = directory.join(format!("g{number}.pcap"));
    format!(
        "[[guest]]\nname = \"g{number}\"\nmac = \"02:00:00:00:00:0{number}\"\n\
         anti_spoofing = false\nport = {{ kind = \"pcap\", write = \"{}\" }}\n{vm}\n",
        capture.display()
    )
}

const KNOWN: [&str; 3] = [
    "tailbound_guarantee_known{guest=\"g1\",vm=\"acme/web/0\"}",
    "tailbound_guarantee_known{guest=\"g2\",vm=\"acme/web/1\"}",
    "tailbound_guarantee_known{guest=\"g3\",vm=\"acme/gone/0\"}",
];
const BANDWIDTH: &str =
    "tailbound_guarantee_bandwidth_bits_per_second{guest=\"g1\",vm=\"acme/web/0\"}";
const MISSING: &str = "tailbound_guarantee_without_guest{vm=\"acme/db/0\"}";
const CONNECTED: &str = "tailbound_control_connected{}";
const REVISION: &str = "tailbound_control_revision{}";

#[test]
fn guarantees_outlast_the_service_a_reload_and_the_daemon() {
    sandboxed(
        "guarantees_outlast_the_service_a_reload_and_the_daemon",
        || {
            let directory = tempfile::tempdir().unwrap();
            let state = directory.path().join("guarantees.json");
            let config = |third: &str| {
                let guests = [
                    guest(directory.path(), 1, "vm = \"acme/web/0\""),
                    guest(directory.path(), 2, "vm = \"acme/web/1\""),
                    guest(directory.path(), 3, third),
                    guest(directory.path(), 4, ""),
                ];
                format!("metrics = {METRICS:?}\n{}", guests.concat())
            };
            let url = format!("http://{ADDRESS}");

            let service = Service::start(ADDRESS, line(3, "1Gbit/s"));
            let daemon = Daemon::follow(&config("vm = \"acme/gone/0\""), &url, &state);
            until("the guarantees", || daemon.metric(REVISION) == Some(3.0));
            assert_eq!(daemon.metric(CONNECTED), Some(1.0), "{}", daemon.log());
            assert!(daemon.metric("tailbound_control_silence_seconds{}") < Some(20.0));
            assert_eq!(
                KNOWN.map(|name| daemon.metric(name)),
                [Some(1.0), Some(1.0), Some(0.0)]
            );
            assert_eq!(daemon.metric(MISSING), Some(1.0));
            assert_eq!(daemon.metric(BANDWIDTH), Some(1e9));
            for (name, value) in [
                ("burst_bytes", 1e5),
                ("burst_rate_bits_per_second", 1e10),
                ("delay_seconds", 1e-3),
            ] {
                let name = format!("tailbound_guarantee_{name}{{guest=\"g1\",vm=\"acme/web/0\"}}");
                assert_eq!(daemon.metric(&name), Some(value), "{name}");
            }
            // Best effort is known and promised nothing.
            assert_eq!(
                daemon.metric(&BANDWIDTH.replace("g1", "g2").replace("web/0", "web/1")),
                None
            );
            let asked = service.asked.lock().unwrap()[0].clone();
            assert_eq!(asked, "GET /v1/hosts/h/guarantees/stream HTTP/1.1");

            service.stop();
            until("the loss", || daemon.metric(CONNECTED) == Some(0.0));
            assert!(daemon.metric("tailbound_control_failures_total{}") >= Some(1.0));
            assert_eq!(daemon.metric(BANDWIDTH), Some(1e9));

            daemon.configure(&config("vm = \"acme/db/0\""));
            until("the reload", || daemon.metric(MISSING).is_none());
            assert_eq!(daemon.metric(BANDWIDTH), Some(1e9), "{}", daemon.log());

            daemon.signal(Signal::KILL);
            drop(daemon);
            let mut daemon = Daemon::follow(&config(""), &url, &state);
            until("what was kept", || daemon.metric(REVISION) == Some(3.0));
            assert_eq!(daemon.metric(CONNECTED), Some(0.0));
            assert_eq!(daemon.metric("tailbound_control_silence_seconds{}"), None);
            assert_eq!(daemon.metric(BANDWIDTH), Some(1e9));
            assert_eq!(daemon.metric(MISSING), Some(1.0));

            let service = Service::start(ADDRESS, line(4, "2Gbit/s"));
            until("the return", || daemon.metric(CONNECTED) == Some(1.0));
            until("the new bandwidth", || {
                daemon.metric(BANDWIDTH) == Some(2e9)
            });
            assert_eq!(daemon.metric(REVISION), Some(4.0));
            service.stop();

            daemon.signal(Signal::TERM);
            assert!(daemon.wait().success(), "{}", daemon.log());
        },
    );
}

#[test]
fn a_stale_replica_changes_no_guarantee_and_a_newer_one_does() {
    sandboxed(
        "a_stale_replica_changes_no_guarantee_and_a_newer_one_does",
        || {
            let directory = tempfile::tempdir().unwrap();
            let state = directory.path().join("guarantees.json");
            let config = guest(directory.path(), 1, "vm = \"acme/web/0\"");
            let config = format!("metrics = {METRICS:?}\n{config}");
            let other = "127.0.0.1:7071";
            let first = Service::start(ADDRESS, line(3, "1Gbit/s"));
            let second = Service::start(other, line(2, "5Gbit/s"));
            let both = format!("http://{ADDRESS},http://{other}");
            let daemon = Daemon::follow(&config, &both, &state);
            until("the first", || daemon.metric(REVISION) == Some(3.0));

            first.stop();
            until("the second", || {
                daemon.metric("tailbound_control_failures_total{}") >= Some(1.0)
                    && daemon.metric(CONNECTED) == Some(1.0)
            });
            assert_eq!(second.asked.lock().unwrap().len(), 1);
            assert_eq!(daemon.metric(REVISION), Some(3.0));
            assert_eq!(daemon.metric(BANDWIDTH), Some(1e9));

            let first = Service::start(ADDRESS, line(4, "2Gbit/s"));
            second.stop();
            until("the first again", || daemon.metric(REVISION) == Some(4.0));
            assert_eq!(daemon.metric(BANDWIDTH), Some(2e9), "{}", daemon.log());
            first.stop();
        },
    );
}

#[test]
fn a_damaged_state_keeps_no_host_from_starting_and_promises_nothing() {
    sandboxed(
        "a_damaged_state_keeps_no_host_from_starting_and_promises_nothing",
        || {
            let directory = tempfile::tempdir().unwrap();
            let state = directory.path().join("guarantees.json");
            std::fs::write(&state, "{\"schema\":1,\"guar").unwrap();
            let config = guest(directory.path(), 1, "vm = \"acme/web/0\"");
            let config = format!("metrics = {METRICS:?}\n{config}");
            let daemon = Daemon::follow(&config, &format!("http://{ADDRESS}"), &state);
            assert_eq!(daemon.metric(CONNECTED), Some(0.0));
            assert_eq!(daemon.metric(KNOWN[0]), Some(0.0));
            assert_eq!(daemon.metric(REVISION), None);
        },
    );
}
