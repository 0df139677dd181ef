//! A launcher: a program that starts and ends nodes, and speaks JSON lines.
//!
//! Each request is answered by one line. The answer is checked before use, and has a time limit.

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The longest answer, in bytes.
const MAX_LINE: u64 = 1 << 20;
/// The longest name of a node, in bytes.
const MAX_NAME: usize = 255;

/// A request to a launcher.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Request<'a> {
    /// Start `count` nodes with the tag.
    Create {
        /// Number of nodes.
        count: usize,
        /// The tag.
        tag: &'a str,
    },
    /// Name all nodes with the tag.
    List {
        /// The tag.
        tag: &'a str,
    },
    /// End one.
    Delete {
        /// Its name.
        node: &'a str,
        /// The tag that it must have.
        tag: &'a str,
    },
}

/// A line to the launcher.
#[derive(Serialize)]
struct RequestLine<'a> {
    id: u64,
    #[serde(flatten)]
    request: Request<'a>,
}

/// A line of the launcher.
#[derive(Debug, Deserialize)]
struct Answer {
    id: u64,
    #[serde(default)]
    nodes: Vec<LaunchedNode>,
    error: Option<String>,
}

/// A node that a launcher started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct LaunchedNode {
    /// Its name, by the launcher.
    pub(super) node: String,
    /// Its address.
    pub(super) address: String,
}

/// A launcher that runs.
#[derive(Debug)]
pub(super) struct Launcher {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
    patience: Duration,
    asked: u64,
}

impl Launcher {
    /// Starts it; its words are separated by spaces. Each answer may take as long as `patience`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(command: &str, patience: Duration) -> Result<Self, String> {
        let mut words = command.split_whitespace();
        let program = words.next().ok_or("the launcher's command is empty")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| not_started("--launch", program, &error))?;
        let output = child.stdout.take().ok_or("the launcher has no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = String::new();
                let read = (&mut output).take(MAX_LINE).read_line(&mut line);
                let is_end = !matches!(read, Ok(length) if length > 0 && line.ends_with('\n'));
                if sender.send(read.map(|_| line)).is_err() || is_end {
                    return;
                }
            }
        });
        Ok(Self {
            input: child.stdin.take(),
            child,
            lines,
            patience,
            asked: 0,
        })
    }

    /// Sends a request, and returns the nodes of the answer.
    ///
    /// # Errors
    /// The launcher reports a failure, is late, or answers wrongly. Nodes may have been started or
    /// ended nevertheless.
    pub(super) fn request(&mut self, request: Request<'_>) -> Result<Vec<LaunchedNode>, String> {
        self.asked += 1;
        let id = self.asked;
        let asked = RequestLine { id, request };
        let mut line = serde_json::to_string(&asked).map_err(|error| error.to_string())?;
        line.push('\n');
        let input = self.input.as_mut().ok_or("the launcher was stopped")?;
        let written = input
            .write_all(line.as_bytes())
            .and_then(|()| input.flush());
        written.map_err(|error| format!("the launcher does not listen: {error}"))?;
        let line = match self.lines.recv_timeout(self.patience) {
            Ok(line) => line.map_err(|error| format!("the launcher's answer: {error}"))?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "the launcher did not answer within {} s",
                    self.patience.as_secs_f64()
                ));
            }
            Err(RecvTimeoutError::Disconnected) => String::new(),
        };
        if line.is_empty() {
            return Err("the launcher ended".to_owned());
        }
        let answer: Answer = serde_json::from_str(&line)
            .map_err(|error| format!("the launcher's answer {}: {error}", shown(&line)))?;
        if answer.id != id {
            return Err(format!(
                "the launcher answered {} where {id} was asked",
                answer.id
            ));
        }
        if let Some(error) = answer.error {
            return Err(format!("the launcher reports {}", shown(&error)));
        }
        answer.nodes.iter().try_for_each(check)?;
        Ok(answer.nodes)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // The end of its input is the sign to go; one that does not is ended.
        drop(self.input.take());
        for _ in 0..20 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        end(&mut self.child);
    }
}

/// Returns the message about a program of an option that could not be started, with a remedy.
pub(crate) fn not_started(option: &str, program: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::NotFound if program.contains('/') => {
            "there is no such file, or what its first line names is not installed"
        }
        ErrorKind::NotFound => "PATH has no such program; use its path",
        ErrorKind::PermissionDenied => "make it executable (chmod +x)",
        _ => "it has to be a program, or a script that names its interpreter",
    };
    let known = match option {
        "--launch" => {
            "; the package has ssh-list, ec2 and openstack in /usr/share/tailbound/launchers"
        }
        _ => "",
    };
    format!("{option} {program}: {error}: {advice}{known}")
}

/// Ends a program that leads a process group, and what it started.
pub(crate) fn end(child: &mut Child) {
    // Where it has just gone there is nothing to end.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Names go into commands and onto terminals: they are plain, and no option.
fn check(node: &LaunchedNode) -> Result<(), String> {
    for name in [&node.node, &node.address] {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]@/".contains(c);
        let is_fine = (1..=MAX_NAME).contains(&name.len())
            && name.chars().all(is_plain)
            && !name.starts_with('-');
        if !is_fine {
            return Err(format!(
                "the launcher names a node {}: 1 to {MAX_NAME} letters, digits and .-_:[]@/, \
                 the first no hyphen",
                shown(name)
            ));
        }
    }
    Ok(())
}

/// A text of the launcher, short and without control characters.
fn shown(text: &str) -> String {
    let short: String = text.trim_end().chars().take(120).collect();
    format!("{short:?}")
}
