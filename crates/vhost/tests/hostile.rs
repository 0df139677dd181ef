//! The port against drivers and monitors that are wrong, by mistake or on purpose: each
//! costs itself alone.

use crate::ports::{
    PLAIN, bytes, exchange, frame, open, outgoing, receive, socket, started, transmit,
};
use crate::support::{
    BASE, Build, Descriptor, IS_INDIRECT, LEN, Machine, Monitor, NEXT, STEP_TIMEOUT, WRITE,
    feature, make_wait, memfd, rang, request, until,
};
use rustix::fs::ftruncate;
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use tailbound_dataplane::Pool;
use tailbound_switch::port::{Burst, Port, Presence, TransmitResult};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_units::Nanos;
use tailbound_vhost::{Mode, VhostConfig, VhostPort};

type Attack = fn(&mut Machine);
/// Writes of a driver that violate the rules.
const ATTACKS: [(&str, Attack); 8] = [
    ("a loop", |machine| {
        machine.describe(1, 0, Descriptor::of(BASE, 1).with(NEXT));
        machine.make_available(1, 0);
    }),
    ("a long loop", |machine| {
        for entry in 0..16 {
            let next = (entry + 1) % 16;
            machine.describe(
                1,
                entry,
                Descriptor {
                    at: BASE,
                    len: 0,
                    flags: NEXT,
                    next,
                },
            );
        }
        machine.make_available(1, 0);
    }),
    ("a buffer outside", |machine| {
        let outside = BASE + LEN - 10;
        machine.describe(1, 0, Descriptor::of(outside, 100));
        machine.make_available(1, 0);
    }),
    ("a buffer at the end of all addresses", |machine| {
        machine.describe(1, 0, Descriptor::of(u64::MAX - 5, 100));
        machine.make_available(1, 0);
    }),
    ("a buffer for the other direction", |machine| {
        machine.describe(1, 0, Descriptor::of(BASE, 100).with(WRITE));
        machine.make_available(1, 0);
    }),
    ("a head behind the table", |machine| {
        machine.make_available(1, 16);
    }),
    ("a table in a table", |machine| {
        let table = machine.rings[1].buffer(0);
        let indirect = Descriptor::of(table, 16).with(IS_INDIRECT);
        machine.describe_at(table, indirect);
        machine.describe(1, 0, indirect);
        machine.make_available(1, 0);
    }),
    ("more chains than entries", |machine| {
        machine.rings[1].next = 1000;
        machine.make_available(1, 0);
    }),
];

type Wrong = fn(&mut Monitor) -> std::io::Result<()>;
/// Messages of a VMM that violate the rules.
const WRONGS: [(&str, Wrong); 8] = [
    ("TSO without checksums", |monitor| {
        monitor.tell(request::SET_FEATURES, &[feature::GUEST_TSO4], &[])
    }),
    ("packed rings", |monitor| {
        monitor.tell(request::SET_FEATURES, &[1 << 34], &[])
    }),
    ("a ring that there is not", |monitor| {
        monitor.tell(request::SET_VRING_NUM, &[2 | 16 << 32], &[])
    }),
    ("a ring of three", |monitor| {
        monitor.tell(request::SET_VRING_NUM, &[3 << 32], &[])
    }),
    ("a kick that is a file", |monitor| {
        monitor.tell(request::SET_VRING_KICK, &[0], &[memfd(10).as_fd()])
    }),
    ("memory that is too short", |monitor| {
        let region = [1, 0, 1 << 20, 1 << 30, 0];
        monitor.tell(request::SET_MEM_TABLE, &region, &[memfd(4096).as_fd()])
    }),
    ("a request that there is not", |monitor| {
        monitor.tell(77, &[], &[])
    }),
    ("a length that is none", |monitor| {
        monitor.tell(request::SET_FEATURES, &[0; 600], &[])
    }),
];

#[test]
fn a_hostile_driver_costs_itself_its_ring_until_it_starts_again() {
    for (name, attack) in ATTACKS {
        let (_socket, mut port, mut machine) = started(Build::default());
        let pool = Pool::new();
        attack(&mut machine);
        machine.kick_anyway(1);
        until(name, || {
            assert!(receive(&mut port, &pool).is_empty(), "{name}");
            rang(&machine.rings[1].error).then_some(())
        });
        // The other ring goes on.
        let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 1), None)]);
        assert_eq!(transmit(&mut port, &mut frames).packets, 1, "{name}");
        // And this one, once it starts again.
        machine.stop_ring(1);
        let used = machine.used(1);
        (machine.rings[1].next, machine.rings[1].seen) = (used, used);
        let at = machine.rings[1].available() + 2;
        machine.write(used, at);
        machine.start_ring(1).expect("started");
        machine.send(0, PLAIN, &frame(60, 9));
        let got = until(name, || receive(&mut port, &pool).pop());
        assert_eq!(bytes(&got), frame(60, 9), "{name}");
    }
}

type Reset = fn(&mut VhostPort, &mut Machine, &Pool);
/// Resets by a guest amid its traffic.
const RESETS: [(&str, Reset); 3] = [
    ("its monitor stops the rings", |_, machine, _| {
        machine.stop_ring(0);
        machine.stop_ring(1);
    }),
    ("its monitor resets the device", |_, machine, _| {
        let reset = machine.monitor.tell(request::RESET_OWNER, &[], &[]);
        reset.expect("carried out");
    }),
    (
        "it clears its memory before its monitor knows",
        |port, machine, pool| {
            machine.forget();
            machine.kick_anyway(1);
            until("its ring is of no use", || {
                assert!(receive(port, pool).is_empty());
                rang(&machine.rings[1].error).then_some(())
            });
            machine.stop_ring(0);
            machine.stop_ring(1);
        },
    ),
];

#[test]
fn a_guest_that_resets_mid_ring_restarts_without_harm_to_others() {
    for (name, reset) in RESETS {
        let (_socket, mut port, mut machine) = started(Build::default());
        let (_other_socket, mut other, mut neighbour) = started(Build::default());
        let pool = Pool::new();
        for mark in 0..5 {
            exchange(&mut port, &mut machine, &pool, mark);
        }
        // Frames for it that it has not looked at; and those that it clears were never taken.
        let mut frames: VecDeque<_> = (0..3)
            .map(|mark| outgoing(&pool, &frame(60, mark), None))
            .collect();
        assert_eq!(transmit(&mut port, &mut frames).packets, 3, "{name}");
        machine.describe(1, 5, Descriptor::of(machine.rings[1].buffer(5), 72));
        machine.make_available(1, 5);
        reset(&mut port, &mut machine, &pool);
        assert!(receive(&mut port, &pool).is_empty(), "{name}");
        exchange(&mut other, &mut neighbour, &pool, 6);
        machine.boot_again();
        for mark in 7..30 {
            exchange(&mut port, &mut machine, &pool, mark);
            exchange(&mut other, &mut neighbour, &pool, mark);
        }
    }
}

#[test]
fn invalid_frames_are_returned_and_the_ring_continues() {
    let (_socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    let at = machine.rings[1].buffer(0);
    // Shorter than its header, and longer than any frame.
    for (entry, len) in [(0, 7), (1, 100_000)] {
        machine.describe(1, entry, Descriptor::of(at, len));
        machine.make_available(1, entry);
    }
    machine.kick_anyway(1);
    let mut burst = Burst::default();
    until("both", || {
        port.receive(Nanos(0), &pool, &mut burst).expect("a port");
        (machine.used(1) == 2).then_some(())
    });
    assert_eq!(burst.truncated, 1);
    let lengths: Vec<_> = burst.frames.iter().map(|frame| frame.len).collect();
    assert_eq!(lengths, [0]);
    machine.rings[1].next = 2;
    machine.send(0, PLAIN, &frame(60, 9));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
}

#[test]
fn a_monitor_that_contradicts_itself_is_left_and_the_next_is_served() {
    let (socket, mut port) = {
        let socket = socket();
        let port = open(&socket.path, 1);
        (socket, port)
    };
    for (name, wrong) in WRONGS {
        let mut monitor = Monitor::connect(&socket.path);
        let _ = wrong(&mut monitor);
        // Nothing is answered any more.
        until(name, || {
            monitor
                .ask(request::GET_FEATURES, &[])
                .is_err()
                .then_some(())
        });
    }
    let mut machine = Machine::start(&socket.path, Build::default());
    let pool = Pool::new();
    machine.send(0, PLAIN, &frame(60, 9));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
}

#[test]
fn half_a_message_blocks_no_guest() {
    let (socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    let message = Monitor::message(request::SET_VRING_NUM, &[0]);
    machine
        .monitor
        .stream
        .write_all(&message[..5])
        .expect("sent");
    for n in 0..100 {
        machine.send(0, PLAIN, &frame(60, n));
        let got = until("a frame", || receive(&mut port, &pool).pop());
        assert_eq!(bytes(&got), frame(60, n));
        let mut frames = VecDeque::from([outgoing(&pool, &frame(60, n), None)]);
        assert_eq!(transmit(&mut port, &mut frames).packets, 1);
        machine.receive(0, true).expect("a frame");
    }
    // Nor does it keep the port from ending.
    let start = Instant::now();
    drop(port);
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(!socket.path.exists());
}

#[test]
fn memory_that_shrinks_costs_the_guest_its_port_and_the_process_nothing() {
    for len in [0, 4096, LEN - 4096] {
        let (_socket, mut port, mut machine) = started(Build::default());
        let (_other_socket, mut other, mut neighbour) = started(Build::default());
        let pool = Pool::new();
        // A frame at the very end of the memory, which goes first.
        machine.describe(1, 0, Descriptor::of(BASE + LEN - 200, 100));
        ftruncate(&machine.file, len).expect("shrunk");
        if len > 4096 {
            machine.make_available(1, 0);
        }
        machine.kick_anyway(1);
        let mut burst = Burst::default();
        let error = until("the port is lost", || {
            port.receive(Nanos(0), &pool, &mut burst).err()
        });
        assert!(error.to_string().contains("memory"), "{error}");
        let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 1), None)]);
        assert!(port.transmit(Nanos(0), &mut frames).is_err());
        neighbour.send(0, PLAIN, &frame(60, 2));
        assert!(until("a frame", || receive(&mut other, &pool).pop()).len == 60);
    }
}

#[test]
fn a_monitor_that_makes_its_calls_wait_stops_no_other_card_and_no_end() {
    let (told, ended) = channel();
    // On a thread, so that a port that waits fails the test and does not stop it.
    let cards = thread::spawn(move || {
        let (socket, mut port, mut machine) = started(Build::default());
        let (_other_socket, mut other, mut neighbour) = started(Build::default());
        let pool = Pool::new();
        exchange(&mut other, &mut neighbour, &pool, 0);
        for ring in &machine.rings {
            make_wait(&ring.call);
            make_wait(&ring.error);
        }
        // A chain that is given back, a frame, and a ring that breaks: each is told.
        machine.send(0, PLAIN, &frame(60, 1));
        let got = until("a frame", || receive(&mut port, &pool).pop());
        assert_eq!(bytes(&got), frame(60, 1));
        let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 2), None)]);
        assert_eq!(transmit(&mut port, &mut frames).packets, 1);
        machine.make_available(1, 16);
        machine.kick_anyway(1);
        for _ in 0..10 {
            receive(&mut port, &pool);
        }
        for mark in 0..50 {
            exchange(&mut other, &mut neighbour, &pool, mark);
        }
        // Its own requests are answered, it is given up, and another machine is served.
        let queues = machine.monitor.ask(request::GET_QUEUE_NUM, &[]);
        assert_eq!(queues.expect("answered"), 1);
        drop(machine);
        let mut machine = Machine::start(&socket.path, Build::default());
        exchange(&mut port, &mut machine, &pool, 3);
        until("its driver is called", || {
            rang(&machine.rings[0].call).then_some(())
        });
        drop(port);
        told.send(()).expect("somebody waits");
    });
    let ended = ended.recv_timeout(STEP_TIMEOUT);
    assert_ne!(
        ended,
        Err(RecvTimeoutError::Timeout),
        "a port waits for a monitor"
    );
    cards.join().expect("no panic");
}

#[test]
fn a_guest_whose_buffers_hold_nothing_loses_its_ring_and_others_get_their_frames() {
    let (_socket, mut port, machine) = started(Build {
        buffer: 1,
        entries: 512,
        ..Build::default()
    });
    let (_other_socket, mut other, mut neighbour) = started(Build::default());
    let pool = Pool::new();
    let mut total = TransmitResult::default();
    for mark in 0..20 {
        let mut frames: VecDeque<_> = (0..32)
            .map(|_| outgoing(&pool, &frame(600, mark), None))
            .collect();
        while !frames.is_empty() {
            let sent = transmit(&mut port, &mut frames);
            total.refused += sent.refused;
            total.link_down += sent.link_down;
            total.pieces += sent.pieces;
            assert!(sent.pieces <= 34 * 32 + 256, "{} in one burst", sent.pieces);
        }
        exchange(&mut other, &mut neighbour, &pool, mark);
    }
    // The last of them broke it: that one and those behind it are lost as on a link that is
    // down.
    assert_eq!((total.refused, total.link_down), (255, 20 * 32 - 255));
    assert_eq!(total.pieces, 256 * 256, "each is counted");
    until("its monitor is told", || {
        rang(&machine.rings[0].error).then_some(())
    });
    assert_eq!(port.presence(), Presence::Away);
}

#[test]
fn empty_descriptors_before_each_frame_cost_a_guest_its_ring() {
    let (_socket, mut port, mut machine) = started(Build::default());
    let (_other_socket, mut other, mut neighbour) = started(Build::default());
    let pool = Pool::new();
    let table = machine.rings[1].buffer(1);
    for entry in 0..511u16 {
        let is_last = entry == 510;
        machine.describe_at(
            table + 16 * u64::from(entry),
            Descriptor {
                at: machine.rings[1].buffer(0),
                len: if is_last { 72 } else { 0 },
                flags: if is_last { 0 } else { NEXT },
                next: entry + 1,
            },
        );
    }
    let indirect = Descriptor::of(table, 16 * 511).with(IS_INDIRECT);
    for entry in 0..16 {
        machine.describe(1, entry, indirect);
        machine.make_available(1, entry);
    }
    machine.kick_anyway(1);
    until("its monitor is told", || {
        assert!(receive(&mut port, &pool).is_empty());
        rang(&machine.rings[1].error).then_some(())
    });
    exchange(&mut other, &mut neighbour, &pool, 1);
}

#[test]
fn a_file_in_the_sockets_place_is_not_overwritten() {
    let socket = socket();
    std::fs::write(&socket.path, "precious").expect("written");
    let config = VhostConfig {
        allowance: None,
        socket: &socket.path,
        mode: Mode::Server,
        user: None,
        queues: 1,
    };
    let error = VhostPort::open(config).expect_err("refused").to_string();
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read(&socket.path).expect("there"), b"precious");
}

#[test]
fn a_missing_socket_directory_is_reported_with_a_remedy() {
    let socket = socket();
    let path = socket.path.join("run").join("guest");
    let config = VhostConfig {
        allowance: None,
        socket: &path,
        mode: Mode::Server,
        user: None,
        queues: 1,
    };
    let error = VhostPort::open(config).expect_err("refused").to_string();
    assert!(error.contains("create it"), "{error}");
}

/// The user of a monitor that may be spoken to, and of one that may not.
const MONITOR: u32 = 65_533;
const STRANGER: u32 = 65_532;

/// Runs `act` in a thread of that user, and returns its result.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Of this thread alone.
            set_thread_uid(Uid::from_raw(user))?;
            act()
        });
        thread.join().expect("it ends")
    })
}

/// Returns true if the other side closes the connection without a message.
fn is_left_alone(mut stream: &UnixStream) -> bool {
    stream.set_read_timeout(Some(STEP_TIMEOUT)).expect("set");
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_monitor_of_another_user_is_not_spoken_to_and_the_right_one_is_served() {
    if let Err(error) = as_user(STRANGER, || Ok(())) {
        let why = format!("to be several users, run as root: {error}");
        return skipped(Part::OrdinaryUser, why);
    }
    let config = |socket, mode| VhostConfig {
        allowance: None,
        socket,
        mode,
        user: Some(MONITOR),
        queues: 1,
    };
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    let socket = socket();
    let (path, directory) = (&socket.path, socket.path.parent().expect("a directory"));
    allow(directory, 0o755);
    let mut port = VhostPort::open(config(path, Mode::Server)).expect("opened");
    let connect = |user| as_user(user, || UnixStream::connect(path));
    let refused = connect(STRANGER).expect_err("its socket is the monitor's");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    // Whoever may connect is looked at as well.
    allow(path, 0o666);
    assert!(is_left_alone(&connect(STRANGER).expect("connected")));
    let monitor = Monitor::new(connect(MONITOR).expect("connected"));
    let mut machine = Machine::start_at(monitor, Build::default());
    machine.send(0, PLAIN, &frame(60, 1));
    let pool = Pool::new();
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);

    // The other way round: whoever listens is looked at.
    allow(directory, 0o777);
    let path = directory.join("monitor");
    let listen = || UnixListener::bind(&path);
    let listener = as_user(STRANGER, listen).expect("bound");
    let _port = VhostPort::open(config(&path, Mode::Client)).expect("opened");
    let (stream, _) = listener.accept().expect("connected");
    assert!(is_left_alone(&stream));
    fs::remove_file(&path).expect("ours");
    let listener = as_user(MONITOR, listen).expect("bound");
    // It is looked for again.
    Machine::start_at(Monitor::accept(&listener), Build::default());
}
