//! Wake-ups of the packet loop beside packets: signals, and [`Waker`]s.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals as flags, and a socket that becomes readable when a flag may be set.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    socket: UnixStream,
    waker: Waker,
}

/// Wakes a thread, the packet loop among others, from any other.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<UnixStream>);

impl Waker {
    /// Makes a waker without a thread.
    #[cfg(test)]
    pub(crate) fn without_thread() -> Self {
        let (writer, _) = UnixStream::pair().expect("two ends");
        Self(Arc::new(writer))
    }

    /// Returns a waker, and the socket that is readable once the waker was used.
    pub(crate) fn pair() -> io::Result<(UnixStream, Self)> {
        let (socket, writer) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok((socket, Self(Arc::new(writer))))
    }

    pub(crate) fn wake(&self) {
        // When the socket is full the loop is as good as awake.
        let _ = (&*self.0).write(&[0]);
    }
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let (socket, waker) = Waker::pair()?;
        let stop = Arc::default();
        let reload = Arc::default();
        for (signal, flag) in [(SIGTERM, &stop), (SIGINT, &stop), (SIGHUP, &reload)] {
            // In this order, so that the flag is set when the loop wakes.
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, waker.0.try_clone()?)?;
        }
        Ok(Self {
            stop,
            reload,
            socket,
            waker,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Empties the socket, so that the next wake-up is noticed.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.socket).read(&mut bytes), Ok(1..)) {}
    }

    /// Returns true, once, after a signal to end.
    pub(crate) fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Returns true, once, after a signal to reload.
    pub(crate) fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
