//! Replicas over etcd, and their callers.

use std::net::TcpListener;
use std::time::{Duration, Instant};
use tailbound_api::{NewTenant, VmLimit};
use tailbound_control::ledger::{Call, Command};
use tailbound_control::replica::{Options, Replica};
use tailbound_control::server::{Authentication, Config, Metrics, Server};
use tailbound_control::service::{Service, ServiceError};
use tailbound_control::store::etcd::Location;
use tailbound_placement::{Policy, Spec};
use tailbound_units::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// Time limit for any condition of a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) fn spec() -> Spec {
    Spec::from_toml(
        r#"
        frame = "1538B"
        [[host]]
        name = "host"
        count = 8
        slots = 8
        uplink = { rate = "10Gbit/s", buffer = "300KB" }
        "#,
    )
    .unwrap()
}

pub(crate) async fn replica(location: &Location, number: u32) -> (Service, Replica) {
    replica_at(location, &format!("http://replica-{number}")).await
}

pub(crate) async fn replica_at(location: &Location, url: &str) -> (Service, Replica) {
    let options = Options {
        location: location.clone(),
        advertise: url.to_owned(),
        lease: Duration::from_secs(2),
        leader_ca: None,
        initial: Some((spec(), Policy::Silo)),
    };
    Replica::start(options, |ledger| Service::start(ledger, |_| {}))
        .await
        .unwrap()
}

/// Starts three replicas at the same time.
pub(crate) async fn three(location: &Location) -> Vec<(Service, Replica)> {
    let (one, two, three) = tokio::join!(
        replica(location, 0),
        replica(location, 1),
        replica(location, 2)
    );
    vec![one, two, three]
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Serves the API of a replica on this listener, until the runtime ends.
pub(crate) fn serve(listener: TcpListener, (service, replica): &(Service, Replica)) {
    let config = Config {
        authentication: Authentication::InsecureLoopback,
        tls: None,
        streams: 4,
        connections: 8,
        hose: None,
        collector: None,
    };
    let (service, replica) = (service.clone(), replica.clone());
    let server = Server::new(config, service, Some(replica), Metrics::new()).unwrap();
    tokio::spawn(async move { server.run(listener).await });
}

/// Returns the kinds of a replica's faults, from its metrics; None while its list has others.
pub(crate) fn faults(address: &str) -> Option<String> {
    let metrics = page(address, "/metrics");
    let counted = metrics.lines().filter_map(|line| {
        let (kind, count) = line.split_once("faults{fault=\"")?.1.split_once("\"} ")?;
        (count != "0").then_some(kind)
    });
    let list = page(address, "/v1/faults");
    let listed = list.split("\"kind\":\"").skip(1);
    let listed: Vec<_> = listed.filter_map(|rest| rest.split('"').next()).collect();
    let counted: Vec<_> = counted.collect();
    (counted == listed).then(|| listed.join(" "))
}

/// Returns the answer of a replica.
fn page(address: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    text
}

pub(crate) fn create(name: &str) -> Call {
    Call {
        key: Some(name.to_owned()),
        ..Call::of_service(Command::Create(NewTenant {
            name: name.to_owned(),
            owner: Some("acme".to_owned()),
            vms: 3,
            guarantee: None,
            cpu: 0,
            memory: Bytes::default(),
            domains: None,
            cpu_reservation: None,
            message: None,
            limit: VmLimit::default(),
            placement: Vec::new(),
        }))
    }
}

/// Returns a report of a host with a link of `gbit` Gbit/s.
pub(crate) fn report(gbit: u64) -> Call {
    let report = format!(
        r#"{{"revision":1,"change":0,"limits":{{"link":"{gbit}Gbit/s","frame":"1538B","slowest":"1kbit/s","subtree_bursts":true}}}}"#
    );
    Call::of_service(Command::Report {
        host: "host-1".to_owned(),
        report: Box::new(serde_json::from_str(&report).unwrap()),
    })
}

/// The gigabits of the link of that host, as a replica knows it.
pub(crate) fn link(service: &Service) -> Option<u64> {
    let host = service.read(|ledger| ledger.host("host-1"))?;
    Some(host.said.limits?.link.0 / 1_000_000_000)
}

/// Has the one that leads decide.
pub(crate) async fn decide(replicas: &[(Service, Replica)], name: &str) -> usize {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        for (number, (service, _)) in replicas.iter().enumerate() {
            match service.call(create(name)).await {
                Ok(_) => return number,
                Err(error) => assert_eq!(error, ServiceError::NotLeader),
            }
        }
        assert!(Instant::now() < end, "no replica leads");
        sleep(Duration::from_millis(5)).await;
    }
}
