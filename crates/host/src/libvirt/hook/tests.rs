use super::*;
use crate::socket::{Answer, Guest, GuestSource, HostStatus, Link, Outcome, Port, VERSION};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::JoinHandle;

const WEB: &str = "<domain id='1'><name>web</name><metadata>\
    <guests xmlns='https://github.com/tailbound/tailbound'><guest/></guests></metadata>\
    <devices><interface type='vhostuser'><mac address='52:54:00:00:00:01'/>\
    <source type='unix' path='/run/web' mode='client'/></interface></devices></domain>";

/// A daemon that sends these answers, one for each request, and returns the requests.
fn daemon(directory: &Path, says: Vec<Outcome>) -> JoinHandle<Vec<String>> {
    let socket = directory.join(crate::places::name(Path::new("/x"), ".sock"));
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
        let asked = says.into_iter().map(|outcome| {
            let asked = lines.next().expect("a request").expect("read");
            let version = VERSION;
            let answer = serde_json::to_string(&Answer { version, outcome }).expect("JSON");
            writeln!(&stream, "{answer}").expect("sent");
            let asked: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
            asked["do"].as_str().expect("text").to_owned()
        });
        asked.collect()
    })
}

/// The answer of a daemon that shows `web`, or no guest.
fn shown(link: Option<Link>) -> Outcome {
    let web = |link| Guest {
        port: Port {
            name: "web".to_owned(),
            port: "vhost-user /run/web".to_owned(),
            link,
            ..Port::default()
        },
        kept: GuestSource::Socket,
        vm: None,
        mac: None,
        ipv4: None,
        drained: false,
        guarantee: None,
        limit: None,
        guarantee_refused: false,
        paced_bytes: 0,
        waits: Vec::new(),
    };
    Outcome::Shown {
        host: Box::new(HostStatus {
            pid: 1,
            uptime_ns: 0,
            config: "/x".into(),
            added: "/y".into(),
            service: None,
            reloads_refused: 0,
            packet_loop: None,
            uplink: None,
            guests: link.map(web).into_iter().collect(),
        }),
    }
}

fn done(unguaranteed: &[&str]) -> Outcome {
    Outcome::Done {
        changed: true,
        unguaranteed: unguaranteed.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Returns the result of an operation with a daemon that sends these answers, and the requests.
fn called(operation: &str, says: Vec<Outcome>) -> (Result<Vec<String>, String>, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = daemon(directory.path(), says);
    let connect = || Client::connect(Path::new("/x"), Some(directory.path()));
    let done = hook(operation, "web", WEB, &connect);
    let asked = daemon.join().expect("all was asked");
    (done.map_err(|error| error.to_string()), asked)
}

#[test]
fn a_domain_whose_guarantee_is_refused_does_not_start() {
    let says = vec![
        shown(None),
        done(&["web"]),
        shown(Some(Link::Away)),
        done(&[]),
    ];
    let (refused, asked) = called("start", says);
    let refused = refused.expect_err("there is no room");
    let wanted = "domain web: there is no room on the uplink for what guest web is guaranteed";
    assert!(refused.starts_with(wanted), "{refused}");
    assert_eq!(asked, ["show", "add-guest", "show", "remove-guest"]);
    // One that runs is left alone.
    let (said, asked) = called("reconnect", vec![shown(Some(Link::Up)), done(&["web"])]);
    assert!(said.expect("it goes on")[0].starts_with("there is no room"));
    assert_eq!(asked, ["show", "add-guest"]);
}

#[test]
fn a_card_is_given_up_once_its_machine_has_left() {
    let says = vec![
        shown(Some(Link::Up)),
        shown(Some(Link::Up)),
        shown(Some(Link::Away)),
        done(&[]),
    ];
    let (said, asked) = called("stopped", says);
    assert_eq!(said, Ok(Vec::new()));
    assert_eq!(asked, ["show", "show", "show", "remove-guest"]);
}
