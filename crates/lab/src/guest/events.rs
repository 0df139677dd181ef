//! Waits for sockets and for a time together.

use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::io;
use tailbound_sys::timer::timespec;
use tailbound_units::Nanos;

/// The key that [`Events::wait`] reports for the alarm.
pub(crate) const ALARM: u64 = u64::MAX;

/// An epoll set with an alarm in it. The alarm is a timer file because epoll's own timeout is in
/// milliseconds.
pub(crate) struct Events {
    epoll: OwnedFd,
    alarm: OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let data = epoll::EventData::new_u64(ALARM);
        epoll::add(&epoll, &alarm, data, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            alarm,
            ready: Vec::with_capacity(256),
        })
    }

    /// Adds a socket, edge-triggered: read and write until it would block.
    pub(crate) fn add(&self, socket: impl AsFd, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(key),
            flags,
        )?)
    }

    /// Sets the alarm to `moment`; a time in the past rings immediately.
    pub(crate) fn set_alarm(&self, moment: Nanos) -> io::Result<()> {
        let time = Itimerspec {
            it_interval: timespec(Nanos::ZERO),
            // Zero would disarm it.
            it_value: timespec(moment.max(Nanos(1))),
        };
        rustix::time::timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &time)?;
        Ok(())
    }

    /// Waits for an event, and puts the keys of the sources with events into `happened`.
    pub(crate) fn wait(&mut self, happened: &mut Vec<u64>) -> io::Result<()> {
        self.ready.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.ready),
            None,
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        happened.clear();
        for event in &self.ready {
            let key = event.data.u64();
            if key == ALARM {
                let mut expirations = [0; 8];
                match rustix::io::read(&self.alarm, &mut expirations[..]) {
                    Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            happened.push(key);
        }
        Ok(())
    }
}

/// Returns whether a non-blocking call may succeed later, for example after the connection is
/// established.
pub(crate) fn is_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
    )
}
