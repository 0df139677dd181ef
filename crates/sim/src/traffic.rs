//! Recorded traffic of all machines of a tenant, for `tailbound advise`: captures or logs of flows,
//! of one host or of many.
//!
//! [`RecordedTraffic::read`] returns the messages, and the [`Fault`]s of the recording that make an advice
//! doubtful. The formats are those of [`crate::replay`]. A capture has frames: the frames of one
//! connection and direction are one message until a pause of 100 us, or until the other end sends
//! data. All bytes of a message count at the time of its first frame, which is never later than
//! they were sent, so a burst is rather too large than too small.

mod capture;
mod log;

use crate::replay::{Guest, ReplayError, is_capture};
use std::fmt;
use std::path::{Path, PathBuf};
use tailbound_advise::{Direction, Message, Plateau, Question, Silence, Traffic};
use tailbound_units::Nanos;

/// A fault of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Frames passed at a constant rate, the highest of the recording, for at least ten
    /// milliseconds in a row: behind a full queue or a limit.
    FullQueue {
        /// The capture.
        path: PathBuf,
        /// The direction.
        direction: Direction,
        /// The constant rate.
        plateau: Plateau,
    },
    /// The capture itself lost frames.
    Lost {
        /// The capture.
        path: PathBuf,
        /// Number of lost frames.
        frames: u64,
        /// Part of all frames, from 0 to 1.
        share: f64,
    },
    /// TCP segments were sent again: a queue on the way dropped frames.
    SentAgain {
        /// The capture.
        path: PathBuf,
        /// Number of segments.
        segments: u64,
        /// Part of all segments with data, from 0 to 1.
        share: f64,
    },
    /// Bytes of TCP connections are missing: the capture lost frames without a count of them.
    Missing {
        /// The capture.
        path: PathBuf,
        /// Number of places.
        places: u64,
        /// Part of all segments with data, from 0 to 1.
        share: f64,
    },
    /// No machine sent anything for a time that stands out: probably a gap.
    Gap(Silence),
}

impl Fault {
    /// Returns true if the fault may concern more messages than the question leaves out, so that
    /// the advice may be wrong.
    pub fn is_decisive(&self, question: Question) -> bool {
        match self {
            Self::FullQueue { plateau, .. } => plateau.share > question.late(),
            Self::Lost { share, .. } | Self::Missing { share, .. } => *share > question.late(),
            Self::SentAgain { .. } | Self::Gap(_) => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FullQueue {
                path,
                direction,
                plateau,
            } => {
                let way = match direction {
                    Direction::Sent => "from",
                    Direction::Received => "to",
                };
                write!(
                    f,
                    "{}: for {} frames {way} the machines passed at a constant {}, {:.3} % of all: \
                     the capture is behind a full queue or a limit, which has removed the bursts, \
                     so the advised bursts are too small. Capture at the machines' own interfaces",
                    path.display(),
                    plateau.time,
                    plateau.rate,
                    plateau.share * 100.0
                )
            }
            Self::Lost {
                path,
                frames,
                share,
            } => write!(
                f,
                "{}: the capture lost {frames} frames, {:.3} % of all: their bytes are missing in \
                 the advised bursts. Capture headers only (`-s 96`), with a larger buffer (`-B`)",
                path.display(),
                share * 100.0
            ),
            Self::SentAgain {
                path,
                segments,
                share,
            } => write!(
                f,
                "{}: {segments} TCP segments were sent again, {:.3} % of all: queues on the way \
                 dropped frames, and senders were slower than they wanted",
                path.display(),
                share * 100.0
            ),
            Self::Missing {
                path,
                places,
                share,
            } => write!(
                f,
                "{}: bytes of TCP connections are missing in {places} places, {:.3} % of all \
                 segments: the capture lost frames",
                path.display(),
                share * 100.0
            ),
            Self::Gap(silence) => write!(
                f,
                "no machine sent anything for {:.1} s, {:.1} s after the begin: if the recording \
                 has a gap there, the advice lacks that traffic",
                silence.until.since(silence.from).as_secs_f64(),
                silence.from.as_secs_f64()
            ),
        }
    }
}

/// Recorded traffic and its faults.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTraffic {
    /// The messages. Times count from the first one.
    pub traffic: Traffic,
    /// The faults.
    pub faults: Vec<Fault>,
}

/// Messages of all recordings, with the time of their clocks.
#[derive(Debug, Default)]
struct CollectedMessages {
    names: Vec<String>,
    messages: Vec<Message>,
    faults: Vec<Fault>,
}

/// Largest number of messages.
const MOST_MESSAGES: usize = 50_000_000;
/// Longest recording: a month.
const MAX_RECORDING: Nanos = Nanos::from_secs(31 * 24 * 3_600);

impl RecordedTraffic {
    /// Reads recordings of the machines of one tenant, from one host or from many with equal
    /// clocks. A frame in the captures of two hosts counts once.
    ///
    /// In a capture, machines have the MAC addresses of `machines`. In a log, they have the names;
    /// without names, all senders are machines of the tenant.
    ///
    /// # Errors
    /// A file cannot be read or has an error, or no message of the machines.
    pub fn read(paths: &[PathBuf], machines: &[Guest]) -> Result<Self, ReplayError> {
        let mut collected = CollectedMessages {
            names: machines.iter().map(|guest| guest.name.clone()).collect(),
            ..CollectedMessages::default()
        };
        let takes_all = machines.is_empty();
        let mut copies = capture::Copies::default();
        for path in paths {
            let is_capture = is_capture(path).map_err(|source| ReplayError::Unreadable {
                path: path.clone(),
                source,
            })?;
            let before = collected.messages.len();
            if is_capture {
                capture::read(path, machines, &mut copies, &mut collected)?;
            } else {
                log::read(path, takes_all, &mut collected).map_err(|wrong| ReplayError::Log {
                    path: path.clone(),
                    wrong,
                })?;
            }
            if collected.messages.len() == before {
                return Err(nothing(path, &collected.names));
            }
        }
        collected.finish(&paths[0])
    }
}

fn nothing(path: &Path, names: &[String]) -> ReplayError {
    ReplayError::Nothing {
        path: path.to_owned(),
        guests: if names.is_empty() {
            "any machine".to_owned()
        } else {
            names.join(", ")
        },
    }
}

impl CollectedMessages {
    /// Checks that there is room for another message; returns the reason otherwise.
    fn check_size(&self) -> Result<(), String> {
        if self.messages.len() < MOST_MESSAGES {
            return Ok(());
        }
        Err(format!(
            "more than {MOST_MESSAGES} messages: take a part of it"
        ))
    }

    fn finish(mut self, path: &Path) -> Result<RecordedTraffic, ReplayError> {
        let times = self.messages.iter().map(|message| message.at);
        let first = times.clone().min().unwrap_or_default();
        if times.max().unwrap_or_default().since(first) > MAX_RECORDING {
            return Err(ReplayError::Capture {
                path: path.to_owned(),
                what: "the recordings last for more than a month together".to_owned(),
            });
        }
        for message in &mut self.messages {
            message.at = message.at.since(first);
        }
        let traffic = Traffic::new(self.names, self.messages);
        let mut faults = self.faults;
        faults.extend(traffic.gaps().into_iter().map(Fault::Gap));
        Ok(RecordedTraffic { traffic, faults })
    }
}

#[cfg(test)]
mod tests;
