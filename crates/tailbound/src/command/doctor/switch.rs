//! `tailbound doctor --switch`: what the switch does with void frames.
//!
//! A pacer fills gaps with frames whose destination is their own source, which a
//! switch never sends back out of the port they came in by (IEEE 802.1Q, 8.6.1).
//! Here a few are sent to it, and beside them as many to a station that nobody
//! is, which it has to flood: those show that the witness would have seen voids
//! as well.

mod frames;

use super::super::output::{self, Output};
use frames::{Kind, Run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tailbound_sys::packet::{Batch, PacketError, Socket};
use tailbound_sys::tap::VIRTIO_HEADER_LEN;

/// Voids, and as many controls.
const COUNT: u16 = 100;
/// Between two frames: 200 of them are no burst that would fill a queue.
const PAUSE: Duration = Duration::from_millis(1);
/// How long is listened after the last.
const LISTEN: Duration = Duration::from_secs(1);

/// What to ask which switch.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) interface: String,
    pub(super) netns: Option<PathBuf>,
    pub(super) witness: Option<String>,
    pub(super) witness_netns: Option<PathBuf>,
}

/// What the switch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// It drops voids, and the witness would have seen them.
    Dropped,
    /// None came back; nobody could see whether they flood.
    NotBack,
    /// They come back.
    ComeBack,
    /// They flood.
    Flooded,
    /// The witness did not see the control either.
    Blind,
}

/// What was sent, and what came where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counts {
    sent: u16,
    came_back: u16,
    /// None without a witness.
    at_witness: Option<u16>,
}

/// The answer, as `--output json` prints it.
#[derive(Debug, Serialize)]
struct Answer {
    schema: u32,
    verdict: Verdict,
    interface: String,
    witness: Option<String>,
    voids: Counts,
    controls: Counts,
}

/// Asks, prints the answer, and returns the exit code.
pub(super) fn ask(question: &Question, form: Output) -> ExitCode {
    match Answer::find(question) {
        Ok(answer) => {
            output::print(&match form {
                Output::Text => answer.text(),
                Output::Json => output::json(&answer),
            });
            ExitCode::from(answer.verdict.exit_code())
        }
        Err(error) => {
            eprintln!("tailbound doctor: {error}");
            ExitCode::from(2)
        }
    }
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

    const fn exit_code(self) -> u8 {
        match self {
            Self::Dropped | Self::NotBack => 0,
            Self::ComeBack | Self::Flooded => 1,
            Self::Blind => 2,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Dropped => "PASS: the switch drops void frames",
            Self::NotBack => {
                "PASS: no void frame came back; name an interface on another port of the switch \
                 with --witness to see whether they flood"
            }
            Self::ComeBack => {
                "FAIL: void frames come back; they would take the receiving side of this link: \
                 pace without voids, or by launch times"
            }
            Self::Flooded => {
                "FAIL: void frames flood to other ports; they would take everybody's links: pace \
                 without voids, or by launch times"
            }
            Self::Blind => {
                "UNKNOWN: the witness did not see the control frames either; is it on the same \
                 switch and VLAN, and does that flood unknown addresses?"
            }
        }
    }
}

impl Answer {
    fn find(question: &Question) -> Result<Self, AskError> {
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
            let until = Instant::now() + PAUSE;
            listen(&mut port, witness.as_mut(), &run, until)?;
        }
        listen(&mut port, witness.as_mut(), &run, Instant::now() + LISTEN)?;
        let counts = |kind: Kind| Counts {
            sent: sent[kind as usize],
            came_back: port.came[kind as usize],
            at_witness: witness.as_ref().map(|witness| witness.came[kind as usize]),
        };
        let (voids, controls) = (counts(Kind::Void), counts(Kind::Control));
        Ok(Self {
            schema: 1,
            verdict: Verdict::of(voids, controls),
            interface: question.interface.clone(),
            witness: question.witness.clone(),
            voids,
            controls,
        })
    }

    fn text(&self) -> String {
        let line = |what: &str, counts: Counts| {
            let witness = counts.at_witness.map_or_else(String::new, |came| {
                format!(
                    ", {came} came to {}",
                    self.witness.as_deref().unwrap_or_default()
                )
            });
            format!(
                "{what}: {} sent by {}, {} came back{witness}\n",
                counts.sent, self.interface, counts.came_back
            )
        };
        format!(
            "{}\n{}{}",
            self.verdict.words(),
            line("void frames", self.voids),
            line("frames to a station that nobody is", self.controls),
        )
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Open(#[from] PacketError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A socket, and what of ours came by it.
struct Listener {
    socket: Socket,
    batch: Batch,
    /// What is behind the first bytes of a frame does not matter.
    heads: Vec<Vec<u8>>,
    tails: Vec<Vec<u8>>,
    /// By kind.
    came: [u16; 2],
}

impl Listener {
    fn open(interface: &str, netns: Option<&Path>) -> Result<Self, PacketError> {
        Ok(Self {
            socket: Socket::open(interface, netns)?,
            batch: Batch::new(),
            heads: vec![vec![0; 256]; Batch::LEN],
            tails: vec![Vec::new(); Batch::LEN],
            came: [0; 2],
        })
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let wire = [&[0; VIRTIO_HEADER_LEN], frame].concat();
        self.socket
            .transmit(&mut self.batch, std::iter::once(&wire[..]))?;
        Ok(())
    }

    /// Counts what came, at most a batch.
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
                let came = &mut self.came[kind as usize];
                *came = came.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// Counts what comes to either until `until`.
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
    fn the_verdict_follows_from_what_came_where() {
        for (voids, controls, verdict, code) in [
            (counts(0, None), counts(0, None), Verdict::NotBack, 0),
            (counts(3, None), counts(0, None), Verdict::ComeBack, 1),
            (
                counts(0, Some(0)),
                counts(0, Some(100)),
                Verdict::Dropped,
                0,
            ),
            (
                counts(0, Some(9)),
                counts(0, Some(100)),
                Verdict::Flooded,
                1,
            ),
            (
                counts(9, Some(9)),
                counts(0, Some(100)),
                Verdict::Flooded,
                1,
            ),
            (counts(9, Some(0)), counts(0, Some(0)), Verdict::ComeBack, 1),
            (counts(0, Some(0)), counts(0, Some(0)), Verdict::Blind, 2),
        ] {
            let found = Verdict::of(voids, controls);
            assert_eq!((found, found.exit_code()), (verdict, code));
        }
    }

    fn answer() -> Answer {
        Answer {
            schema: 1,
            verdict: Verdict::Dropped,
            interface: "eth0".into(),
            witness: Some("eth1".into()),
            voids: counts(0, Some(0)),
            controls: counts(0, Some(100)),
        }
    }

    #[test]
    fn the_text_says_what_was_seen() {
        assert_eq!(
            answer().text(),
            "PASS: the switch drops void frames\n\
             void frames: 100 sent by eth0, 0 came back, 0 came to eth1\n\
             frames to a station that nobody is: 100 sent by eth0, 0 came back, 100 came to eth1\n"
        );
    }

    #[test]
    fn the_json_is_stable() {
        assert_eq!(
            serde_json::to_value(answer()).unwrap(),
            serde_json::json!({
                "schema": 1, "verdict": "dropped", "interface": "eth0", "witness": "eth1",
                "voids": {"sent": 100, "came_back": 0, "at_witness": 0},
                "controls": {"sent": 100, "came_back": 0, "at_witness": 100},
            })
        );
    }
}
