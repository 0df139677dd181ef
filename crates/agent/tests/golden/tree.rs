//! A recorded machine: its files in one, each after a line `-- PATH --`.
//!
//! `rules.toml` has the rules, `calls.json` the results of system calls ([`Document`]), `notes` the
//! source; all others are files of the host. In `cmdline` a `\0` stands for the zero byte. A file
//! `qmp:PATH` becomes a socket at PATH that answers `query-cpus-fast` with the text, or never if
//! the text is empty.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tailbound_agent::calls::{Facts, FileId, SystemCalls};
use tailbound_agent::cri::{CriError, Pod};
use tailbound_agent::observed::ThreadState;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::{Credentials, Scheduling};

/// The files, by path.
#[derive(Debug, Default)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, String>);

/// The content of `calls.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) facts: Facts,
    /// Processes, with their users.
    pub(crate) owners: BTreeMap<u32, u32>,
    /// Processes in a PID namespace of their own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) nested: BTreeSet<u32>,
    /// Control groups that others than root can change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unguarded: BTreeSet<PathBuf>,
    /// By path, what processes run and what files there are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<PathBuf, FileId>,
    /// Threads; those that are missing had ended.
    pub(crate) threads: BTreeMap<u32, ThreadState>,
}

/// The results of system calls.
pub(crate) struct Answers {
    pub(crate) facts: Facts,
    pub(crate) calls: Recorded,
}

/// Answers from a recording.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    document: Arc<Document>,
    /// The directory of the unpacked files.
    root: PathBuf,
}

impl Recorded {
    fn thread(&self, tid: u32) -> io::Result<&ThreadState> {
        let ended = || rustix::io::Errno::SRCH.into();
        self.document.threads.get(&tid).ok_or_else(ended)
    }
}

impl SystemCalls for Recorded {
    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        Ok(self.thread(tid)?.scheduling)
    }

    fn affinity(&self, tid: u32) -> io::Result<Cpus> {
        Ok(self.thread(tid)?.cpus)
    }

    fn credentials(&self, pid: u32) -> Option<Credentials> {
        Some(Credentials {
            uid: Some(*self.document.owners.get(&pid)?),
            nested: self.document.nested.contains(&pid),
        })
    }

    fn is_guarded(&self, directory: &Path) -> bool {
        let path = directory.strip_prefix(&self.root).unwrap();
        !self.document.unguarded.contains(&Path::new("/").join(path))
    }

    fn executable(&self, pid: u32) -> Option<FileId> {
        self.file(Path::new(&format!("/proc/{pid}/exe")))
    }

    fn file(&self, path: &Path) -> Option<FileId> {
        self.document.files.get(path).copied()
    }

    fn pods(&self, _: Option<&Path>) -> Result<Vec<Pod>, CriError> {
        Err(CriError::NoSocket)
    }
}

impl Tree {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut files = BTreeMap::new();
        let mut name = None;
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("-- ").and_then(|l| l.strip_suffix(" --")) {
                assert!(
                    files.insert(next.to_owned(), String::new()).is_none(),
                    "{next} twice"
                );
                name = Some(next.to_owned());
            } else {
                let name = name.as_ref().expect("a line `-- PATH --` comes first");
                let file = files.get_mut(name).unwrap();
                *file += line;
                file.push('\n');
            }
        }
        Self(files)
    }

    pub(crate) fn write(&self, path: &Path) {
        let mut text = String::new();
        for (name, content) in &self.0 {
            let end = if content.is_empty() || content.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            write!(text, "-- {name} --\n{content}{end}").unwrap();
        }
        fs::write(path, text).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.0[name].clone()
    }

    /// Returns what the machine whose files are in `root` answered.
    pub(crate) fn answers(&self, root: &Path) -> Answers {
        let document: Document = serde_json::from_str(&self.0["calls.json"]).unwrap();
        Answers {
            facts: document.facts.clone(),
            calls: Recorded {
                document: Arc::new(document),
                root: root.to_owned(),
            },
        }
    }

    /// Writes the machine's files into a directory. QMP is answered for as long as
    /// what this returns lives.
    pub(crate) fn unpack(&self, directory: &Path) -> Vec<Qmp> {
        let mut sockets = Vec::new();
        for (name, content) in &self.0 {
            if ["rules.toml", "calls.json", "notes"].contains(&name.as_str()) {
                continue;
            }
            let (socket, name) = match name.strip_prefix("qmp:") {
                Some(name) => (true, name),
                None => (false, name.as_str()),
            };
            let path = directory.join(name.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if socket {
                sockets.push(Qmp::listen(&path, content));
            } else if name.ends_with("/cmdline") {
                fs::write(path, content.trim_end().replace("\\0", "\0")).unwrap();
            } else {
                fs::write(path, content).unwrap();
            }
        }
        sockets
    }
}

/// A QEMU's monitor.
pub(crate) struct Qmp {
    _silent: Option<UnixListener>,
}

impl Qmp {
    fn listen(path: &Path, answer: &str) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        if answer.is_empty() {
            return Self {
                _silent: Some(listener),
            };
        }
        let answer = answer.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stream.and_then(|stream| converse(stream, &answer)).is_err() {
                    return;
                }
            }
        });
        Self { _silent: None }
    }
}

fn converse(mut stream: UnixStream, answer: &str) -> io::Result<()> {
    stream.write_all(b"{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n")?;
    let mut commands = BufReader::new(stream.try_clone()?).lines();
    for reply in ["{\"return\": {}}\n{\"event\": \"RESUME\"}\n", answer] {
        if commands.next().transpose()?.is_none() {
            break;
        }
        stream.write_all(reply.as_bytes())?;
    }
    Ok(())
}
