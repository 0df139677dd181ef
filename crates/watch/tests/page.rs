//! The page in Chromium: the real server, and guests that a test made up.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../control/tests/page/browser.rs"]
mod browser;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../control/tests/page/devtools.rs"]
mod devtools;

use browser::Page;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tailbound_look::evidence::{Evidence, Handles};
use tailbound_look::history::{Label, SLICE};
use tailbound_look::{History, judge, testing};
use tailbound_serve::{Access, Limits, Server, Token};
use tailbound_units::Nanos;
use tailbound_watch::document::GuestDocument;
use tailbound_watch::{Board, Counts, GuestHours, Row, Snapshot, Views};

const MINUTE: Nanos = Nanos::from_secs(60);

/// A name that would be a script if a page took it as HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Nine waits for a CPU that `web` had, each of this length in milliseconds.
fn evidence(name: &str, milliseconds: u64) -> Evidence {
    let count = if milliseconds > 0 { 9 } else { 0 };
    let waits = testing::waits(&vec![milliseconds; count], &testing::guest("web"));
    Evidence {
        guest: name.to_owned(),
        handles: Handles {
            select: Some("--container 4fa6".to_owned()),
            ..Handles::default()
        },
        ..testing::evidence(waits)
    }
}

/// Guests with their waits in the last minute, and in each slice of some minutes of the last hour.
fn snapshot(guests: &[(&str, u64, std::ops::Range<u64>)]) -> Arc<Snapshot> {
    let mut history = History::new();
    let key = |name: &str| -> Arc<str> { format!("container/{name}").into() };
    for slice in 0..360 {
        for (name, _, minutes) in guests {
            let label = Label {
                key: key(name),
                name: (*name).into(),
                kind: "docker",
            };
            let is_slow = minutes.contains(&(slice / 6));
            let verdict = judge(&evidence(name, if is_slow { 2 + slice / 6 } else { 0 }));
            let from = Nanos(SLICE.0 * slice);
            history.add(&label, from, Nanos(from.0 + SLICE.0), &verdict);
        }
    }
    let hours = GuestHours::of(&history);
    let rows = guests.iter().map(|(name, now, _)| {
        let guest = GuestDocument::new(key(name), (*name).to_owned(), "docker");
        let hour = hours.of_guest(&key(name));
        Row::new(guest, judge(&evidence(name, *now)), Counts::default(), hour)
    });
    let spent = (Duration::from_hours(1), Duration::from_secs(9));
    Arc::new(Snapshot::new(MINUTE, spent, rows.collect(), Vec::new()))
}

fn document(snapshot: &Snapshot) -> String {
    serde_json::to_string(&snapshot.document()).unwrap()
}

/// A server of the board, and the address and path of its page.
fn serve(board: &Board) -> (Server, String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::random().unwrap();
    let path = format!("/?token={}", token.text());
    let views = Views::new(board.clone(), document);
    let server = Server::start(listener, Access::Token(token), Limits::default(), views).unwrap();
    let origin = format!("http://{}", server.address());
    (server, origin, path)
}

#[test]
fn the_page_has_the_slowest_first_why_it_is_slow_and_the_last_hour() {
    let board = Board::default();
    let guests = [("idle", 0, 0..0), (HOSTILE, 0, 10..20), ("db", 40, 50..60)];
    board.set(snapshot(&guests));
    let (_server, origin, path) = serve(&board);
    let Some(page) = Page::open_at(&origin, &path) else {
        return;
    };
    page.says("#state", "3 guests, 1 slow in the last minute");
    let names = "[...document.querySelectorAll('#guests button')].map((it) => it.textContent)";
    assert_eq!(page.eval(names), serde_json::json!(["db", HOSTILE, "idle"]));
    page.says("#guests tr:nth-child(1)", "neighbour-cpu web");
    page.says("#guests tr:nth-child(2)", "neighbour-cpu web (last hour)");
    page.says("#guests tr:nth-child(3)", "nothing was slow");
    // The picture: ten minutes each of two guests, with axes, units and words.
    assert_eq!(
        page.eval("document.querySelectorAll('#picture rect title').length"),
        20
    );
    for text in ["Minutes ago", "Guest", "Delay in a minute:", "now", "60"] {
        page.says("#picture svg", text);
    }
    page.says("#picture rect title", "of delay in the minute that began");
    assert_eq!(page.eval("document.querySelectorAll('img').length"), 0);
    // The answer opens by a click, and stays open while the page follows the host.
    page.click("#guests button");
    page.says(
        "#guests .details",
        "db: 9 of its 9 longest waits for a CPU in the last minute",
    );
    page.says(
        "#guests .details code",
        "tailbound vcpu apply --container 4fa6 --level high",
    );
    board.set(snapshot(&[("other", 90, 0..0), ("db", 40, 50..60)]));
    page.says("#state", "2 guests, 2 slow");
    page.says("#guests tr:nth-child(1)", "other");
    page.says("#guests .details", "db: 9 of its 9");
    if let Some(folder) = std::env::var_os("TAILBOUND_PICTURES") {
        page.picture(&std::path::Path::new(&folder).join("watch.png"));
    }
    page.is_clean(&[]);
}

#[test]
fn the_page_shows_a_missing_answer_and_resumes_with_the_next() {
    let board = Board::default();
    let (_server, origin, path) = serve(&board);
    let Some(page) = Page::open_at(&origin, &path) else {
        return;
    };
    page.says("#state.error", "the first second is measured");
    board.set(snapshot(&[("db", 0, 0..0)]));
    page.says("#state", "1 guest, 0 slow in the last minute");
    page.says("#picture", "Nothing was slow in the last hour");
    page.is_clean(&[503]);
}

#[test]
fn without_the_token_there_is_no_page() {
    let board = Board::default();
    board.set(snapshot(&[("secret-guest", 40, 0..0)]));
    let (_server, origin, _) = serve(&board);
    let Some(page) = Page::open(&origin) else {
        return;
    };
    page.says("body", "show the token that tailbound printed");
    assert!(!page.text("body").contains("secret-guest"));
}
