//! Messages of the control socket: one JSON object per line, in both directions.

use super::status::HostStatus;
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

/// A request to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Adds guests, all of them or none.
    AddGuest {
        /// `[[guest]]` sections, as in the configuration.
        toml: String,
        /// True to replace guests of the same names that were added before; false by default.
        #[serde(default)]
        replace: bool,
    },
    /// Changes guests that were added before, all of them or none.
    ChangeGuest {
        /// `[[guest]]` sections, as in the configuration.
        toml: String,
    },
    /// Removes a guest that was added before.
    RemoveGuest {
        /// The guest's name.
        guest: String,
    },
    /// Shows everything.
    Show {},
    /// Stops reading a guest's port until that is undone, or the daemon ends.
    Drain {
        /// The guest's name.
        guest: String,
        /// True to read the port again; false by default.
        #[serde(default)]
        undo: bool,
        /// The longest wait until the guest's queued packets are sent, in milliseconds.
        #[serde(default = "patience")]
        patience_ms: u64,
    },
    /// Prepares a guest for a migration to another host. TCP is not acknowledged early for it until
    /// that is undone. The answer waits until the guest has all early acknowledged data.
    MigratePrepare {
        /// The guest's name.
        guest: String,
        /// True if the guest stays; false by default.
        #[serde(default)]
        undo: bool,
        /// As in [`Request::Drain`].
        #[serde(default = "patience")]
        patience_ms: u64,
    },
    /// Shows connections with early acknowledgement.
    ShowSnoop {
        /// The guest's name.
        guest: String,
    },
    /// Sends frames in a guest's name, at the rate that its guarantee permits, charged to the
    /// guest: a trial of the guarantee.
    Send {
        /// The guest's name.
        guest: String,
        /// The MAC address that frames go to.
        mac: Mac,
        /// The destination address; the UDP port is 9 (discard).
        to: Ipv4Addr,
        /// The duration in milliseconds: a minute at most.
        patience_ms: u64,
    },
    /// Traces the frames of a guest.
    Trace {
        /// The guest's name.
        guest: String,
        /// The duration in milliseconds: ten minutes at most.
        patience_ms: u64,
    },
    /// As [`Request::Drain`], for all guests.
    DrainAll {
        /// As in [`Request::Drain`].
        #[serde(default)]
        undo: bool,
        /// As in [`Request::Drain`].
        #[serde(default = "patience")]
        patience_ms: u64,
    },
}

/// The time for which SIGTERM drains queues.
const fn patience() -> u64 {
    1000
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The version of the format, [`VERSION`].
    pub version: u64,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Outcome {
    /// The request is carried out, and stays so after a restart.
    Done {
        /// False if the state was the requested one before.
        changed: bool,
        /// Guests of the request whose guarantee the pacer refuses while there is no room for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unguaranteed: Vec<String>,
    },
    /// Ports are drained, or read again.
    Drained {
        /// True if frames that were received from them are still queued.
        waiting: bool,
    },
    /// Frames were sent in a guest's name.
    Sent {
        /// The number of frames.
        packets: u64,
    },
    /// The traced frames.
    Traced {
        /// Waits of frames, in the order in which they ended; at most [`super::TRACE_FRAMES`]: the
        /// trace ends when there is no room for more.
        frames: Vec<TraceFrame>,
        /// The number of frames for which there was no room.
        missed: u64,
    },
    /// A guest may migrate, or still lacks early acknowledged data.
    Prepared {
        /// The number of connections with bytes that the guest has not acknowledged.
        flows: usize,
        /// The number of these bytes.
        bytes: u64,
    },
    /// Connections, the one idle for longest first; at most [`SNOOP_FLOWS`] of them.
    Snoop {
        /// The number of all connections.
        count: usize,
        /// The state of each connection.
        flows: Vec<SnoopFlow>,
    },
    /// The daemon's state.
    Shown {
        /// The complete state.
        host: Box<HostStatus>,
    },
    /// The request is refused; nothing was changed.
    Refused {
        /// The reason, and a valid request; one line for each mistake.
        message: String,
        /// The mistakes, if they are the reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        mistakes: Vec<Wrong>,
    },
}

/// Largest number of connections in one answer.
pub const SNOOP_FLOWS: usize = 10_000;

/// A connection for which TCP is acknowledged early, or might be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoopFlow {
    /// The address and port of the guest.
    pub guest: SocketAddr,
    /// The address and port of the peer.
    pub peer: SocketAddr,
    /// `active`, or the reason why the connection is not.
    pub mode: String,
    /// Bytes that were acknowledged to the peer and that the guest has not acknowledged.
    pub owed: u32,
    /// The part of these bytes that waits for the guest's window.
    pub withheld: u32,
    /// The memory that the connection takes, in bytes.
    pub retained: u64,
    /// The number of retransmissions without progress.
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

/// A mistake in the requested configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The file of the mistake; left out for the text of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The mistake, and a valid setting.
    pub message: String,
}

impl Request {
    /// Reads a request from its line.
    ///
    /// # Errors
    /// The mistake in the request, and a valid request.
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

    /// Returns the request's line, with the newline.
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
    /// Returns the line of an answer, with the newline.
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
    /// Returns a refusal.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            mistakes: Vec::new(),
        }
    }
}

impl Wrong {
    /// Converts a mistake in the configuration's file, or in the request's text.
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
    fn requests_and_answers_survive_a_round_trip() {
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
