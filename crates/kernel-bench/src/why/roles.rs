//! The programs of guests and of the peer outside, each a process.

use crate::Outcome;
use crate::load::{cpu_time, now, sleep_until, spin};
use std::io::{IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tailbound_sys::netns;
use tailbound_sys::tap::{Tap, VIRTIO_HEADER_LEN};
use tailbound_sys::vhost_net::{Driver, MAX_FRAME};
use tailbound_units::Nanos;

/// The ports of the victim's service, and of the sink of bulk.
pub(crate) const SERVICE: u16 = 7001;
pub(crate) const SINK: u16 = 7002;
const LENGTH: usize = 64;
/// The pause between requests.
const REQUEST_INTERVAL: Nanos = Nanos::from_millis(5);
/// The longest time between two looks at the guest's own TAP.
const TURN: Nanos = Nanos::from_micros(100);

/// Runs a role until the process is killed.
pub(crate) fn run(arguments: &[&str]) -> Outcome<()> {
    run_in(None, arguments)
}

/// Sockets are of the network namespace of this file, or of the process.
fn run_in(space: Option<&Path>, arguments: &[&str]) -> Outcome<()> {
    match arguments {
        ["serve", port, work] => {
            let work = Nanos::from_micros(work.parse()?);
            serve(&listen(space, port.parse()?)?, work)
        }
        ["sink", port] => sink(&listen(space, port.parse()?)?),
        ["ask", address, port] => ask(connect(space, address, port.parse()?)?),
        ["bulk", address, port] => bulk(connect(space, address, port.parse()?)?),
        ["compute"] => {
            spin(&AtomicBool::new(false));
            Ok(())
        }
        ["wait"] => loop {
            pause(Nanos::from_secs(1));
        },
        ["monitor", port, name, role @ ..] => monitor(port, name, role),
        other => Err(format!("unknown role {other:?}").into()),
    }
}

fn pause(time: Nanos) {
    sleep_until(now().saturating_add(time));
}

fn listen(space: Option<&Path>, port: u16) -> Outcome<TcpListener> {
    let listen = || TcpListener::bind(("0.0.0.0", port));
    Ok(match space {
        Some(space) => netns::within(space, listen)??,
        None => listen()?,
    })
}

/// Connects to a server that may begin later.
fn connect(space: Option<&Path>, address: &str, port: u16) -> Outcome<TcpStream> {
    let connect = || TcpStream::connect((address, port));
    for _ in 0..100 {
        let connected = match space {
            Some(space) => netns::within(space, connect)?,
            None => connect(),
        };
        if let Ok(connected) = connected {
            connected.set_nodelay(true)?;
            return Ok(connected);
        }
        pause(Nanos::from_millis(50));
    }
    Err(format!("{address} does not answer").into())
}

/// Answers requests, each after this CPU time.
fn serve(listener: &TcpListener, work: Nanos) -> Outcome<()> {
    let mut bytes = [0; LENGTH];
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        while stream.read_exact(&mut bytes).is_ok() {
            let begun = cpu_time();
            while cpu_time().since(begun) < work {}
            stream.write_all(&bytes)?;
        }
    }
}

/// Sends requests, one after another.
fn ask(mut stream: TcpStream) -> Outcome<()> {
    let mut bytes = [0; LENGTH];
    loop {
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        pause(REQUEST_INTERVAL);
    }
}

fn sink(listener: &TcpListener) -> Outcome<()> {
    let mut bytes = vec![0; 1 << 18];
    loop {
        let (mut stream, _) = listener.accept()?;
        while stream.read(&mut bytes)? > 0 {}
    }
}

fn bulk(mut stream: TcpStream) -> Outcome<()> {
    let bytes = vec![0; 1 << 16];
    loop {
        stream.write_all(&bytes)?;
    }
}

/// A virtual machine monitor without a virtual machine: it carries frames between the rings of a TAP
/// of the host, and a TAP in a network namespace, whose sockets are the guest's.
fn monitor(port: &str, name: &str, role: &[&str]) -> Outcome<()> {
    let space = PathBuf::from("/run/netns").join(name);
    let mut driver = Driver::open(port)?;
    let inner = Tap::open("eth0", Some(&space))?;
    // The rings carry none.
    inner.leave_offloads()?;
    std::thread::scope(|scope| {
        // By the name that a vCPU's thread has.
        let vcpu = std::thread::Builder::new().name("fc_vcpu 0".to_owned());
        vcpu.spawn_scoped(scope, || {
            if let Err(error) = run_in(Some(&space), role) {
                eprintln!("{role:?}: {error}");
            }
        })?;
        carry(&mut driver, &inner)
    })
}

fn carry(driver: &mut Driver, inner: &Tap) -> Outcome<()> {
    let mut out = vec![0; VIRTIO_HEADER_LEN + MAX_FRAME];
    loop {
        driver.receive(|frame| {
            let mut bytes = vec![0; VIRTIO_HEADER_LEN];
            bytes.extend_from_slice(frame);
            // A frame that the guest has no room for is lost.
            let _ = inner.transmit(&bytes);
        })?;
        while let Ok(length) = inner.receive(&mut [IoSliceMut::new(&mut out)]) {
            driver.send(&out[VIRTIO_HEADER_LEN..length])?;
        }
        driver.wait(TURN)?;
    }
}
