//! The screen of guests in a terminal. The program restores the terminal on every exit.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use tailbound_look::evidence::Evidence;
use tailbound_look::judge;
use tailbound_top::guests::{Guests, watch};
use tailbound_units::Nanos;
use tailbound_watch::document::GuestDocument;
use tailbound_watch::{Counts, Row, Snapshot};
use tempfile::TempDir;

/// The variable that makes [`screen_process`] a screen: `stays`, `panics` or `fails`.
const SCREEN: &str = "TAILBOUND_TEST_SCREEN";
/// Longer than any step of these tests.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Leaves the screen of its own, and shows the cursor.
const RESTORED: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

fn snapshot() -> Arc<Snapshot> {
    let rows = ["one", "two"].map(|name| {
        let guest = GuestDocument::new(name.into(), name.to_owned(), "docker");
        let evidence = Evidence {
            guest: name.to_owned(),
            ..Evidence::default()
        };
        Row::new(guest, judge(&evidence), Counts::default(), None)
    });
    let spent = (Duration::from_secs(1), Duration::ZERO);
    Arc::new(Snapshot::new(Nanos::ZERO, spent, rows.into(), Vec::new()))
}

/// Not a test of its own: the screen that the tests start in a terminal.
#[test]
fn screen_process() {
    let Ok(end) = std::env::var(SCREEN) else {
        return;
    };
    let (tell, looks) = sync_channel(1);
    let looker = std::thread::spawn(move || {
        tell.send(Ok(snapshot())).unwrap();
        if end == "stays" {
            std::thread::sleep(2 * MAX_WAIT);
        }
        std::thread::sleep(Duration::from_millis(300));
        assert_ne!(end, "panics", "the looks end by a panic");
        tell.send(Err("the looks end by an error".to_owned()))
            .unwrap();
    });
    let mut guests = Guests::new();
    let shown = watch(&mut guests, &looks);
    let why = match (&shown, guests.error()) {
        (_, Some(error)) => error.to_owned(),
        (Err(error), None) => error.to_string(),
        (Ok(_), None) => "by itself".to_owned(),
    };
    println!("ended: {why}");
    // The thread may still sleep.
    drop(looker);
    std::process::exit(i32::from(shown.is_err()));
}

/// A screen in a terminal of its own.
struct Terminal {
    script: Child,
    files: TempDir,
}

impl Terminal {
    /// Starts a screen by `script`, which makes a terminal; the shell notes its settings.
    fn start(end: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let run = format!(
            "stty rows 24 cols 100; stty -g > before\n\
             sh -c 'echo $$ > pid; exec {} --exact screen_process --nocapture'; echo $? > code\n\
             stty -g > after\n",
            exe.display()
        );
        std::fs::write(files.path().join("run"), run).unwrap();
        let script = Command::new("script")
            .args(["--quiet", "--flush", "--command", "sh run", "out"])
            .current_dir(files.path())
            .env(SCREEN, end)
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the command `script` of util-linux does not run");
        Self { script, files }
    }

    fn read(&self, file: &str) -> String {
        let bytes = std::fs::read(self.files.path().join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Waits until the terminal was sent a text.
    #[track_caller]
    fn shows(&self, text: &str) {
        self.shows_after("", text);
    }

    /// Waits until the terminal was sent a text behind another one.
    #[track_caller]
    fn shows_after(&self, before: &str, text: &str) {
        let end = Instant::now() + MAX_WAIT;
        let is_shown = |out: String| {
            let behind = out.split_once(before);
            behind.is_some_and(|(_, behind)| behind.contains(text))
        };
        while !is_shown(self.read("out")) {
            assert!(Instant::now() < end, "{text}: {:?}", self.read("out"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        let mut terminal = self.script.stdin.as_ref().unwrap();
        terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, name: &str) {
        let kill = ["-s", name, &self.read("pid")].map(str::to_owned);
        assert!(Command::new("kill").args(kill).status().unwrap().success());
    }

    /// Asserts that the screen has ended with this code and the terminal is as it was before.
    #[track_caller]
    fn is_restored(&self, code: &str) {
        let end = Instant::now() + MAX_WAIT;
        while self.read("after").is_empty() {
            assert!(Instant::now() < end, "{:?}", self.read("out"));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.read("code"), code, "{:?}", self.read("out"));
        assert_eq!(self.read("after"), self.read("before"));
        // `script` writes the file later than the screen writes to the terminal.
        for sequence in RESTORED {
            self.shows_after("\x1b[?1049h", sequence);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The screen may outlive a test that failed.
        let pid = self.read("pid");
        if Path::new("/proc").join(&pid).join("stat").exists() && !pid.is_empty() {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn keys_show_an_answer_and_quit() {
    let mut terminal = Terminal::start("stays");
    terminal.shows("two");
    terminal.press("\x1b[B\r");
    terminal.shows("two: nothing");
    terminal.press("\x1b");
    terminal.shows("why is it slow");
    terminal.press("q");
    terminal.is_restored("0");
}

#[test]
fn control_c_ends_top_and_restores_the_terminal() {
    let mut terminal = Terminal::start("stays");
    terminal.shows("two");
    terminal.press("\x03");
    terminal.is_restored("0");
}

#[test]
fn a_signal_ends_top_and_restores_the_terminal() {
    for signal in ["TERM", "INT", "HUP"] {
        let terminal = Terminal::start("stays");
        terminal.shows("two");
        terminal.signal(signal);
        terminal.is_restored("0");
    }
}

#[test]
fn a_panic_or_measurement_error_ends_top_and_is_shown() {
    for (end, why) in [
        ("panics", "ended: the thread that looks has ended"),
        ("fails", "ended: the looks end by an error"),
    ] {
        let terminal = Terminal::start(end);
        terminal.is_restored("1");
        // It is told on the terminal that was there before.
        terminal.shows_after(RESTORED[0], why);
    }
}
