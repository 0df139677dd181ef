//! A recorded machine: its files in one, each after a line `-- PATH --`.
//!
//! `rules.toml` is what is wanted there, `calls.json` what system calls answered
//! ([`Document`]), `notes` where it comes from; all others are files of the machine.
//! In `cmdline` a `\0` stands for the zero byte. A file `qmp:PATH` becomes a socket
//! at PATH that answers `query-cpus-fast` with the text, or never where that is
//! empty.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use tailbound_agent::calls::{Facts, SystemCalls};
use tailbound_agent::observed::ThreadState;
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::thread::Scheduling;

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
    /// Threads; those that are missing had ended.
    pub(crate) threads: BTreeMap<u32, ThreadState>,
}

/// What the machine answered.
pub(crate) struct Answers {
    pub(crate) facts: Facts,
    pub(crate) calls: Recorded,
}

/// Answers from a recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    owners: BTreeMap<u32, u32>,
    threads: BTreeMap<u32, ThreadState>,
}

impl Recorded {
    fn thread(&self, tid: u32) -> io::Result<&ThreadState> {
        let ended = || rustix::io::Errno::SRCH.into();
        self.threads.get(&tid).ok_or_else(ended)
    }
}

impl SystemCalls for Recorded {
    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        Ok(self.thread(tid)?.scheduling)
    }

    fn affinity(&self, tid: u32) -> io::Result<Cpus> {
        Ok(self.thread(tid)?.cpus)
    }

    fn owner(&self, pid: u32) -> Option<u32> {
        self.owners.get(&pid).copied()
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

    pub(crate) fn answers(&self) -> Answers {
        let Document {
            facts,
            owners,
            threads,
        } = serde_json::from_str(&self.0["calls.json"]).unwrap();
        Answers {
            facts,
            calls: Recorded { owners, threads },
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
