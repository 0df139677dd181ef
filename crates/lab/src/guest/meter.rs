//! Measures a guest's received traffic from one sender: the bytes on the wire in each second, and
//! the pauses between arrivals.

use super::GUEST_INTERFACE;
use super::packet::{on_wire, read};
use super::{Outcome, Starter, now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::Ipv4Addr;
use tailbound_report::{Stats, empty_histogram};
use tailbound_sys::packet::{Batch, Socket};
use tailbound_sys::tap::VIRTIO_HEADER_LEN;

/// Stored bytes of each frame: its headers.
const STORED: usize = 128;
/// Silence must not delay the outcome.
const SILENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

pub(super) fn run(starter: &Starter<'_>, from: Ipv4Addr) -> io::Result<()> {
    let socket = Socket::open(GUEST_INTERFACE, None).map_err(io::Error::other)?;
    let mut batch = Batch::new();
    let mut heads = vec![vec![0; STORED]; Batch::LEN];
    let mut tails = vec![Vec::new(); Batch::LEN];
    let mut received = Vec::with_capacity(Batch::LEN);
    let schedule = starter.ready()?;
    let mut windows = schedule.windows();
    let mut gaps = empty_histogram();
    let mut last = None;
    while now() < schedule.to {
        let mut ready = [PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut ready, Some(&SILENCE)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match socket.receive(&mut batch, 0, &mut heads, &mut tails, &mut received) {
            Ok(()) => {}
            Err(error) if super::events::is_retry(&error) => continue,
            Err(error) => return Err(error),
        }
        let at = now();
        let mut bytes = 0;
        for (frame, head) in received.iter().zip(&heads) {
            let stored = head.get(VIRTIO_HEADER_LEN..frame.len.min(STORED));
            if let Some(seen) = stored.and_then(read).filter(|seen| seen.from == from) {
                bytes += on_wire(seen.len);
            }
        }
        if bytes == 0 || !schedule.counts(at) {
            continue;
        }
        if let Some(last) = last.replace(at) {
            let gap = at.since(last).as_nanos().max(1);
            gaps.record(gap).expect("it grows to the whole of 64 bits");
        }
        windows.add(at, bytes);
    }
    starter.finish(&Outcome {
        windows,
        gaps: Some(Stats::from_histogram(&gaps)),
        unanswered: socket.take_overruns()?,
        ..Outcome::default()
    })
}
