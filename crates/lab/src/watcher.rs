//! A watching thread that runs until it is stopped.

use crate::processes::from_here;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use tailbound_sys::sched::{Policy, set_policy};

/// A watching thread, and its future result.
#[derive(Debug)]
pub(crate) struct Watcher<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<T>>,
}

impl<T: Send + 'static> Watcher<T> {
    /// Starts `watch`, which must return when its argument is set. With `priority` the watch itself
    /// does not wait.
    pub(crate) fn start(
        name: &str,
        priority: Option<Policy>,
        watch: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            if let Some(policy) = priority {
                set_policy(0, from_here(policy)?)?;
            }
            watch(&stopped)
        })?;
        Ok(Self { stop, thread })
    }

    /// Stops the thread and returns its result.
    pub(crate) fn finish(self) -> io::Result<T> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(seen) => seen,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
