use super::*;
use tailbound_look::Finding;
use tailbound_look::record::{GuestEntry, HEADER_SIZE, Writer, header};

/// 03:10:00 on 31 January 2026, at an hour ahead of UTC.
const BEGIN: i64 = 1_769_825_400_000_000_000;

fn entry(index: i64, names: &[(&str, &str)]) -> Entry {
    let guest = |(key, name): &(&str, &str)| GuestEntry {
        key: (*key).into(),
        name: (*name).into(),
        kind: "container".into(),
        notes: vec!["a note".into()],
        evidence: Evidence {
            guest: (*name).to_owned(),
            window: Nanos::from_secs(10),
            answered: 5,
            ..Evidence::default()
        },
    };
    Entry {
        wall: (
            Wall(BEGIN + index * 10_000_000_000),
            Wall(BEGIN + (index + 1) * 10_000_000_000),
        ),
        offset: 3_600,
        from: Nanos::from_secs(100 + index.unsigned_abs() * 10),
        boot: "boot".into(),
        host: "host-1".into(),
        guests: names.iter().map(guest).collect(),
        ..Entry::default()
    }
}

/// 30 slices from 03:10 to 03:15, without those from 03:12 to 03:13; the guest `late` is in the last
/// two minutes.
fn record() -> Record {
    let mut file = header().to_vec();
    let mut writer = Writer::after(None);
    for index in (0..12).chain(18..30) {
        let mut guests = vec![
            ("container/a", "web (container/a)"),
            ("container/b", "web (container/b)"),
            ("container/c", "db"),
        ];
        if index >= 18 {
            guests.push(("container/d", "late"));
        }
        let (at, bytes) = writer.write(entry(index, &guests));
        let at = usize::try_from(at).unwrap();
        file.resize(at, 0);
        file.extend(bytes);
    }
    assert!(file.len() > HEADER_SIZE);
    Record::parse_some(&file).unwrap()
}

fn ask(asked: &str, at: &str, window: u64) -> Result<Answer, String> {
    let record = record();
    let zone = zone(record.offset());
    let at = at.parse().unwrap();
    find(&record, asked, at, Nanos::from_secs(window), zone)
}

#[test]
fn a_time_is_that_of_the_recorded_host_or_exact() {
    for at in [
        "03:11",
        "03:11:00",
        "2026-01-31T03:11",
        "2026-01-31 03:11:00",
        "2026-01-31T02:11:00Z",
        "2026-01-30T21:11:00-05:00",
    ] {
        let answer = ask("db", at, 20).map_err(|error| format!("{at}: {error}"));
        let answer = answer.unwrap();
        assert_eq!(answer.wall.0, Wall(BEGIN + 60_000_000_000), "{at}");
        assert_eq!(answer.wall.1, Wall(BEGIN + 80_000_000_000), "{at}");
        assert_eq!(answer.verdict.window, Nanos::from_secs(20), "{at}");
        assert_eq!(answer.verdict.finding, Finding::NothingSlow, "{at}");
    }
    for at in ["3 o'clock", "25:00", "", "03:11:00Z", "99999999999"] {
        assert!(at.parse::<At>().is_err(), "{at}");
    }
}

#[test]
fn a_time_of_the_day_is_the_last_one_in_the_record() {
    let zone = zone(3_600);
    let wall = |text: &str| {
        let moment = DateTime::parse_from_rfc3339(text).unwrap();
        Wall(moment.timestamp_nanos_opt().unwrap())
    };
    let spans = [
        (
            wall("2026-01-29T23:50:00+01:00"),
            wall("2026-01-29T23:55:00+01:00"),
        ),
        (
            wall("2026-01-30T23:40:00+01:00"),
            wall("2026-01-31T00:20:00+01:00"),
        ),
    ];
    for (at, meant) in [
        ("00:10", "2026-01-31T00:10:00+01:00"),
        ("23:52", "2026-01-30T23:52:00+01:00"),
        ("23:40", "2026-01-30T23:40:00+01:00"),
        // Nothing was recorded then: the day of the end is meant.
        ("00:20", "2026-01-31T00:20:00+01:00"),
    ] {
        let found = moment(at.parse().unwrap(), &spans, zone);
        assert_eq!(found, Some(wall(meant)), "{at}");
    }
}

#[test]
fn a_window_takes_whole_slices_and_notes_missing_time() {
    let answer = ask("db", "03:11:55", 60).unwrap();
    assert_eq!(answer.slices, (1, 1));
    assert_eq!(
        answer.notes,
        ["a note", "55 s of that time were not recorded"]
    );
    let answer = ask("late", "03:11:50", 120).unwrap();
    assert_eq!(answer.slices, (6, 5));
    let without = "1 of 6 slices do not have the guest".to_owned();
    assert!(answer.notes.contains(&without), "{:?}", answer.notes);
}

#[test]
fn a_time_outside_the_record_is_an_error_with_its_coverage() {
    let covers = "the record covers 2026-01-31 03:10:00 to 03:12:00 +01:00, \
        2026-01-31 03:13:00 to 03:15:00 +01:00";
    for (at, shown) in [
        ("03:12:10", "2026-01-31 03:12:10 +01:00"),
        ("04:00", "2026-01-31 04:00:00 +01:00"),
        ("2026-01-31T03:11:00Z", "2026-01-31 04:11:00 +01:00"),
        ("2031-01-31 03:11", "2031-01-31 03:11:00 +01:00"),
    ] {
        let error = ask("db", at, 10).err().unwrap();
        assert_eq!(error, format!("nothing was recorded at {shown}; {covers}"));
    }
}

#[test]
fn a_guest_is_found_by_key_or_name_and_others_are_listed() {
    assert_eq!(
        &*ask("container/b", "03:11", 10).unwrap().key,
        "container/b"
    );
    let error = ask("web", "03:11", 10).err().unwrap();
    assert_eq!(
        error,
        "2 guests are called \"web\"; use a key: container/a, container/b"
    );
    let error = ask("late\x1b", "03:11", 10).err().unwrap();
    assert_eq!(
        error,
        "there is no guest \"late\\u{1b}\" in the record; it has web (container/a), \
         web (container/b), db"
    );
}
