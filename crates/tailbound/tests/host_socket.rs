//! The control socket of `tailbound host`, with real daemons on real interfaces.

mod program;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use program::{CommandOutput, tailbound, words};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{Guest, Kind, datagram, sandboxed, until};
use tailbound_sys::probe::required::{Part, skipped};

/// A configuration, and the daemons that ran for it.
struct Host {
    directory: tempfile::TempDir,
    started: Cell<u32>,
}

impl Host {
    /// One with these guests in its file.
    fn new(guests: &[&Guest]) -> Self {
        let host = Self {
            directory: tempfile::tempdir().expect("a directory"),
            started: Cell::new(0),
        };
        let sections: String = guests.iter().map(|guest| guest.section()).collect();
        host.write("host.toml", &format!("added = \"added.toml\"\n{sections}"));
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn added(&self) -> String {
        fs::read_to_string(self.path("added.toml")).unwrap_or_default()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = tailbound();
        command
            .args(words(line))
            .args(["--config", "host.toml", "--runtime-dir", "run"])
            .current_dir(self.directory.path());
        command
    }

    /// Starts a daemon, and waits until it has its ports.
    fn start(&self, more: &str) -> Daemon {
        let log = self.path(&format!("log-{}", self.started.get()));
        self.started.set(self.started.get() + 1);
        let child = self
            .command(&format!("host {more}"))
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("created"))
            .spawn()
            .expect("it is built");
        let daemon = Daemon(child, log);
        until("its ports", || daemon.log().contains(" ready "));
        daemon
    }

    fn run(&self, line: &str) -> CommandOutput {
        CommandOutput::new(self.command(line).output().expect("it is built"))
    }

    /// Returns the output of a command that succeeds.
    fn does(&self, line: &str) -> String {
        self.run(line).done()
    }

    /// Returns the errors of a command that ends with `code`.
    fn fails(&self, code: i32, line: &str) -> String {
        self.run(line).failed(code)
    }

    /// Adds a guest.
    fn add(&self, guest: &Guest) -> String {
        self.write("guest.toml", &guest.section());
        self.does("host add-guest guest.toml")
    }

    fn show(&self) -> Value {
        self.run("host show --output json").ended(0).json()
    }

    /// Returns the state of a guest from `host show`.
    fn shown(&self, name: &str) -> Value {
        let mut shown = self.show();
        let guests = shown["guests"].as_array_mut().expect("a list");
        let found = guests.iter_mut().find(|guest| guest["name"] == name);
        found.map_or(Value::Null, Value::take)
    }

    /// The control socket.
    fn socket(&self) -> PathBuf {
        let mut names = fs::read_dir(self.path("run")).expect("it is there");
        let socket = names.find_map(|entry| {
            let path = entry.ok()?.path();
            (path.extension()? == "sock").then_some(path)
        });
        socket.expect("a daemon runs")
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).expect("it listens")
    }

    /// The answer to a line.
    fn says(&self, line: &str) -> Value {
        let mut stream = self.connect();
        writeln!(stream, "{line}").expect("sent");
        answer(stream)
    }
}

/// The next line that comes.
fn answer(stream: UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("read");
    serde_json::from_str(&line).expect("JSON")
}

struct Daemon(Child, PathBuf);

impl Daemon {
    fn log(&self) -> String {
        fs::read_to_string(&self.1).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Ends as if it had crashed.
    fn die(mut self) {
        self.signal(Signal::KILL);
        self.0.wait().expect("it is our child");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// A frame from one guest comes to the other.
fn passes(from: &Guest, to: &Guest, number: u16) {
    let (mut sender, mut receiver) = (from.nic(), to.nic());
    let frame = datagram(to, from, number);
    until("a frame", || {
        sender.send(&frame);
        let came = receiver.receive();
        came.iter().any(|packet| packet.bytes() == frame)
    });
}

#[test]
fn a_guest_that_was_added_stays_over_reloads_takeovers_and_crashes() {
    let name = "a_guest_that_was_added_stays_over_reloads_takeovers_and_crashes";
    sandboxed(name, || {
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        let host = Host::new(&[&a]);
        let first = host.start("");
        assert_eq!(host.add(&b), "added\n");
        passes(&a, &b, 1);
        assert_eq!(host.add(&b), "there already; nothing has changed\n");
        assert_eq!(host.shown("g1")["kept"], "file");
        assert_eq!(host.shown("g2")["kept"], "socket");
        first.signal(Signal::HUP);
        until("the reload", || {
            first.log().matches("configuration reloaded").count() == 2
        });
        let (uid, log) = (rustix::process::getuid().as_raw(), first.log());
        let added =
            format!("configuration reloaded ports=2 by=\"socket\" uid={uid} added=\"g2\"\n");
        assert!(log.contains(&added), "{log}");
        let by_signal = "configuration reloaded ports=2 by=\"signal\"\n";
        assert!(log.contains(by_signal), "{log}");
        let mac = b.mac.map(|byte| format!("{byte:02x}")).join(":");
        assert_eq!(host.shown("g2")["mac"], mac);
        passes(&a, &b, 2);
        first.die();
        let second = host.start("");
        passes(&b, &a, 3);
        let third = host.start("--takeover");
        drop(second);
        passes(&a, &b, 4);
        assert_eq!(host.does("host remove-guest g2"), "removed\n");
        let removed = format!("by=\"socket\" uid={uid} removed=\"g2\"\n");
        until("the removal in the log", || third.log().contains(&removed));
        assert_eq!(host.shown("g2"), Value::Null);
        assert!(!host.added().contains("g2"));
        third.die();
        let _last = host.start("");
        assert_eq!(host.shown("g2"), Value::Null);
        let again = host.does("host remove-guest g2");
        assert_eq!(again, "not there; nothing has changed\n");
        // Its port can be had again at once.
        assert_eq!(host.add(&b), "added\n");
        passes(&b, &a, 5);
    });
}

#[test]
fn refused_guest_changes_leave_the_daemon_unchanged() {
    sandboxed("refused_guest_changes_leave_the_daemon_unchanged", || {
        let [a, b, c] = [1, 2, 3].map(|number| Guest::new(Kind::Veth, number));
        let host = Host::new(&[&a]);
        let daemon = host.start("");
        host.add(&b);
        let before = host.added();
        let right = c.section();
        for (wrong, said) in [
            (
                right.replace("mac", "macs"),
                "guest.toml:3:1: unknown key `macs`; did you mean `mac`?\n".to_owned(),
            ),
            (
                right
                    .replace("name", "nmae")
                    .replace("02:00:00:00:00:03", "zz")
                    .replace("10.77.0.3", "10.77.0.300"),
                "guest.toml:2:1: unknown key `nmae`; did you mean `name`?\n\
                 guest.toml:3:7: \"zz\" is not a MAC address; write six bytes in hexadecimal, for \
                 example \"02:00:00:00:00:01\"\n\
                 guest.toml:4:7: \"10.77.0.300\" is neither an IP address"
                    .to_owned(),
            ),
            (
                right.replace(":03\"", ":01\""),
                "guest.toml:3:7: duplicate MAC address 02:00:00:00:00:01, which is g1's (host.toml:2:1); use a different one for each guest\n"
                    .to_owned(),
            ),
            (
                format!("{right}\n{}", b.section().replace("10.77.0.2", "10.77.0.9")),
                "guest.toml:8:8: g2 was added before, with other values; use --replace to change it\n"
                    .to_owned(),
            ),
            (
                right.replace("interface = \"g3\"", "interface = \"nowhere\""),
                "tailbound: port g3 (af-packet nowhere): there is no interface \"nowhere\"; `ip \
                 link` lists those there are\n"
                    .to_owned(),
            ),
        ] {
            host.write("guest.toml", &wrong);
            let answer = host.fails(1, "host add-guest guest.toml");
            assert!(answer.starts_with(&said), "{answer}");
            assert_eq!(host.added(), before);
            assert_eq!(host.show()["guests"].as_array().map(Vec::len), Some(2));
        }
        passes(&a, &b, 1);
        let said = host.fails(1, "host remove-guest g1");
        assert!(said.contains("host.toml"), "{said}");
        host.write("guest.toml", &a.section().replace("10.77.0.1", "10.77.0.9"));
        let said = host.fails(1, "host change-guest guest.toml");
        let lines: Vec<_> = said.lines().collect();
        assert!(
            matches!(lines[..], [line] if line.starts_with("tailbound: the guest g1 is in ")),
            "{said}"
        );
        host.fails(2, "host add-guest missing.toml");
        // The file was edited, and nobody asked for it to be read.
        let text = fs::read_to_string(host.path("host.toml")).expect("it is there");
        host.write("host.toml", "nonsense");
        assert_eq!(host.add(&c), "added\n");
        host.write("host.toml", &text);
        // There is no place to keep more.
        fs::remove_file(host.path("added.toml")).expect("it is there");
        fs::create_dir(host.path("added.toml")).expect("made");
        let said = host.fails(1, "host remove-guest g3");
        assert!(said.contains("`added = ...`"), "{said}");
        passes(&a, &c, 2);
        drop(daemon);
    });
}

#[test]
fn a_line_of_json_is_all_that_a_script_needs() {
    sandboxed("a_line_of_json_is_all_that_a_script_needs", || {
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        let host = Host::new(&[&a]);
        let _daemon = host.start("");
        let limited = b.section() + "limit.out = { kind = \"bucket\", rate = \"50kbit/s\" }\n";
        let add = json!({"version": 1, "do": "add-guest", "toml": limited});
        let done = |changed| json!({"version": 1, "result": "done", "changed": changed});
        assert_eq!(host.says(&add.to_string()), done(true));
        assert_eq!(host.says(&add.to_string()), done(false));
        let wrong = json!({"version": 1, "do": "add-guest", "toml": "[[guest]]\nname = 1\n"});
        let answer = host.says(&wrong.to_string());
        assert_eq!(answer["result"], "refused");
        let mistake = &answer["mistakes"][0];
        assert_eq!(
            (&mistake["line"], &mistake["column"]),
            (&json!(2), &json!(8))
        );
        assert_eq!(mistake.get("file"), None);
        for (line, said) in [
            ("{}", "the key `version` is missing"),
            (r#"{"version": 2, "do": "show"}"#, "version 2 is not spoken"),
            (r#"{"version": 1, "do": "shw"}"#, "unknown variant `shw`"),
            (
                r#"{"version": 1, "do": "show", "all": 1}"#,
                "unknown field `all`",
            ),
            (r#"{"version": 1, "do": "drain"}"#, "missing field `guest`"),
            (
                r#"{"version": 1, "do": "drain", "guest": "g3"}"#,
                "unknown guest `g3`",
            ),
            ("show", "a request is one JSON object on one line"),
        ] {
            let answer = host.says(line);
            assert_eq!(answer["result"], "refused", "{line}");
            let message = answer["message"].as_str().expect("a text");
            assert!(message.contains(said), "{line}: {message}");
        }
        // Two in one write, and the second one whole later.
        let mut stream = host.connect();
        let show = r#"{"version": 1, "do": "show"}"#;
        write!(stream, "{show}\n{}", &show[..9]).expect("sent");
        let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
        lines.next().expect("an answer").expect("read");
        writeln!(stream, "{}", &show[9..]).expect("sent");
        let line = lines.next().expect("an answer").expect("read");
        let shown: Value = serde_json::from_str(&line).expect("JSON");
        let guest = &shown["host"]["guests"][1];
        assert_eq!(guest["name"], "g2");
        let limit = json!({
            "out": {"kind": "bucket", "rate_bit_s": 50_000, "by": "configuration"}
        });
        assert_eq!(guest["limit"], limit);
        let table = host.does("host show");
        assert!(table.contains("  out 50"), "{table}");
    });
}

#[test]
fn partial_and_idle_connections_do_not_block_requests() {
    sandboxed("partial_and_idle_connections_do_not_block_requests", || {
        let most = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(Resource::Nofile, limit).expect("no more than it may be");
        let [a, b, c] = [1, 2, 3].map(|number| Guest::new(Kind::Veth, number));
        let host = Host::new(&[&a, &b]);
        let daemon = host.start("");
        let mut half = host.connect();
        write!(half, "{{\"version\": 1, ").expect("sent");
        // The timeout is shorter than the daemon's for a connection whose place no other client needs.
        half.set_read_timeout(Some(Duration::from_secs(20)))
            .expect("it is a socket");
        passes(&a, &b, 1);
        assert_eq!(host.add(&c), "added\n");
        // It was first, and is not the last one that is awaited: it made room.
        let idle: Vec<_> = (0..1_000).map(|_| host.connect()).collect();
        passes(&a, &c, 2);
        assert_eq!(host.does("host remove-guest g3"), "removed\n");
        assert_eq!(half.read(&mut [0]).expect("ended"), 0);
        assert_eq!(idle.len(), 1_000);
        let mut long = host.connect();
        let more = vec![b'x'; 1 << 20];
        // The rest is not read any more.
        let _ = long.write_all(&more);
        assert_eq!(answer(long)["result"], "refused");
        passes(&b, &a, 3);
        let descriptors = fs::read_dir(format!("/proc/{}/fd", daemon.0.id()));
        let descriptors = descriptors.expect("it runs").count();
        assert!(descriptors < 120, "{descriptors}");
    });
}

#[test]
fn the_daemons_socket_refuses_other_users() {
    sandboxed("the_daemons_socket_refuses_other_users", || {
        // In a user namespace of one user there is no other.
        let other = ["--reuid", "65534", "--clear-groups"];
        let can = Command::new("setpriv").args(other).arg("true").output();
        match can {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                return skipped(Part::OrdinaryUser, why.trim());
            }
            Err(error) => {
                let why = format!("setpriv (util-linux) is missing: {error}");
                return skipped(Part::OrdinaryUser, why);
            }
        }
        let a = Guest::new(Kind::Veth, 1);
        let host = Host::new(&[&a]);
        let _daemon = host.start("");
        let open = |path: PathBuf| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("ours");
        };
        let mode = fs::metadata(host.socket())
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        open(host.directory.path().to_owned());
        let show = || {
            let ours = host.command("host show");
            let output = Command::new("setpriv")
                .args(other)
                .arg(ours.get_program())
                .args(ours.get_args())
                .current_dir(host.directory.path())
                .output()
                .expect("it was there a moment ago");
            CommandOutput::new(output).failed(2)
        };
        let said = show();
        assert!(
            said.contains("is for the daemon's own user and root"),
            "{said}"
        );
        // Whoever may connect is looked at as well.
        open(host.socket());
        let said = show();
        assert!(said.contains("the daemon has not answered"), "{said}");
        host.show();
    });
}

#[test]
fn a_drained_guest_is_not_read_until_the_drain_is_undone() {
    sandboxed(
        "a_drained_guest_is_not_read_until_the_drain_is_undone",
        || {
            let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
            let host = Host::new(&[&a, &b]);
            let daemon = host.start("");
            passes(&a, &b, 1);
            assert_eq!(host.does("host drain g1"), "drained\n");
            assert_eq!(host.shown("g1")["drained"], true);
            let read = || host.shown("g1")["received"]["packets"].as_u64();
            let before = read();
            let (mut nic_a, mut nic_b) = (a.nic(), b.nic());
            nic_a.send(&datagram(&b, &a, 2));
            // What is for it still comes, also after a reload.
            passes(&b, &a, 3);
            daemon.signal(Signal::HUP);
            until("the reload", || {
                daemon.log().contains("configuration reloaded")
            });
            passes(&b, &a, 4);
            assert_eq!(read(), before);
            assert_eq!(host.does("host drain g1 --undo"), "read again\n");
            nic_b.expect(&datagram(&b, &a, 2));
            assert_eq!(host.does("host drain --all"), "drained\n");
            assert_eq!(host.shown("g2")["drained"], true);
            assert_eq!(host.does("host drain --all --undo"), "read again\n");
            passes(&b, &a, 5);
            host.fails(1, "host drain g9");
            host.fails(64, "host drain");
        },
    );
}

#[test]
fn top_prints_a_table_where_there_is_no_terminal() {
    sandboxed("top_prints_a_table_where_there_is_no_terminal", || {
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        let host = Host::new(&[&a, &b]);
        let _daemon = host.start("");
        passes(&a, &b, 1);
        let text = host.does("top --once --interval 200ms --sort name");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("guest "), "{text}");
        assert!(
            lines[1].starts_with("g1 ") && lines[1].contains("bit/s "),
            "{text}"
        );
        assert!(
            lines[2].starts_with("g2 ") && lines[2].ends_with("up"),
            "{text}"
        );
        let said = host.fails(2, "top");
        assert!(said.contains("use --once"), "{said}");
        let table = host.does("host show");
        assert!(table.contains("af-packet g1"), "{table}");
    });
}

#[test]
fn a_daemon_does_not_start_with_added_guests_that_it_cannot_read() {
    let name = "a_daemon_does_not_start_with_added_guests_that_it_cannot_read";
    sandboxed(name, || {
        let a = Guest::new(Kind::Veth, 1);
        let host = Host::new(&[&a]);
        host.write("added.toml", "[[guest]]\nname = 1\n");
        let said = host.fails(2, "host");
        assert!(said.starts_with("added.toml:2:8: invalid type"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        fs::remove_file(host.path("added.toml")).expect("it is there");
        let said = host.fails(2, "host show");
        assert!(said.contains("no daemon of host.toml is found"), "{said}");
    });
}
