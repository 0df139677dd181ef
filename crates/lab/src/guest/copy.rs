//! Frames between two TAPs without any processing: the cost of reading and writing, which is the
//! upper limit of a program with one thread between two TAPs.

use super::READY;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSliceMut, Write};
use std::path::PathBuf;
use tailbound_sys::tap::{Tap, VIRTIO_HEADER_LEN};

/// A TAP of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapOf {
    /// The interface.
    pub interface: String,
    /// The namespace of the interface.
    pub netns: PathBuf,
}

/// Frames that are read from one TAP before the other's turn, equal to tailbound's number.
const TURN: usize = 32;

/// A header and the longest frame.
const BUFFER: usize = VIRTIO_HEADER_LEN + 14 + 65_535;

/// Copies until the process is killed.
pub(super) fn run(taps: &[TapOf; 2]) -> io::Result<()> {
    let open = |of: &TapOf| Tap::open(&of.interface, Some(&of.netns)).map_err(io::Error::other);
    let taps = [open(&taps[0])?, open(&taps[1])?];
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{READY}")?;
    stdout.flush()?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut ready = taps.each_ref().map(|tap| PollFd::new(tap, PollFlags::IN));
        poll(&mut ready, None)?;
        let ready = ready.map(|tap| tap.revents().contains(PollFlags::IN));
        for from in (0..2).filter(|from| ready[*from]) {
            for _ in 0..TURN {
                match taps[from].receive(&mut [IoSliceMut::new(&mut buffer)]) {
                    // Frames without room are lost, as behind any port.
                    Ok(len) => drop(taps[1 - from].transmit(&buffer[..len])),
                    Err(error) if super::events::is_retry(&error) => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
