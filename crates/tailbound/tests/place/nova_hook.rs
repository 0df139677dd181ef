//! libvirt's hook of a compute node, with the XML that nova writes, and a live service.

use crate::support::{CommandOutput, Service, tailbound};
use std::io::Write as _;
use std::process::Stdio;

const PROJECT: &str = "6f70656e737461636b20342065766572";
const SERVER: &str = "629b29b9-b0fb-4766-b27d-f4a686d5cbda";
/// The hook's reason if it is the service that keeps the server from starting.
const UNCONFIRMED: &str = "the placement service does not confirm its place";

/// A server of nova, as libvirt hands it to the hook before it starts. Its interface does not exist here, so
/// that the adoption after the confirmation fails.
fn xml() -> String {
    format!(
        "<domain type='kvm' id='1'><name>instance-1</name><uuid>{SERVER}</uuid><metadata>\
         <nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>\
         <nova:flavor name='fast'><nova:extraSpecs>\
         <nova:extraSpec name='tailbound:bandwidth'>50Mbit/s</nova:extraSpec>\
         </nova:extraSpecs></nova:flavor>\
         <nova:owner><nova:project uuid='{PROJECT}'>shop</nova:project></nova:owner>\
         </nova:instance></metadata><devices><interface type='bridge'>\
         <mac address='fa:16:3e:00:00:01'/><target dev='no-such-tap'/></interface></devices></domain>"
    )
}

/// Calls the hook of a host as libvirt does when a domain is about to start.
fn start_on(host: &str, service: &Service, state: &std::path::Path) -> CommandOutput {
    let mut hook = tailbound()
        .args(["host", "libvirt-hook", "instance-1", "start", "begin", "-"])
        .arg("--state")
        .arg(state)
        .env("TAILBOUND_URL", &service.url)
        .env("TAILBOUND_HOST", host)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = hook.stdin.take().unwrap();
    stdin.write_all(xml().as_bytes()).unwrap();
    drop(stdin);
    CommandOutput::new(hook.wait_with_output().unwrap())
}

/// The host and the state of the server's place.
fn place(service: &Service) -> (String, String) {
    let asked = format!("machine {SERVER} --owner {PROJECT} --output json");
    let machine = service.place(&asked).json();
    let text = |key: &str| machine[key].as_str().unwrap().to_owned();
    (text("host"), text("state"))
}

#[test]
fn the_hook_confirms_novas_reservation_and_moves_it_on_a_retry() {
    let directory = tempfile::tempdir().unwrap();
    let mut service = Service::open(directory.path());
    let state = directory.path().join("adopted");
    let refused = start_on("a-1", &service, &state).ended(1);
    assert!(refused.err.contains(UNCONFIRMED), "{refused:?}");

    let request = directory.path().join("request.toml");
    std::fs::write(&request, "vms = 1\n").unwrap();
    let reserve = format!(
        "reserve {PROJECT}/servers --on a-1 --machine {SERVER} --file {}",
        request.display()
    );
    service.place(&reserve).done();
    assert_eq!(place(&service), ("a-1".to_owned(), "reserved".to_owned()));
    // The alternate of a retry, then the same host once more.
    for host in ["a-1", "b-2", "b-2"] {
        let hook = start_on(host, &service, &state);
        assert!(!hook.err.contains(UNCONFIRMED), "{host}: {hook:?}");
        assert_eq!(place(&service), (host.to_owned(), "confirmed".to_owned()));
    }
    service.kill();
    let alone = start_on("b-2", &service, &state).ended(1);
    assert!(alone.err.contains(UNCONFIRMED), "{alone:?}");
}
