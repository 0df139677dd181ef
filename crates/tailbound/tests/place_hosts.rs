//! Hosts and their placement service, with the program's own processes: two daemons that receive
//! keys and report their guests, and a service that starts late, stops and is killed.

#[path = "../../vhost/tests/support/mod.rs"]
mod machine;
#[path = "place_hosts/moves.rs"]
mod moves;
#[path = "place_hosts/reserved.rs"]
mod reserved;
#[path = "../../host/tests/support/mod.rs"]
mod support;

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::process::Process;
use support::{sandboxed, until};

const SERVICE: &str = "127.0.0.1:7070";

const TREE: &str = r#"
    frame = "1538B"
    [[host]]
    name = "a"
    count = 2
    slots = 4
    uplink = { rate = "10Gbit/s", buffer = "300KB" }
"#;

/// Files of two hosts and of their service.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        place.write("tree.toml", TREE);
        place.write("secret", "0123456789abcdef0123456789abcdef");
        place.write("token-ops", "secret-of-ops\n");
        let mut tokens = String::new();
        let roles = [("ops", "operator"), ("a-1", "host"), ("a-2", "host")];
        for (host, role) in roles {
            place.write(&format!("token-{host}"), &format!("secret-of-{host}\n"));
            let digest = Sha256::digest(format!("secret-of-{host}"));
            let mut hex = String::new();
            for byte in digest {
                let _ = write!(hex, "{byte:02x}");
            }
            let _ = write!(
                tokens,
                "[[token]]\nname = \"{host}\"\nrole = \"{role}\"\nsha256 = \"{hex}\"\n"
            );
            if role == "host" {
                let _ = writeln!(tokens, "host = \"{host}\"");
            }
        }
        place.write("tokens.toml", &tokens);
        for host in [1, 2] {
            place.configure(host, "1Gbit/s");
        }
        place
    }

    /// Writes the configuration of a host whose uplink has the rate `link`.
    fn configure(&self, host: u8, link: &str) {
        let other = 3 - host;
        self.write(
            &format!("host-{host}.toml"),
            &format!(
                "metrics = \"127.0.0.1:947{host}\"\n\
                 [uplink]\nport = {{ kind = \"pcap\", write = \"up-{host}.pcap\" }}\n\
                 pacer = {{ link = \"{link}\" }}\n\
                 [[guest]]\nname = \"g\"\nmac = \"02:00:00:00:00:0{host}\"\n\
                 anti_spoofing = false\nvm = \"acme/web/{}\"\n\
                 port = {{ kind = \"pcap\", write = \"g-{host}.pcap\" }}\n\
                 [hose]\nhost = \"a-{host}\"\nlisten = \"127.0.0.1:480{host}\"\n\
                 keys = \"service\"\n\
                 [[hose.peer]]\nhost = \"a-{other}\"\naddress = \"127.0.0.1:480{other}\"\n",
                host - 1
            ),
        );
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).expect("ours");
    }

    fn run(&self, log: &str, arguments: &[&str]) -> Process {
        let log = File::create(self.path(log)).expect("created");
        let child = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .args(arguments)
            .current_dir(self.0.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Process(child.expect("it is built"))
    }

    fn serve(&self) -> Process {
        let keys = ["--hose-secret", "secret", "--hose-period", "3"];
        let files = ["--topology", "tree.toml", "--tokens", "tokens.toml"];
        let serve = ["place", "serve", "--listen", SERVICE];
        self.run("service.log", &[&serve[..], &files, &keys].concat())
    }

    fn host(&self, number: u8) -> Process {
        let config = format!("host-{number}.toml");
        let (name, token) = (format!("a-{number}"), format!("token-a-{number}"));
        let state = format!("state-{number}");
        let url = format!("http://{SERVICE}");
        let config = ["host", "--config", &config, "--runtime-dir", "run"];
        let service = ["--control", &url, "--control-host", &name];
        let files = ["--control-token-file", &token, "--control-state", &state];
        let log = format!("{name}.log");
        self.run(&log, &[&config[..], &service, &files].concat())
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

/// Commands of an operator to the service: exit code and output.
impl Place {
    fn ask(&self, arguments: &str) -> (Option<i32>, String) {
        let url = format!("http://{SERVICE}");
        let asked = Command::new(env!("CARGO_BIN_EXE_tailbound"))
            .arg("place")
            .args(arguments.split_whitespace())
            .args(["--url", &url, "--token-file", "token-ops"])
            .current_dir(self.0.path())
            .output()
            .expect("it is built");
        let mut text = String::from_utf8_lossy(&asked.stdout).into_owned();
        text += &String::from_utf8_lossy(&asked.stderr);
        (asked.status.code(), text)
    }

    /// Returns the service's state of a host, or of all queried objects, as JSON.
    fn json(&self, arguments: &str) -> serde_json::Value {
        let (_, text) = self.ask(&format!("{arguments} --output json"));
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn state(&self, tenant: &str) -> String {
        let tenant = self.json(&format!("get {tenant}"));
        tenant["standing"]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Kills the service while tenants are created, and returns the tenants whose creation was
    /// confirmed.
    fn kill_while_asked(&self, service: Process) -> Vec<String> {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let names = (0..6).map(|number| format!("t{number}"));
                let create = |name: &String| {
                    let asked = format!("create {name} --owner acme --vms 1 --patience 200ms");
                    self.ask(&asked).0 == Some(0)
                };
                names.filter(create).collect::<Vec<_>>()
            });
            until("some answers", || {
                let listed = self.json("list --owner acme");
                let items = listed["items"].as_array();
                items.is_some_and(|items| items.len() > 2)
            });
            drop(service);
            asking.join().expect("it asked")
        })
    }

    fn follows(&self, host: &str) -> bool {
        self.json(&format!("host {host}"))["said"]["following"] == "follows"
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["a-1.log", "a-2.log", "service.log"] {
                eprintln!("{log}:\n{}", self.log(log));
            }
        }
    }
}

/// A sample of a host's metrics; `None` while it serves none.
fn metric(host: u8, sample: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:947{host}")).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(sample))?;
    line.trim().parse().ok()
}

fn peers(host: u8, state: &str) -> Option<f64> {
    metric(host, &format!("tailbound_hose_peers{{state={state:?}}}"))
}

fn dropped(host: u8) -> u64 {
    let of = |reason: &str| {
        let sample = format!("tailbound_hose_messages_dropped_total{{reason={reason:?}}}");
        metric(host, &sample).expect("it serves metrics") as u64
    };
    of("no_key") + of("mac")
}

#[test]
fn hosts_speak_by_keys_of_the_service_through_its_renewals_and_its_silence() {
    let name = "hosts_speak_by_keys_of_the_service_through_its_renewals_and_its_silence";
    sandboxed(name, || {
        let place = Place::new();
        let epoch = |host| metric(host, "tailbound_hose_key_epoch{}");
        let (_first, second) = (place.host(1), place.host(2));
        for host in [1, 2] {
            until("a host without keys", || peers(host, "keyed") == Some(0.0));
            assert_eq!(epoch(host), Some(0.0));
            until("what it says", || {
                let log = place.log(&format!("a-{host}.log"));
                log.contains("there are no keys yet")
            });
        }
        let service = place.serve();
        // Hosts without a common tenant have no keys with each other.
        for host in [1, 2] {
            until("an answer", || epoch(host) > Some(0.0));
            assert_eq!(peers(host, "keyed"), Some(0.0));
        }
        let (code, told) = place.ask("create web --owner acme --vms 2 --on a-1 --on a-2");
        assert_eq!(code, Some(0), "{told}");
        for host in [1, 2] {
            until("keys", || peers(host, "alive") == Some(1.0));
            assert_eq!(peers(host, "keyed"), Some(1.0));
        }
        let (begin, before) = (epoch(1).expect("some"), [dropped(1), dropped(2)]);
        until("two renewals", || {
            assert_eq!(
                (peers(1, "alive"), peers(2, "alive")),
                (Some(1.0), Some(1.0))
            );
            epoch(1) >= Some(begin + 2.0) && epoch(2) >= Some(begin + 2.0)
        });
        assert_eq!([dropped(1), dropped(2)], before);

        drop(service);
        until("the silence", || {
            let failures = "tailbound_hose_key_failures_total{}";
            metric(1, failures) >= Some(2.0) && metric(2, failures) >= Some(2.0)
        });
        assert_eq!(
            (peers(1, "alive"), peers(2, "alive")),
            (Some(1.0), Some(1.0))
        );
        // Nor does a restart need it.
        drop(second);
        until("its silence", || peers(1, "alive") == Some(0.0));
        let _second = place.host(2);
        until("its return", || peers(1, "alive") == Some(1.0));
        let kept = fs::metadata(place.path("state-2.keys")).expect("it is kept");
        assert_eq!(kept.permissions().mode() & 0o777, 0o600);
        for host in [1, 2] {
            let log = place.log(&format!("a-{host}.log"));
            assert!(!log.contains("ERROR"), "{log}");
        }
    });
}

/// The two cases of a promise that no host keeps, a host that changes afterwards, and a service
/// that is killed while it is asked.
#[test]
fn promises_that_hosts_cannot_keep_are_refused_or_degraded() {
    let name = "promises_that_hosts_cannot_keep_are_refused_or_degraded";
    sandboxed(name, || {
        let place = Place::new();
        let service = place.serve();
        let (mut first, _second) = (place.host(1), place.host(2));
        until("what the hosts say", || {
            ["a-1", "a-2"].iter().all(|host| place.follows(host))
        });
        for (request, why) in [
            (
                "create big --owner acme --vms 3 --bandwidth 100Gbit/s --burst 15KB",
                "a bandwidth of 100Gbit/s is above its link's 1Gbit/s",
            ),
            (
                "create small --owner acme --vms 4 --bandwidth 10Mbit/s --burst 100B --delay 1ms",
                "a burst of 100B is below one frame on its wire, 1.538KB",
            ),
        ] {
            let (code, told) = place.ask(request);
            assert_eq!(code, Some(1), "{told}");
            assert!(told.starts_with("REFUSED") && told.contains(why), "{told}");
        }
        let (code, told) =
            place.ask("create web --owner acme --vms 2 --bandwidth 400Mbit/s --burst 15KB");
        assert_eq!(code, Some(0), "{told}");
        assert!(told.starts_with("ADMITTED"), "{told}");

        // The host comes back with a slower link.
        drop(first);
        place.configure(1, "300Mbit/s");
        first = place.host(1);
        until("what that means", || place.state("web") == "degraded");
        let (_, told) = place.ask("get web");
        let why = "a bandwidth of 400Mbit/s is above its link's 300Mbit/s";
        assert!(told.starts_with("DEGRADED") && told.contains(why), "{told}");
        let (_, told) = place.ask("hosts");
        assert!(told.contains("refuses") && told.contains(why), "{told}");

        // Killed while it is asked, it knows all that it answered, and what hosts said.
        let answered = place.kill_while_asked(service);
        let service = place.serve();
        until("its return", || place.state("web") == "degraded");
        for name in answered {
            assert_eq!(place.state(&name), "admitted");
        }
        until("the hosts", || {
            place.json("host a-1")["said"]["following"] == "refuses" && place.follows("a-2")
        });
        assert_eq!(
            place.json("host a-1")["said"]["limits"]["link"],
            "300Mbit/s"
        );
        place.configure(1, "1Gbit/s");
        let pid = rustix::process::Pid::from_child(&first.0);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it runs");
        until("the mended promise", || place.state("web") == "admitted");
        drop(service);
    });
}
