//! Numbered frames through a host.

use crate::process::Host;
use crate::support::{Nic, datagram, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A full frame.
const LEN: usize = 1514;

/// Numbered frames from the guest at three times its guaranteed rate, and those that arrive behind
/// the uplink.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    /// The sending thread, which returns the number of sent frames.
    sender: Option<JoinHandle<u32>>,
    nic: Nic,
    to: [u8; 6],
    /// The receiver's answer. Without an answer the receiver's address is unknown to the daemon,
    /// and frames to an unknown address have a budget.
    answer: Vec<u8>,
    /// Numbers that came, and when.
    pub(crate) came: Vec<(u32, Instant)>,
}

impl Traffic {
    /// A frame after each such pause.
    pub(crate) fn start(host: &Host, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let netns = host.guest.netns();
        // Waits until it is there.
        drop(host.guest.nic());
        let device = host.guest.device().0;
        let head = datagram(&host.far, &host.guest, 0);
        let to = host.far.mac;
        let answer = datagram(&host.guest, &host.far, 0);
        // Before the first frame is sent.
        let mut nic = host.far.nic();
        nic.send(&answer);
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let mut nic = Nic::open(device, Some(&netns));
            let mut number = 0_u32;
            while !stopped.load(Ordering::Relaxed) {
                let mut frame = head.clone();
                // The number is the datagram's payload.
                frame[42..46].copy_from_slice(&number.to_be_bytes());
                frame.resize(LEN, 0);
                let len = (LEN - 14) as u16;
                frame[16..18].copy_from_slice(&len.to_be_bytes());
                frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
                nic.send(&frame);
                number += 1;
                thread::sleep(pause);
            }
            number
        });
        Self {
            stop,
            sender: Some(sender),
            nic,
            to,
            answer,
            came: Vec::new(),
        }
    }

    /// Takes what came, and answers.
    pub(crate) fn look(&mut self) {
        let before = self.came.len();
        for packet in self.nic.receive() {
            let bytes = packet.bytes();
            if bytes.len() == LEN && bytes[..6] == self.to {
                let number = bytes[42..46].try_into().map(u32::from_be_bytes);
                self.came.push((number.expect("four"), Instant::now()));
            }
        }
        if self.came.len() > before {
            self.nic.send(&self.answer);
        }
    }

    /// Waits for `frames` more frames.
    pub(crate) fn more(&mut self, frames: usize) {
        let wanted = self.came.len() + frames;
        until("traffic", || {
            self.look();
            self.came.len() >= wanted
        });
    }

    /// Waits for frames that were sent after `since` by a daemon without any observed traffic;
    /// returns the arrival of the first frame.
    pub(crate) fn again(&mut self, since: Instant) -> Instant {
        // The frames that the last process had sent have arrived already.
        thread::sleep(Duration::from_millis(1));
        self.look();
        let before = self.came.len();
        self.more(1);
        let (_, at) = self.came[before];
        assert!(at > since);
        at
    }

    /// Returns how many frames were sent.
    pub(crate) fn stop(&mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        let sender = self.sender.take().expect("it is stopped once");
        sender.join().expect("it only sends")
    }

    /// Stops, and returns how many frames are lost: none came twice or out of order.
    pub(crate) fn lost(&mut self) -> u32 {
        let sent = self.stop();
        // The last may be lost as well.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2)
            && self.came.last().is_none_or(|(last, _)| last + 1 != sent)
        {
            self.look();
            thread::sleep(Duration::from_millis(1));
        }
        assert!(self.came.windows(2).all(|two| two[0].0 < two[1].0));
        sent - self.came.len() as u32
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
