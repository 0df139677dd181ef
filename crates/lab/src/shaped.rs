//! What limits of guests do to real packets: tailbound's, and those of the kernel.
//!
//! One guest sends to another, and is held to a limit in between: by `tailbound host` with
//! each kind of limit or by its pacer, and by each queueing discipline of Linux that limits a
//! rate and that this kernel has; and by nothing. Each of them carries a stream of RTP
//! (Cheng and Wang, figures 17 and 18), pages (19 and 20) and bulk (21). They take turns (A
//! B C A B C ...), and what counts is the ratio within one round.

mod limiter;
mod web;

use crate::LabError;
use crate::cpus::Cpus;
use crate::guest::{self, Outcome, Stream, Task, Work, constant, now};
use crate::processes::{POLL, Rank, Ready, Start, Supervisor};
use crate::run_dir::RunDir;
use crate::summarise;
use crate::topology::namespace_path;
pub use crate::turns::Options;
use crate::turns::{Place, in_turn};
use limiter::Limiter;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tailbound_experiment::{
    Catalogue, Document, Experiment, Found, Mistake, Mistakes, Run, catalogue,
};
use tailbound_report::Variant;
use tailbound_sys::process::find_program;
use tailbound_sys::sched::Policy;
use tailbound_units::{Bytes, Nanos, Rate};

/// The namespace of whatever stands between the guests.
const MIDDLE: &str = "middle";
/// Where guests listen.
const PORT: u16 = 7_000;
const LEAD: Nanos = Nanos::from_millis(200);
const WARMUP: Nanos = Nanos::from_secs(1);
/// What may still be on its way.
const GRACE: Nanos = Nanos::from_millis(500);

/// The stream's limit, and that of pages, which the paper does not say.
const MEDIA: Rate = Rate::from_mbit(2);
const PAGES: Rate = Rate::from_mbit(4);
/// The limits of bulk.
const BULK: [u64; 3] = [10, 50, 100];
/// MPEG-TS in an RTP packet, as the paper's, and that as an Ethernet frame.
const PAYLOAD: Bytes = Bytes(1370);
const FRAME: Bytes = Bytes(1370 + 12 + 8 + 20 + 14);
/// Datagrams of full frames, and what TCP has of a full frame.
const DATAGRAM: Bytes = Bytes(1472);
const FULL: f64 = 1514.0;
const SEGMENT: f64 = 1448.0;

/// The one experiment: what it expects is in its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapedExperiment {}

/// The figures of one limiter in one round, by name, with their units.
type Figures = BTreeMap<String, (&'static str, f64)>;

/// What the measurements share.
struct Bench<'a> {
    options: &'a Options,
    run_dir: &'a RunDir,
    program: PathBuf,
    cpus: &'a Cpus,
    /// Of daemons and guests, where it may be set.
    policy: Option<Policy>,
    /// Whether nginx and ab are there.
    has_pages: bool,
    signal: Arc<AtomicUsize>,
}

impl Experiment for ShapedExperiment {
    type Options = Options;
    type Error = LabError;

    const CATALOGUE: Catalogue = catalogue!("experiments": "shaped");

    fn read(document: &Document<'_>) -> Result<Self, Vec<Mistake>> {
        document.whole()
    }

    fn check(&mut self, _: &str, _: &mut Mistakes) {}

    fn outline(&self) -> Vec<Variant> {
        let names = [names_of_stream(98), names_of_stream(100)].concat();
        let bulk = BULK.iter().flat_map(|mbit| {
            ["tcp", "udp"]
                .iter()
                .flat_map(move |kind| BULK_FIGURES.map(|figure| format!("{kind}_{mbit}_{figure}")))
        });
        let pages = web::FIGURES.map(str::to_owned);
        let names: Vec<_> = names.into_iter().chain(bulk).chain(pages).collect();
        let nothing = names.into_iter().map(|name| (name, ("", f64::NAN)));
        let nothing = [nothing.collect()];
        let variant = |limiter| variant(limiter, &nothing);
        Limiter::ALL.map(variant).into()
    }

    /// Moves this process into namespaces of its own, as a run of the lab does.
    fn run(&self, run: &mut Run<'_, Options>) -> Result<Found, LabError> {
        let options = run.options;
        let place = Place::enter()?;
        let has_pages = ["nginx", "ab"]
            .iter()
            .all(|program| find_program(program).is_some());
        let bench = Bench {
            options,
            run_dir: &place.run_dir,
            program: place.program.clone(),
            cpus: &place.cpus,
            policy: Place::policy(Rank::OnPath),
            has_pages,
            signal: Arc::clone(&place.signal),
        };
        let mut found = place.found(options);
        found.condition(
            "pages",
            if has_pages {
                "nginx and ab"
            } else {
                "nginx or ab is missing"
            },
        );
        let (mut here, mut missing) = (Vec::new(), Vec::new());
        for limiter in Limiter::ALL {
            match limiter.missing()? {
                None => here.push(limiter),
                Some(why) => missing.push(summarise::unavailable(limiter.name(), &why)),
            }
        }
        let measured = in_turn(run, &here, Limiter::name, |limiter| bench.measure(limiter))?;
        let ran = measured
            .iter()
            .map(|(limiter, rounds)| variant(*limiter, rounds));
        found.variants = ran.chain(missing).collect();
        Ok(found)
    }
}

/// A limiter with its figures: medians of the rounds.
fn variant(limiter: Limiter, rounds: &[Figures]) -> Variant {
    let mut variant = Variant {
        name: limiter.name().into(),
        ..Variant::default()
    };
    let first = rounds.first().into_iter().flatten();
    for (name, (unit, _)) in first {
        let runs = rounds.iter().filter_map(|round| Some(round.get(name)?.1));
        variant
            .values
            .insert(name.clone(), summarise::value(unit, runs.collect()));
    }
    variant
}

const STREAM_FIGURES: [&str; 8] = [
    "jitter_mean",
    "jitter_p99",
    "sender_jitter_mean",
    "sender_jitter_p99",
    "delta_p99",
    "delta_max",
    "delay_p50",
    "delay_p99",
];

fn names_of_stream(load: u64) -> Vec<String> {
    STREAM_FIGURES
        .map(|name| format!("rtp_{load}_{name}"))
        .into()
}

const BULK_FIGURES: [&str; 3] = ["mean", "most_in_a_second", "off_in_10s"];

impl Bench<'_> {
    fn measure(&self, limiter: Limiter) -> Result<Figures, LabError> {
        let mut figures = Figures::new();
        for load in [98, 100] {
            let gap = Nanos(MEDIA.time_for(FRAME).0 * 100 / load);
            let (moments, length) = constant(gap);
            let work = |to| {
                let stream = Stream {
                    to,
                    payload: PAYLOAD,
                    moments: moments.clone(),
                    length,
                };
                (Work::RtpSender(stream), Work::RtpReceiver { port: PORT })
            };
            let arrived = self.load(limiter, MEDIA, work)?;
            for (name, figure) in arrived.figures {
                figures.insert(format!("rtp_{load}_{name}"), ("ms", figure));
            }
        }
        for mbit in BULK {
            let limit = Rate::from_mbit(mbit);
            let bulk = |to| (Work::BulkSender { to }, Work::BulkReceiver { port: PORT });
            let tcp = self.load(limiter, limit, bulk)?;
            figures.extend(rates("tcp", mbit, &tcp.windows, SEGMENT));
            // Twice the limit.
            let offered = (2 * limit.0 / 8 / FULL as u64) as u32;
            let flood = |to| {
                let flood = Work::Flood {
                    to,
                    payload: DATAGRAM,
                    offered: Some(offered),
                    segment: None,
                };
                (flood, Work::Sink { port: PORT })
            };
            let udp = self.load(limiter, limit, flood)?;
            figures.extend(rates("udp", mbit, &udp.windows, DATAGRAM.0 as f64));
        }
        if self.has_pages {
            figures.extend(web::measure(self, limiter)?);
        }
        Ok(figures)
    }

    /// Runs a sender and a receiver in two guests, the first of which is limited; returns what
    /// the second one found.
    fn load(
        &self,
        limiter: Limiter,
        limit: Rate,
        work: impl Fn(SocketAddrV4) -> (Work, Work),
    ) -> Result<Outcome, LabError> {
        let mut supervisor = Supervisor::new(self.run_dir, Arc::clone(&self.signal));
        limiter.build(&mut supervisor, self, limit)?;
        let (sender, receiver) = work(SocketAddrV4::new(address(2), PORT));
        let first = supervisor.len();
        let arrived = self.start_task(&mut supervisor, 2, receiver)?;
        supervisor.wait_ready(first)?;
        self.start_task(&mut supervisor, 1, sender)?;
        supervisor.wait_ready(first)?;
        let start = now().saturating_add(LEAD);
        supervisor.start_at(&format!("{}\n", start.as_nanos()))?;
        supervisor.rest((LEAD + WARMUP + self.options.duration + GRACE).into())?;
        while !arrived.exists() {
            supervisor.rest(POLL)?;
        }
        let outcome = Outcome::read(&arrived)?;
        supervisor.end()?;
        Limiter::remove()?;
        Ok(outcome)
    }

    fn start_task(
        &self,
        supervisor: &mut Supervisor<'_>,
        number: u8,
        work: Work,
    ) -> Result<PathBuf, LabError> {
        let file = |extension: &str| -> PathBuf {
            let name = format!("guest{number}.{extension}");
            self.run_dir.path().join(name)
        };
        let (path, outcome) = (file("task.json"), file("outcome.json"));
        // Of the measurement before.
        let _ = std::fs::remove_file(&outcome);
        let ends = matches!(
            work,
            Work::RtpSender(_) | Work::RtpReceiver { .. } | Work::Flood { .. }
        );
        let task = Task {
            work,
            warmup: WARMUP,
            duration: self.options.duration,
            grace: GRACE,
            outcome: outcome.clone(),
        };
        task.write(&path)?;
        supervisor.start(Start {
            name: format!("guest {number}"),
            program: self.program.clone(),
            args: guest::command(&path),
            netns: &namespace_path(&guest_name(number)),
            cpus: self.cpus.all,
            policy: self.policy,
            ready: Ready::Stdout(guest::READY),
            ends,
        })?;
        Ok(outcome)
    }
}

/// In percent of a limit, by what arrived in each second of full frames, in each of which is so
/// much payload: the mean, the most in a second, and by how much ten seconds differ from the
/// limit at most.
fn rates(
    kind: &str,
    mbit: u64,
    windows: &[u64],
    payload: f64,
) -> Vec<(String, (&'static str, f64))> {
    let full = mbit as f64 * 1e6 / 8.0 * payload / FULL;
    let parts: Vec<_> = windows
        .iter()
        .map(|bytes| 100.0 * *bytes as f64 / full)
        .collect();
    let mean = |parts: &[f64]| parts.iter().sum::<f64>() / parts.len() as f64;
    let tens = parts.windows(parts.len().min(10)).map(mean);
    let off = tens
        .map(|part| (part - 100.0).abs())
        .fold(f64::NAN, f64::max);
    let most = parts.iter().copied().fold(f64::NAN, f64::max);
    [mean(&parts), most, off]
        .into_iter()
        .zip(BULK_FIGURES)
        .map(|(figure, name)| (format!("{kind}_{mbit}_{name}"), ("%", figure)))
        .collect()
}

fn guest_name(number: u8) -> String {
    format!("guest{number}")
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, number)
}

fn mac(number: u8) -> String {
    format!("02:00:00:01:00:{number:02x}")
}
