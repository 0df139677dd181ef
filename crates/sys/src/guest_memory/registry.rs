//! Mappings that another process can shrink, and the handler of SIGBUS in them.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Largest number of watched mappings.
pub(super) const SLOTS: usize = 8192;

/// A watched mapping, or a free slot. A signal handler reads it, so there are no locks: only the
/// thread that has taken the slot by its start changes the rest.
struct Slot {
    /// The start of the mapping; [`FREE`] or [`TAKEN`].
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

const FREE: usize = 0;
/// A thread is about to use the slot. Nothing is mapped at this address (`vm.mmap_min_addr`).
const TAKEN: usize = 1;

static REGISTRY: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

/// The handling of SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that is watched as long as this value lives.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches `len` bytes from `start` on; `None` if no slot is free.
    ///
    /// # Safety
    /// The bytes are a mapping of their own, which shares no page with anything else and stays for
    /// as long as the watch. No code relies on its content.
    pub(super) unsafe fn new(start: usize, len: usize) -> Option<Self> {
        let index = REGISTRY.iter().position(|slot| {
            let start = &slot.start;
            start.load(Ordering::Relaxed) == FREE
                && start
                    .compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })?;
        let slot = &REGISTRY[index];
        slot.len.store(len, Ordering::Relaxed);
        slot.lost.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Self(index))
    }

    /// Returns true if any page of the mapping was missing.
    pub(super) fn is_lost(&self) -> bool {
        REGISTRY[self.0].lost.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        REGISTRY[self.0].start.store(FREE, Ordering::Release);
    }
}

/// Installs the handler of SIGBUS.
pub(super) fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = DONE.get_or_init(|| install_once().map_err(|e| e.raw_os_error().unwrap_or(0)));
    done.map_err(io::Error::from_raw_os_error)
}

fn install_once() -> io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `sigaction(2)` with a null action only tells what is there.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call filled it in.
    let before = unsafe { before.assume_init() };
    let _ = BEFORE.set(before);
    // SAFETY: all zeros are an action with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler is async-signal-safe: it touches atomics, `errno`, and makes
    // the one system call mmap(2).
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid `siginfo_t` to a handler with SA_SIGINFO; for
    // SIGBUS its address is set.
    let at = unsafe { (*info).si_addr() } as usize;
    if !mend(at) {
        pass_on(signal, info, context);
    }
}

/// Replaces the mapping that contains `at` by empty pages; returns true if there is one.
fn mend(at: usize) -> bool {
    let slot = REGISTRY.iter().find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        start > TAKEN && at.wrapping_sub(start) < slot.len.load(Ordering::Relaxed)
    });
    let Some(slot) = slot else {
        return false;
    };
    let start = slot.start.load(Ordering::Relaxed);
    let len = slot.len.load(Ordering::Relaxed);
    // SAFETY: `__errno_location` points to the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the range is a mapping of its own (`Watch::new`), which is replaced whole,
    // and whoever unmaps it watches it no more before that. The thread that is here
    // accesses it, so it is still there.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    slot.lost.store(true, Ordering::Release);
    true
}

/// Calls the former handler of SIGBUS: the access is none to a watched mapping.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    match before.map(|before| (before.sa_sigaction, before.sa_flags)) {
        Some((handler, flags))
            if handler != libc::SIG_DFL
                && handler != libc::SIG_IGN
                && flags & libc::SA_SIGINFO != 0 =>
        {
            // SAFETY: with SA_SIGINFO it is a function of these three arguments, which
            // are passed on as they came.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        _ => {
            // SAFETY: as at the start of the process. The access is repeated, and ends it.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
