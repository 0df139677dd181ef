//! libvirt's hook without libvirt: called as libvirt calls it, and as it must not be called,
//! with a real daemon.

#[path = "../../host/tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{command, sandboxed, until};

/// A host with one guest, `other`, in its file.
struct Host {
    directory: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Host {
    fn new() -> Self {
        let veth = ["link", "add", "up0", "type", "veth", "peer", "name", "up1"];
        command("ip", &veth);
        for end in ["up0", "up1"] {
            command("ip", &["link", "set", end, "up"]);
        }
        let host = Self {
            directory: tempfile::tempdir().expect("a directory"),
            daemon: None,
        };
        let other = host.path("other").display().to_string();
        host.write(
            "host.toml",
            &format!(
                "added = \"added.toml\"\n[uplink]\npacer = {{ link = \"1Gbit/s\" }}\n\
                 port = {{ kind = \"af-packet\", interface = \"up0\" }}\n[[guest]]\n\
                 name = \"other\"\nmac = \"02:00:00:00:00:99\"\nip = [\"10.77.0.99\"]\n\
                 guarantee = {{ bandwidth = \"100Mbit/s\", burst = \"15KB\", burst_rate = \
                 \"1Gbit/s\" }}\nport = {{ kind = \"vhost-user\", socket = {other:?} }}\n"
            ),
        );
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

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailbound"));
        command
            .args(arguments)
            .args(["--config", "host.toml", "--runtime-dir", "run"])
            .current_dir(self.directory.path());
        command
    }

    /// Starts the daemon, and waits until it answers.
    fn start(&mut self) {
        let log = File::create(self.path("log")).expect("created");
        let daemon = self.command(&["host"]).stderr(log).spawn();
        self.daemon = Some(daemon.expect("it is built"));
        let log = self.path("log");
        until("its ports", || {
            fs::read_to_string(&log).is_ok_and(|log| log.contains(" ready "))
        });
    }

    fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// The XML of a domain with this text for its guest.
    fn xml(&self, name: &str, guest: &str) -> String {
        let socket = self.path(name);
        format!(
            "<domain type='kvm' id='1'>\n<name>{name}</name>\n<metadata><t:guests \
             xmlns:t='https://github.com/tailbound/tailbound'>\n<guest>\n{guest}\n</guest>\n\
             </t:guests></metadata>\n<devices><interface type='vhostuser'><mac \
             address='52:54:00:00:00:01'/><source type='unix' path='{}' mode='client'/>\
             </interface></devices></domain>",
            socket.display()
        )
    }

    /// Begins with a hook.
    fn call(&self, domain: &str, operation: &str, xml: &str) -> Child {
        let mut hook = self
            .command(&["host", "libvirt-hook", domain, operation, "begin", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is built");
        let mut stdin = hook.stdin.take().expect("a pipe");
        stdin.write_all(xml.as_bytes()).expect("it is read");
        hook
    }

    /// Returns the exit code and the standard error of a hook. The hook prints nothing to libvirt.
    fn hook(&self, domain: &str, operation: &str, xml: &str) -> (i32, String) {
        let output = self.call(domain, operation, xml).wait_with_output();
        let output = output.expect("it ends");
        assert_eq!(output.stdout, b"", "it would be taken for XML");
        let said = String::from_utf8(output.stderr).expect("text");
        (output.status.code().expect("it is not killed"), said)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

const RIGHT: &str = "ip = [\"10.77.0.1\"]\n\
    guarantee = { bandwidth = \"100Mbit/s\", burst = \"15KB\", burst_rate = \"1Gbit/s\" }";

fn nothing() -> (i32, String) {
    (0, String::new())
}

#[test]
fn a_hook_may_be_called_twice_and_in_any_order() {
    sandboxed("a_hook_may_be_called_twice_and_in_any_order", || {
        let mut host = Host::new();
        let web = host.xml("web", RIGHT);
        // Nobody is asked where nothing is to be done.
        let plain = "<domain type='kvm'><name>plain</name></domain>";
        assert_eq!(host.hook("plain", "start", plain), nothing());
        for operation in ["prepare", "started", "release", "migrate", "restore", "new"] {
            assert_eq!(host.hook("web", operation, &web), nothing());
        }
        host.start();
        assert_eq!(host.hook("web", "stopped", &web), nothing());
        assert_eq!(host.hook("web", "start", &web), nothing());
        let added = host.added();
        assert!(added.contains("name = \"web\""), "{added}");
        assert!(host.path("web").exists(), "QEMU finds its socket");
        for operation in ["start", "reconnect", "prepare", "release"] {
            assert_eq!(host.hook("web", operation, &web), nothing());
            assert_eq!(host.added(), added);
        }
        // It is started with other values.
        let faster = host.xml("web", &RIGHT.replace("100Mbit", "200Mbit"));
        assert_eq!(host.hook("web", "start", &faster), nothing());
        assert!(host.added().contains("200Mbit/s"));
        for _ in 0..2 {
            assert_eq!(host.hook("web", "stopped", &faster), nothing());
            assert_eq!(host.added(), "");
        }
        assert!(!host.path("web").exists());
        // Its metadata were taken away while it ran.
        assert_eq!(host.hook("web", "start", &web), nothing());
        let bare = web.replace("<guest>", "<!--").replace("</guest>", "-->");
        assert_eq!(host.hook("web", "stopped", &bare), nothing());
        assert_eq!(host.added(), "");
    });
}

/// Returns mistakes of a domain `late` beside `web`, and the message of each. `web` is the XML of
/// that domain.
fn mistakes(host: &Host, web: &str) -> Vec<(String, String)> {
    let other = |text: &str| {
        let xml = host.xml("late", text).replace(":01'", ":02'");
        xml.replace("10.77.0.1\"", "10.77.0.2\"")
    };
    let at = |path: &str| host.path(path).display().to_string();
    vec![
        (
            other(&RIGHT.replace("100Mbit/s", "100Mb")),
            "domain late: line 6, column 27 of its XML: \"100Mb\" has the unknown unit \
             \"Mb\": use one of Gbit/s, Mbit/s, kbit/s, bit/s; did you mean 100Mbit/s?"
                .to_owned(),
        ),
        (
            other(&RIGHT.replace("bandwidth", "bandwith")),
            "domain late: line 6, column 15 of its XML: unknown key `bandwith`; did you mean \
             `bandwidth`?"
                .to_owned(),
        ),
        (
            other(&RIGHT.replace("100Mbit/s", "900Mbit/s")),
            "domain late: line 6, column 27 of its XML: all bandwidths together would be \
             1.1Gbit/s, above the link's 1Gbit/s; guarantee less, here or to the guests before"
                .to_owned(),
        ),
        (
            other(RIGHT).replace("10.77.0.2", "10.77.0.99"),
            "domain late: line 5, column 7 of its XML: duplicate IP address 10.77.0.99, which is other's (host.toml:5:1); use different addresses for each guest"
                .to_owned(),
        ),
        (
            other(RIGHT)
                .replace(":02'", ":99'")
                .replace("52:54", "02:00"),
            "domain late: guest late: duplicate MAC address 02:00:00:00:00:99, which is other's (host.toml:5:1); use a different one for each guest"
                .to_owned(),
        ),
        (
            other(RIGHT).replace("<guest>", "<guest name='other'>"),
            format!(
                "domain late: duplicate guest name other, used at vhost-user {}; set another name by <guest name='...'>",
                at("other")
            ),
        ),
        (
            other(RIGHT).replace(&at("late"), &at("web")),
            format!(
                "domain late: the socket {} belongs to guest web; use another `path` for the interface, or, if this domain had that name before, run `tailbound host remove-guest web`",
                at("web")
            ),
        ),
        (
            web.to_owned(),
            "called for domain late with the XML of web; hand over that of late".to_owned(),
        ),
    ]
}

/// Returns XML without a valid domain, and the message of each.
fn no_domains() -> [(String, String); 2] {
    [
        ("", "not XML: the document does not have a root node"),
        (
            "<network><name>late</name></network>",
            "not a domain; the XML of `virsh dumpxml late` is expected",
        ),
    ]
    .map(|(xml, said)| {
        let said = format!("libvirt's input for domain late is {said}");
        (xml.to_owned(), said)
    })
}

#[test]
fn a_refused_domain_gets_one_error_and_changes_no_guest() {
    let name = "a_refused_domain_gets_one_error_and_changes_no_guest";
    sandboxed(name, || {
        let mut host = Host::new();
        host.start();
        let web = host.xml("web", RIGHT);
        assert_eq!(host.hook("web", "start", &web), nothing());
        let added = host.added();
        for (xml, said) in mistakes(&host, &web).into_iter().chain(no_domains()) {
            let answer = (1, format!("tailbound: {said}\n"));
            assert_eq!(host.hook("late", "start", &xml), answer);
            assert_eq!(host.added(), added);
            // libvirt calls that next; it must not take what is another's.
            host.hook("late", "stopped", &xml);
            assert_eq!(host.added(), added);
            // libvirt would kill a domain that runs.
            let (code, warned) = host.hook("late", "reconnect", &xml);
            assert_eq!(code, 0);
            assert!(warned.starts_with("tailbound: warning: "), "{warned}");
        }
    });
}

#[test]
fn a_daemon_that_is_just_started_is_waited_for() {
    sandboxed("a_daemon_that_is_just_started_is_waited_for", || {
        let mut host = Host::new();
        let web = host.xml("web", RIGHT);
        // All wait at the same time.
        let hooks = ["start", "stopped", "reconnect"];
        let hooks = hooks.map(|operation| host.call("web", operation, &web));
        for (hook, wanted) in hooks.into_iter().zip([2, 2, 0]) {
            let output = hook.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(wanted), "{said}");
            assert!(
                said.contains("domain web: no daemon of host.toml"),
                "{said}"
            );
        }
        let hook = host.call("web", "start", &web);
        host.start();
        let output = hook.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0));
        assert!(host.added().contains("name = \"web\""));
        // Killed and back: the domain's end is heard of.
        host.stop();
        let hook = host.call("web", "stopped", &web);
        host.start();
        let output = hook.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(host.added(), "");
    });
}
