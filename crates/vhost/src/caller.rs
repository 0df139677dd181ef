//! Calls to drivers and error reports, by a thread of the NIC.
//!
//! Each call is a write(2) to an eventfd that the VMM has open as well. A VMM can block that write:
//! it clears `O_NONBLOCK`, which belongs to the open file and not to one process, and fills the
//! counter. The packet loop therefore writes to no such descriptor. It [posts](Caller::post) a bit
//! and [wakes](Caller::wake) this thread, and the thread writes. A blocked thread delays only the
//! calls of its own NIC.
//!
//! Posts are coalesced: two posts before the thread runs result in one call.

use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tailbound_sys::real_time::Helper;

/// Stack of the thread, in bytes: the thread only calls write(2).
const STACK: usize = 64 * 1024;

/// Duration from which a write counts as blocked by its VMM.
const STUCK: Duration = Duration::from_secs(1);

/// Duration of a write after which the thread loses its real-time class: its VMM delays the write,
/// or causes work in the kernel.
const LONG_WRITE: Duration = Duration::from_millis(5);

/// Largest number of a NIC's ring pairs.
pub(crate) const MOST_PAIRS: usize = 64;

/// Number of rings with a bit in one word.
const WORD: usize = u64::BITS as usize;

/// Number of words for all rings of the largest NIC.
const WORDS: usize = 2 * MOST_PAIRS / WORD;

/// An event of a ring for its VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Chains were given back.
    Call,
    /// The ring is broken.
    Error,
}

impl Event {
    const ALL: [Self; 2] = [Self::Call, Self::Error];
}

/// Rings with an unreported event.
#[derive(Debug, Default)]
struct Posts([AtomicU64; WORDS]);

impl Posts {
    fn add(&self, ring: usize) {
        // Released with what is in the ring by now.
        self.0[ring / WORD].fetch_or(1 << (ring % WORD), Ordering::Release);
    }

    /// Takes one out.
    fn take(&self) -> Option<usize> {
        for (index, word) in self.0.iter().enumerate() {
            let seen = word.load(Ordering::Acquire);
            if seen != 0 {
                let bit = seen.trailing_zeros();
                word.fetch_and(!(1 << bit), Ordering::AcqRel);
                return Some(index * WORD + bit as usize);
            }
        }
        None
    }
}

/// The thread's descriptors and operations.
#[derive(Debug, Default)]
struct Desk {
    /// By [`Event`] and ring.
    files: [Vec<Option<Arc<File>>>; 2],
    /// The descriptor of the current write, and its begin.
    current: Option<(Arc<File>, Instant)>,
}

impl Desk {
    /// Ends a write to `file` that waits. If it does not wait, a call may be lost with it: the
    /// next descriptor of the ring is called anyway.
    fn release(&self, file: &Arc<File>) {
        if let Some((current, _)) = &self.current
            && Arc::ptr_eq(current, file)
        {
            let mut count = [0; 8];
            let mut into = [IoSliceMut::new(&mut count)];
            // Never waits, whatever flags the file has; at the place where the file is.
            let _ = rustix::io::preadv2(file, &mut into, u64::MAX, ReadWriteFlags::NOWAIT);
        }
    }
}

/// State that the thread and its NIC share.
#[derive(Debug)]
struct Line {
    /// By [`Event`].
    posts: [Posts; 2],
    is_over: AtomicBool,
    /// Held for some instructions, never while a descriptor is written to.
    desk: Mutex<Desk>,
}

impl Line {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all posted events until the card ends.
    fn run(&self) {
        // A driver whose call is late is as late as its frames.
        let mut class = Helper::default();
        while !self.is_over.load(Ordering::Acquire) {
            class.follow();
            let next = Event::ALL.map(|event| self.posts[event as usize].take());
            if next == [None; 2] {
                thread::park();
                continue;
            }
            for (event, ring) in Event::ALL.into_iter().zip(next) {
                if let Some(ring) = ring {
                    let begin = Instant::now();
                    self.tell(event, ring);
                    if begin.elapsed() > LONG_WRITE {
                        class.give_up();
                    }
                }
            }
        }
    }

    /// Writes to one descriptor, if there is one.
    fn tell(&self, event: Event, ring: usize) {
        let mut desk = self.desk();
        let Some(file) = desk.files[event as usize][ring].clone() else {
            return;
        };
        desk.current = Some((Arc::clone(&file), Instant::now()));
        drop(desk);
        // Full: then it was told and has not looked. Or it waits here.
        let _ = rustix::io::write(&*file, &1u64.to_ne_bytes());
        self.desk().current = None;
    }
}

/// Thread of a NIC that writes to its VMM's descriptors. The thread ends when this is dropped. A
/// thread that is blocked by its VMM is detached.
#[derive(Debug)]
pub(crate) struct Caller {
    line: Arc<Line>,
    thread: Thread,
}

impl Caller {
    /// The thread of a card with `rings` rings, without descriptors.
    pub(crate) fn start(rings: usize) -> io::Result<Self> {
        assert!(rings <= WORDS * WORD, "no card has {rings} rings");
        let line = Arc::new(Line {
            posts: Default::default(),
            is_over: AtomicBool::new(false),
            desk: Mutex::new(Desk {
                files: [vec![None; rings], vec![None; rings]],
                current: None,
            }),
        });
        let thread = thread::Builder::new()
            .name("vhost-call".to_owned())
            .stack_size(STACK);
        let spawned = thread.spawn({
            let line = Arc::clone(&line);
            move || line.run()
        })?;
        Ok(Self {
            line,
            thread: spawned.thread().clone(),
        })
    }

    /// Posts an event of a ring. Never waits; [`Self::wake`] must follow.
    pub(crate) fn post(&self, event: Event, ring: usize) {
        self.line.posts[event as usize].add(ring);
    }

    /// Wakes the thread, which reports all posted events: one futex call if the thread sleeps,
    /// none if it runs or waits for its monitor.
    pub(crate) fn wake(&self) {
        self.thread.unpark();
    }

    /// Sets another descriptor for an event of a ring, and returns the former one. A write to
    /// the former one ends.
    pub(crate) fn replace(
        &self,
        event: Event,
        ring: usize,
        file: Option<File>,
    ) -> Option<Arc<File>> {
        let mut desk = self.line.desk();
        let file = file.map(Arc::new);
        let before = std::mem::replace(&mut desk.files[event as usize][ring], file);
        if let Some(before) = &before {
            desk.release(before);
        }
        before
    }

    /// Forgets all descriptors.
    pub(crate) fn clear(&self) {
        let mut before = Vec::new();
        let mut desk = self.line.desk();
        for files in &mut desk.files {
            before.extend(files.iter_mut().filter_map(Option::take));
        }
        for file in &before {
            desk.release(file);
        }
        drop(desk);
        // Closed without the lock.
        drop(before);
    }

    /// The descriptor for an event of a ring.
    pub(crate) fn file(&self, event: Event, ring: usize) -> Option<Arc<File>> {
        self.line.desk().files[event as usize][ring].clone()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.line.is_over.store(true, Ordering::Release);
        let desk = self.line.desk();
        if let Some((file, since)) = &desk.current {
            let waited = since.elapsed();
            if waited >= STUCK {
                tracing::warn!(
                    seconds = waited.as_secs(),
                    "a machine monitor kept its card's calls waiting: the thread that makes them \
                     is left behind unless that ends now"
                );
            }
            desk.release(file);
        }
        drop(desk);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsFd;
    use tailbound_sys::probe::required::{Part, skipped};
    use tailbound_sys::real_time::set_helpers;
    use tailbound_sys::sched::{Policy, policy, probe};

    /// The largest number that an eventfd holds.
    const FULL: u64 = u64::MAX - 1;

    fn event(flags: EventfdFlags) -> File {
        File::from(eventfd(0, EventfdFlags::CLOEXEC | flags).unwrap())
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(file: &File) -> u64 {
        let mut count = [0; 8];
        let read = rustix::io::read(file.as_fd(), &mut count);
        read.map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// True once the thread has ended.
    fn is_ended(line: &Arc<Line>) -> bool {
        Arc::strong_count(line) == 1
    }

    /// The classes of all threads of this process that make calls.
    fn classes() -> Vec<Policy> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("there are some");
        let calls = tasks.filter_map(Result::ok).filter(|task| {
            let name = std::fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name == "vhost-call\n")
        });
        let number = |task: std::fs::DirEntry| task.file_name().to_str()?.parse().ok();
        calls
            .filter_map(number)
            .filter_map(|number| policy(number).ok())
            .collect()
    }

    #[test]
    fn a_thread_that_calls_has_the_loops_class_from_its_next_call_on() {
        if let Err(error) = probe(Policy::Fifo(1)) {
            return skipped(Part::SchedFifo, error);
        }
        let caller = Caller::start(2).expect("a thread");
        set_helpers(1);
        let begin = Instant::now();
        while !classes().contains(&Policy::Fifo(1)) {
            caller.wake();
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", classes());
        }
        set_helpers(0);
    }

    #[test]
    fn each_ring_of_the_largest_card_has_its_own_call_descriptor() {
        let rings = WORDS * WORD;
        let caller = Caller::start(rings).unwrap();
        let files: Vec<_> = (0..rings)
            .map(|ring| {
                let file = event(EventfdFlags::NONBLOCK);
                let ours = file.try_clone().unwrap();
                let kind = Event::ALL[ring % 2];
                assert!(caller.replace(kind, ring, Some(file)).is_none());
                ours
            })
            .collect();
        for ring in (0..rings).step_by(3) {
            caller.post(Event::ALL[ring % 2], ring);
            // There is no descriptor for this.
            caller.post(Event::ALL[(ring + 1) % 2], ring);
        }
        caller.wake();
        for ring in (0..rings).step_by(3) {
            until("told", || count(&files[ring]) == 1);
        }
        assert!(files.iter().all(|file| count(file) == 0));
    }

    #[test]
    fn a_blocked_descriptor_is_replaced_and_the_next_is_notified() {
        let caller = Caller::start(2).unwrap();
        let stuck = event(EventfdFlags::empty());
        rustix::io::write(&stuck, &FULL.to_ne_bytes()).unwrap();
        caller.replace(Event::Call, 0, Some(stuck));
        caller.post(Event::Call, 0);
        caller.wake();
        until("it waits", || caller.line.desk().current.is_some());
        // Posts cost no more than a bit meanwhile.
        for _ in 0..1000 {
            caller.post(Event::Call, 0);
            caller.wake();
        }
        let next = event(EventfdFlags::NONBLOCK);
        let ours = next.try_clone().unwrap();
        caller.replace(Event::Call, 0, Some(next));
        until("the next is told", || count(&ours) > 0);
    }

    #[test]
    fn the_thread_ends_with_its_card_though_a_descriptor_waits() {
        for fill in [0, FULL] {
            let caller = Caller::start(2).unwrap();
            let stuck = event(EventfdFlags::empty());
            if fill > 0 {
                rustix::io::write(&stuck, &fill.to_ne_bytes()).unwrap();
            }
            caller.replace(Event::Error, 1, Some(stuck));
            caller.post(Event::Error, 1);
            caller.wake();
            until("it waits, or is done", || {
                let is_waiting = caller.line.desk().current.is_some();
                is_waiting || fill == 0
            });
            let line = Arc::clone(&caller.line);
            drop(caller);
            until("it ends", || is_ended(&line));
        }
    }
}
