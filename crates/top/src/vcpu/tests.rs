use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tailbound_agent::division::Cause;
use tailbound_agent::live::Share;

fn thread(guest: &str, thread: &str, waits: u64, p50: u64) -> ThreadTail {
    let all = Quantiles {
        count: waits,
        p50_ns: Some(p50),
        p99_ns: Some(10 * p50),
        p99_9_ns: Some(20 * p50),
        longest_ns: Some(30 * p50),
    };
    ThreadTail {
        guest: guest.to_owned(),
        thread: thread.to_owned(),
        all,
        woken: Some(all),
        preempted: Some(Quantiles::default()),
        ran_ns: 1,
    }
}

fn share<N>(name: N, time_ns: u64) -> Share<N> {
    Share { name, time_ns }
}

fn reading() -> Reading {
    Reading {
        approximate: None,
        late_ns: 1_000_000,
        threads: vec![
            thread("db", "vcpu 0", 10, 1_000),
            thread("web", "vcpu 0", 5, 400_000),
            thread("web", "emulator", 900, 20_000),
        ],
        late: vec![GuestLate {
            guest: "web".to_owned(),
            waits: 3,
            lost: 1,
            causes: vec![share(Cause::Others, 9_000_000), share(Cause::Stolen, 1_000)],
            culprits: vec![share("stress".to_owned(), 9_000_000)],
        }],
        notes: vec!["x".to_owned()],
    }
}

fn tails(sort: Column) -> Tails {
    let mut tails = Tails::new(sort);
    tails.update(reading());
    tails
}

fn order(tails: &Tails) -> Vec<String> {
    let threads = tails.reading.threads.iter();
    threads
        .map(|it| format!("{} {}", it.guest, it.thread))
        .collect()
}

#[test]
fn keys_choose_the_sort_column_of_threads() {
    let mut tails = tails(Column::P999);
    assert_eq!(order(&tails), ["web vcpu 0", "web emulator", "db vcpu 0"]);
    for (key, first) in [
        ('n', "db vcpu 0"),
        ('w', "web emulator"),
        ('5', "web vcpu 0"),
    ] {
        let next = tails.handle_key(KeyEvent::from(KeyCode::Char(key)));
        assert_eq!((next, &*order(&tails)[0]), (None, first), "{key}");
    }
    let quit = tails.handle_key(KeyEvent::from(KeyCode::Char('q')));
    assert_eq!(quit, Some(End::Quit));
}

#[test]
fn the_text_has_tails_and_the_threads_that_ran_instead() {
    let text = tails(Column::P999).text(Paint(false));
    for part in [
        "web    vcpu 0",
        "12 ms",
        "web: 3 waits of 1 ms or longer (and 1 not looked at): others 9 ms, stolen 1 us; who ran: \
         stress 9 ms",
        "note: x",
        "3 threads of guests\n",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn approximate_readings_have_no_tails_and_a_reason() {
    let mut approximate = reading();
    approximate.approximate = Some("no BTF".to_owned());
    for thread in &mut approximate.threads {
        (thread.woken, thread.preempted) = (None, None);
    }
    let mut tails = Tails::new(Column::Name);
    tails.update(approximate);
    let text = tails.text(Paint(false));
    assert!(text.contains("APPROXIMATE, no tails: no BTF"), "{text}");
    let row = text.lines().find(|line| line.starts_with("db")).unwrap();
    assert_eq!(row.matches(" -").count(), 6, "{row}");
}

#[test]
fn the_vcpu_screen_shows_tails_keys_and_errors() {
    let mut terminal = Terminal::new(TestBackend::new(100, 8)).unwrap();
    let mut tails = tails(Column::P999);
    terminal.draw(|frame| tails.draw(frame)).unwrap();
    let screen = terminal.backend().to_string();
    for part in ["3 threads", "p99.9", "emulator", "who ran", "q quits"] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    tails.take(Err("it went away".to_owned()));
    terminal.draw(|frame| tails.draw(frame)).unwrap();
    assert!(terminal.backend().to_string().contains("it went away"));
}
