//! Warming up: the first frames after a boot leave late, before timers and caches are in use.

use super::Live;
use crate::lateness::WARM;
use crate::world::HostError;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};
use tailbound_sys::edge::{Bucket, GuestRules, Lateness};
use tailbound_sys::{link, network};
use tailbound_sys::packet::{Batch, Socket};
use tailbound_sys::tap::{Tap, VIRTIO_HEADER_LEN};
use tailbound_units::{Bytes, Rate};

/// The device that takes the frames. The kernel removes it with its descriptor.
const DEVICE: &str = "tb-warm-up";
/// The frames of the first burst, whose lateness is forgotten.
const FIRST: u64 = 1_000;
/// Length of a frame.
const LENGTH: usize = 1_514;
/// The departure times are 12 us apart.
const PACE: Bucket = Bucket {
    rate: Rate::from_mbit(1_000),
    burst: Bytes(15_000),
};
/// The longest time of a burst: ten times what its frames need.
const MAX_TIME: Duration = Duration::from_secs(2);
/// The time between two batches: the socket never runs empty in it.
const REFILL: Duration = Duration::from_micros(200);

impl Live {
    /// Sends frames with departure times to a device of its own, and returns how late they left;
    /// `None` if this kernel does not measure it. The first thousand frames are not counted, and no
    /// other frame that was counted before. Afterwards the host is as before.
    ///
    /// # Errors
    /// The kernel refuses the device or its programs.
    pub fn warm_up(&mut self) -> Result<Option<Lateness>, HostError> {
        let failed = |what| move |error| HostError::new(what, error);
        let tap = Tap::open(DEVICE, None).map_err(|error| HostError::new(DEVICE, error))?;
        link::set_up(DEVICE).map_err(|error| HostError::new(DEVICE, error))?;
        let devices = network::devices()?;
        let device = devices.iter().find(|device| device.name == DEVICE);
        let index = device
            .ok_or_else(|| HostError::new(DEVICE, "it is in no list"))?
            .index;
        let rules = GuestRules {
            inward: Some(PACE),
            ..GuestRules::default()
        };
        let attached = self.edge()?.attach_guest(index, &rules);
        attached.map_err(|error| HostError::new(DEVICE, error))?;
        let measured = self.send(&tap, FIRST).and_then(|_| {
            let restarted = self.edge()?.restart_lateness();
            restarted.map_err(failed("the lateness cannot be set to zero"))?;
            self.send(&tap, WARM)
        });
        let detached = self.edge()?.detach(index);
        detached.map_err(failed("the programs cannot be detached"))?;
        crate::world::Host::finish(self)?;
        measured
    }

    /// Sends frames until `count` frames were counted.
    fn send(&mut self, tap: &Tap, count: u64) -> Result<Option<Lateness>, HostError> {
        let failed = |error| HostError::new(DEVICE, error);
        let socket = Socket::open(DEVICE, None).map_err(|error| HostError::new(DEVICE, error))?;
        let own = socket.address().map_err(failed)?;
        // To itself, as a void frame: no bridge would forward it.
        let mut frame = [0; VIRTIO_HEADER_LEN + LENGTH];
        for place in [VIRTIO_HEADER_LEN, VIRTIO_HEADER_LEN + own.len()] {
            frame[place..place + own.len()].copy_from_slice(&own);
        }
        // The type of local experiments.
        frame[VIRTIO_HEADER_LEN + 12..VIRTIO_HEADER_LEN + 14].copy_from_slice(&[0x88, 0xb5]);
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
