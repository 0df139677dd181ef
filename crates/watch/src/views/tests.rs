use super::*;
use crate::counts::Counts;
use crate::document::GuestDocument;
use crate::hour::GuestHours;
use crate::snapshot::Row;
use std::time::Duration;
use tailbound_look::evidence::{
    Ahead, CpuUse, CpuWait, Direction, Evidence, Handles, InterfaceLimit, Limits, Occupant, Points,
    Run, SlowRequest,
};
use tailbound_look::history::{Label, SLICE};
use tailbound_look::{History, Verdict, judge};
use tailbound_units::Nanos;

const MINUTE: Nanos = Nanos::from_secs(60);
/// Late waits of each guest in a minute.
const WAITS: u64 = 600;
/// Slow requests of each guest in a minute.
const REQUESTS: u64 = 100;

fn name(index: usize) -> Arc<str> {
    format!("production/checkout-service-7d9f8b6c5d-{index:04}x").into()
}

/// A key as long as that of a pod.
fn key(index: usize) -> Arc<str> {
    format!("pod/0c1f5c57-9d6e-4b52-8a44-5f9a6ee8{index:04}").into()
}

/// A wait in the given minute, in which other guests and programs had the CPU.
fn wait(guest: usize, index: u64) -> CpuWait {
    let from = Nanos(index * 100_000_000);
    let until = Nanos(from.0 + 2_000_000 + index * 1_000);
    let middle = Nanos(from.0.midpoint(until.0));
    let other = |step: u64| {
        let of = (guest as u64 + 1 + index * step) % 200;
        Occupant::Guest(name(of as usize))
    };
    let run = |from, until, occupant| Run {
        from,
        until,
        occupant,
        is_real_time: false,
        stolen: Nanos(10_000),
        interrupted: Nanos(20_000),
    };
    CpuWait {
        thread: 1,
        was_preempted: index.is_multiple_of(2),
        from,
        until,
        reservation: Nanos(1_000),
        quota: Nanos(100_000),
        runs: Arc::new([run(from, middle, other(1)), run(middle, until, other(7))]),
    }
}

fn request(guest: usize, index: u64) -> SlowRequest {
    let at = |micros: u64| Nanos(index * 600_000_000 + micros * 1_000);
    SlowRequest {
        direction: Direction::Served,
        begun: at(0),
        points: Points {
            arrived: at(0),
            delivered: at(3_000),
            taken: None,
            sent: at(9_000),
            left: at(11_000),
        },
        peer: format!("2001:db8:85a3::8a2e:370:{index:x}").into(),
        peer_guest: None,
        ahead_inward: Ahead::Guest(name((guest + index as usize) % 200)),
        ahead_outward: Ahead::Own,
        retransmits: 0,
        dropped: 0,
        zero_window: None,
        queued: None,
        thread: None,
    }
}

/// A guest that was slow for all reasons that there are.
fn evidence(guest: usize) -> Evidence {
    Evidence {
        guest: name(guest).to_string(),
        window: MINUTE,
        answered: 2 * REQUESTS,
        requests: (0..REQUESTS).map(|index| request(guest, index)).collect(),
        waits: (0..WAITS).map(|index| wait(guest, index)).collect(),
        cpu_use: vec![CpuUse {
            from: Nanos::ZERO,
            until: MINUTE,
            ran: Nanos::from_secs(1),
            interrupts: Nanos::ZERO,
        }],
        limits: Limits {
            quota: Some("20ms in 100ms".into()),
            throttled_periods: 9,
            throttled: Nanos::from_secs(1),
            interfaces: vec![InterfaceLimit {
                text: "tbf 100Mbit/s on vethab12cd34".into(),
                is_outward: false,
                was_reached: true,
            }],
        },
        handles: Handles {
            select: Some(format!("--pod {}", key(guest))),
            ..Handles::default()
        },
        ..Evidence::default()
    }
}

/// Guests that were all slow in each slice of the last hour.
fn snapshot(guests: usize) -> Snapshot {
    let verdicts: Vec<_> = (0..guests).map(|index| judge(&evidence(index))).collect();
    of_verdicts(&verdicts, 360)
}

fn of_verdicts(verdicts: &[Verdict], slices: u64) -> Snapshot {
    let mut history = History::new();
    for slice in 0..slices {
        for (index, verdict) in verdicts.iter().enumerate() {
            let label = Label {
                key: key(index),
                name: name(index),
                kind: "pod",
            };
            let from = Nanos(SLICE.0 * slice);
            history.add(&label, from, Nanos(from.0 + SLICE.0), verdict);
        }
    }
    let hours = GuestHours::of(&history);
    let rows = verdicts.iter().enumerate().map(|(index, verdict)| {
        let mut counts = Counts::default();
        counts.add_all_causes();
        counts.wait(Nanos::from_millis(1));
        counts.wait(Nanos::from_secs(100));
        let guest = GuestDocument::new(key(index), name(index).to_string(), "pod");
        Row::new(guest, verdict.clone(), counts, hours.of_guest(&key(index)))
    });
    let spent = (Duration::from_hours(1), Duration::from_secs(36));
    Snapshot::new(MINUTE, spent, rows.collect(), vec!["a note".to_owned()])
}

fn compact(snapshot: &Snapshot) -> String {
    serde_json::to_string(&snapshot.document()).unwrap()
}

fn views(snapshot: Snapshot) -> Views {
    let board = Board::default();
    board.set(Arc::new(snapshot));
    Views::new(board, compact)
}

fn body(views: &Views, path: &str) -> Arc<[u8]> {
    let Answer::Content(content) = views.answer(&Request::get(path)) else {
        panic!("{path} is not answered");
    };
    content.body
}

/// The shortest CPU time of a few runs on this thread, in milliseconds.
fn cost(mut run: impl FnMut()) -> f64 {
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
    };
    let costs = (0..5).map(|_| {
        let begin = clock();
        run();
        clock() - begin
    });
    costs.fold(f64::INFINITY, f64::min)
}

#[test]
fn two_hundred_slow_guests_are_less_than_a_megabyte_and_fifty_milliseconds() {
    let snapshot = Arc::new(snapshot(200));
    for row in snapshot.rows() {
        assert!(row.verdict().slow >= 60, "{:?}", row.verdict());
        assert!(
            row.hour()
                .unwrap()
                .minutes()
                .iter()
                .all(|it| *it > Nanos::ZERO)
        );
    }
    for path in ["/api/watch", "/metrics"] {
        let views = views((*snapshot).clone());
        let bytes = body(&views, path);
        // Another reader of the same snapshot has the same bytes.
        assert!(Arc::ptr_eq(&bytes, &body(&views, path)));
        let time = cost(|| {
            let views = self::views((*snapshot).clone());
            body(&views, path);
        });
        println!("{path}: {} bytes, {time:.1} ms of CPU time", bytes.len());
        assert!(bytes.len() < 1_000_000, "{path}: {} bytes", bytes.len());
        assert!(time < 50.0, "{path}: {time} ms");
    }
}

#[test]
fn the_verdicts_on_two_hundred_slow_guests_take_little() {
    let evidence: Vec<_> = (0..200).map(evidence).collect();
    let time = cost(|| {
        let verdicts = evidence.iter().map(judge);
        assert!(verdicts.map(|it| it.slow).sum::<usize>() >= 200 * 60);
    });
    println!("{time:.1} ms of CPU time for 200 guests with {REQUESTS} slow requests each");
    let waits: Vec<_> = evidence
        .into_iter()
        .map(|it| Evidence {
            requests: Vec::new(),
            answered: 0,
            ..it
        })
        .collect();
    let copies = cost(|| drop(waits.clone()));
    let time = cost(|| {
        let verdicts = waits.iter().map(judge);
        assert_eq!(verdicts.map(|it| it.slow as u64).sum::<u64>(), 200 * WAITS);
    });
    println!(
        "{time:.1} ms for 200 guests with {WAITS} late waits each, {copies:.1} ms to copy these"
    );
}

#[test]
fn metrics_have_bounded_labels_and_counts_that_only_rise() {
    let mut counts = Counts::default();
    let verdict = judge(&evidence(1));
    counts.add(&verdict);
    let sum = |counts: &Counts| -> u64 { counts.delay().map(|(_, time)| time.0).sum() };
    // Each nanosecond of delay is counted once.
    assert_eq!(sum(&counts), verdict.delay.0);
    counts.add(&verdict);
    assert_eq!(sum(&counts), 2 * verdict.delay.0);
    assert_eq!(counts.slow(), 2 * verdict.slow as u64);
    let text = body(&views(snapshot(3)), "/metrics");
    let text = String::from_utf8(text.to_vec()).unwrap();
    let sample = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(sample("tailbound_guest_slow_periods_total{"), 3);
    assert_eq!(sample("tailbound_guest_late_wait_seconds_bucket{"), 3 * 8);
    assert_eq!(sample("tailbound_watch_guests 3"), 1);
    assert!(text.contains(&format!(
        "{{guest=\"{}\",kind=\"pod\",cause=\"quota\"}}",
        key(1)
    )));
    assert!(text.ends_with("# EOF\n"), "{text}");
    let many = body(&views(of_verdicts(&vec![verdict; 1_030], 0)), "/metrics");
    let many = String::from_utf8(many.to_vec()).unwrap();
    let guests = many.matches("tailbound_guest_slow_periods_total{").count();
    assert_eq!(guests, 1_024);
    assert!(many.contains("tailbound_watch_guests_left_out 6"));
}

#[test]
fn views_have_no_data_before_the_first_second() {
    let views = Views::new(Board::default(), compact);
    assert!(matches!(
        views.answer(&Request::get("/metrics")),
        Answer::None(Lack::Source, _)
    ));
    assert!(matches!(
        views.answer(&Request::get("/api/watch")),
        Answer::None(Lack::Source, _)
    ));
    assert!(matches!(
        views.answer(&Request::get("/")),
        Answer::Content(_)
    ));
    assert!(matches!(
        views.answer(&Request::get("/page.html")),
        Answer::None(Lack::Path, _)
    ));
}

#[test]
fn the_page_loads_no_external_resource_and_has_its_own_nonce() {
    let views = Views::new(Board::default(), compact);
    let [one, other] = [(); 2].map(|()| {
        let Answer::Content(content) = views.answer(&Request::get("/")) else {
            panic!("there is no page");
        };
        content
    });
    assert_ne!(one.policy, other.policy);
    let nonce = one
        .policy
        .split('\'')
        .find_map(|word| word.strip_prefix("nonce-"));
    let html = String::from_utf8(one.body.to_vec()).unwrap();
    assert_eq!(
        html.matches(&format!("nonce=\"{}\"", nonce.unwrap()))
            .count(),
        2
    );
    assert!(!html.contains("NONCE"));
    // The name of a kind of elements is no address that is loaded.
    let elements = html.replace("http://www.w3.org/2000/svg", "");
    for resource in [
        "http:",
        "https:",
        "//cdn",
        "@import",
        "url(",
        " src=",
        "style=\"",
        "innerHTML",
    ] {
        assert!(!elements.contains(resource), "{resource}");
    }
    assert!(one.policy.starts_with("default-src 'none'; "));
}
