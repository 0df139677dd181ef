//! Datagrams between guests, and the clock.

use crate::Outcome;
use crate::network::Guest;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tailbound_sys::netns;
use tailbound_sys::thread::{PolicyNumber, Scheduling, set_scheduling};
use tailbound_units::Nanos;

pub(crate) use tailbound_sys::timer::{now, sleep_until, thread_cpu_time as cpu_time};

/// The port of all receivers.
pub(crate) const PORT: u16 = 7000;
/// Longest wait for something that the kernel does, by the machine's clock.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until `reached`, in steps of a millisecond of the machine's clock.
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let end = now().saturating_add(Nanos(TIMEOUT.as_nanos() as u64));
    while !reached()? {
        let time = now();
        if time > end {
            return Err(format!("{what} within {TIMEOUT:?}").into());
        }
        sleep_until(time.saturating_add(Nanos::from_millis(1)));
    }
    Ok(())
}

/// Runs `work` on a CPU that never sleeps: a thread of the class `SCHED_IDLE` computes while no other
/// thread does.
///
/// QEMU moves the clock of a sleeping CPU on from another thread of its own, which is exact only to
/// some instructions; the clock of a CPU that computes is exact. `work` begins at a whole tenth of a
/// second of the clock, since the kernel's ticks do, too.
pub(crate) fn awake<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    const IDLE: Scheduling = Scheduling {
        policy: PolicyNumber::IDLE,
        ..Scheduling::PLAIN
    };
    const STEP: u64 = 100_000_000;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let name = std::thread::Builder::new().name("awake".to_owned());
        name.spawn_scoped(scope, || {
            set_scheduling(0, &IDLE)?;
            spin(&done);
            std::io::Result::Ok(())
        })?;
        sleep_until(Nanos((now().0 / STEP + 2) * STEP));
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Computes until `done`; without a pause, which an emulator takes as a reason to look around.
pub(crate) fn spin(done: &AtomicBool) {
    let mut rounds = 0_u64;
    while !done.load(Ordering::Relaxed) {
        rounds = std::hint::black_box(rounds.wrapping_add(1));
    }
}

/// A socket of a guest that sends to, and receives from, an address.
pub(crate) fn socket(guest: Guest, peer: &str) -> Outcome<UdpSocket> {
    socket_within(&guest.namespace(), peer)
}

/// A socket of a network namespace that sends to, and receives from, an address.
pub(crate) fn socket_within(namespace: &Path, peer: &str) -> Outcome<UdpSocket> {
    let socket = netns::within(namespace, || {
        let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
        socket.connect((peer, PORT))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        std::io::Result::Ok(socket)
    })??;
    Ok(socket)
}
