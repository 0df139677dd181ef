//! Hosts with libvirt, QEMU and tailbound: namespaces of this computer, each with the computer's
//! programs and with its own `/etc`, `/var` and `/run` (`host.sh`). All hosts share one process
//! namespace and end with it. Two programs replace those of a real host: `systemctl`, because
//! systemd is missing, and `ssh` and `scp`, which enter the namespaces of the other host.

use super::support::{command, until};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::process::find_program;

/// Time limit for an emulated VM on a busy computer.
pub(crate) const VM_TIMEOUT: Duration = Duration::from_mins(1);

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Hosts, and two cables between two of them: one for the hosts' messages, and one for the guests.
pub(crate) struct Hosts {
    directory: tempfile::TempDir,
    count: usize,
    /// The owner of the shared process namespace.
    machine: Child,
}

impl Hosts {
    /// `None` where something is missing, which is said.
    pub(crate) fn start(count: usize) -> Option<Self> {
        for (part, program) in [
            (Part::Qemu, "qemu-system-x86_64"),
            (Part::Libvirt, "libvirtd"),
            (Part::Libvirt, "virtlogd"),
            (Part::Libvirt, "virsh"),
        ] {
            if find_program(program).is_none() {
                skipped(part, format!("{program} is not installed"));
                return None;
            }
        }
        if !is_root_here() {
            skipped(
                Part::Libvirt,
                "libvirt gives files to other users: run as root",
            );
            return None;
        }
        let tools = Path::new(REPOSITORY).join("target/tools");
        if !tools.join("guest-image").exists() {
            skipped(Part::GuestKernel, "run scripts/guest-image");
            return None;
        }
        let machine = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
            // Waits for processes whose parents have ended, as libvirt does.
            .args(["sh", "-c", "echo; sleep 600 & wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut machine = machine.expect("unshare was there a moment ago");
        let begun = machine.stdout.take().expect("a pipe").read(&mut [0]);
        begun.expect("its namespace");
        let hosts = Self {
            directory: tempfile::tempdir().expect("a directory"),
            count,
            machine,
        };
        hosts.prepare(&tools);
        for number in 1..=count {
            hosts.add(number);
        }
        for (inside, number) in [("eth0", 0), ("eth1", 1)] {
            let [one, two] = ["a", "b"].map(|end| format!("cable{number}{end}"));
            command(
                "ip",
                &["link", "add", &one, "type", "veth", "peer", "name", &two],
            );
            for (end, host) in [one, two].iter().zip(1..=count) {
                let pid = hosts.read(&format!("h{host}.pid"));
                let mut command = hosts.inside("ip");
                command.args(["link", "set", end, "name", inside, "netns", pid.trim()]);
                assert!(command.status().expect("it is there").success());
            }
        }
        hosts.write("cabled", "");
        for number in 1..=count {
            let ready = hosts.path(&format!("h{number}/ready"));
            until("a host", || ready.exists());
        }
        Some(hosts)
    }

    /// Prepares the files that all hosts share: programs, a VM's files, and an operator's checkout.
    fn prepare(&self, tools: &Path) {
        symlink(tools.join("guest-kernel"), self.path("kernel")).expect("linked");
        symlink(tools.join("guest-image"), self.path("image")).expect("linked");
        fs::create_dir(self.path("bin")).expect("made");
        for name in ["ssh", "scp", "systemctl"] {
            let text =
                fs::read_to_string(format!("{}/tests/kvm/{name}", env!("CARGO_MANIFEST_DIR")));
            let text = text.expect("it is there");
            let text = text.replace("@DIRECTORY@", self.directory.path().to_str().expect("text"));
            self.write(&format!("bin/{name}"), &text);
            command(
                "chmod",
                &[
                    "755",
                    self.path(&format!("bin/{name}")).to_str().expect("text"),
                ],
            );
        }
        let program = self.path("bin/tailbound");
        fs::copy(env!("CARGO_BIN_EXE_tailbound"), program).expect("copied");
        let to = self.directory.path().to_str().expect("text");
        command("cp", &["-r", &format!("{REPOSITORY}/contrib"), to]);
        for guest in ["web-0", "web-1"] {
            let name = format!("contrib/libvirt/{guest}.xml");
            let xml = fs::read_to_string(self.path(&name)).expect("it is there");
            self.write(&name, &emulated(&xml));
        }
        for host in ["h1", "h2"] {
            let name = format!("contrib/libvirt/{host}.toml");
            let config = fs::read_to_string(self.path(&name)).expect("it is there");
            // Here the wire is a veth.
            let veth = "interface = \"eth1\", cuts_tunnels = true";
            self.write(&name, &config.replace("interface = \"eth1\"", veth));
        }
    }

    fn add(&self, number: usize) {
        let (directory, name) = (self.directory.path(), format!("h{number}"));
        let host = self
            .inside("unshare")
            .args(["--net", "--mount", "--uts", "sh"])
            .arg(format!("{}/tests/kvm/host.sh", env!("CARGO_MANIFEST_DIR")))
            .args([
                directory.as_os_str(),
                name.as_ref(),
                number.to_string().as_ref(),
            ])
            .stdin(Stdio::null())
            .spawn();
        // It ends with the namespace of its processes.
        drop(host.expect("unshare was there a moment ago"));
        until("a host", || {
            self.read(&format!("{name}.pid")).ends_with('\n')
        });
    }

    /// A command where the hosts' processes are.
    fn inside(&self, program: impl AsRef<OsStr>) -> Command {
        let of = format!("/proc/{}/ns", self.machine.id());
        let mut command = Command::new("nsenter");
        command
            .args([
                format!("--mount={of}/mnt"),
                format!("--pid={of}/pid_for_children"),
            ])
            .arg("--")
            .arg(program);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// Runs a shell command on a host and returns its output.
    pub(crate) fn run(&self, host: &str, line: &str) -> Output {
        let line = format!("cd {} && {line}", self.directory.path().display());
        let output = self
            .inside(self.path("bin/ssh"))
            .args([host, &line])
            .output();
        output.expect("it is there")
    }

    /// Returns the standard output of a command that must succeed.
    pub(crate) fn does(&self, host: &str, line: &str) -> String {
        let output = self.run(host, line);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{host}# {line}\n{printed}{said}{}",
            self.logs()
        );
        printed
    }

    /// Returns the standard error of a command that must fail.
    pub(crate) fn fails(&self, host: &str, line: &str) -> String {
        let output = self.run(host, line);
        assert!(
            !output.status.success(),
            "{host}# {line} does what it must not"
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Waits until a command prints something that `is_right`.
    pub(crate) fn until(&self, host: &str, line: &str, is_right: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let output = self.run(host, line);
            let printed = String::from_utf8_lossy(&output.stdout);
            if is_right(&printed) {
                return printed.into_owned();
            }
            assert!(
                start.elapsed() < VM_TIMEOUT,
                "{host}# {line} prints still\n{printed}{}{}",
                String::from_utf8_lossy(&output.stderr),
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the logs of the hosts' programs.
    fn logs(&self) -> String {
        let mut all = String::new();
        for number in 1..=self.count {
            let log = format!("h{number}/var/log");
            for name in [
                "tailbound-host.log",
                "tailbound-libvirt.log",
                "libvirt/qemu",
            ] {
                let path = self.path(&format!("{log}/{name}"));
                let mut tail = Command::new("tail");
                tail.args(["-n", "30", "-v"]).args(files(&path));
                let output = tail.output().expect("it is there");
                all.push_str(&String::from_utf8_lossy(&output.stdout));
            }
        }
        all
    }
}

/// Returns a domain's XML with emulation instead of KVM, which every computer supports. QEMU 7.2
/// then ends when a guest requests messages in place of interrupts from a vhost-user NIC.
pub(crate) fn emulated(text: &str) -> String {
    text.replace("type='kvm'", "type='qemu'")
        .replace("-accel kvm", "-accel tcg")
        .replace("console=ttyS0 quiet", "console=ttyS0 quiet pci=nomsi")
}

/// A file, or those in a directory.
fn files(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

/// Returns true if this is root of the computer, and not of a user namespace with one user.
fn is_root_here() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let count = map
        .split_whitespace()
        .nth(2)
        .and_then(|count| count.parse::<u64>().ok());
    count.is_some_and(|count| count > 65_536)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}
