use super::*;
use tailbound_host::socket::{Bucket, Count, GuestSource, Link};

/// Returns a guest that has sent this number of bytes, with buckets of its packets' waits: the
/// upper bound in microseconds, and the count.
pub(crate) fn guest(name: &str, bytes: u64, waits: &[(Option<u64>, u64)]) -> Guest {
    Guest {
        port: Port {
            name: name.to_owned(),
            link: Link::Up,
            received: Count { packets: 1, bytes },
            drops: [("codel".to_owned(), bytes / 1000)].into(),
            ..Port::default()
        },
        kept: GuestSource::File,
        vm: None,
        mac: None,
        ipv4: None,
        drained: false,
        guarantee: None,
        limit: None,
        guarantee_refused: false,
        paced_bytes: 0,
        waits: vec![Waits {
            direction: "sent".to_owned(),
            class: "lowest".to_owned(),
            buckets: waits
                .iter()
                .map(|(micros, count)| Bucket {
                    up_to_ns: micros.map(|micros| micros * 1000),
                    count: *count,
                })
                .collect(),
        }],
    }
}

pub(crate) fn shown(seconds: u64, guests: Vec<Guest>) -> HostStatus {
    HostStatus {
        pid: 7,
        uptime_ns: seconds * 1_000_000_000,
        config: "host.toml".into(),
        added: "added.toml".into(),
        service: None,
        reloads_refused: 0,
        packet_loop: None,
        uplink: None,
        guests,
    }
}

fn names(state: &State) -> Vec<&str> {
    state
        .guests()
        .iter()
        .map(|line| line.name.as_str())
        .collect()
}

fn press(state: &mut State, key: char) -> Option<End> {
    state.handle_key(KeyEvent::from(KeyCode::Char(key)))
}

#[test]
fn rates_cover_the_time_since_the_same_daemons_last_update() {
    let mut state = State::new(Column::Sends);
    state.update(shown(1, vec![guest("a", 1000, &[])]));
    assert_eq!(state.guests()[0].sends, None);
    state.update(shown(3, vec![guest("a", 5000, &[]), guest("b", 1000, &[])]));
    let [a, b] = state.guests() else {
        panic!("two guests");
    };
    assert_eq!(
        (a.sends, a.receives, a.drops),
        (Some(16_000.0), Some(0.0), Some(2.0))
    );
    // It was not there before.
    assert_eq!((b.sends, b.drops), (None, None));
    // Another daemon counts from zero again.
    state.update(shown(1, vec![guest("a", 10, &[])]));
    assert_eq!(state.guests()[0].sends, None);
}

#[test]
fn a_wait_percentile_covers_packets_since_the_last_update() {
    let mut state = State::new(Column::Sends);
    let before = [(Some(10), 1000), (Some(20), 5)];
    state.update(shown(1, vec![guest("a", 0, &before)]));
    let mut wait = |seconds, waits: &[_]| {
        state.update(shown(seconds, vec![guest("a", 0, waits)]));
        state.guests()[0].wait
    };
    // 98 of 10 us and 2 of 40 us more.
    let now = [(Some(10), 1098), (Some(20), 5), (Some(40), 2)];
    assert_eq!(wait(2, &now), Some(40_000.0));
    assert_eq!(wait(3, &now), None);
    // 99 of 20 us and one of 40 us more.
    let now = [(Some(10), 1098), (Some(20), 104), (Some(40), 3)];
    assert_eq!(wait(4, &now), Some(20_000.0));
    let now = [(Some(10), 1098), (Some(20), 104), (Some(40), 3), (None, 1)];
    assert_eq!(wait(5, &now), Some(f64::INFINITY));
}

#[test]
fn keys_sort_by_a_column_and_once_more_the_other_way() {
    let mut state = State::new(Column::Name);
    let guests = |a, b, c| vec![guest("c", c, &[]), guest("a", a, &[]), guest("b", b, &[])];
    state.update(shown(1, guests(0, 0, 0)));
    state.update(shown(2, guests(1, 3, 2)));
    assert_eq!(names(&state), ["a", "b", "c"]);
    assert_eq!(press(&mut state, 's'), None);
    assert_eq!(names(&state), ["b", "c", "a"]);
    press(&mut state, 's');
    assert_eq!(names(&state), ["a", "c", "b"]);
    press(&mut state, 'n');
    assert_eq!(names(&state), ["a", "b", "c"]);
    press(&mut state, 'x');
    for key in ['r', 'g', 'b', 'w', 'd'] {
        press(&mut state, key);
        assert_eq!(state.guests().len(), 3);
    }
    assert_eq!(press(&mut state, 'q'), Some(End::Quit));
    let tab = state.handle_key(KeyEvent::from(KeyCode::Tab));
    assert_eq!(tab, Some(End::NextView));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.handle_key(control_c), Some(End::Quit));
}

#[test]
fn moving_ends_at_the_last_guest_also_when_others_leave() {
    let mut state = State::new(Column::Name);
    state.update(shown(1, vec![guest("a", 0, &[]), guest("b", 0, &[])]));
    for _ in 0..5 {
        state.handle_key(KeyEvent::from(KeyCode::Down));
    }
    assert_eq!(state.above, 1);
    state.update(shown(2, Vec::new()));
    assert_eq!(state.above, 0);
    state.handle_key(KeyEvent::from(KeyCode::Up));
    assert_eq!(state.above, 0);
}
