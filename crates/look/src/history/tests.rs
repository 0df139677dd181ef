use super::*;
use crate::evidence::{Evidence, Occupant};
use crate::judge::judge;
use crate::testing::waits;

fn label(index: usize) -> Label {
    Label {
        key: format!("container/{index}").into(),
        name: format!("web-{index}").into(),
        kind: "container",
    }
}

/// The verdict on waits of these lengths, in ms, for a CPU that `by` had.
fn verdict(lengths: &[u64], by: &str) -> Verdict {
    judge(&Evidence {
        guest: "db-3".to_owned(),
        window: SLICE,
        waits: waits(lengths, &Occupant::Guest(by.into())),
        ..Evidence::default()
    })
}

/// The begin and the end of the slice with this number.
fn at(index: u64) -> (Nanos, Nanos) {
    (Nanos(SLICE.0 * index), Nanos(SLICE.0 * (index + 1)))
}

fn add(history: &mut History, guest: usize, index: u64, verdict: &Verdict) {
    let (from, until) = at(index);
    history.add(&label(guest), from, until, verdict);
    history.forget(until);
}

#[test]
fn a_window_is_the_sum_of_its_slices() {
    let mut history = History::new();
    add(&mut history, 1, 0, &verdict(&[400; 9], "old"));
    for index in 1..7 {
        add(&mut history, 1, index, &verdict(&[40, 30], "web-7"));
    }
    let minute = &history.recent(Nanos::from_secs(60))[0];
    assert_eq!((minute.slices, minute.slow), (6, 12));
    assert_eq!(minute.delay, Nanos::from_millis(420));
    assert_eq!(minute.longest, Nanos::from_millis(40));
    // Two periods in a slice prove nothing, twelve in a minute do.
    let mut series = history.series("container/1");
    let last = series.next_back().unwrap();
    assert_eq!(last.finding, Finding::Unknown(Doubt::TooFew));
    let because = |name: &str| Finding::Because(Cause::by(Kind::NeighbourCpu, &name.into()));
    assert_eq!(minute.finding, because("web-7"));
    assert_eq!(minute.permille(), Some(1_000));
    let hour = &history.recent(HOUR)[0];
    assert_eq!((hour.slices, hour.finding.clone()), (7, because("old")));
    assert_eq!(history.span(), Some((Nanos::ZERO, at(6).1)));
}

#[test]
fn slow_guests_are_first_and_quiet_ones_are_listed() {
    let mut history = History::new();
    add(&mut history, 3, 0, &verdict(&[], ""));
    add(&mut history, 1, 0, &verdict(&[40; 9], "web-7"));
    add(&mut history, 2, 0, &verdict(&[90; 9], "web-7"));
    let order: Vec<_> = history.recent(HOUR).into_iter().collect();
    let names: Vec<_> = order.iter().map(|it| it.label.name.as_ref()).collect();
    assert_eq!(names, ["web-2", "web-1", "web-3"]);
    assert_eq!(order[2].finding, Finding::NothingSlow);
    assert_eq!(history.series("container/3").count(), 0);
}

#[test]
fn negligible_slow_periods_have_no_cause_in_the_hours_sum() {
    let mut history = History::new();
    for index in 0..60 {
        add(&mut history, 1, index, &verdict(&[2, 3], "web-7"));
    }
    let hour = &history.recent(HOUR)[0];
    assert_eq!((hour.slow, hour.delay), (120, Nanos::from_millis(300)));
    assert_eq!(hour.finding, Finding::NothingSlow);
}

#[test]
fn slices_older_than_an_hour_are_forgotten() {
    let mut history = History::new();
    add(&mut history, 1, 0, &verdict(&[40; 9], "web-7"));
    add(&mut history, 2, 1, &verdict(&[40; 9], "web-7"));
    for index in 2..362 {
        add(&mut history, 2, index, &verdict(&[], ""));
    }
    // The last slice that had anything slow ended one slice more than an hour ago.
    assert_eq!(history.labels().count(), 1);
    assert_eq!(history.series("container/2").count(), 0);
    assert_eq!(history.span(), Some((at(2).0, at(361).1)));
    let far = at(1_000).1;
    history.forget(far);
    assert_eq!((history.labels().count(), history.span()), (0, None));
}

#[test]
fn a_full_history_evicts_the_guest_that_was_slow_longest_ago() {
    let mut history = History::new();
    for guest in 0..MAX_GUESTS {
        let lengths: &[u64] = if guest == 7 { &[] } else { &[40; 9] };
        add(&mut history, guest, 0, &verdict(lengths, "web-7"));
    }
    add(&mut history, 5_000, 1, &verdict(&[40; 9], "web-7"));
    assert_eq!(history.labels().count(), MAX_GUESTS);
    let keys: Vec<_> = history.labels().map(|it| it.key.as_ref()).collect();
    assert!(!keys.contains(&"container/7"));
    assert!(keys.contains(&"container/5000"));
}

#[test]
fn a_thousand_guests_that_are_always_slow_fit_into_100_megabytes() {
    let mut mixed = verdict(&[40; 9], "web-7");
    let causes = ["a", "b", "c", "d", "e"].map(|name| Share {
        cause: Cause::by(Kind::ProgramCpu, &name.into()),
        time: Nanos::from_millis(50),
        periods: 1,
    });
    mixed.shares.extend(causes);
    let used = allocation_counter::measure(|| {
        let mut history = History::new();
        for index in 0..400 {
            let (from, until) = at(index);
            for guest in 0..MAX_GUESTS {
                history.add(&label(guest), from, until, &mixed);
            }
            history.forget(until);
        }
        let recent = history.recent(HOUR);
        assert!(recent.iter().all(|it| it.slices == MAX_SLICES));
    });
    assert!(used.bytes_max < 100_000_000, "{}", used.bytes_max);
    println!("{} bytes", used.bytes_max);
}
