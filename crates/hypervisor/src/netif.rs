//! Xen's network device: netfront, netback and the ring between them.
//!
//! Read [`Receive`] first: frames on their way into a guest. Its rules are those of
//! `drivers/xen/netfront` and `drivers/xen/netback` of Linux 2.6.18 for Xen 3.3; each method names
//! its function there. Frames on their way out ([`Transmit`]) have room enough in every experiment,
//! so of that ring only the events are here.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Slots of a ring that is one page long (`NET_RX_RING_SIZE`).
pub const SLOTS: u32 = 256;
/// Frames that a guest's NAPI takes in one poll (`dev->weight`).
pub const POLL_BUDGET: usize = 64;

/// A guest's netfront and the driver domain's netback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetifConfig {
    /// Fewest slots that netfront posts; 64 (`RX_DFL_MIN_TARGET`). vSnoop's tuning is 192.
    pub least_target: u32,
    /// Free slots that netback needs for a frame: 20 with scatter-gather; 1 without.
    pub reserved: u32,
    /// Queued frames in netback's interface meanwhile (`tx_queue_len`, 32); more are dropped.
    pub queue: u32,
}

impl Default for NetifConfig {
    fn default() -> Self {
        Self {
            least_target: 64,
            reserved: 20,
            queue: 32,
        }
    }
}

impl NetifConfig {
    /// The targets that leave room for frames.
    pub const TARGETS: RangeInclusive<u32> = 8..=SLOTS;
}

/// Result for a frame that the bridge passed to netback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    /// The frame has a slot of the ring.
    Placed,
    /// The frame waits in the interface's queue.
    Queued,
    /// The frame is dropped.
    Dropped,
}

/// The ring of frames into a guest, with both its ends. Indices run freely.
#[derive(Debug, Clone)]
pub struct Receive<F> {
    config: NetifConfig,
    /// Slots that netfront wants to have posted (`rx_target`).
    target: u64,
    /// Slots posted by netfront (`req_prod`),
    posted: u64,
    /// taken by netback for frames (`rx_req_cons_peek`),
    taken: u64,
    /// given back with a frame (`rsp_prod`),
    answered: u64,
    /// and seen by netfront (`rsp_cons`).
    consumed: u64,
    frames: VecDeque<F>,
    /// True if netfront requested an event with the next answer (`rsp_event`).
    wants_event: bool,
    /// Number of posted slots until which netback takes nothing (`req_event`).
    stopped_until: Option<u64>,
    queue: VecDeque<F>,
    dropped: u64,
}

impl<F> Receive<F> {
    /// Returns a ring that netfront has filled for the first time.
    pub fn new(config: NetifConfig) -> Self {
        let mut ring = Self {
            config,
            target: u64::from(config.least_target),
            posted: 0,
            taken: 0,
            answered: 0,
            consumed: 0,
            frames: VecDeque::new(),
            wants_event: true,
            stopped_until: None,
            queue: VecDeque::new(),
            dropped: 0,
        };
        ring.refill();
        ring
    }

    /// Returns the slots that netfront wants to have posted.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// Returns the frames that netback still takes without queueing any.
    pub fn room(&self) -> u64 {
        if self.stopped_until.is_some() {
            return 0;
        }
        let free = self.posted - self.taken;
        free.saturating_sub(u64::from(self.config.reserved) - 1)
    }

    /// Returns the frames in slots that netfront has not seen.
    pub fn waiting(&self) -> usize {
        self.frames.len()
    }

    /// Returns how many frames were lost.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// `netbk_queue_full`: netback would not take the largest frame.
    fn is_full(&self) -> bool {
        let reserved = u64::from(self.config.reserved);
        self.posted - self.taken < reserved
            || self.answered + u64::from(SLOTS) - self.taken < reserved
    }

    /// Netback gets a frame of one slot from the bridge (`netif_be_start_xmit`, and the
    /// queue before it). A frame with a slot is seen by the guest after
    /// [`Receive::answer`].
    pub fn give(&mut self, frame: F) -> EnqueueResult {
        if self.stopped_until.is_none() && self.queue.is_empty() {
            self.place(frame);
            return EnqueueResult::Placed;
        }
        if self.queue.len() < self.config.queue as usize {
            self.queue.push_back(frame);
            return EnqueueResult::Queued;
        }
        self.dropped += 1;
        EnqueueResult::Dropped
    }

    fn place(&mut self, frame: F) {
        self.taken += 1;
        self.frames.push_back(frame);
        if self.is_full() {
            self.stopped_until = Some(self.taken + u64::from(self.config.reserved));
        }
    }

    /// Netback has copied all frames that have slots (`net_rx_action`). Returns whether the
    /// guest is sent an event: once for all of them, and only if it asked for one.
    pub fn answer(&mut self) -> bool {
        let more = self.answered < self.taken;
        self.answered = self.taken;
        more && std::mem::take(&mut self.wants_event)
    }

    /// Netback heard that slots were posted (`netif_be_int`): what was queued goes into the
    /// ring. Returns how many frames did.
    pub fn resume(&mut self) -> usize {
        if self.is_full() {
            return 0;
        }
        self.stopped_until = None;
        let mut moved = 0;
        while self.stopped_until.is_none() {
            let Some(frame) = self.queue.pop_front() else {
                break;
            };
            self.place(frame);
            moved += 1;
        }
        moved
    }

    /// Netfront takes the next frame (`netif_poll`); none when netback has copied no more.
    pub fn take(&mut self) -> Option<F> {
        if !self.has_more() {
            return None;
        }
        self.consumed += 1;
        self.frames.pop_front()
    }

    /// Returns whether [`Receive::take`] has a frame.
    pub fn has_more(&self) -> bool {
        self.consumed < self.answered
    }

    /// The end of netfront's poll: it wants fewer slots if few were in use, and posts what
    /// is worth posting. Returns whether netback is sent an event.
    pub fn end_poll(&mut self) -> bool {
        if self.posted - self.answered > 3 * self.target / 4 {
            self.target = (self.target - 1).max(u64::from(self.config.least_target));
        }
        self.refill()
    }

    /// `network_alloc_rx_buffers`: posts slots if half of the target or more are missing,
    /// and wants twice as many if less than a quarter was left.
    fn refill(&mut self) -> bool {
        let missing = self.target.saturating_sub(self.posted - self.consumed);
        if missing < self.target / 2 {
            return false;
        }
        if self.posted - self.answered < self.target / 4 {
            self.target = (2 * self.target).min(u64::from(SLOTS));
        }
        self.posted += missing;
        self.stopped_until.is_some_and(|until| self.posted >= until)
    }

    /// Requests an event for netfront, which is idle (`RING_FINAL_CHECK_FOR_RESPONSES`). Returns
    /// whether more frames are available after all.
    pub fn sleep(&mut self) -> bool {
        self.wants_event = !self.has_more();
        self.has_more()
    }
}

/// The ring of frames out of a guest: who sends whom an event.
#[derive(Debug, Clone)]
pub struct Transmit<F> {
    frames: VecDeque<F>,
    /// True if netback requested an event with the next frame.
    wants_event: bool,
}

impl<F> Default for Transmit<F> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            wants_event: true,
        }
    }
}

impl<F> Transmit<F> {
    /// The guest sends a frame (`network_start_xmit`). Returns whether netback is sent an
    /// event: only if it has seen all before and asked for one.
    pub fn send(&mut self, frame: F) -> bool {
        self.frames.push_back(frame);
        std::mem::take(&mut self.wants_event)
    }

    /// Takes the next frame for netback (`net_tx_action`); without a frame, netback requests an
    /// event.
    pub fn take(&mut self) -> Option<F> {
        let frame = self.frames.pop_front();
        self.wants_event = frame.is_none();
        frame
    }
}

#[cfg(test)]
mod tests;
