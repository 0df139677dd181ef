//! The NIC as a port of the switch.

use crate::allowance::Fresh;
use crate::caller::Event;
use crate::config::VhostConfig;
use crate::device::{AllowanceState, Device, Shared};
use crate::estate;
use crate::features::Preparation;
use crate::gate::Gate;
use crate::ring::{BURST_PIECES, Put, RingError};
use crate::server::{OpenError, Server};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tailbound_dataplane::{Connection, Frame, Packet, Pool};
use tailbound_switch::port::{
    BURST, Burst, Estate, More, Outgoing, Port, Presence, TransmitResult,
};
use tailbound_sys::guest_memory::PAGE;
use tailbound_units::Nanos;

/// Port of a guest with a vhost-user NIC.
#[derive(Debug)]
pub struct VhostPort {
    shared: Arc<Shared>,
    /// Ends the thread of the requests with the port.
    server: Server,
    name: String,
    /// The pair that is read first the next time.
    next: usize,
    /// Lines about broken rings.
    broken: Gate,
}

impl VhostPort {
    /// Waits for the monitor of a machine from now on. Until it is there, and its guest's
    /// driver has started, frames for it are lost as on a link that is down.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(config: VhostConfig<'_>) -> Result<Self, OpenError> {
        let pairs = config.pairs();
        let shared = Shared::new(pairs, config.part()).map_err(|source| OpenError::System {
            step: "wait for rings",
            source,
        })?;
        let shared = Arc::new(shared);
        let server = Server::start(config.socket, config.mode, config.user, pairs, &shared)?;
        Ok(Self::new(config, shared, server))
    }

    /// Continues a port with the same configuration that another process has [paused](Port::pause).
    /// Guest and VMM do not notice.
    ///
    /// # Errors
    /// The memory is gone, or the state belongs to another NIC.
    pub fn go_on(config: VhostConfig<'_>, estate: Estate) -> io::Result<Self> {
        let pairs = config.pairs();
        let shared = Arc::new(Shared::new(pairs, config.part())?);
        let (endpoint, session) = estate::take(estate, config, &shared)?;
        let server = Server::go_on(
            config.socket,
            endpoint,
            session,
            config.user,
            pairs,
            &shared,
        );
        Ok(Self::new(config, shared, server.map_err(io::Error::other)?))
    }

    fn new(config: VhostConfig<'_>, shared: Arc<Shared>, server: Server) -> Self {
        Self {
            shared,
            server,
            name: config.socket.display().to_string(),
            next: 0,
            broken: Gate::new(1),
        }
    }

    /// True while the card is held, as it has touched more of its guest's memory than its part.
    fn is_held(&mut self, now: Nanos) -> bool {
        match self.shared.allowance_state() {
            AllowanceState::Good => false,
            AllowanceState::Asked => true,
            AllowanceState::Broken => {
                if let Some(before) = self.broken.pass(now) {
                    let bytes = self.borrowed();
                    tracing::warn!(
                        socket = self.name,
                        bytes,
                        before,
                        "the guest's rings are not used any more until its driver starts them \
                         again: more of its memory is charged to this process than its part of \
                         a quarter of `MemoryMax`; have its monitor touch it first (prealloc)"
                    );
                }
                false
            }
        }
    }

    /// The parts that a burst at `now` needs, and the pair that is read first.
    fn parts(&mut self, now: Nanos) -> (&Shared, Card<'_>, &mut usize) {
        let card = Card {
            shared: &self.shared,
            name: &self.name,
            lines: &mut self.broken,
            now,
        };
        (&self.shared, card, &mut self.next)
    }

    /// Checks that the port is usable.
    fn check(shared: &Shared, device: &Device) -> io::Result<()> {
        if shared.is_dead() {
            return Err(io::Error::other("its socket is not served any more"));
        }
        let is_lost = device
            .memory
            .as_ref()
            .is_some_and(|memory| memory.is_lost());
        if is_lost || shared.log.is_lost() {
            return Err(io::Error::other(
                "the guest's memory has become shorter than its monitor said",
            ));
        }
        Ok(())
    }
}

impl Drop for VhostPort {
    fn drop(&mut self) {
        let memory = self
            .shared
            .device()
            .and_then(|mut device| device.memory.take());
        let Some(memory) = memory else {
            return;
        };
        // Unmapping takes as long as the memory is large, and this may be the packet loop.
        let thread = std::thread::Builder::new().name("retire".to_owned());
        if let Err(error) = thread.spawn(move || drop(memory)) {
            tracing::error!(%error, "a guest's memory was unmapped within the packet loop");
        }
    }
}

/// Guard of a NIC whose rings may break.
struct Card<'p> {
    shared: &'p Shared,
    name: &'p str,
    lines: &'p mut Gate,
    now: Nanos,
}

impl Card<'_> {
    /// Notes that a driver has broken its ring's rules; the log has one line of that an hour.
    fn fail(&mut self, device: &mut Device, ring: usize, error: RingError) {
        if let Some(before) = self.lines.pass(self.now) {
            tracing::warn!(
                socket = self.name, ring, %error, before,
                "the guest's ring is not used any more until its driver starts it again; what \
                 breaks of this card within an hour is counted in the next such line"
            );
        }
        device.fail(ring);
        self.shared.note_guest(device);
    }
}

/// Receives from a ring; returns whether more frames may be available. The driver is called when
/// the NIC's caller is woken.
fn receive(
    device: &mut Device,
    index: usize,
    pool: &Pool,
    burst: &mut Burst,
    fresh: &Fresh<'_>,
    has_posts: &mut bool,
) -> Result<bool, RingError> {
    let format = device.format();
    let Device {
        memory,
        rings,
        caller,
        ..
    } = device;
    let Some(memory) = memory.as_deref() else {
        return Ok(false);
    };
    let Some(ring) = rings[index].active() else {
        return Ok(false);
    };
    let most = BURST.saturating_sub(burst.frames.len());
    if most == 0 {
        return Ok(true);
    }
    let frames = &mut burst.frames;
    let taken = ring.take_until(memory, format, most, pool, frames, || fresh.is_enough())?;
    burst.truncated += taken.truncated;
    burst.pieces += taken.pieces;
    // One that had something is looked at once more before its driver is to kick: while
    // frames come one after another, none of them costs either side a system call.
    let more = taken.chains > 0 || ring.wait(memory)?;
    if ring.must_call(memory)? {
        caller.post(Event::Call, index);
        *has_posts = true;
    }
    Ok(more)
}

/// Reason why a guest receives no further frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// No more are for it, or for this ring.
    All,
    /// There is no room.
    Full,
}

/// The active receive rings.
#[derive(Debug)]
struct Active {
    rings: [u8; VhostConfig::MOST_QUEUES],
    count: usize,
}

impl Active {
    fn of(device: &Device) -> Self {
        let mut active = Self {
            rings: [0; VhostConfig::MOST_QUEUES],
            count: 0,
        };
        let rings = device.rings.iter().enumerate().step_by(2);
        let running = rings.filter(|(_, ring)| ring.is_active());
        for (place, (index, _)) in active.rings.iter_mut().zip(running) {
            *place = index as u8;
            active.count += 1;
        }
        active
    }

    /// The one for a frame: the same one for all of a connection.
    fn ring_for(&self, frame: &Packet) -> Option<usize> {
        let place = match self.count {
            0 => return None,
            1 => 0,
            count => spread(frame.connection()) as usize % count,
        };
        Some(self.rings[place].into())
    }
}

/// Returns the hash of a connection with well-mixed bits (finalizer of `MurmurHash3`): hashes of
/// neighbouring addresses may have equal low bits.
fn spread(Connection(hash): Connection) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// Cuts the first frame for the guest's features.
fn cut_first(outgoing: &mut VecDeque<Outgoing>) {
    let Some(Outgoing::Frame { frame, .. }) = outgoing.pop_front() else {
        return;
    };
    let mut count = 0;
    frame.segment(|segment| {
        outgoing.push_back(Outgoing::frame(segment));
        count += 1;
    });
    outgoing.rotate_right(count);
}

/// Sends from the front of `outgoing` by one ring, until a frame belongs to another ring or must be
/// cut.
fn fill(
    device: &mut Device,
    index: usize,
    active: &Active,
    outgoing: &mut VecDeque<Outgoing>,
    sent: &mut TransmitResult,
    fresh: &Fresh<'_>,
) -> Result<End, RingError> {
    let (format, features) = (device.format(), device.features);
    let Device { memory, rings, .. } = device;
    let (Some(memory), Some(ring)) = (memory.as_deref(), rings[index].active()) else {
        return Ok(End::All);
    };
    let mut filling = ring.fill(memory)?;
    let mut end = End::All;
    let before = sent.pieces;
    while sent.pieces < BURST_PIECES
        && !fresh.is_enough()
        && let Some(next) = outgoing.front_mut()
    {
        let Outgoing::Frame { frame, .. } = next else {
            break;
        };
        if active.count > 1 && active.ring_for(frame) != Some(index) {
            break;
        }
        match features.preparation(frame.offload()) {
            Preparation::None => {}
            Preparation::Checksum => frame.complete_checksum(),
            Preparation::Segment => break,
        }
        let put = filling.put(format, &frame.virtio_header(), frame.bytes());
        // Also those of a frame that breaks the ring.
        sent.pieces = before + filling.pieces();
        match put? {
            Put::Done => sent.add(next),
            Put::TooLong => sent.refused += 1,
            Put::Full => {
                end = End::Full;
                break;
            }
        }
        outgoing.pop_front();
    }
    filling.finish()?;
    if end == End::Full && ring.wait_for_room(memory)? {
        end = End::All;
    }
    Ok(end)
}

/// Sends from the front of `outgoing` until it is empty, a ring is full or the burst has enough
/// descriptors or fresh pages; the rest is offered again. Records the rings with new frames in
/// `touched`.
fn transmit(
    device: &mut Device,
    outgoing: &mut VecDeque<Outgoing>,
    sent: &mut TransmitResult,
    fresh: &Fresh<'_>,
    touched: &mut u64,
) -> Result<End, (usize, RingError)> {
    let active = Active::of(device);
    while sent.pieces < BURST_PIECES
        && !fresh.is_enough()
        && let Some(next) = outgoing.front_mut()
    {
        let Outgoing::Frame { frame, .. } = next else {
            // Behind a ring is no wire whose time a void could take.
            sent.add(next);
            outgoing.pop_front();
            continue;
        };
        if device.features.preparation(frame.offload()) == Preparation::Segment {
            cut_first(outgoing);
            continue;
        }
        let Some(index) = active.ring_for(frame) else {
            sent.link_down += 1;
            outgoing.pop_front();
            continue;
        };
        *touched |= 1 << (index / 2);
        let end = fill(device, index, &active, outgoing, sent, fresh);
        if end.map_err(|error| (index, error))? == End::Full {
            return Ok(End::Full);
        }
    }
    Ok(End::All)
}

/// Calls the drivers of `touched` rings: wakes the NIC's caller once.
fn call(device: &mut Device, touched: u64) -> Result<(), (usize, RingError)> {
    let Device {
        memory,
        rings,
        caller,
        ..
    } = device;
    let Some(memory) = memory.as_deref() else {
        return Ok(());
    };
    let mut has_posts = false;
    for index in (0..rings.len()).step_by(2) {
        if touched >> (index / 2) & 1 == 1
            && let Some(ring) = rings[index].active()
            && ring.must_call(memory).map_err(|error| (index, error))?
        {
            caller.post(Event::Call, index);
            has_posts = true;
        }
    }
    if has_posts {
        caller.wake();
    }
    Ok(())
}

impl Port for VhostPort {
    fn receive(&mut self, now: Nanos, pool: &Pool, burst: &mut Burst) -> io::Result<More> {
        if self.is_held(now) {
            // The loop is woken when the system has said how much it is.
            return Ok(More::No);
        }
        let (shared, mut card, next) = self.parts(now);
        let Some(mut device) = shared.device() else {
            // The loop is woken when the change is done.
            return Ok(More::No);
        };
        Self::check(shared, &device)?;
        let pairs = device.rings.len() / 2;
        let mut more = More::No;
        let mut has_posts = false;
        let fresh = shared.part.begin_burst();
        let first = *next;
        *next = (first + 1) % pairs;
        for pair in (0..pairs).map(|pair| (first + pair) % pairs) {
            // The second of a pair is the one by which the guest sends.
            let ring = 2 * pair + 1;
            match receive(&mut device, ring, pool, burst, &fresh, &mut has_posts) {
                Ok(false) => {}
                Ok(true) => more = More::Maybe,
                Err(error) => card.fail(&mut device, ring, error),
            }
        }
        if has_posts {
            device.caller.wake();
        }
        burst.pieces += fresh.pieces();
        Self::check(shared, &device)?;
        Ok(more)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        outgoing: &mut VecDeque<Outgoing>,
    ) -> io::Result<TransmitResult> {
        let mut sent = TransmitResult::default();
        if self.is_held(now) {
            sent.full = true;
            return Ok(sent);
        }
        let (shared, mut card, _) = self.parts(now);
        let Some(mut device) = shared.device() else {
            sent.full = true;
            return Ok(sent);
        };
        Self::check(shared, &device)?;
        let mut touched = 0;
        let fresh = shared.part.begin_burst();
        loop {
            let ended = transmit(&mut device, outgoing, &mut sent, &fresh, &mut touched);
            match ended {
                Ok(end) => sent.full = end == End::Full,
                // The rest of its frames is lost, as on a link that went down.
                Err((ring, error)) => {
                    card.fail(&mut device, ring, error);
                    continue;
                }
            }
            break;
        }
        if let Err((ring, error)) = call(&mut device, touched) {
            card.fail(&mut device, ring, error);
        }
        sent.pieces += fresh.pieces();
        Self::check(shared, &device)?;
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.epoll.as_fd())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn readable_may_be_writable(&self) -> bool {
        true
    }

    fn progress(&self) -> u64 {
        let device = self.shared.device();
        device.map_or(0, |device| device.progress())
    }

    fn presence(&self) -> Presence {
        self.shared.presence()
    }

    fn borrowed(&self) -> u64 {
        self.shared.part.touches.own() * PAGE as u64
    }

    fn note_ready(&mut self) {
        self.shared.note_ready();
    }

    fn pause(&mut self) -> Option<Estate> {
        let Self {
            shared,
            server,
            name,
            ..
        } = self;
        let requests = server.pause()?;
        let estate = shared.change(|device| estate::give(requests, device, &shared.log));
        if let Err(error) = &estate {
            tracing::warn!(
                socket = name, %error,
                "the NIC cannot be handed to another process: the VMM must reconnect"
            );
        }
        estate.ok()
    }

    fn resume(&mut self) {
        if let Err(error) = self.server.resume() {
            tracing::warn!(socket = self.name, %error, "the card is opened anew");
            self.shared.set_dead();
        }
    }
}
