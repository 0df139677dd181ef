//! What is said at the control socket: one JSON object a line, each way.

use super::shown::Shown;
use super::traced::TraceFrame;
use crate::config::REQUEST;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tailbound_dataplane::snoop::FlowView;
use tailbound_document::Mistake;
use tailbound_switch::Mac;

/// The version of requests and answers.
pub const VERSION: u64 = 1;

/// What a daemon is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Guests are to be added, all of them or none.
    AddGuest {
        /// `[[guest]]` sections, as in the configuration.
        toml: String,
        /// Whether they may take the place of others that were added before; false by
        /// default.
        #[serde(default)]
        replace: bool,
    },
    /// Guests that were added are to have other values, all of them or none.
    ChangeGuest {
        /// `[[guest]]` sections, as in the configuration.
        toml: String,
    },
    /// A guest that was added is to be removed.
    RemoveGuest {
        /// Its name.
        guest: String,
    },
    /// Everything is to be shown.
    Show {},
    /// A guest's port is to be read no more until that is undone, or the daemon ends.
    Drain {
        /// Its name.
        guest: String,
        /// Whether the port is to be read again; false by default.
        #[serde(default)]
        undo: bool,
        /// How long the answer may wait for what the guest has sent to leave, in
        /// milliseconds.
        #[serde(default = "patience")]
        patience_ms: u64,
    },
    /// A guest is to move to another host: TCP is acknowledged early for it no more until
    /// that is undone, and the answer waits until it has all that was.
    MigratePrepare {
        /// Its name.
        guest: String,
        /// Whether it stays; false by default.
        #[serde(default)]
        undo: bool,
        /// As for a drain.
        #[serde(default = "patience")]
        patience_ms: u64,
    },
    /// Connections for which TCP is acknowledged early are to be shown.
    ShowSnoop {
        /// The guest's name.
        guest: String,
    },
    /// Frames are to be sent in a guest's name, as many as its guarantee lets leave, charged to
    /// it: to try what it is guaranteed.
    Send {
        /// The guest's name.
        guest: String,
        /// The MAC address that frames go to.
        mac: Mac,
        /// The address that they go to, at the port 9 (discard) of UDP.
        to: Ipv4Addr,
        /// For how long, in milliseconds: a minute at most.
        patience_ms: u64,
    },
    /// The frames of a guest are to be traced.
    Trace {
        /// The guest's name.
        guest: String,
        /// For how long, in milliseconds: ten minutes at most.
        patience_ms: u64,
    },
    /// As [`Request::Drain`], for all guests that there are.
    DrainAll {
        /// As for one.
        #[serde(default)]
        undo: bool,
        /// As for one.
        #[serde(default = "patience")]
        patience_ms: u64,
    },
}

/// As long as SIGTERM lets queues drain.
const fn patience() -> u64 {
    1000
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Outcome {
    /// It is as was asked, and will be after a restart.
    Done {
        /// It was not so before.
        changed: bool,
        /// Guests of the request whose guarantee the pacer refuses as long as there is no
        /// room for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unguaranteed: Vec<String>,
    },
    /// Ports are read no more, or again.
    Drained {
        /// Frames that were received from them wait still.
        waiting: bool,
    },
    /// Frames were sent in a guest's name.
    Sent {
        /// How many.
        packets: u64,
    },
    /// What was traced.
    Traced {
        /// Waits of frames, in the order in which they ended; at most [`super::TRACE_FRAMES`] of them:
        /// the trace ends with the last that there is room for.
        frames: Vec<TraceFrame>,
        /// Those for which there was no room.
        missed: u64,
    },
    /// A guest may move, or is still owed something.
    Prepared {
        /// Connections with bytes that it has not acknowledged.
        flows: usize,
        /// Those bytes.
        bytes: u64,
    },
    /// Connections, the one idle for longest first; at most [`SNOOP_FLOWS`] of them.
    Snoop {
        /// How many there are.
        count: usize,
        /// What is known of each.
        flows: Vec<SnoopFlow>,
    },
    /// What there is.
    Shown {
        /// All of it.
        host: Box<Shown>,
    },
    /// Nothing was changed.
    Refused {
        /// Why, and what would be right; a line a mistake.
        message: String,
        /// The mistakes, where it is them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        mistakes: Vec<Wrong>,
    },
}

/// Most connections in one answer.
pub const SNOOP_FLOWS: usize = 10_000;

/// A connection for which TCP is acknowledged early, or might be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoopFlow {
    /// The guest's address and port.
    pub guest: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
    /// `active`, or why it is not.
    pub mode: String,
    /// Bytes that were acknowledged and that the guest has not acknowledged.
    pub owed: u32,
    /// Those of them that wait for the guest's window.
    pub withheld: u32,
    /// The memory that is kept for it, in bytes.
    pub retained: u64,
    /// Resends without progress.
    pub resends: u8,
}

impl From<FlowView> for SnoopFlow {
    fn from(view: FlowView) -> Self {
        let id = view.flow;
        let address = |[upper, lower]: [u64; 2], port: u16| {
            let ip = if id.v6 {
                IpAddr::V6((u128::from(upper) << 64 | u128::from(lower)).into())
            } else {
                IpAddr::V4((lower as u32).into())
            };
            SocketAddr::new(ip, port)
        };
        Self {
            guest: address(id.guest, (id.ports >> 16) as u16),
            peer: address(id.peer, id.ports as u16),
            mode: view.mode.label().to_owned(),
            owed: view.owed,
            withheld: view.withheld,
            retained: view.retained.0,
            resends: view.resends,
        }
    }
}

/// A mistake in the configuration as it would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The file where it stands; left out for the text of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What is wrong; what would be right.
    pub message: String,
}

impl Request {
    /// Reads a request from its line.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        let mut object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(line)
                .map_err(|error| format!("{error}; a request is one JSON object on one line"))?;
        match object.remove("version") {
            Some(version) if version == VERSION => {}
            Some(version) => {
                return Err(format!(
                    "version {version} is not spoken here; use \"version\": {VERSION}"
                ));
            }
            None => {
                return Err(format!(
                    "the key `version` is missing; add \"version\": {VERSION}"
                ));
            }
        }
        Self::deserialize(serde_json::Value::Object(object)).map_err(|error| error.to_string())
    }

    /// Its line, with the newline.
    pub(super) fn line(&self) -> String {
        #[derive(Serialize)]
        struct Versioned<'r> {
            version: u64,
            #[serde(flatten)]
            request: &'r Request,
        }
        line(&Versioned {
            version: VERSION,
            request: self,
        })
    }
}

impl Answer {
    /// The line of an answer, with the newline.
    pub(super) fn line(outcome: Outcome) -> String {
        line(&Self {
            version: VERSION,
            outcome,
        })
    }
}

fn line(of: &impl Serialize) -> String {
    let mut line = serde_json::to_string(of).expect("keys are texts, and all values serialize");
    line.push('\n');
    line
}

impl Outcome {
    /// Nothing was changed.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            mistakes: Vec::new(),
        }
    }
}

impl Wrong {
    /// A mistake in the configuration's file, or in what came with the request.
    pub(crate) fn of(file: &Path, mistake: &Mistake) -> Self {
        Self {
            file: (file != Path::new(REQUEST)).then(|| file.to_owned()),
            line: mistake.location.line,
            column: mistake.location.column,
            message: mistake.message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_asked_is_read_as_it_was_written() {
        let requests = [
            Request::AddGuest {
                toml: "[[guest]]\n\"\u{e9}\"".to_owned(),
                replace: true,
            },
            Request::ChangeGuest {
                toml: String::new(),
            },
            Request::RemoveGuest {
                guest: "a".to_owned(),
            },
            Request::Show {},
            Request::Drain {
                guest: "a".to_owned(),
                undo: false,
                patience_ms: 7,
            },
            Request::DrainAll {
                undo: true,
                patience_ms: 0,
            },
            Request::MigratePrepare {
                guest: "a".to_owned(),
                undo: true,
                patience_ms: 3,
            },
            Request::ShowSnoop {
                guest: "a".to_owned(),
            },
            Request::Trace {
                guest: "a".to_owned(),
                patience_ms: 5,
            },
        ];
        for request in requests {
            let line = request.line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(Request::read(line.as_bytes()), Ok(request));
        }
        let outcome = Outcome::refused("a\nb");
        let line = Answer::line(outcome.clone());
        let answer: Answer = serde_json::from_str(&line).expect("an answer");
        assert_eq!((answer.version, answer.outcome), (VERSION, outcome));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            cut in 0_usize..60,
        ) {
            let _ = Request::read(&bytes);
            let line = Request::Show {}.line();
            let cut = cut.min(line.len());
            let mixed = [&line.as_bytes()[..cut], &bytes].concat();
            let _ = Request::read(&mixed);
        }
    }
}
