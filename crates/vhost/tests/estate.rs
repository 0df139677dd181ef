//! A card that another process goes on with, as when a daemon takes over from another: its
//! guest and the monitor notice nothing.

use crate::ports::{PLAIN, bytes, frame, open, outgoing, receive, socket, started, transmit};
use crate::support::{BASE, Build, LEN, Machine, Monitor, feature, memfd, rang, request, until};
use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use tailbound_dataplane::Pool;
use tailbound_switch::port::{Estate, Port, Presence};
use tailbound_vhost::{Mode, VhostConfig, VhostPort};

fn config(socket: &Path, queues: usize) -> VhostConfig<'_> {
    VhostConfig {
        allowance: None,
        socket,
        mode: Mode::Server,
        user: None,
        queues,
    }
}

/// Has another port go on, as another process would.
fn succeed(mut port: VhostPort, socket: &Path, queues: usize) -> VhostPort {
    let estate = port.pause().expect("nothing is amid a request");
    let successor = VhostPort::go_on(config(socket, queues), estate).expect("all is there");
    drop(port);
    assert!(socket.exists(), "it is the successor's");
    successor
}

#[test]
fn a_takeover_loses_no_frame_and_keeps_the_vmm_connection() {
    for pairs in [1, 4] {
        let (socket, mut port, mut machine) = started(Build {
            pairs,
            entries: 32,
            ..Build::default()
        });
        let pool = Pool::new();
        let mut mark = 0;
        for _ in 0..5 {
            // What the ring holds when it changes hands.
            let first = mark;
            for _ in 0..10 {
                machine.send(usize::from(mark) % pairs, PLAIN, &frame(60, mark));
                mark += 1;
            }
            let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 99), None)]);
            assert_eq!(transmit(&mut port, &mut frames).packets, 1);
            port = succeed(port, &socket.path, pairs);
            let mut got = Vec::new();
            until("what the rings held", || {
                got.extend(receive(&mut port, &pool).iter().map(|got| bytes(got)[20]));
                (got.len() == 10).then_some(())
            });
            got.sort_unstable();
            assert_eq!(got, (first..mark).collect::<Vec<_>>(), "each once");
            let received = (0..pairs).filter_map(|pair| machine.receive(pair, true));
            assert_eq!(received.count(), 1, "what was in its ring stayed there");
            // Frames and kicks go on both ways, by the same connection.
            machine.send(0, PLAIN, &frame(60, 7));
            assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
            let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 8), None)]);
            assert_eq!(transmit(&mut port, &mut frames).packets, 1);
            let got = (0..pairs).find_map(|pair| machine.receive(pair, true));
            assert_eq!(got.expect("a frame").1, frame(60, 8));
            until("the driver is called", || {
                let mut rings = machine.rings.iter();
                rings.any(|ring| rang(&ring.call)).then_some(())
            });
            let queues = machine.monitor.ask(request::GET_QUEUE_NUM, &[]);
            assert_eq!(queues.expect("answered"), pairs as u64);
        }
    }
}

#[test]
fn negotiated_features_and_the_log_survive_a_takeover() {
    let (socket, port, mut machine) = started(Build::default());
    let log = memfd(4096);
    machine.set_log(&log, (BASE + LEN) / 4096 / 8);
    let features = machine.build.features | feature::LOG_ALL;
    let set = |machine: &mut Machine, features| {
        machine
            .monitor
            .tell(request::SET_FEATURES, &[features], &[])
    };
    set(&mut machine, features).expect("while its rings run");
    let mut port = succeed(port, &socket.path, 1);
    let pool = Pool::new();
    let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 1), None)]);
    assert_eq!(transmit(&mut port, &mut frames).packets, 1);
    let mut logged = vec![0; 4096];
    rustix::io::pread(&log, &mut logged, 0).expect("read");
    assert!(logged.iter().any(|byte| *byte != 0), "pages are logged");
    // Its requests are acknowledged still, and refused as before.
    set(&mut machine, 0).expect_err("its rings run");
}

#[test]
fn stopped_and_broken_rings_stay_so_across_a_takeover() {
    let (socket, mut port, mut machine) = started(Build {
        pairs: 2,
        ..Build::default()
    });
    let pool = Pool::new();
    machine.stop_ring(2);
    machine.make_available(1, 16);
    machine.kick_anyway(1);
    until("the ring is broken", || {
        receive(&mut port, &pool);
        rang(&machine.rings[1].error).then_some(())
    });
    let mut port = succeed(port, &socket.path, 2);
    machine.kick_anyway(1);
    machine.send(1, PLAIN, &frame(60, 4));
    let got = until("a frame by the other pair", || {
        receive(&mut port, &pool).pop()
    });
    assert_eq!(bytes(&got), frame(60, 4));
    assert_eq!(machine.used(1), 0);
    let mut frames: VecDeque<_> = (0..8)
        .map(|n| outgoing(&pool, &frame(60, n), None))
        .collect();
    assert_eq!(transmit(&mut port, &mut frames).packets, 8);
    assert_eq!(machine.used(2), 0, "that ring was stopped");
    machine.start_ring(2).expect("started");
    assert_ne!(port.presence(), Presence::Away);
}

#[test]
fn a_paused_port_without_a_successor_resumes() {
    let (socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    for n in 0..3 {
        let estate = port.pause().expect("nothing is amid a request");
        machine.send(0, PLAIN, &frame(60, n));
        drop(estate);
        port.resume();
        let got = until("a frame", || receive(&mut port, &pool).pop());
        assert_eq!(bytes(&got), frame(60, n));
        machine
            .monitor
            .ask(request::GET_FEATURES, &[])
            .expect("answered");
    }
    drop(port);
    assert!(!socket.path.exists());
}

#[test]
fn a_successor_port_accepts_a_new_vmm() {
    let socket = socket();
    let port = open(&socket.path, 1);
    let mut port = succeed(port, &socket.path, 1);
    let pool = Pool::new();
    let mut machine = Machine::start(&socket.path, Build::default());
    machine.send(0, PLAIN, &frame(60, 1));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
    drop(port);
    assert!(!socket.path.exists());
}

#[test]
fn a_monitor_amid_a_request_is_not_handed_over_and_connects_again() {
    let (socket, mut port, mut machine) = started(Build::default());
    let message = Monitor::message(request::GET_FEATURES, &[]);
    let (half, rest) = message.split_at(5);
    machine.monitor.stream.write_all(half).expect("sent");
    until("it is read", || {
        port.pause().is_none().then_some(()).or_else(|| {
            port.resume();
            None
        })
    });
    // Nobody took it: the rest of the request is answered.
    port.resume();
    machine.monitor.stream.write_all(rest).expect("sent");
    machine.monitor.answer().expect("answered");
    machine.monitor.stream.write_all(half).expect("sent");
    until("it is read", || {
        port.pause().is_none().then_some(()).or_else(|| {
            port.resume();
            None
        })
    });
    let mut successor = open(&socket.path, 1);
    drop(port);
    assert!(socket.path.exists());
    machine.reconnect(&socket.path);
    machine.send(0, PLAIN, &frame(60, 1));
    let pool = Pool::new();
    assert!(until("a frame", || receive(&mut successor, &pool).pop()).len == 60);
}

#[test]
fn an_estate_of_another_card_is_refused() {
    let (socket, mut port, _machine) = started(Build::default());
    let estate = port.pause().expect("nothing is amid a request");
    let whole = |count: usize| Estate {
        state: estate.state.clone(),
        descriptors: estate.descriptors[..count]
            .iter()
            .map(|descriptor| descriptor.try_clone().expect("cloned"))
            .collect(),
    };
    let all = estate.descriptors.len();
    let refused = |queues, estate| {
        let gone = VhostPort::go_on(config(&socket.path, queues), estate);
        gone.expect_err("refused").to_string()
    };
    assert!(refused(2, whole(all)).contains("rings"));
    for count in 0..all {
        assert!(refused(1, whole(count)).contains("missing"), "{count}");
    }
    let mut other = whole(all);
    other.state = other.state.replace("\"monitor\"", "\"watcher\"");
    refused(1, other);
    assert!(VhostPort::go_on(config(&socket.path, 1), whole(all)).is_ok());
}

/// The words of the first release with cards for the card of [`started`], after one frame.
const FIRST: &str = r#"{"listens":10371193,"monitor":11,"features":6174048256,"memory":[{"guest":1048576,"monitor":139637976727552,"len":33554432,"offset":0}],"rings":[{"size":16,"parts":{"descriptors":139637976727552,"available":139637976727808,"used":139637976731648},"index":0,"stage":"Running","is_enabled":true,"descriptors":[true,true,true]},{"size":16,"parts":{"descriptors":139637993504768,"available":139637993505024,"used":139637993508864},"index":1,"stage":"Running","is_enabled":true,"descriptors":[true,true,true]}],"log":null}"#;

/// Hands a card over with other words for its state; returns what became of it, and whether
/// frames go on both ways by the same connection.
fn go_on_with(words: impl FnOnce(&str) -> String) -> Result<(), String> {
    let (socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    machine.send(0, PLAIN, &frame(60, 7));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
    let mut estate = port.pause().expect("nothing is amid a request");
    estate.state = words(&estate.state);
    let successor = VhostPort::go_on(config(&socket.path, 1), estate);
    let mut port = successor.map_err(|error| error.to_string())?;
    machine.send(0, PLAIN, &frame(60, 8));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
    let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 9), None)]);
    assert_eq!(transmit(&mut port, &mut frames).packets, 1);
    assert_eq!(machine.receive(0, true).expect("a frame").1, frame(60, 9));
    let queues = machine.monitor.ask(request::GET_QUEUE_NUM, &[]);
    assert_eq!(queues.expect("answered"), 1);
    Ok(())
}

#[test]
fn a_card_of_the_first_release_goes_on() {
    go_on_with(|_| FIRST.to_owned()).expect("it is understood");
}

#[test]
fn the_first_release_can_read_the_state_of_this_release() {
    go_on_with(|written| {
        // All that it reads, by the names and in the form that it knows.
        let first: serde_json::Value = serde_json::from_str(FIRST).expect("JSON");
        let written: serde_json::Value = serde_json::from_str(written).expect("JSON");
        for (name, value) in first.as_object().expect("an object") {
            let ours = written.get(name).expect("it is there");
            assert!(
                name == "listens" || ours == value,
                "{name}: {ours} in the place of {value}"
            );
        }
        written.to_string()
    })
    .expect("it is understood");
}

#[test]
fn a_card_of_a_release_with_more_fields_goes_on_unless_it_needs_them() {
    let more = |written: &str| {
        let more = written.replacen('{', r#"{"steering":{"table":[1,2]},"#, 1);
        more.replace(r#"{"size":"#, r#"{"weight":7,"size":"#)
    };
    go_on_with(more).expect("they are passed over");
    for need in ["steering", "weight"] {
        let needs = |written: &str| {
            let needs = format!(r#""needs":["{need}"]"#);
            more(written).replace(r#""needs":[]"#, &needs)
        };
        let error = go_on_with(needs).expect_err("it cannot go on");
        assert!(error.contains(need) && error.contains("version"), "{error}");
    }
}
