use super::*;
use crate::evidence::QueueTimes;
use crate::testing::{guest, served};
use proptest::prelude::*;

fn ms(time: u64) -> Nanos {
    Nanos::from_millis(time)
}

fn run(from: u64, until: u64, occupant: Occupant) -> Run {
    Run {
        from: ms(from),
        until: ms(until),
        occupant,
        is_real_time: false,
        stolen: Nanos::ZERO,
        interrupted: Nanos::ZERO,
    }
}

fn wait(from: u64, until: u64, runs: Vec<Run>) -> CpuWait {
    CpuWait {
        thread: 7,
        was_preempted: false,
        from: ms(from),
        until: ms(until),
        reservation: Nanos::ZERO,
        quota: Nanos::ZERO,
        runs: runs.into(),
    }
}

/// The parts in milliseconds, by kind and name.
fn parts(division: &Division) -> Vec<(Kind, &str, u64)> {
    let part = |(cause, time): (&'_ Cause, &Nanos)| (cause.kind, time.0 / 1_000_000);
    let names = division.parts.keys().map(|cause| cause.by.as_deref());
    let both = division.parts.iter().map(part).zip(names);
    both.map(|((kind, time), by)| (kind, by.unwrap_or(""), time))
        .collect()
}

fn evidence(waits: &[CpuWait], ran: u64) -> Evidence {
    let cpu_use = CpuUse {
        from: ms(0),
        until: ms(1_000),
        ran: ms(ran),
        interrupts: Nanos::ZERO,
    };
    Evidence {
        waits: waits.to_vec(),
        cpu_use: vec![cpu_use],
        ..Evidence::default()
    }
}

fn divide(request: &SlowRequest, waits: &[CpuWait], ran: u64) -> Division {
    let evidence = evidence(waits, ran);
    Requests::new(evidence.waits.iter(), &evidence).divide(request)
}

fn run_of(wait: &mut CpuWait, index: usize) -> &mut Run {
    &mut Arc::get_mut(&mut wait.runs).unwrap()[index]
}

#[test]
fn a_wait_is_divided_among_the_runs_on_its_cpu() {
    let mut one = wait(
        100,
        200,
        vec![
            run(90, 110, guest("web-7")),
            run(110, 130, Occupant::Program("tar".into())),
            run(130, 135, Occupant::Idle),
            run(135, 140, Occupant::Kernel("ksoftirqd/1".into())),
            run(140, 190, Occupant::Own),
        ],
    );
    run_of(&mut one, 1).is_real_time = true;
    assert_eq!(
        parts(&divide_wait(&one)),
        [
            (Kind::NeighbourCpu, "web-7", 10),
            (Kind::RealTime, "tar", 20),
            (Kind::Interrupts, "ksoftirqd/1", 5),
            (Kind::GuestItself, "", 50),
            (Kind::Scheduler, "", 5),
            (Kind::Unknown, "", 10),
        ]
    );
}

#[test]
fn a_quota_holds_up_from_the_begin_and_a_run_meanwhile_is_not_to_blame() {
    let mut one = wait(100, 200, vec![run(0, 200, guest("web-7"))]);
    one.quota = ms(70);
    assert_eq!(
        parts(&divide_wait(&one)),
        [(Kind::NeighbourCpu, "web-7", 30), (Kind::Quota, "", 70)]
    );
    // The kernel reports the whole time of a quota, of which the wait had the end.
    one.quota = ms(900);
    assert_eq!(parts(&divide_wait(&one)), [(Kind::Quota, "", 100)]);
}

#[test]
fn steal_and_interrupts_are_no_runs() {
    let mut one = wait(100, 200, vec![run(0, 200, guest("web-7"))]);
    run_of(&mut one, 0).stolen = ms(100);
    run_of(&mut one, 0).interrupted = ms(20);
    assert_eq!(
        parts(&divide_wait(&one)),
        [
            (Kind::NeighbourCpu, "web-7", 40),
            (Kind::Hypervisor, "", 50),
            (Kind::Interrupts, "", 10),
        ]
    );
}

#[test]
fn an_idle_cpu_that_a_thread_waits_for_was_taken_at_the_end_of_its_run() {
    // Soft interrupts took 3 ms of 14, as the wait took the last 4.
    let mut one = wait(100, 104, vec![run(90, 104, Occupant::Idle)]);
    run_of(&mut one, 0).interrupted = ms(3);
    assert_eq!(
        parts(&divide_wait(&one)),
        [(Kind::Interrupts, "", 3), (Kind::Scheduler, "", 1)]
    );
    run_of(&mut one, 0).stolen = ms(2);
    assert_eq!(
        parts(&divide_wait(&one)),
        [(Kind::Hypervisor, "", 2), (Kind::Interrupts, "", 2)]
    );
    // Of another thread's run it is not known when.
    let mut other = wait(100, 104, vec![run(84, 104, guest("web-7"))]);
    run_of(&mut other, 0).interrupted = ms(10);
    assert_eq!(
        parts(&divide_wait(&other)),
        [(Kind::NeighbourCpu, "web-7", 2), (Kind::Interrupts, "", 2)]
    );
}

#[test]
fn a_request_that_was_served_is_divided_at_its_moments() {
    let mut request = served([0, 10, 12, 60, 75]);
    request.ahead_inward = Ahead::Guest("bulk".into());
    let waits = [wait(20, 50, vec![run(20, 50, guest("web-7"))])];
    let division = divide(&request, &waits, 10);
    assert_eq!(
        parts(&division),
        [
            (Kind::NeighbourCpu, "web-7", 30),
            (Kind::HostQueue, "", 15),
            (Kind::HostQueue, "bulk", 10),
            // In its ring, and computing.
            (Kind::GuestItself, "", 12),
            (Kind::Unknown, "", 8),
        ]
    );
    assert_eq!(division.length(), ms(75));
}

#[test]
fn frames_that_are_in_the_host_and_in_no_queue_wait_for_soft_interrupts() {
    let mut request = served([0, 10, 10, 10, 25]);
    request.ahead_inward = Ahead::Guest("bulk".into());
    request.queued = Some(QueueTimes {
        inward: ms(8),
        outward: ms(0),
    });
    let expected = [(Kind::Interrupts, "", 17), (Kind::HostQueue, "bulk", 8)];
    assert_eq!(parts(&divide(&request, &[], 0)), expected);
    request.direction = Direction::Made;
    let points = &mut request.points;
    (points.sent, points.left) = (ms(0), ms(15));
    (points.arrived, points.delivered, points.taken) = (ms(20), ms(30), None);
    let division = divide(&request, &[], 0);
    assert_eq!(division.of(Kind::Interrupts), ms(17));
    assert_eq!(division.of(Kind::Delay), ms(5));
    // The sum of the waits of several frames is longer.
    request.queued = Some(QueueTimes {
        inward: ms(90),
        outward: ms(90),
    });
    assert_eq!(divide(&request, &[], 0).of(Kind::HostQueue), ms(25));
}

#[test]
fn a_wait_that_outlasts_the_answer_was_another_threads() {
    let request = served([0, 0, 0, 40, 40]);
    let waits = [
        wait(0, 30, vec![run(0, 30, guest("web-7"))]),
        wait(0, 900, vec![run(0, 900, guest("other"))]),
    ];
    assert_eq!(
        parts(&divide(&request, &waits, 900)),
        [
            (Kind::NeighbourCpu, "web-7", 30),
            (Kind::GuestItself, "", 10)
        ]
    );
    // The thread that answered is known.
    let request = SlowRequest {
        thread: Some(8),
        ..request
    };
    assert_eq!(
        parts(&divide(&request, &waits, 900)),
        [(Kind::GuestItself, "", 40)]
    );
}

#[test]
fn a_request_that_was_made_waits_beyond_the_host() {
    let request = SlowRequest {
        direction: Direction::Made,
        points: Points {
            sent: ms(0),
            left: ms(5),
            arrived: ms(85),
            delivered: ms(90),
            taken: None,
        },
        ..served([0; 5])
    };
    let of = |request: &SlowRequest| {
        let division = divide(request, &[], 0);
        let beyond = parts(&division)
            .into_iter()
            .find(|(_, _, time)| *time == 80);
        beyond.map(|(kind, by, _)| (kind, by.to_owned()))
    };
    let peer = "10.0.0.9:443".to_owned();
    assert_eq!(of(&request), Some((Kind::Delay, peer.clone())));
    let lossy = SlowRequest {
        retransmits: 1,
        ..request.clone()
    };
    assert_eq!(of(&lossy), Some((Kind::Loss, peer.clone())));
    let full = SlowRequest {
        zero_window: Some(Side::Peer),
        ..request.clone()
    };
    assert_eq!(of(&full), Some((Kind::SlowReceiver, peer)));
    let neighbour = SlowRequest {
        peer_guest: Some("db-3".into()),
        ..lossy.clone()
    };
    assert_eq!(of(&neighbour), Some((Kind::PeerGuest, "db-3".to_owned())));
    // A segment that this host dropped is not a loss beyond it.
    let dropped = SlowRequest {
        dropped: 1,
        ..lossy
    };
    let division = divide(&dropped, &[], 0);
    assert!(division.of(Kind::HostQueue) >= ms(80), "{division:?}");
}

#[test]
fn a_request_to_a_slow_peer_is_charged_to_the_receiver() {
    let mut request = SlowRequest {
        direction: Direction::Made,
        begun: ms(0),
        points: Points {
            sent: ms(60),
            left: ms(60),
            arrived: ms(70),
            delivered: ms(70),
            taken: None,
        },
        zero_window: Some(Side::Peer),
        ..served([0; 5])
    };
    let peer = "10.0.0.9:443";
    let division = divide(&request, &[], 0);
    assert_eq!(parts(&division), [(Kind::SlowReceiver, peer, 70)]);
    // Otherwise nothing is known of a guest that neither ran nor waited for a CPU.
    request.zero_window = None;
    assert_eq!(
        parts(&divide(&request, &[], 20)),
        [
            (Kind::Delay, peer, 10),
            (Kind::GuestItself, "", 20),
            (Kind::Unknown, "", 40)
        ]
    );
}

#[test]
fn the_guest_is_blamed_only_if_its_waits_were_measured() {
    let request = served([0, 0, 0, 40, 40]);
    let mut blind = evidence(&[], 100);
    blind.examined.cpu = Err("no BTF".to_owned());
    let division = Requests::new(blind.waits.iter(), &blind).divide(&request);
    assert_eq!(parts(&division), [(Kind::Unknown, "", 40)]);
}

#[test]
fn interrupts_and_steal_in_runs_of_the_guest_are_not_its_own_time() {
    // Half of the run was taken, and half of the run is in the request.
    let request = served([0, 0, 0, 40, 40]);
    let mut seen = evidence(&[], 1_000);
    let run = |thread| Interruption {
        thread,
        from: ms(0),
        until: ms(80),
        stolen: ms(8),
        interrupted: ms(40),
    };
    seen.interruptions = vec![run(7)];
    let expected = [
        (Kind::Hypervisor, "", 4),
        (Kind::Interrupts, "", 20),
        (Kind::GuestItself, "", 16),
    ];
    assert_eq!(
        parts(&Requests::new(seen.waits.iter(), &seen).divide(&request)),
        expected
    );
    // Another thread that ran meanwhile lost the same time of the request.
    seen.interruptions.push(run(8));
    assert_eq!(
        parts(&Requests::new(seen.waits.iter(), &seen).divide(&request)),
        expected
    );
    // The kernel counts the time of interrupts as the thread's own, and the request has no more.
    seen.interruptions = vec![Interruption {
        interrupted: ms(80),
        ..run(7)
    }];
    let expected = [(Kind::Hypervisor, "", 4), (Kind::Interrupts, "", 36)];
    assert_eq!(
        parts(&Requests::new(seen.waits.iter(), &seen).divide(&request)),
        expected
    );
    // It did not run at that time.
    let later = served([80, 80, 80, 120, 120]);
    let division = Requests::new(seen.waits.iter(), &seen).divide(&later);
    assert_eq!(parts(&division), [(Kind::GuestItself, "", 40)]);
}

#[test]
fn a_frame_behind_itself_waits_for_its_own_limit_if_that_was_reached() {
    let packet = QueueWaits {
        until: ms(30),
        count: 2,
        time: ms(60),
        is_outward: true,
        ahead: Ahead::Own,
    };
    let limited = |was_reached, is_outward| Limits {
        interfaces: vec![InterfaceLimit {
            text: "tbf 8Mbit/s on veth1".into(),
            is_outward,
            was_reached,
        }],
        ..Limits::default()
    };
    let kind = |packet: &QueueWaits, limits: &Limits| parts(&divide_packet(packet, limits))[0].0;
    assert_eq!(kind(&packet, &limited(true, true)), Kind::OwnLimit);
    assert_eq!(kind(&packet, &limited(true, false)), Kind::GuestItself);
    assert_eq!(kind(&packet, &limited(false, true)), Kind::GuestItself);
    let behind = QueueWaits {
        ahead: Ahead::Guest("bulk".into()),
        ..packet
    };
    assert_eq!(kind(&behind, &limited(true, true)), Kind::HostQueue);
}

fn any_occupant() -> impl Strategy<Value = Occupant> {
    prop_oneof![
        Just(Occupant::Own),
        Just(Occupant::Idle),
        "[a-c]".prop_map(|name| Occupant::Guest(name.into())),
        "(ksoftirqd/0|tar)".prop_map(|name| Occupant::Kernel(name.into())),
        "x".prop_map(|name| Occupant::Exited(name.into())),
    ]
}

fn any_wait() -> impl Strategy<Value = CpuWait> {
    let time = || 0..2_000_u64;
    let run = (
        time(),
        time(),
        any_occupant(),
        any::<bool>(),
        time(),
        time(),
    )
        .prop_map(
            |(from, until, occupant, is_real_time, stolen, interrupted)| Run {
                from: Nanos(from),
                until: Nanos(until),
                occupant,
                is_real_time,
                stolen: Nanos(stolen),
                interrupted: Nanos(interrupted),
            },
        );
    let runs = prop::collection::vec(run, 0..5);
    (0..3_u32, time(), time(), time(), time(), runs).prop_map(
        |(thread, from, until, reservation, quota, runs)| CpuWait {
            thread,
            was_preempted: false,
            from: Nanos(from),
            until: Nanos(until),
            reservation: Nanos(reservation),
            quota: Nanos(quota),
            runs: runs.into(),
        },
    )
}

fn any_interruption() -> impl Strategy<Value = Interruption> {
    let time = || 0..2_000_u64;
    (0..3_u32, time(), time(), time(), time()).prop_map(
        |(thread, from, until, stolen, interrupted)| Interruption {
            thread,
            from: Nanos(from),
            until: Nanos(until),
            stolen: Nanos(stolen),
            interrupted: Nanos(interrupted),
        },
    )
}

proptest! {
    #[test]
    fn the_parts_of_a_wait_are_the_wait(wait in any_wait()) {
        let length = wait.until.0.saturating_sub(wait.from.0);
        prop_assert_eq!(divide_wait(&wait).length(), Nanos(length));
        let mut at = wait.from.0;
        for segment in segments(&wait) {
            prop_assert_eq!(segment.from, at);
            prop_assert!(segment.until > at);
            at = segment.until;
        }
        prop_assert_eq!(at, wait.until.0.max(wait.from.0));
    }

    #[test]
    fn the_parts_of_requests_are_the_requests(
        points in prop::collection::vec(prop::array::uniform5(0..3_000_u64), 1..6),
        waits in prop::collection::vec(any_wait(), 0..8),
        is_made: bool,
        has_ring: bool,
        thread in prop::option::of(0..3_u32),
        ran in 0..4_000_u64,
        begun in 0..2_000_u64,
        interruptions in prop::collection::vec(any_interruption(), 0..6),
    ) {
        let cpu_use = vec![
            CpuUse { from: Nanos(0), until: Nanos(1_000), ran: Nanos(ran), interrupts: Nanos::ZERO },
            CpuUse { from: Nanos(1_000), until: Nanos(2_000), ran: Nanos(ran / 2), interrupts: Nanos::ZERO },
        ];
        let evidence = Evidence { waits, interruptions, cpu_use, ..Evidence::default() };
        let mut requests = Requests::new(evidence.waits.iter(), &evidence);
        let mut computed = 0;
        for points in points {
            let [arrived, delivered, taken, sent, left] = points.map(Nanos);
            let mut request = served([0; 5]);
            request.thread = thread;
            request.points = Points {
                arrived, delivered, taken: has_ring.then_some(taken), sent, left,
            };
            let ring = if has_ring { taken } else { delivered };
            let moments = if is_made {
                request.direction = Direction::Made;
                [sent, left, arrived, delivered, ring]
            } else {
                [arrived, delivered, ring, sent, left]
            };
            let moments = ordered(moments);
            request.begun = Nanos(if is_made { begun.min(moments[0]) } else { moments[0] });
            let division = requests.divide(&request);
            // Waits beside its span make no difference.
            let (from, until) = span(&request);
            let all = evidence.waits.iter();
            let within = all.clone().filter(|it| it.from < until && it.until > from);
            let both = [Requests::new(within, &evidence).divide(&request),
                Requests::new(all, &evidence).divide(&request)];
            prop_assert_eq!(&both[0], &both[1]);
            let begin = moments[0].min(request.begun.0);
            prop_assert_eq!(division.length(), Nanos(moments[4] - begin));
            prop_assert_eq!(length(&request), division.length());
            let is_ring = moments[if is_made { 4 } else { 2 }] - moments[if is_made { 3 } else { 1 }];
            computed += division.of(Kind::GuestItself).0.saturating_sub(is_ring);
        }
        // A guest cannot have computed for longer than it ran, but for runs of its own threads.
        let own: u64 = evidence.waits.iter().map(|wait| divide_wait(wait).of(Kind::GuestItself).0).sum();
        prop_assert!(computed <= ran + ran / 2 + own * 6);
    }
}
