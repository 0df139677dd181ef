use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use tailbound_host::socket::{
    Bucket, Count, Guarantee, GuaranteedBy, Guest, GuestSource, HostStatus, Link, Port, Waits,
};

/// Returns a host after `seconds`, with three guests: one sends, one is drained and one is away.
fn shown(seconds: u64) -> HostStatus {
    let guest = |name: &str, bit_s: u64, link, drained| Guest {
        port: Port {
            name: name.to_owned(),
            port: format!("tap {name}"),
            link,
            received: Count {
                packets: seconds,
                bytes: seconds * bit_s / 8,
            },
            ..Port::default()
        },
        kept: GuestSource::File,
        vm: None,
        mac: None,
        ipv4: None,
        drained,
        guarantee: (bit_s > 0).then_some(Guarantee {
            bandwidth_bit_s: 100_000_000,
            burst_bytes: 15_000,
            burst_rate_bit_s: 1_000_000_000,
            by: GuaranteedBy::Service,
        }),
        limit: None,
        guarantee_refused: false,
        paced_bytes: bit_s / 1000,
        waits: vec![Waits {
            direction: "sent".to_owned(),
            class: "guaranteed".to_owned(),
            buckets: vec![Bucket {
                up_to_ns: Some(45_000),
                count: seconds,
            }],
        }],
    };
    HostStatus {
        pid: 4711,
        uptime_ns: seconds * 1_000_000_000,
        config: "/etc/tailbound/host.toml".into(),
        added: "/var/lib/tailbound/guests.toml".into(),
        service: None,
        reloads_refused: 0,
        packet_loop: None,
        uplink: Some(Port {
            name: "uplink".to_owned(),
            link: Link::Up,
            sent: Count {
                packets: seconds,
                bytes: seconds * 10_000_000,
            },
            drops: [("codel".to_owned(), 5 * seconds)].into(),
            ..Port::default()
        }),
        guests: vec![
            guest("db", 0, Link::Up, true),
            guest("web", 80_000_000, Link::Up, false),
            guest("old", 0, Link::Away, false),
        ],
    }
}

fn state() -> State {
    let mut state = State::new(Column::Sends);
    state.update(shown(1));
    state.update(shown(3));
    state
}

/// Returns the lines of a terminal, without trailing blanks.
fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
    terminal.draw(|frame| draw(frame, state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(usize::from(width));
    let lines = lines.map(|line| line.iter().map(Cell::symbol).collect::<String>());
    lines.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn the_screen_shows_the_guests_and_the_keys() {
    assert_eq!(
        screen(&state(), 95, 7),
        [
            "tailbound host 4711, up for 3 s, 3 guests",
            "guest                sends    receives  guaranteed  backlog wait p99 to it p99  drops/s state",
            "uplink             0 bit/s   80 Mbit/s           -      0 B        -         -        5 up",
            "web              80 Mbit/s     0 bit/s  100 Mbit/s    80 KB    45 us         -        0 up",
            "db                 0 bit/s     0 bit/s           -      0 B    45 us         -        0 drained",
            "old                0 bit/s     0 bit/s           -      0 B    45 us         -        0 away",
            HELP,
        ]
    );
}

#[test]
fn a_missing_daemon_is_shown_with_the_last_known_guests() {
    let mut state = state();
    state.fail("no daemon is found".to_owned());
    let lines = screen(&state, 80, 5);
    assert_eq!(
        lines[0],
        "tailbound host 4711, up for 3 s, 3 guests; no daemon is found"
    );
    assert!(lines[3].starts_with("web "), "{lines:?}");
    state.update(shown(4));
    assert!(!screen(&state, 80, 5)[0].contains("no daemon"));
}

#[test]
fn no_terminal_is_too_small() {
    for (width, height) in [(1, 1), (3, 0), (5, 2), (200, 1)] {
        screen(&state(), width, height);
    }
}

#[test]
fn the_same_is_there_as_text() {
    let text = text(&state(), Paint(false));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("guest"), "{text}");
    assert!(
        text.contains("80 Mbit/s") && text.contains("drained"),
        "{text}"
    );
    assert_eq!(
        lines.last(),
        Some(&"tailbound host 4711, up for 3 s, 3 guests")
    );
}
