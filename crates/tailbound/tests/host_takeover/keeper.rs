//! systemd's store of descriptors.

use crate::process::{Daemon, Host};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A stand-in for systemd: it stores the descriptors that a daemon sends.
pub(crate) struct Keeper {
    kept: Arc<Mutex<BTreeMap<String, OwnedFd>>>,
    socket: PathBuf,
}

impl Keeper {
    pub(crate) fn new(host: &Host) -> Self {
        let socket = host.path("notify");
        let listener = UnixDatagram::bind(&socket).expect("bound");
        let kept = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let keeps = Arc::clone(&kept);
        thread::spawn(move || {
            loop {
                let (text, descriptor) = message(&listener);
                let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
                let Some(name) = name else { continue };
                let mut kept = keeps.lock().expect("no thread panicked");
                if let Some(descriptor) = descriptor {
                    assert!(text.contains("FDSTORE=1"));
                    kept.insert(name.to_owned(), descriptor);
                } else if text.contains("FDSTOREREMOVE=1") {
                    kept.remove(name);
                }
            }
        });
        Self { kept, socket }
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.lock().expect("no thread panicked").len()
    }

    /// Starts a daemon as systemd does, with what was kept of the one before.
    pub(crate) fn start(&self, host: &Host) -> Daemon {
        let kept = self.kept.lock().expect("no thread panicked");
        let names: Vec<_> = kept.keys().cloned().collect();
        let mut script = String::new();
        for (place, descriptor) in (3..).zip(kept.values()) {
            let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, 100).expect("a copy");
            rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).expect("ours");
            let _ = write!(script, "exec {place}<&{0} {0}<&-;", copy.as_raw_fd());
            // For the child, as long as this process lives.
            std::mem::forget(copy);
        }
        script += "LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let log = host.path(&format!("log-kept-{}", names.len()));
        let child = Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_tailbound")])
            .args(["host", "--config", "host.toml", "--runtime-dir", "run"])
            .current_dir(host.directory.path())
            .env("NOTIFY_SOCKET", &self.socket)
            .env("FDSTORE", "64")
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("created"))
            .spawn()
            .expect("there is bash");
        Daemon(child, log)
    }
}

/// A message of a daemon, and the descriptor in it.
fn message(listener: &UnixDatagram) -> (String, Option<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(listener, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
    let got = got.expect("it is ours").bytes;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut some) => some.next(),
        _ => None,
    });
    (text(&bytes[..got]), rights)
}
