//! `tailbound watch --listen`: the page, the document and the metrics of this host.

mod program;

use program::{Folder, PROGRAM, run_anywhere, tailbound, words};
use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::probe::Capability;
use tailbound_sys::probe::required::{Part, skipped};

/// Longer than anything here takes.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// A process that is killed with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace with a process in it, which is a guest.
struct Namespace {
    name: String,
    process: Option<Process>,
}

impl Namespace {
    fn start(test: &str) -> Option<Self> {
        let name = format!("tbwatch{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status();
        let mut namespace = Self {
            name,
            process: None,
        };
        if !made.is_ok_and(|status| status.success()) {
            skipped(Part::NetworkNamespaces, test);
            return None;
        }
        let mut command = Command::new("ip");
        let command = command.args(["netns", "exec", &namespace.name, "sleep", "600"]);
        namespace.process = command.spawn().ok().map(Process);
        Some(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.process = None;
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

/// `watch --listen` at a free port.
struct Watch {
    process: Process,
    origin: String,
    token: String,
}

impl Watch {
    fn start(flags: &str) -> Self {
        let (process, line) = Self::started(flags);
        let (origin, token) = line.split_once("/?token=").expect("a URL");
        Self {
            origin: origin.to_owned(),
            token: token.to_owned(),
            process,
        }
    }

    /// The process, and the line that it prints.
    fn started(flags: &str) -> (Process, String) {
        let mut command = tailbound();
        let command = command.args(["watch", "--listen", "127.0.0.1:0"]);
        let command = command.args(words(flags)).stdin(Stdio::null());
        let mut process = Process(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut url = String::new();
        let stdout = process.0.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut url).unwrap();
        (process, url.trim().to_owned())
    }

    /// The status and the body of a path; `header` is a name and a value.
    fn get(&self, path: &str, header: Option<(&str, &str)>) -> (u16, String) {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut request = agent.get(format!("{}{path}", self.origin));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let mut answer = request.call().unwrap();
        let body = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), body)
    }

    /// The body of a path, once something was measured.
    fn read(&self, path: &str) -> String {
        let bearer = format!("Bearer {}", self.token);
        let end = Instant::now() + MAX_WAIT;
        loop {
            match self.get(path, Some(("Authorization", &bearer))) {
                (200, body) => return body,
                (503, body) => assert!(Instant::now() < end, "{body}"),
                (status, body) => panic!("{path}: {status} {body}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn the_guests_are_served_only_with_the_urls_token() {
    let test = "the_guests_are_served_only_with_the_urls_token";
    if !Capability::BpfWaits.try_here().works {
        skipped(Part::BpfWaits, test);
        return;
    }
    let Some(namespace) = Namespace::start(test) else {
        return;
    };
    let watch = Watch::start("--for 2s");
    let key = format!("netns/{}", namespace.name);
    let document: Value = serde_json::from_str(&watch.read("/api/watch")).unwrap();
    assert_eq!(
        (&document["kind"], &document["schema"]),
        (&"watch".into(), &1.into())
    );
    let guests = document["guests"].as_array().unwrap();
    let guest = guests.iter().find(|it| it["guest"]["key"] == key.as_str());
    assert!(guest.is_some(), "{document:#}");
    let metrics = watch.read("/metrics");
    let sample =
        format!("tailbound_guest_slow_periods_total{{guest=\"{key}\",kind=\"namespace\"}} ");
    assert!(metrics.contains(&sample), "{metrics}");
    let (status, page) = watch.get(&format!("/?token={}", watch.token), None);
    assert_eq!(
        (status, page.contains("<svg") || page.contains("picture")),
        (200, true)
    );
    // Others learn nothing.
    let host = Some(("Host", "evil.example"));
    for (path, header, expected) in [
        ("/", None, 401),
        ("/?token=00000000000000000000000000000000", None, 401),
        ("/api/watch", Some(("Authorization", "Bearer x")), 401),
        (&format!("/metrics?token={}", watch.token), host, 421),
    ] {
        let (status, body) = watch.get(path, header);
        assert_eq!(status, expected, "{path}");
        assert!(!body.contains(&namespace.name), "{body}");
    }
    // The document is the one that is printed.
    let printed = run_anywhere("watch --for 1s --output json").json();
    let keys = |of: &Value| -> Vec<String> { of.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&printed), keys(&document));
    assert_eq!(keys(&printed["guests"][0]), keys(&document["guests"][0]));
    let mut process = watch.process;
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_token_from_a_file_stays_and_is_not_printed() {
    if !Capability::BpfWaits.try_here().works {
        skipped(
            Part::BpfWaits,
            "a_token_from_a_file_stays_and_is_not_printed",
        );
        return;
    }
    let folder = Folder::new();
    let token = "0123456789abcdef0123456789abcdef";
    write_token(&folder, token, 0o600);
    let path = folder.join("token");
    let path = path.display();
    let (process, line) = Watch::started(&format!("--for 2s --token-file {path}"));
    let end = format!("/ with the token in {path}");
    let origin = line.strip_suffix(&end).expect("a URL").to_owned();
    let watch = Watch {
        process,
        origin,
        token: token.to_owned(),
    };
    assert!(watch.read("/metrics").contains("tailbound_watch_guests"));
    let other = Some(("Authorization", "Bearer 0123456789abcdef0123456789abcdee"));
    assert_eq!(watch.get("/metrics", other).0, 401);
}

fn write_token(folder: &Folder, token: &str, mode: u32) {
    folder.write("token", format!("{token}\n"));
    let mode = Permissions::from_mode(mode);
    std::fs::set_permissions(folder.join("token"), mode).unwrap();
}

#[test]
fn a_token_that_others_know_or_can_guess_is_one_clear_error() {
    let folder = Folder::new();
    let good = "0123456789abcdef0123456789abcdef";
    let spaced = "0123456789 abcdef 0123456789 abcdef";
    for (token, mode, why) in [
        (good, 0o604, "others than its owner may use it (mode 0604)"),
        (&good[1..], 0o600, "has 31 B"),
        (
            spaced,
            0o600,
            "a token has letters, digits and -._~+/= alone",
        ),
    ] {
        write_token(&folder, token, mode);
        let error = folder
            .run("watch --listen 127.0.0.1:0 --token-file token")
            .failed(64);
        let begin = format!("tailbound: --token-file token: {why}");
        assert!(
            error.starts_with(&begin) && error.lines().count() == 1,
            "{error}"
        );
    }
    folder.run("watch --token-file token").failed(64);
}

#[test]
fn an_address_that_others_reach_needs_a_flag_and_a_screen_a_terminal() {
    let error = run_anywhere("watch --listen 0.0.0.0:0").failed(64);
    assert!(error.contains("--allow-remote"), "{error}");
    let error = run_anywhere("watch").failed(2);
    assert!(
        error.contains("there is no terminal; use --once, --listen or --record"),
        "{error}"
    );
    for wrong in [
        "watch --listen --once",
        "watch --allow-remote",
        "watch --listen localhost:1",
    ] {
        run_anywhere(wrong).failed(64);
    }
}

#[test]
fn an_address_that_is_taken_is_one_clear_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let error = run_anywhere(&format!("watch --listen {address}")).failed(2);
    let begin = format!("tailbound: cannot listen at {address}: ");
    assert!(
        error.starts_with(&begin) && error.lines().count() == 1,
        "{error}"
    );
}

/// `tailbound` in a terminal that `script` makes; returns what it was sent.
struct Screen {
    process: Process,
    files: tempfile::TempDir,
}

impl Screen {
    fn start(arguments: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let run = format!("stty rows 24 cols 100; {PROGRAM} {arguments}; echo $? > code");
        let script = Command::new("script")
            .args(["--quiet", "--flush", "--command", &run, "out"])
            .current_dir(files.path())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the command `script` of util-linux does not run");
        Self {
            process: Process(script),
            files,
        }
    }

    /// Waits until a file has at least `count` matches of a text.
    fn has(&self, file: &str, text: &str, count: usize) {
        let end = Instant::now() + MAX_WAIT;
        loop {
            let bytes = std::fs::read(self.files.path().join(file)).unwrap_or_default();
            let seen = String::from_utf8_lossy(&bytes).into_owned();
            if seen.matches(text).count() >= count {
                return;
            }
            assert!(Instant::now() < end, "{text}: {seen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        let terminal = self.process.0.stdin.as_mut().unwrap();
        terminal.write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn tab_shows_the_other_views_and_leaves_out_a_daemon_that_is_not_there() {
    let test = "tab_shows_the_other_views_and_leaves_out_a_daemon_that_is_not_there";
    if !Capability::BpfWaits.try_here().works {
        skipped(Part::BpfWaits, test);
        return;
    }
    let Some(_guest) = Namespace::start(test) else {
        return;
    };
    let mut screen = Screen::start("watch");
    screen.has("out", "choose a guest", 1);
    screen.press("\t");
    screen.has("out", "of guests", 1);
    screen.press("\t");
    screen.has("out", "choose a guest", 2);
    screen.press("q");
    screen.has("code", "0", 1);
}
