//! Throughput in frames from one guest to another through tailbound, behind each kind of port,
//! compared with the alternatives of an operator: a Linux bridge (the kernel's own limit) and Open
//! vSwitch's userspace datapath, both with their fastest port, a veth pair. A bare loop of read and
//! write between the same TAPs is the limit of that kind of port.
//!
//! Two guests exchange one TCP stream, then a flood of the smallest UDP frames, then such frames at
//! a fixed rate. The backends take turns (A B C D A B C D ...), and the result is the ratio within
//! one round, so that a change of the computer's speed affects all of them.

mod backend;

use crate::LabError;
use crate::guest::{Outcome, Work, now};
use crate::pair::{GuestPair, PORT, address, outcome};
use crate::summarise;
pub use crate::turns::Options;
use crate::turns::{Place, in_turn};
use backend::{Backend, Kind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use tailbound_experiment::{
    Catalogue, Document, Experiment, Found, Mistake, Mistakes, Run, catalogue,
};
use tailbound_report::{Value, Variant};
use tailbound_sys::procfs;
use tailbound_units::{Bytes, Nanos};

/// UDP payload of the smallest Ethernet frame: 64 bytes with the FCS.
const SMALL_PAYLOAD: Bytes = Bytes(64 - 4 - 14 - 20 - 8);
/// The smallest frames per second that are offered in the run with a fixed rate.
const OFFERED: u32 = 300_000;
const WARMUP: Nanos = Nanos::from_millis(500);
/// Length of an idle daemon's observation.
const IDLE: Nanos = Nanos::from_secs(5);
/// Number of guests of an idle daemon.
const IDLE_GUESTS: u8 = 4;

/// One backend, measured once.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    bulk_bit_s: f64,
    small_packets_s: f64,
    /// Share of the small packets that did not arrive.
    small_loss: f64,
    /// Packets that the sender could send in the run with a fixed rate, and the share of them that
    /// did not arrive.
    offered_packets_s: f64,
    offered_loss: f64,
}

/// A figure of a measurement.
type Figure = fn(&Measured) -> f64;

const BULK: Figure = |measured| measured.bulk_bit_s;
const SMALL: Figure = |measured| measured.small_packets_s;

/// The figures of a backend: name, unit, and function of each.
const FIGURES: [(&str, &str, Figure); 5] = [
    ("bulk_bit_s", "bit/s", BULK),
    ("small_packets_s", "packets/s", SMALL),
    ("small_loss", "ratio", |measured| measured.small_loss),
    ("offered_packets_s", "packets/s", |measured| {
        measured.offered_packets_s
    }),
    ("offered_loss", "ratio", |measured| measured.offered_loss),
];

/// Ratios between the figures of two backends.
const RATIOS: [(Backend, &str, Figure, Backend); 11] = [
    (Backend::Tap, "bulk_to_copy", BULK, Backend::Copy),
    (Backend::Tap, "small_to_copy", SMALL, Backend::Copy),
    (Backend::Tap, "bulk_to_bridge", BULK, Backend::Bridge),
    (Backend::Tap, "small_to_bridge", SMALL, Backend::Bridge),
    (Backend::Tap, "bulk_to_open_vswitch", BULK, Backend::Ovs),
    (
        Backend::Tap,
        "bulk_to_open_vswitch_tso",
        BULK,
        Backend::OvsTso,
    ),
    (Backend::Tap, "small_to_open_vswitch", SMALL, Backend::Ovs),
    (
        Backend::Tap,
        "small_to_open_vswitch_tso",
        SMALL,
        Backend::OvsTso,
    ),
    (Backend::Packet, "bulk_to_bridge", BULK, Backend::Bridge),
    (Backend::Packet, "small_to_bridge", SMALL, Backend::Bridge),
    (Backend::Xdp, "small_to_bridge", SMALL, Backend::Bridge),
];

/// The experiment `forward`. Its file has the checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardExperiment {}

impl Experiment for ForwardExperiment {
    type Options = Options;
    type Error = LabError;

    const CATALOGUE: Catalogue = catalogue!("experiments": "forward");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, _: &mut Mistakes) {}

    fn outline(&self) -> Vec<Variant> {
        variants(
            &Backend::ALL.map(|backend| (backend, Vec::new())).into(),
            f64::NAN,
        )
    }

    /// Moves this process into namespaces of its own, as a run of the lab does.
    fn run(&self, run: &mut Run<'_, Options>) -> Result<Found, LabError> {
        let options = run.options;
        Backend::require_tools()?;
        let place = Place::enter()?;
        let bench = Bench(GuestPair {
            place: &place,
            warmup: WARMUP,
            duration: options.duration,
            policy: None,
        });
        let mut found = place.found(options);
        (run.progress)("an idle daemon with four guests");
        let idle = bench.idle_share()?;
        let measured = in_turn(
            run,
            options.repeat,
            &Backend::ALL,
            Backend::name,
            |backend| bench.measure(backend),
        )?;
        place.add(variants(&measured, idle), &mut found);
        Ok(found)
    }
}

/// The guests of all measurements.
struct Bench<'a>(GuestPair<'a>);

/// The backends with their figures. A ratio is the median of those of each round.
fn variants(measured: &BTreeMap<Backend, Vec<Measured>>, idle: f64) -> Vec<Variant> {
    let variant = |(backend, rounds): (&Backend, &Vec<Measured>)| {
        let mut values: BTreeMap<String, Value> = FIGURES
            .iter()
            .map(|(name, unit, figure)| {
                let figures = rounds.iter().map(figure).collect();
                ((*name).to_owned(), summarise::value(unit, figures))
            })
            .collect();
        for (_, name, figure, other) in RATIOS.iter().filter(|ratio| ratio.0 == *backend) {
            let pairs = rounds.iter().zip(&measured[other]);
            let ratios = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs));
            values.insert((*name).to_owned(), summarise::value("", ratios.collect()));
        }
        if *backend == Backend::Tap {
            values.insert("idle_cpu_share".to_owned(), Value::new("", idle));
        }
        Variant {
            name: backend.name().into(),
            values,
            ..Variant::default()
        }
    };
    measured.iter().map(variant).collect()
}

impl Bench<'_> {
    fn measure(&self, backend: Backend) -> Result<Measured, LabError> {
        let bulk = |to| (Work::BulkSender { to }, Work::BulkReceiver { port: PORT });
        let [_, received] = self.load(backend, bulk, false)?;
        let small = |offered| {
            move |to| {
                let payload = SMALL_PAYLOAD;
                let flood = Work::Flood {
                    to,
                    payload,
                    offered,
                    segment: None,
                };
                (flood, Work::Sink { port: PORT })
            }
        };
        let lost = |[sent, arrived]: &[Outcome; 2]| {
            1.0 - arrived.amount as f64 / sent.amount.max(1) as f64
        };
        let flood = self.load(backend, small(None), true)?;
        let offered = self.load(backend, small(Some(OFFERED)), true)?;
        Ok(Measured {
            bulk_bit_s: received.rate() * 8.0,
            small_packets_s: flood[1].rate(),
            small_loss: lost(&flood),
            offered_packets_s: offered[0].rate(),
            offered_loss: lost(&offered),
        })
    }

    /// Runs a sender and a receiver in two guests that `backend` connects. A sender that ends has
    /// an outcome; a bulk stream continues until it is killed.
    fn load(
        &self,
        backend: Backend,
        work: impl Fn(SocketAddrV4) -> (Work, Work),
        sender_ends: bool,
    ) -> Result<[Outcome; 2], LabError> {
        let mut supervisor = self.0.supervisor();
        backend.build(&mut supervisor, self.0.place)?;
        let (sender, receiver) = work(SocketAddrV4::new(address(2), PORT));
        let first = supervisor.len();
        let none = Nanos::ZERO;
        let arrived = self
            .0
            .start_task(&mut supervisor, 2, (receiver, false), none)?;
        supervisor.wait_ready(first)?;
        let sent = self
            .0
            .start_task(&mut supervisor, 1, (sender, sender_ends), none)?;
        self.0.rest(&mut supervisor, first, none)?;
        let arrived = outcome(&mut supervisor, &arrived)?;
        let sent = if sender_ends {
            outcome(&mut supervisor, &sent)?
        } else {
            Outcome::default()
        };
        supervisor.end()?;
        backend.remove()?;
        Ok([sent, arrived])
    }

    /// Returns the share of a core that an idle daemon uses.
    fn idle_share(&self) -> Result<f64, LabError> {
        let mut supervisor = self.0.supervisor();
        let daemon = backend::tailbound(&mut supervisor, self.0.place, Kind::Tap, IDLE_GUESTS)?;
        // What guests say when their interface comes up is soon over.
        supervisor.rest(WARMUP.into())?;
        let pid = supervisor.member(daemon).child.id();
        let used = || procfs::cpu_time(pid).map_err(LabError::io("reading the daemon's CPU time"));
        let before = (now(), used()?);
        supervisor.rest(IDLE.into())?;
        let after = (now(), used()?);
        supervisor.end()?;
        backend::remove_guests(IDLE_GUESTS)?;
        Ok(after.1.since(before.1).as_secs_f64() / after.0.since(before.0).as_secs_f64())
    }
}
