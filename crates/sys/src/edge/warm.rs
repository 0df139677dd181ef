//! Warming up: the first frames after a boot leave late, before timers and caches are in use.

use super::rules::{Bucket, GuestRules, Lateness};
use super::{Edge, EdgeError, step};
use crate::packet::{Batch, Socket};
use crate::tap::{Tap, VIRTIO_HEADER_LEN};
use crate::{link, network};
use std::io::{self, IoSliceMut};
use std::time::{Duration, Instant};
use tailbound_units::{Bytes, Rate};

/// The device that takes the frames. The kernel removes it with its descriptor.
const DEVICE: &str = "tb-warm-up";
/// The frames of the first burst, whose lateness is forgotten.
const FIRST: u64 = 1_000;
/// Length of a frame.
const LENGTH: usize = 1_514;
/// The type of frames of local experiments (IEEE 802).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// The departure times are 62 us apart, so that frames come sooner than they may leave: only a frame that
/// waits has a departure time.
const PACE: Bucket = Bucket {
    rate: Rate::from_mbit(200),
    burst: Bytes(15_000),
};
/// The longest time of a burst: more than ten times what 10,000 frames need.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The time between two batches: the socket never runs empty in it.
const REFILL: Duration = Duration::from_micros(200);

impl Edge {
    /// Sends frames with departure times to a device of its own until `count` of them were counted,
    /// and returns how late they left; `None` if this kernel does not measure it. A thousand frames
    /// before them are not counted, nor is any other frame that was counted before. Afterwards the
    /// device is gone.
    ///
    /// # Errors
    /// The kernel refuses the device or its programs.
    pub fn warm_up(&mut self, count: u64) -> Result<Option<Lateness>, EdgeError> {
        let tap = Tap::open(DEVICE, None).map_err(|error| failed(io::Error::other(error)))?;
        link::set_up(DEVICE).map_err(failed)?;
        let devices = network::devices().map_err(failed)?;
        let device = devices.iter().find(|device| device.name == DEVICE);
        let index = device.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let index = index.index;
        let rules = GuestRules {
            inward: Some(PACE),
            ..GuestRules::default()
        };
        self.attach_guest(index, &rules)?;
        let measured = self.send(&tap, FIRST).and_then(|_| {
            self.restart_lateness()?;
            self.send(&tap, count)
        });
        self.detach(index)?;
        measured
    }

    /// Sends frames until `count` frames were counted.
    fn send(&self, tap: &Tap, count: u64) -> Result<Option<Lateness>, EdgeError> {
        let socket = Socket::open(DEVICE, None);
        let socket = socket.map_err(|error| failed(io::Error::other(error)))?;
        // To itself, as a void frame: no bridge would forward it.
        let own = socket.address().map_err(failed)?;
        let head = [&[0; VIRTIO_HEADER_LEN][..], &own, &own, &EXPERIMENT].concat();
        let mut frame = [0; VIRTIO_HEADER_LEN + LENGTH];
        frame[..head.len()].copy_from_slice(&head);
        let mut batch = Batch::new();
        let mut buffer = vec![0; VIRTIO_HEADER_LEN + LENGTH];
        let until = Instant::now() + MAX_TIME;
        loop {
            // An error means that the socket is full.
            let _ = socket.transmit(&mut batch, [&frame[..]; Batch::LEN].into_iter());
            while tap.receive(&mut [IoSliceMut::new(&mut buffer)]).is_ok() {}
            let Some(lateness) = self.lateness()? else {
                return Ok(None);
            };
            if lateness.frames() >= count || Instant::now() > until {
                return Ok(Some(lateness));
            }
            std::thread::sleep(REFILL);
        }
    }
}

fn failed(error: io::Error) -> EdgeError {
    step(format!("warm up by {DEVICE}"), error)
}
