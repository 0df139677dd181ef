//! Test of a switch's handling of void frames.
//!
//! A pacer fills gaps with frames whose destination is their own source, which a switch never sends
//! back out of the port they came in by (IEEE 802.1Q, 8.6.1). The test sends a few to the switch,
//! and as many control frames to an address without a station, which the switch must flood: if the
//! witness sees those, it would have seen voids as well.

mod frames;

use frames::{Kind, Run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tailbound_sys::packet::{Batch, PacketError, Socket};
use tailbound_sys::tap::VIRTIO_HEADER_LEN;

/// The number of voids, and the number of controls.
const COUNT: u16 = 100;
/// Interval between two frames: 200 frames at this rate fill no queue.
const FRAME_INTERVAL: Duration = Duration::from_millis(1);
/// The time of listening after the last frame.
const LISTEN: Duration = Duration::from_secs(1);

/// Parameters of a test.
#[derive(Debug)]
pub struct Question {
    /// The interface that leads to the switch.
    pub interface: String,
    /// The network namespace of the interface, as a file.
    pub netns: Option<PathBuf>,
    /// An interface on another port of the switch, to see whether voids flood.
    pub witness: Option<String>,
    /// The network namespace of the witness, as a file.
    pub witness_netns: Option<PathBuf>,
}

/// The switch's handling of voids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The switch drops voids, and the witness would have seen them.
    Dropped,
    /// No void came back; without a witness it is unknown whether they flood.
    NotBack,
    /// Voids come back.
    ComeBack,
    /// Voids flood.
    Flooded,
    /// The witness did not see the control either.
    Blind,
}

/// Numbers of sent and received frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The number of sent frames.
    pub sent: u16,
    /// The number of frames that came back to the sending interface.
    pub came_back: u16,
    /// The number of frames at the witness; None without a witness.
    pub at_witness: Option<u16>,
}

/// The result, as `--output json` prints it.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The switch's handling of voids.
    pub verdict: Verdict,
    /// The interface that sent.
    pub interface: String,
    /// The interface that listened on another port, if one did.
    pub witness: Option<String>,
    /// The frames to their own source address.
    pub voids: Counts,
    /// The frames to an address without a station.
    pub controls: Counts,
}

impl Verdict {
    fn of(voids: Counts, controls: Counts) -> Self {
        match (voids, controls) {
            (voids, _) if voids.at_witness > Some(0) => Self::Flooded,
            (voids, _) if voids.came_back > 0 => Self::ComeBack,
            (
                Counts {
                    at_witness: None, ..
                },
                _,
            ) => Self::NotBack,
            (_, controls) if controls.at_witness == Some(0) => Self::Blind,
            _ => Self::Dropped,
        }
    }
}

impl Answer {
    /// Sends the frames, listens, and returns the verdict. It takes two seconds.
    ///
    /// # Errors
    /// An interface cannot be opened, or does not send.
    pub fn find(question: &Question) -> Result<Self, AskError> {
        let mut port = Listener::open(&question.interface, question.netns.as_deref())?;
        let mut witness = match &question.witness {
            Some(name) => Some(Listener::open(name, question.witness_netns.as_deref())?),
            None => None,
        };
        let run = Run::new(port.socket.address()?)?;
        let mut sent = [0; 2];
        for number in 0..COUNT {
            for kind in Kind::ALL {
                port.send(&run.frame(kind, number))?;
                sent[kind as usize] += 1;
            }
            let until = Instant::now() + FRAME_INTERVAL;
            listen(&mut port, witness.as_mut(), &run, until)?;
        }
        listen(&mut port, witness.as_mut(), &run, Instant::now() + LISTEN)?;
        let counts = |kind: Kind| Counts {
            sent: sent[kind as usize],
            came_back: port.received_counts[kind as usize],
            at_witness: witness
                .as_ref()
                .map(|witness| witness.received_counts[kind as usize]),
        };
        let (voids, controls) = (counts(Kind::Void), counts(Kind::Control));
        Ok(Self {
            verdict: Verdict::of(voids, controls),
            interface: question.interface.clone(),
            witness: question.witness.clone(),
            voids,
            controls,
        })
    }
}

/// Reason why the test failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A socket could not be opened.
    #[error(transparent)]
    Open(#[from] PacketError),
    /// Frames could not be sent or received.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A socket, and the number of test frames that it received.
struct Listener {
    socket: Socket,
    batch: Batch,
    /// The bytes behind a frame's head are not used.
    heads: Vec<Vec<u8>>,
    tails: Vec<Vec<u8>>,
    /// The number of received frames, by kind.
    received_counts: [u16; 2],
}

impl Listener {
    fn open(interface: &str, netns: Option<&Path>) -> Result<Self, PacketError> {
        Ok(Self {
            socket: Socket::open(interface, netns)?,
            batch: Batch::new(),
            heads: vec![vec![0; 256]; Batch::LEN],
            tails: vec![Vec::new(); Batch::LEN],
            received_counts: [0; 2],
        })
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let wire = [&[0; VIRTIO_HEADER_LEN], frame].concat();
        self.socket
            .transmit(&mut self.batch, std::iter::once(&wire[..]))?;
        Ok(())
    }

    /// Counts the received test frames, at most a batch.
    fn receive(&mut self, run: &Run) -> io::Result<()> {
        let mut received = Vec::new();
        let (heads, tails) = (&mut self.heads, &mut self.tails);
        match self
            .socket
            .receive(&mut self.batch, 0, heads, tails, &mut received)
        {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            result => result?,
        }
        for (frame, head) in received.iter().zip(&self.heads) {
            let bytes = head.get(VIRTIO_HEADER_LEN..frame.len.min(head.len()));
            if let Some(kind) = bytes.and_then(|bytes| run.kind_of(bytes)) {
                let received_counts = &mut self.received_counts[kind as usize];
                *received_counts = received_counts.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// Counts the received test frames at both interfaces until `until`.
fn listen(
    port: &mut Listener,
    mut witness: Option<&mut Listener>,
    run: &Run,
    until: Instant,
) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let sockets = [
            Some(port.socket.as_fd()),
            witness.as_ref().map(|w| w.socket.as_fd()),
        ];
        let mut ready: Vec<_> = sockets
            .into_iter()
            .flatten()
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        poll(&mut ready, Some(&timeout))?;
        port.receive(run)?;
        if let Some(witness) = &mut witness {
            witness.receive(run)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(came_back: u16, at_witness: Option<u16>) -> Counts {
        Counts {
            sent: COUNT,
            came_back,
            at_witness,
        }
    }

    #[test]
    fn the_verdict_follows_from_the_received_voids_and_controls() {
        for (voids, controls, verdict) in [
            (counts(0, None), counts(0, None), Verdict::NotBack),
            (counts(3, None), counts(0, None), Verdict::ComeBack),
            (counts(0, Some(0)), counts(0, Some(100)), Verdict::Dropped),
            (counts(0, Some(9)), counts(0, Some(100)), Verdict::Flooded),
            (counts(9, Some(9)), counts(0, Some(100)), Verdict::Flooded),
            (counts(9, Some(0)), counts(0, Some(0)), Verdict::ComeBack),
            (counts(0, Some(0)), counts(0, Some(0)), Verdict::Blind),
        ] {
            assert_eq!(Verdict::of(voids, controls), verdict);
        }
    }

    #[test]
    fn the_json_is_stable() {
        let answer = Answer {
            verdict: Verdict::Dropped,
            interface: "eth0".into(),
            witness: Some("eth1".into()),
            voids: counts(0, Some(0)),
            controls: counts(0, Some(100)),
        };
        assert_eq!(
            serde_json::to_value(answer).unwrap(),
            serde_json::json!({
                "verdict": "dropped", "interface": "eth0", "witness": "eth1",
                "voids": {"sent": 100, "came_back": 0, "at_witness": 0},
                "controls": {"sent": 100, "came_back": 0, "at_witness": 100},
            })
        );
    }
}
