use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;
use tailbound_look::evidence::Evidence;
use tailbound_look::history::{Label, SLICE};
use tailbound_look::{History, judge, testing};
use tailbound_watch::document::GuestDocument;
use tailbound_watch::{Counts, GuestHours};

const MINUTE: Nanos = Nanos::from_secs(60);

/// Returns four waits for a CPU that `hog` had, each of this length in milliseconds.
fn evidence(name: &str, milliseconds: u64) -> Evidence {
    let count = if milliseconds > 0 { 4 } else { 0 };
    let waits = testing::waits(&vec![milliseconds; count], &testing::guest("hog"));
    Evidence {
        guest: name.to_owned(),
        ..testing::evidence(waits)
    }
}

/// Returns guests with their waits in the last minute, and in one slice of the hour before, in
/// milliseconds.
fn snapshot(guests: &[(&str, u64, u64)]) -> Arc<Snapshot> {
    let mut history = History::new();
    for (name, _, earlier) in guests {
        let label = Label {
            key: format!("container/{name}").into(),
            name: (*name).into(),
            kind: "docker",
        };
        let verdict = judge(&evidence(name, *earlier));
        history.add(&label, Nanos::ZERO, SLICE, &verdict);
    }
    let hours = GuestHours::of(&history);
    let rows = guests.iter().map(|(name, now, _)| {
        let key: Arc<str> = format!("container/{name}").into();
        let hour = hours.of_guest(&key);
        let guest = GuestDocument::new(key, (*name).to_owned(), "docker");
        tailbound_watch::Row::new(guest, judge(&evidence(name, *now)), Counts::default(), hour)
    });
    let spent = [1_000, 4].map(std::time::Duration::from_millis).into();
    let notes = vec!["one fact is not known".to_owned()];
    Arc::new(Snapshot::new(MINUTE, spent, rows.collect(), notes))
}

fn press(guests: &mut Guests, keys: &[KeyCode]) -> Option<End> {
    let press = |key: &KeyCode| guests.handle_key(KeyEvent::from(*key));
    keys.iter().map(press).last().unwrap()
}

/// Returns the lines of a screen, and that of the chosen guest.
fn lines(guests: &Guests, width: u16, height: u16) -> (Vec<String>, Option<String>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| guests.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let is_chosen = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
    let chosen = (0..height).find(is_chosen).map(line);
    ((0..height).map(line).collect(), chosen)
}

fn chosen(guests: &Guests) -> String {
    let (_, chosen) = lines(guests, 120, 12);
    let line = chosen.unwrap_or_default();
    line.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn the_slowest_is_first_and_the_last_hour_is_beside_the_last_minute() {
    let mut guests = Guests::new();
    let (before, _) = lines(&guests, 100, 8);
    assert_eq!(before[0], "the first second is measured");
    guests.take(Ok(snapshot(&[
        ("idle", 0, 0),
        ("was", 0, 30),
        ("db", 40, 5),
    ])));
    let (lines, chosen) = lines(&guests, 140, 8);
    let title = "3 guests, 1 slow in the last 1 min; tailbound takes 0.4 % of a CPU";
    assert_eq!(lines[0], title);
    let words = |line: &str| -> Vec<String> {
        let parts = line
            .split("  ")
            .map(str::trim)
            .filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    assert_eq!(
        words(&lines[2]),
        [
            "db",
            "docker",
            "4",
            "160.0 ms",
            "40.0 ms",
            "4",
            "20.0 ms",
            "100.0 %",
            "neighbour-cpu hog"
        ]
    );
    assert_eq!(
        words(&lines[3]),
        [
            "was",
            "docker",
            "0",
            "0.0 ms",
            "0.0 ms",
            "4",
            "120.0 ms",
            "neighbour-cpu hog (last hour)"
        ]
    );
    assert_eq!(
        words(&lines[4]),
        [
            "idle",
            "docker",
            "0",
            "0.0 ms",
            "0.0 ms",
            "0",
            "0.0 ms",
            "nothing was slow"
        ]
    );
    assert_eq!(chosen.as_deref(), Some(lines[2].as_str()));
    assert_eq!(lines[6], "Note: one fact is not known.");
    assert_eq!(lines[7], TABLE_HELP);
}

#[test]
fn a_narrow_screen_lacks_the_least_needed_columns() {
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&[("db", 40, 5)])));
    let heads = |width| lines(&guests, width, 8).0[1].clone();
    assert!(heads(120).contains("LONGEST") && heads(120).contains("KIND"));
    let narrow = heads(80);
    assert!(!narrow.contains("LONGEST"), "{narrow}");
    for head in [
        "GUEST",
        "SLOW 1 min",
        "DELAY",
        "SLOW 1 h",
        "DELAY 1 h",
        "CAUSE",
    ] {
        assert!(narrow.contains(head), "{narrow}");
    }
    let line = lines(&guests, 80, 8).0[2].clone();
    assert!(line.ends_with("neighbour-cpu hog"), "{line}");
    lines(&guests, 1, 1);
}

#[test]
fn a_key_chooses_a_guest_which_stays_chosen_wherever_it_stands() {
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&[("a", 40, 0), ("b", 30, 0), ("c", 20, 0)])));
    assert_eq!(chosen(&guests), "a");
    // Without a choice, the slowest is always chosen.
    guests.take(Ok(snapshot(&[("a", 5, 0), ("b", 30, 0), ("c", 20, 0)])));
    assert_eq!(chosen(&guests), "b");
    press(&mut guests, &[KeyCode::Down]);
    assert_eq!(chosen(&guests), "c");
    guests.take(Ok(snapshot(&[("a", 5, 0), ("b", 30, 0), ("c", 90, 0)])));
    assert_eq!(chosen(&guests), "c");
    press(&mut guests, &[KeyCode::Up]);
    assert_eq!(chosen(&guests), "c");
    press(&mut guests, &[KeyCode::End]);
    assert_eq!(chosen(&guests), "a");
    // The last guest ends: the new last guest is chosen.
    guests.take(Ok(snapshot(&[("b", 30, 0), ("c", 90, 0)])));
    assert_eq!(chosen(&guests), "b");
    press(&mut guests, &[KeyCode::Home]);
    assert_eq!(chosen(&guests), "c");
    guests.take(Ok(snapshot(&[])));
    press(&mut guests, &[KeyCode::Down, KeyCode::Enter]);
    assert_eq!(guests.view, View::Table);
}

#[test]
fn the_answer_of_the_chosen_guest_has_its_sentence_evidence_and_remedy() {
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&[("a", 40, 0), ("db", 30, 5)])));
    for open in [KeyCode::Enter, KeyCode::Char('w')] {
        press(&mut guests, &[KeyCode::Down, open]);
        let text = lines(&guests, 100, 20).0;
        let sentence = "db: 4 of its 4 longest waits for a CPU in the last minute were for a CPU that hog had.";
        assert_eq!(text[2], sentence);
        assert!(
            text[3].contains("Delay: 120.0 ms in 4 periods"),
            "{text:#?}"
        );
        assert!(
            text.iter().any(|line| line.starts_with("To fix it: ")),
            "{text:#?}"
        );
        let hour = text
            .iter()
            .position(|line| line.starts_with("Last hour"))
            .unwrap();
        assert!(text[hour].ends_with("4 slow periods, 20.0 ms in all, the longest 5.0 ms."));
        assert_eq!(text[19], WHY_HELP);
        // It is another guest's turn; this one's answer stays.
        guests.take(Ok(snapshot(&[("a", 10, 0), ("db", 30, 5)])));
        assert_eq!(lines(&guests, 100, 20).0[2], sentence);
        press(&mut guests, &[KeyCode::Esc, KeyCode::Home]);
        guests.take(Ok(snapshot(&[("a", 40, 0), ("db", 30, 5)])));
        assert_eq!(guests.view, View::Table);
    }
}

#[test]
fn the_answer_view_scrolls_and_shows_that_its_guest_ended() {
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&[("a", 40, 0), ("db", 30, 0)])));
    press(&mut guests, &[KeyCode::Down, KeyCode::Enter, KeyCode::Down]);
    assert!(lines(&guests, 100, 20).0[2].contains("Delay: "));
    press(&mut guests, &[KeyCode::Down; 200]);
    let last = guests.view;
    press(&mut guests, &[KeyCode::Up; 200]);
    assert_eq!(guests.view, View::Why { above: 0 });
    assert!(
        matches!(last, View::Why { above } if above < 20),
        "{last:?}"
    );
    guests.take(Ok(snapshot(&[("a", 40, 0), ("other", 1, 0)])));
    assert_eq!(lines(&guests, 100, 20).0[2], "This guest has ended.");
    // It comes again: it is the one that was chosen.
    guests.take(Ok(snapshot(&[("db", 90, 0), ("a", 40, 0)])));
    assert!(lines(&guests, 100, 20).0[2].starts_with("db: "));
    guests.take(Ok(snapshot(&[("a", 40, 0)])));
    press(&mut guests, &[KeyCode::Esc]);
    assert_eq!(chosen(&guests), "a");
}

#[test]
fn quit_keys_work_in_both_views_and_escape_closes_an_answer() {
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&[("a", 40, 0)])));
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut guests, &[KeyCode::Esc]), None);
    for keys in [&[][..], &[KeyCode::Enter][..]] {
        for key in keys {
            press(&mut guests, &[*key]);
        }
        assert_eq!(press(&mut guests, &[KeyCode::Char('q')]), Some(End::Quit));
        assert_eq!(press(&mut guests, &[KeyCode::Tab]), Some(End::NextView));
        assert_eq!(guests.handle_key(control), Some(End::Quit));
    }
    assert_eq!(press(&mut guests, &[KeyCode::Char('c')]), None);
}

#[test]
fn the_selected_guest_is_shown_without_control_characters() {
    let names: Vec<_> = (0..200)
        .map(|index| format!("g{index:03}\x1b[31m\u{9b}x"))
        .collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), 40, 5)).collect();
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&all)));
    for _ in 0..205 {
        press(&mut guests, &[KeyCode::Down]);
        let (lines, chosen) = lines(&guests, 80, 10);
        let chosen = chosen.unwrap();
        assert!(
            chosen.starts_with(&format!("g{:03}", guests.place)),
            "{chosen}"
        );
        assert!(!lines.concat().contains(char::is_control), "{lines:#?}");
    }
    assert_eq!(guests.place, 199);
    press(&mut guests, &[KeyCode::Enter]);
    let text = lines(&guests, 80, 10).0.concat();
    assert!(
        text.contains("g199") && !text.contains(char::is_control),
        "{text}"
    );
}

#[test]
fn an_error_is_shown_and_kept() {
    let mut guests = Guests::new();
    guests.take(Ok(snapshot(&[("a", 40, 0)])));
    guests.take(Err("no more".to_owned()));
    assert_eq!(guests.error(), Some("no more"));
    let (lines, _) = lines(&guests, 100, 8);
    assert_eq!(lines[0], "the measurement ended: no more");
    assert!(lines[2].starts_with("a "), "{lines:#?}");
}
