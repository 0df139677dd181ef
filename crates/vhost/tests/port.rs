//! The port against a driver of a virtio card, over a socket and shared memory.

use crate::ports::{
    PLAIN, bytes, frame, open, outgoing, receive, socket, started, transmit, udp, uso,
};
use crate::support::{
    BASE, Build, Descriptor, IS_INDIRECT, LEN, Machine, Monitor, NEXT, feature, is_readable, memfd,
    rang, request, until,
};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;
use tailbound_dataplane::Pool;
use tailbound_switch::port::{Burst, Port};
use tailbound_units::Nanos;
use tailbound_vhost::{Mode, VhostConfig, VhostPort};

#[test]
fn frames_cross_both_ways_with_any_driver_features() {
    let base = feature::VERSION_1 | feature::PROTOCOL;
    let choices = [
        0,
        base,
        base | feature::MRG_RXBUF,
        base | feature::EVENT_IDX,
        Build::default().features,
        feature::MRG_RXBUF | feature::EVENT_IDX,
    ];
    for features in choices {
        let (_socket, mut port, mut machine) = started(Build {
            features,
            ..Build::default()
        });
        let pool = Pool::new();
        for round in 0..50u8 {
            let len = 14 + usize::from(round) * 29;
            machine.send(0, PLAIN, &frame(len, round));
            let got = until("a frame from the guest", || receive(&mut port, &pool).pop());
            assert_eq!(bytes(&got), frame(len, round), "{features:#x}");
            assert_eq!(got.virtio, Some(PLAIN));
            let mut frames = VecDeque::from([outgoing(&pool, &frame(len, round), None)]);
            let sent = transmit(&mut port, &mut frames);
            assert_eq!((sent.packets, sent.full), (1, false), "{features:#x}");
            let (header, got) = machine.receive(0, true).expect("a frame for the guest");
            assert_eq!(got, frame(len, round), "{features:#x}");
            assert_eq!(header[..10], PLAIN);
        }
    }
}

#[test]
fn a_large_frame_takes_several_buffers_and_the_guest_sees_them_at_once() {
    let features = Build::default().features | feature::GUEST_CSUM | feature::GUEST_USO4;
    let (_socket, mut port, mut machine) = started(Build {
        features,
        entries: 64,
        ..Build::default()
    });
    let pool = Pool::new();
    let large = udp(60_000);
    let mut frames = VecDeque::from([outgoing(&pool, &large, Some(uso(1400)))]);
    let sent = transmit(&mut port, &mut frames);
    assert_eq!((sent.packets, sent.bytes), (1, large.len() as u64));
    let (header, got) = machine.receive(0, true).expect("a frame");
    assert_eq!(usize::from(header[10]), (large.len() + 12).div_ceil(2048));
    assert_eq!(header[1], 5, "to be cut by the guest, if at all");
    assert_eq!(u16::from_le_bytes([header[4], header[5]]), 1400);
    assert_eq!(got[42..], large[42..]);
    // The other way.
    machine.send(0, uso(1400), &large);
    let got = until("a frame from the guest", || receive(&mut port, &pool).pop());
    assert_eq!(bytes(&got), large);
    assert_eq!(got.virtio, Some(uso(1400)));
}

#[test]
fn a_port_segments_and_checksums_for_a_guest_without_offloads() {
    let (_socket, mut port, mut machine) = started(Build {
        entries: 64,
        ..Build::default()
    });
    let pool = Pool::new();
    let plain = outgoing(&pool, &frame(60, 1), None);
    let mut frames = VecDeque::from([outgoing(&pool, &udp(5000), Some(uso(1400))), plain]);
    let sent = transmit(&mut port, &mut frames);
    assert_eq!(sent.packets, 5);
    let mut got = Vec::new();
    while let Some((header, bytes)) = machine.receive(0, true) {
        assert_eq!(header[..10], PLAIN, "nothing is left to do");
        got.push(bytes);
    }
    let lengths: Vec<_> = got.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1442, 1442, 1442, 842, 60]);
    assert_eq!(got[1][42..50], udp(5000)[1442..1450]);
    assert_ne!(got[0][40..42], [0, 0], "a checksum");
}

#[test]
fn a_full_ring_keeps_queued_frames_and_signals_room() {
    let (_socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    let mut frames: VecDeque<_> = (0..40)
        .map(|n| outgoing(&pool, &frame(60, n), None))
        .collect();
    let sent = transmit(&mut port, &mut frames);
    assert_eq!((sent.packets, sent.full, frames.len()), (16, true, 24));
    // What woke it before is of the past.
    port.note_ready();
    let descriptor = |port: &VhostPort| {
        let descriptor = port.descriptor().expect("it has one");
        is_readable(descriptor, Duration::ZERO)
    };
    assert!(!descriptor(&port));
    assert!(
        !port
            .transmit(Nanos(0), &mut frames)
            .expect("a port")
            .packets
            > 0
    );
    until("the guest was told of frames", || {
        rang(&machine.rings[0].call).then_some(())
    });
    for n in 0..16 {
        let (_, got) = machine.receive(0, true).expect("a frame");
        assert_eq!(got, frame(60, n));
    }
    assert!(descriptor(&port), "the guest's kick is heard");
    let sent = transmit(&mut port, &mut frames);
    assert_eq!((sent.packets, sent.full, frames.len()), (16, true, 8));
}

#[test]
fn a_frame_longer_than_any_buffer_is_refused_where_buffers_are_not_merged() {
    let features = feature::VERSION_1 | feature::PROTOCOL;
    let (_socket, mut port, mut machine) = started(Build {
        features,
        ..Build::default()
    });
    let pool = Pool::new();
    let mut frames: VecDeque<_> = [3000, 100]
        .map(|len| outgoing(&pool, &frame(len, 3), None))
        .into();
    let sent = transmit(&mut port, &mut frames);
    assert_eq!((sent.packets, sent.refused, sent.full), (1, 1, false));
    assert_eq!(machine.receive(0, true).expect("a frame").1.len(), 100);
}

#[test]
fn chains_and_tables_of_their_own_are_read_in_order() {
    let (_socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    let whole = [&[0; 12][..], &frame(900, 5)].concat();
    let at = machine.rings[1].buffer(0);
    let write = |machine: &Machine, at: u64, bytes: &[u8]| {
        use vm_memory::Bytes;
        let written = machine
            .memory
            .write_slice(bytes, vm_memory::GuestAddress(at));
        written.expect("in memory");
    };
    write(&machine, at, &whole);
    // In four pieces, one of them of a byte, in another order in the table.
    let pieces = [(3, 0, 5, 7), (7, 5, 1, 2), (2, 6, 99, 4), (4, 105, 807, 0)];
    for (place, (entry, from, len, next)) in pieces.into_iter().enumerate() {
        let flags = if place == 3 { 0 } else { NEXT };
        machine.describe(
            1,
            entry,
            Descriptor {
                at: at + from,
                len,
                flags,
                next,
            },
        );
    }
    machine.make_available(1, 3);
    // In a table of its own.
    let table = machine.rings[1].buffer(1);
    for (entry, (from, len)) in [(0, 20), (20, 892)].into_iter().enumerate() {
        let flags = if entry == 0 { NEXT } else { 0 };
        let descriptor = Descriptor {
            at: at + from,
            len,
            flags,
            next: 1,
        };
        machine.describe_at(table + 16 * entry as u64, descriptor);
    }
    let indirect = Descriptor::of(table, 32).with(IS_INDIRECT);
    machine.describe(1, 9, indirect);
    machine.make_available(1, 9);
    machine.kick(1);
    let got = until("two frames", || {
        let got = receive(&mut port, &pool);
        (!got.is_empty()).then_some(got)
    });
    assert_eq!(got.len(), 2);
    assert!(got.iter().all(|got| bytes(got) == frame(900, 5)));
    let used = [
        machine.next_used(1),
        machine.next_used(1),
        machine.next_used(1),
    ];
    assert_eq!(used, [Some((3, 0)), Some((9, 0)), None]);
}

#[test]
fn another_daemon_goes_on_where_the_ring_stands_and_nothing_is_lost() {
    let (socket, mut port, mut machine) = started(Build {
        entries: 64,
        ..Build::default()
    });
    let pool = Pool::new();
    let mut got = Vec::new();
    let mut next = 0u8;
    let mut received = 0u8;
    for round in 0..8 {
        let mut burst = Burst::default();
        for part in 0..2 {
            for _ in 0..10 {
                machine.send(0, PLAIN, &frame(60, next));
                next += 1;
            }
            // Only some are taken before it ends, and only sometimes.
            if part == 0 && round % 2 == 0 {
                until("some", || {
                    port.receive(Nanos(0), &pool, &mut burst).expect("a port");
                    (!burst.frames.is_empty()).then_some(())
                });
                let mut frames = VecDeque::from([outgoing(&pool, &frame(60, round), None)]);
                assert_eq!(transmit(&mut port, &mut frames).packets, 1);
                received += 1;
            }
        }
        got.extend(burst.frames.iter().map(|frame| bytes(frame)[20]));
        // The next one listens before the last one ends, as when a daemon takes over.
        let successor = open(&socket.path, 1);
        drop(std::mem::replace(&mut port, successor));
        assert!(socket.path.exists());
        machine.reconnect(&socket.path);
        let rest = until("the rest", || {
            let rest = receive(&mut port, &pool);
            (!rest.is_empty()).then_some(rest)
        });
        got.extend(rest.iter().map(|frame| bytes(frame)[20]));
    }
    let wanted: Vec<_> = (0..next).collect();
    assert_eq!(got, wanted, "in order, each once");
    while machine.receive(0, true).is_some() {
        received -= 1;
    }
    assert_eq!(received, 0);
}

#[test]
fn pages_that_are_written_are_logged_while_the_monitor_wants_that() {
    let (_socket, mut port, mut machine) = started(Build::default());
    let pool = Pool::new();
    let log = memfd(4096);
    let features = machine.build.features;
    // Enough for all of the memory.
    let pages = (BASE + LEN) / 4096 / 8;
    machine.set_log(&log, pages);
    let logged = |log: &std::fs::File| {
        let mut bytes = vec![0; pages as usize];
        rustix::io::pread(log, &mut bytes, 0).expect("read");
        rustix::io::pwrite(log, &vec![0; pages as usize], 0).expect("cleared");
        let bits = (0..pages * 8).filter(|bit| bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1);
        bits.collect::<Vec<_>>()
    };
    let give = |port: &mut VhostPort| {
        let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 1), None)]);
        assert_eq!(transmit(port, &mut frames).packets, 1);
    };
    give(&mut port);
    machine.receive(0, false).expect("a frame");
    assert_eq!(logged(&log), [0u64; 0]);
    let set = |machine: &mut Machine, features| {
        let set = machine
            .monitor
            .tell(request::SET_FEATURES, &[features], &[]);
        set.expect("while its rings run");
    };
    set(&mut machine, features | feature::LOG_ALL);
    give(&mut port);
    let (entry, _) = machine.next_used(0).expect("a frame");
    let page = |at: u64| at / 4096;
    let mut wanted = vec![
        page(machine.rings[0].buffer(entry)),
        page(machine.rings[0].used()),
    ];
    wanted.sort_unstable();
    assert_eq!(logged(&log), wanted, "the buffer and the used part");
    set(&mut machine, features);
    give(&mut port);
    assert_eq!(logged(&log), [0u64; 0]);
}

#[test]
fn frames_of_a_connection_keep_to_one_of_several_queues() {
    let (_socket, mut port, mut machine) = started(Build {
        pairs: 4,
        entries: 64,
        ..Build::default()
    });
    let pool = Pool::new();
    for pair in 0..4u8 {
        machine.send(pair.into(), PLAIN, &frame(60, pair));
    }
    let mut marks: Vec<_> = Vec::new();
    until("one of each", || {
        marks.extend(receive(&mut port, &pool).iter().map(|got| bytes(got)[20]));
        (marks.len() == 4).then_some(())
    });
    marks.sort_unstable();
    assert_eq!(marks, [0, 1, 2, 3]);
    // Each sender's all by one, and not all senders' by the same.
    let mut frames = VecDeque::new();
    for n in 0..64u8 {
        let mut bytes = udp(18);
        bytes[29] = n / 4;
        frames.push_back(outgoing(&pool, &bytes, None));
    }
    assert_eq!(transmit(&mut port, &mut frames).packets, 64);
    let mut by_pair = Vec::new();
    for pair in 0..4 {
        let mut senders = Vec::new();
        while let Some((_, got)) = machine.receive(pair, true) {
            senders.push(got[29]);
        }
        by_pair.push(senders);
    }
    assert_eq!(by_pair.iter().map(Vec::len).sum::<usize>(), 64);
    assert!(by_pair.iter().filter(|some| !some.is_empty()).count() > 1);
    for senders in &by_pair {
        for sender in senders {
            assert_eq!(
                senders
                    .iter()
                    .filter(|other| **other == *sender)
                    .map(|_| 1)
                    .sum::<u32>(),
                4
            );
        }
    }
}

#[test]
fn an_absent_guest_is_a_link_that_is_down() {
    let socket = socket();
    let mut port = open(&socket.path, 1);
    let pool = Pool::new();
    let lost = |port: &mut VhostPort| {
        let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 1), None)]);
        transmit(port, &mut frames).link_down
    };
    assert_eq!(lost(&mut port), 1);
    let mut machine = Machine::start(&socket.path, Build::default());
    assert_eq!(lost(&mut port), 0);
    let disable = machine.monitor.tell(request::SET_VRING_ENABLE, &[0], &[]);
    disable.expect("disabled");
    assert_eq!(lost(&mut port), 1);
    drop(machine);
    until("the monitor is gone", || {
        (lost(&mut port) == 1).then_some(())
    });
}

#[test]
fn a_port_may_connect_to_a_vmm_that_listens() {
    let socket = socket();
    let config = VhostConfig {
        allowance: None,
        socket: &socket.path,
        mode: Mode::Client,
        user: None,
        queues: 1,
    };
    let mut port = VhostPort::open(config).expect("before the monitor is there");
    let pool = Pool::new();
    let listener = UnixListener::bind(&socket.path).expect("bound");
    let mut machine = Machine::start_at(Monitor::accept(&listener), Build::default());
    machine.send(0, PLAIN, &frame(60, 1));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
    // It comes back.
    machine.monitor = Monitor::accept_after_leaving(machine.monitor, &listener);
    machine.negotiate().expect("agreed");
    machine.start_rings().expect("started");
    machine.send(0, PLAIN, &frame(60, 2));
    assert!(until("a frame", || receive(&mut port, &pool).pop()).len == 60);
    drop(port);
    assert!(socket.path.exists(), "it is the monitor's");
}

/// True if the guest's driver is called within 100 ms: a thread calls it.
fn is_called(machine: &Machine) -> bool {
    let call = &machine.rings[0].call;
    is_readable(call.as_fd(), Duration::from_millis(100)) && rang(call)
}

#[test]
fn a_driver_is_notified_only_as_it_requests() {
    for features in [
        Build::default().features,
        feature::VERSION_1 | feature::PROTOCOL,
    ] {
        let (_socket, mut port, mut machine) = started(Build {
            features,
            ..Build::default()
        });
        let pool = Pool::new();
        let has_index = features & feature::EVENT_IDX != 0;
        let mut give = |machine: &mut Machine| {
            let mut frames = VecDeque::from([outgoing(&pool, &frame(60, 1), None)]);
            assert_eq!(transmit(&mut port, &mut frames).packets, 1);
            let called = is_called(machine);
            machine.receive(0, true).expect("a frame");
            called
        };
        give(&mut machine);
        // Those of its start are two at most.
        while is_called(&machine) {}
        let (available, entries) = (machine.rings[0].available(), 16);
        let quiet = if has_index {
            available + 4 + 2 * entries
        } else {
            available
        };
        // Not before five more; never.
        machine.write(if has_index { 5u16 } else { 1 }, quiet);
        let called: Vec<_> = (0..6).map(|_| give(&mut machine)).collect();
        let wanted = [false, false, false, false, has_index, false];
        assert_eq!(called, wanted);
    }
}
