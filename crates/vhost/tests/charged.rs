//! Guests' pages that are charged to this process, since it was the first to touch them.

use crate::ports::{Socket, exchange, frame, outgoing, socket, transmit};
use crate::support::{BASE, Build, Descriptor, LEN, Machine, WRITE, rang, until};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tailbound_dataplane::Pool;
use tailbound_switch::port::{Port, Presence};
use tailbound_units::{Bytes, Nanos};
use tailbound_vhost::{Allowance, Charges, Mode, VhostConfig, VhostPort};

/// A process with a limit, which is charged for all pages of its files.
struct Limited {
    limit: u64,
    files: Arc<Mutex<Vec<File>>>,
    asked: Arc<AtomicUsize>,
}

impl Charges for Limited {
    fn limit(&mut self) -> Option<Bytes> {
        Some(Bytes(self.limit))
    }

    fn charged(&mut self) -> Option<Bytes> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let files = self.files.lock().expect("no panic");
        let blocks = files
            .iter()
            .map(|file| file.metadata().expect("a file").blocks());
        Some(Bytes(blocks.sum::<u64>() * 512))
    }
}

/// Fills the buffers that a guest has offered from the beginning.
fn use_up_buffers(port: &mut VhostPort, machine: &mut Machine, pool: &Pool) {
    let mut frames: VecDeque<_> = (0..16)
        .map(|mark| outgoing(pool, &frame(60, mark), None))
        .collect();
    // A few at once: the pages are fresh.
    let mut packets = 0;
    while !frames.is_empty() {
        packets += transmit(port, &mut frames).packets;
    }
    assert_eq!(packets, 16);
    machine.rings[0].seen = machine.used(0);
}

/// Offers buffers on pages that are in no file yet, each once, and returns how many frames came
/// until the guest was stopped. While the card is held, a frame waits.
fn receive_on_fresh_pages(
    port: &mut VhostPort,
    machine: &mut Machine,
    pool: &Pool,
    pages: Range<u64>,
) -> u64 {
    let mut got = 0;
    for page in pages {
        let entry = machine.rings[0].next % 16;
        let descriptor = Descriptor::of(BASE + (2 << 20) + page * 4096, 2048).with(WRITE);
        machine.describe(0, entry, descriptor);
        machine.make_available(0, entry);
        let mut frames = VecDeque::from([outgoing(pool, &frame(60, 1), None)]);
        let sent = until("a frame", || {
            let sent = port.transmit(Nanos(0), &mut frames).expect("a port");
            frames.is_empty().then_some(sent)
        });
        machine.rings[0].seen = machine.used(0);
        got += sent.packets;
        if port.presence() == Presence::Away {
            break;
        }
    }
    got
}

/// A card that has a part of an allowance.
fn start(allowance: &Allowance) -> (Socket, VhostPort, Machine) {
    let socket = socket();
    let port = VhostPort::open(config(&socket, allowance));
    let machine = Machine::start(&socket.path, Build::default());
    (socket, port.expect("opened"), machine)
}

fn config<'c>(socket: &'c Socket, allowance: &'c Allowance) -> VhostConfig<'c> {
    VhostConfig {
        allowance: Some(allowance),
        socket: &socket.path,
        mode: Mode::Server,
        user: None,
        queues: 1,
    }
}

#[test]
fn a_guest_that_has_its_pages_charged_to_the_daemon_is_stopped_at_its_part_and_no_other() {
    const PAGES: u64 = 3000;
    let files = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::new(AtomicUsize::new(0));
    let limited = Limited {
        limit: 4 * 1024 * 4096,
        files: Arc::clone(&files),
        asked: Arc::clone(&asked),
    };
    // 1,024 pages for both: 512 for each.
    let allowance = Allowance::start(limited).expect("a thread");
    let (_socket, mut port, mut machine) = start(&allowance);
    let (_other_socket, mut other, mut neighbour) = start(&allowance);
    let file = machine.file.try_clone().expect("cloned");
    files.lock().expect("no panic").push(file);
    let pool = Pool::new();
    // All that is touched of the other is its guest's already.
    for page in 0..LEN / 4096 {
        let at = BASE + page * 4096;
        neighbour.write(neighbour.read(at), at);
    }
    let of_other = other.borrowed();
    use_up_buffers(&mut port, &mut machine, &pool);
    let got = receive_on_fresh_pages(&mut port, &mut machine, &pool, 0..PAGES);
    assert_eq!(port.presence(), Presence::Away, "it is stopped");
    until("its monitor is told", || {
        rang(&machine.rings[0].error).then_some(())
    });
    // Both together may have 1,024, and 256 more where less was charged than was counted.
    assert!((980..=1024 + 256).contains(&got), "{got} frames");
    assert!(port.borrowed() <= (1025 + 256) * 4096);
    for mark in 0..20 {
        exchange(&mut other, &mut neighbour, &pool, mark);
    }
    assert_eq!(other.borrowed(), of_other, "its guest's own");
    // It is no better off by starting again.
    machine.stop_ring(0);
    machine.start_ring(0).expect("started");
    let again = receive_on_fresh_pages(&mut port, &mut machine, &pool, got..PAGES);
    assert!(again <= 1, "{again} more");
    assert!(asked.load(Ordering::SeqCst) >= 2);
}

#[test]
fn a_guest_whose_pages_were_given_back_goes_on() {
    let files = Arc::new(Mutex::new(Vec::new()));
    let limited = Limited {
        limit: 4 * 1024 * 4096,
        // Nothing is charged in truth.
        files: Arc::clone(&files),
        asked: Arc::default(),
    };
    let allowance = Allowance::start(limited).expect("a thread");
    let (_socket, mut port, mut machine) = start(&allowance);
    let pool = Pool::new();
    use_up_buffers(&mut port, &mut machine, &pool);
    let got = receive_on_fresh_pages(&mut port, &mut machine, &pool, 0..3000);
    assert_eq!(got, 3000);
}

#[test]
fn a_burst_ends_after_a_few_pages_that_it_touches_first() {
    const FRAMES: u64 = 16;
    let limited = Limited {
        limit: 1 << 40,
        files: Arc::default(),
        asked: Arc::default(),
    };
    let allowance = Allowance::start(limited).expect("a thread");
    let (_socket, mut port, mut machine) = start(&allowance);
    let pool = Pool::new();
    use_up_buffers(&mut port, &mut machine, &pool);
    let mut sizes = Vec::new();
    // The second time the pages are there.
    for _ in 0..2 {
        for page in 0..FRAMES {
            let entry = machine.rings[0].next % 16;
            let descriptor = Descriptor::of(BASE + (2 << 20) + page * 4096, 2048).with(WRITE);
            machine.describe(0, entry, descriptor);
            machine.make_available(0, entry);
        }
        let mut frames: VecDeque<_> = (0..FRAMES)
            .map(|_| outgoing(&pool, &frame(60, 1), None))
            .collect();
        while !frames.is_empty() {
            let sent = port.transmit(Nanos(0), &mut frames).expect("a port");
            assert!(!sent.full, "there are buffers for all");
            sizes.push((sent.packets, sent.pieces));
        }
        machine.rings[0].seen = machine.used(0);
    }
    let few = (4, 4 + 4 * 64);
    assert_eq!(sizes, [few, few, few, few, (16, 16)]);
}

#[test]
fn charged_pages_survive_a_takeover() {
    let limited = Limited {
        limit: 1 << 40,
        files: Arc::default(),
        asked: Arc::default(),
    };
    let allowance = Allowance::start(limited).expect("a thread");
    let (socket, mut port, mut machine) = start(&allowance);
    let pool = Pool::new();
    use_up_buffers(&mut port, &mut machine, &pool);
    let got = receive_on_fresh_pages(&mut port, &mut machine, &pool, 0..200);
    let before = port.borrowed();
    assert!(before >= got * 4096);
    let estate = port.pause().expect("nothing is amid a request");
    let port = VhostPort::go_on(config(&socket, &allowance), estate).expect("all is there");
    assert!(port.borrowed() >= before);
}
