//! Instructions that the BPF programs of `tailbound why` add to a frame, a request and a context
//! switch, as each is with and without them.

use crate::Outcome;
use crate::figures::{Figures, Unit};
use crate::load::{PORT, now, socket};
use crate::network::{Guest, add_bridge, join};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use tailbound_metrics::FineHistogram;
use tailbound_sys::packets::{self, NO_FLOW};
use tailbound_sys::{netns, waits};
use tailbound_units::Nanos;

/// Frames, requests or switches that are not counted, and those that are.
const WARM_UP: u64 = 100;
const COUNTED: u64 = 1000;
const PAYLOAD: usize = 18;

/// The sampling of flows, by the names of its figures.
const SAMPLINGS: [(&str, u32); 3] = [("counted", NO_FLOW), ("sampled", 10), ("followed", 0)];

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let guests = [1, 2].map(Guest::add);
    let [from, to] = guests;
    let (from, to) = (from?, to?);
    from.introduce(to)?;
    add_bridge("switch")?;
    for guest in [from, to] {
        join("switch", &guest.port_name())?;
    }
    let mut ways = Ways::open(from, to)?;
    ways.measure(figures, "off")?;
    let mut tracer = packets::Tracer::load(&packets::Settings {
        slots: 2,
        slow: Nanos(u64::MAX),
        sample_shift: NO_FLOW,
    })?;
    for (slot, guest) in (0..).zip([from, to]) {
        tracer.follow(guest.port(), slot)?;
    }
    for (name, shift) in SAMPLINGS {
        tracer.set_sampling(shift)?;
        ways.measure(figures, name)?;
    }
    let passed = tracer.read(0)?.packets.outward;
    figures.add("frames.counted", passed, Unit::Count);
    drop(tracer);
    let waits = trace_waits(true)?;
    ways.measure(figures, "softirqs-timed")?;
    drop(waits);
    switches(figures)
}

fn trace_waits(times_softirqs: bool) -> Outcome<waits::Tracer> {
    Ok(waits::Tracer::load(&waits::Settings {
        threads: 2,
        late: Nanos(u64::MAX),
        bounds: &FineHistogram::BUCKET_BOUNDS_NS,
        cells: &FineHistogram::cells(),
        times_softirqs,
        histograms: false,
        entries: false,
    })?)
}

/// Sockets of two guests.
struct Ways {
    frames: [std::net::UdpSocket; 2],
    requests: [TcpStream; 2],
}

impl Ways {
    fn open(from: Guest, to: Guest) -> Outcome<Self> {
        let listener = netns::within(&to.namespace(), || TcpListener::bind(("0.0.0.0", PORT)))??;
        let address = to.address();
        let client = netns::within(&from.namespace(), || {
            TcpStream::connect((address.as_str(), PORT))
        })??;
        let (server, _) = listener.accept()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        Ok(Self {
            frames: [socket(from, &to.address())?, socket(to, &from.address())?],
            requests: [client, server],
        })
    }

    /// Adds the instructions of a datagram, and those of a request with its answer.
    fn measure(&mut self, figures: &mut Figures, name: &str) -> Outcome<()> {
        let mut bytes = [0; PAYLOAD];
        let [sender, receiver] = &self.frames;
        let frame = each(|| {
            sender.send(&bytes)?;
            receiver.recv(&mut bytes)?;
            Ok(())
        })?;
        let [client, server] = &mut self.requests;
        let request = each(|| {
            client.write_all(&bytes)?;
            server.read_exact(&mut bytes)?;
            server.write_all(&bytes)?;
            client.read_exact(&mut bytes)?;
            Ok(())
        })?;
        figures.add(format!("frame.{name}"), frame, Unit::Instructions);
        figures.add(format!("request.{name}"), request, Unit::Instructions);
        Ok(())
    }
}

/// The mean instructions of a step.
fn each(mut step: impl FnMut() -> Outcome<()>) -> Outcome<u64> {
    for _ in 0..WARM_UP {
        step()?;
    }
    let start = now();
    for _ in 0..COUNTED {
        step()?;
    }
    Ok(now().since(start).0 / COUNTED)
}

/// Two threads that wake each other: a step is two wake-ups and two switches.
fn switches(figures: &mut Figures) -> Outcome<()> {
    let (mut from, mut to_other) = std::io::pipe()?;
    let (mut from_other, mut to) = std::io::pipe()?;
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = tell.send(own_tid());
            let mut byte = [0];
            // Until the other end is closed.
            while from.read_exact(&mut byte).is_ok() && to.write_all(&byte).is_ok() {}
        });
        let other = hear.recv()?;
        let mut byte = [0];
        let mut step = || {
            to_other.write_all(&byte)?;
            from_other.read_exact(&mut byte)?;
            Ok(())
        };
        let mut add = |name: &str, instructions: u64| {
            figures.add(
                format!("switch.{name}"),
                instructions / 2,
                Unit::Instructions,
            );
        };
        add("off", each(&mut step)?);
        let mut tracer = trace_waits(false)?;
        add("others", each(&mut step)?);
        for (place, tid) in (0..).zip([own_tid(), other]) {
            tracer.follow(tid, place)?;
        }
        add("followed", each(&mut step)?);
        drop(to_other);
        Ok(())
    })
}

fn own_tid() -> u32 {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    tid.cast_unsigned()
}
