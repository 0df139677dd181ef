//! Recording of a guest's waits in a file for Perfetto: waits of its threads for a CPU, the threads
//! that ran meanwhile, and the times of each of its frames.
//!
//! [`Plan::record`] reads waits from the kernel and frames from the daemon that forwards them, and
//! writes both as trace events.

mod events;
mod frames;
mod lanes;
mod vcpus;

use crate::socket::{Client, ClientError};
use events::Events;
use frames::Frames;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use tailbound_sys::waits::WaitsError;
use tailbound_units::Nanos;
use vcpus::Vcpus;

/// A trace to record.
#[derive(Debug, Clone)]
pub struct Plan {
    /// True if waits of threads are recorded.
    pub waits: bool,
    /// The guest whose frames are recorded, if any.
    pub frames_of: Option<String>,
    /// The guests whose threads are recorded; all guests if empty.
    pub guests: Vec<String>,
    /// Processes that are guests besides the recognised ones.
    pub pids: Vec<u32>,
    /// Time of recording.
    pub duration: Nanos,
    /// Shortest recorded wait of a thread.
    pub least: Nanos,
    /// The written file.
    pub out: PathBuf,
}

/// A trace that was recorded.
#[derive(Debug)]
pub struct RecordedTrace {
    /// Counts and the longest waits, in a line.
    pub summary: String,
    /// Reasons for which the trace is incomplete.
    pub remarks: Vec<String>,
}

/// Reason why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Threads cannot be read.
    #[error("{0}")]
    Scan(io::Error),
    /// Waits cannot be measured.
    #[error(transparent)]
    Waits(#[from] WaitsError),
    /// No process is recognised as a guest.
    #[error("no guest is running here that can be recognised; pick a process with --pid")]
    NoGuest,
    /// No guest with this name runs.
    #[error("there is no guest {name:?} here; {known}")]
    OtherGuests {
        /// The name.
        name: String,
        /// A sentence with the guests that run.
        known: String,
    },
    /// The daemon has no guest with this name: the message lists its guests.
    #[error("{0}")]
    NotForwarded(String),
    /// No daemon answers.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The daemon refuses to record.
    #[error("{0}")]
    Refused(String),
    /// The daemon's answer is none to the request.
    #[error("the daemon answers something else than it was asked")]
    OtherAnswer,
    /// The thread that waits for the daemon ended.
    #[error("the daemon could not be asked")]
    Asking,
}

impl Plan {
    /// Records the trace and writes it. `connect` connects to the daemon; it is called if frames are
    /// recorded.
    ///
    /// # Errors
    /// There are no such guests, waits cannot be measured one by one, no daemon answers, or the file
    /// cannot be written. A file of that name stays if there is nothing to record.
    pub fn record(
        &self,
        connect: impl FnOnce() -> Result<Client, ClientError>,
    ) -> Result<RecordedTrace, TraceError> {
        // An existing file of that name stays if there is no subject; an unwritable file is
        // reported before the wait.
        let vcpus = self.waits.then(|| Vcpus::open(self)).transpose()?;
        let frames = match &self.frames_of {
            Some(guest) => Some(Frames::begin(connect()?, guest, self.duration)?),
            None => None,
        };
        let cannot = |source| self.cannot(source);
        let file = File::create(&self.out).map_err(cannot)?;
        let mut events = Events::begin(BufWriter::new(file)).map_err(cannot)?;
        let mut remarks = Vec::new();
        if let Some(vcpus) = vcpus {
            remarks.extend(vcpus.look(self, &mut events)?);
        }
        if let Some(frames) = frames {
            let (guest, frames, missed) = frames.end()?;
            remarks.extend(frames::remark(&frames));
            let added = events.add_frames(&guest, &frames, missed);
            added.map_err(cannot)?;
        }
        let (_, summary) = events.end().map_err(cannot)?;
        Ok(RecordedTrace { summary, remarks })
    }

    fn cannot(&self, source: io::Error) -> TraceError {
        TraceError::Write {
            path: self.out.clone(),
            source,
        }
    }
}
