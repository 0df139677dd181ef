//! `CoDel` and FQ-CoDel against Linux's own code, packet by packet, in virtual time.
//!
//! `scripts/linux-codel` fetches `codel_impl.h` and `sch_fq_codel.c` from Debian's source package;
//! this test compiles them with a shim of the kernel, and no shipped program contains them.
//! [`DEVIATIONS`] lists our intended deviations: with these few lines of Linux replaced, every
//! packet leaves, is marked and is dropped in the same call. With Linux unchanged, the scheduler
//! and the drops of an overload are the same, too; signals differ within the bounds that are
//! asserted here. One difference is excluded: if memory is the limit, our queue drops until it is
//! within the limit.

use proptest::prelude::*;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use tailbound_dataplane::{
    CodelConfig, Connection, FqCodelConfig, Frame, GuestId, Queue, QueueConfig, QueueStats,
};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_units::{Bytes, Nanos};

/// Replacements in Linux's code that align it with ours.
const DEVIATIONS: &[(&str, &str)] = &[
    // The distance of drops is exact, where Linux's is one step of Newton's method.
    (
        "reciprocal_scale(interval, rec_inv_sqrt << REC_INV_SQRT_SHIFT)",
        "exact_step(interval, rec_inv_sqrt)",
    ),
    ("vars->rec_inv_sqrt);", "vars->count);"),
    // Time is counted in nanoseconds, where Linux counts 1024 of them.
    ("#define CODEL_SHIFT 10", "#define CODEL_SHIFT 0"),
    // At the end of the interval the sojourn time counts as too long (RFC 8289, 5.4), not after it.
    (
        "codel_time_after(now, vars->first_above_time)",
        "codel_time_after_eq(now, vars->first_above_time)",
    ),
    // Our code checks the flow for a standing queue (RFC 8289, 5.4; Linux's mac80211),
    // sch_fq_codel.c all flows together.
    (
        "codel_dequeue(sch, &sch->qstats.backlog,",
        "codel_dequeue(sch, &q->backlogs[flow - q->flows],",
    ),
];

/// Linux's code.
#[derive(Debug, Clone, Copy)]
enum Linux {
    /// The unchanged code.
    AsItIs,
    /// The code with [`DEVIATIONS`].
    Alike,
}

/// The harness, compiled once for this process; `None` if it cannot be compiled.
fn harness(linux: Linux) -> Option<&'static Path> {
    static BUILT: [OnceLock<Option<PathBuf>>; 2] = [OnceLock::new(), OnceLock::new()];
    let built = BUILT[linux as usize].get_or_init(|| match build(linux) {
        Ok(program) => Some(program),
        Err(why) => {
            skipped(Part::LinuxCodel, why);
            None
        }
    });
    built.as_deref()
}

fn build(linux: Linux) -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = here.join("../../target/tools/linux-codel");
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let of_linux = |name| {
        read(sources.join(name)).map_err(|error| format!("{error}; run scripts/linux-codel"))
    };
    let mut scheduler = of_linux("sch_fq_codel.c")?;
    // Behind this are messages between kernel and tc.
    let end = scheduler.find("static struct sk_buff *fq_codel_peek");
    scheduler.truncate(end.expect("sch_fq_codel.c has a peek"));
    let mut code = String::new();
    for name in ["codel.h", "codel_impl.h", "codel_qdisc.h"] {
        code += &of_linux(name)?;
    }
    code += &scheduler;
    if matches!(linux, Linux::Alike) {
        for (theirs, ours) in DEVIATIONS {
            assert!(code.contains(theirs), "Linux's code has no {theirs:?}");
            code = code.replace(theirs, ours);
        }
    }
    let includes = |line: &&str| !line.starts_with("#include");
    let code: String = code
        .lines()
        .filter(includes)
        .fold(String::new(), |code, line| code + line + "\n");
    let shim = read(here.join("tests/linux/shim.h"))?;
    let main = read(here.join("tests/linux/main.c"))?;
    let room = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("linux-codel-{linux:?}-{}", std::process::id());
    let (source, program) = (room.join(format!("{name}.c")), room.join(name));
    std::fs::write(&source, [shim, code, main].concat()).map_err(|error| error.to_string())?;
    let mut cc = Command::new("cc");
    let cc = cc
        .args(["-O1", "-w", "-std=gnu11", "-o"])
        .arg(&program)
        .arg(&source);
    let output = cc.output().map_err(|error| format!("cc: {error}"))?;
    assert!(
        output.status.success(),
        "cc: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(program)
}

/// Something that happens to a queue.
#[derive(Debug, Clone, Copy)]
enum Event {
    Comes {
        flow: u32,
        len: usize,
        truesize: u64,
        ecn: u8,
    },
    Leaves,
}

/// Events with their times.
type Load = Vec<(Nanos, Event)>;

/// A packet that reports its drop.
#[derive(Debug)]
struct TrackedPacket {
    id: u64,
    connection: u32,
    len: usize,
    truesize: u64,
    ecn: u8,
    dropped: Option<Rc<RefCell<String>>>,
}

impl Drop for TrackedPacket {
    fn drop(&mut self) {
        if let Some(dropped) = &self.dropped {
            let _ = write!(dropped.borrow_mut(), " {}", self.id);
        }
    }
}

impl Frame for TrackedPacket {
    fn len(&self) -> usize {
        self.len
    }
    fn source(&self) -> Option<GuestId> {
        Some(GuestId::first(0))
    }
    fn connection(&self) -> Connection {
        Connection(self.connection)
    }
    fn truesize(&self) -> Bytes {
        Bytes(self.truesize)
    }
    fn mark_congestion(&mut self) -> bool {
        let takes_marks = self.ecn != 0;
        if takes_marks {
            self.ecn = 3;
        }
        takes_marks
    }
    fn is_scalable(&self) -> bool {
        self.ecn == 1
    }
}

/// The hash of a flow's connection: that of bucket number `flow`.
fn hash(flow: u32, flows: usize) -> u32 {
    ((u64::from(flow) << 32).div_ceil(flows as u64)) as u32
}

/// Events of our queue, one on each line.
fn ours(config: &QueueConfig, flows: usize, load: &Load) -> (Vec<String>, QueueStats) {
    let lines = Rc::new(RefCell::new(String::new()));
    let mut queue = Queue::new(config);
    let mut stats = QueueStats::default();
    for (id, &(now, event)) in load.iter().enumerate() {
        match event {
            Event::Comes {
                flow,
                len,
                truesize,
                ecn,
            } => {
                let frame = TrackedPacket {
                    id: id as u64,
                    connection: hash(flow, flows),
                    len,
                    truesize,
                    ecn,
                    dropped: Some(Rc::clone(&lines)),
                };
                queue.push(now, frame, &mut stats);
            }
            Event::Leaves => {
                if let Some(mut queued) = queue.pull(now, &mut stats) {
                    queued.frame.dropped = None;
                    let TrackedPacket { id, ecn, .. } = queued.frame;
                    let _ = write!(lines.borrow_mut(), " -> {id} ecn {ecn}");
                }
            }
        }
        lines.borrow_mut().push('\n');
    }
    let all = lines.borrow().lines().map(str::to_owned).collect();
    (all, stats)
}

/// Events of Linux's queue, one on each line.
fn theirs(program: &Path, config: &FqCodelConfig, load: &Load) -> Vec<String> {
    let mut input = format!(
        "{} {} {} {} {} {} {} {} {}\n",
        config.target.0,
        config.interval.0,
        config.ce_threshold.map_or(0, |threshold| threshold.0),
        u8::from(config.ecn),
        config.mtu.0,
        config.quantum.0,
        config.packets,
        config.memory.0,
        config.flows,
    );
    for (id, (now, event)) in load.iter().enumerate() {
        let _ = match event {
            Event::Comes {
                flow,
                len,
                truesize,
                ecn,
            } => {
                let hash = hash(*flow, config.flows);
                writeln!(input, "+ {} {id} {hash} {len} {truesize} {ecn}", now.0)
            }
            Event::Leaves => writeln!(input, "- {}", now.0),
        };
    }
    let mut run = Command::new(program);
    let run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut run = run.expect("the harness runs");
    let mut stdin = run.stdin.take().expect("it is piped");
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    feeder.join().expect("no panic").expect("it reads all");
    let text = String::from_utf8(output.stdout).expect("numbers");
    text.lines().map(str::to_owned).collect()
}

/// Times are multiples of this, of which none of the intervals is one: so that no event
/// is at the very moment at which Linux, in ticks of 1024 ns, and RFC 8289 differ.
const GRID: u64 = 5 * 1024;

/// 4882 and 97,656 ticks, Linux's 5 and 100 ms; a tenth of these, so that a second has
/// many intervals and Linux's clock of 32 bits does not wrap.
const TARGET: Nanos = Nanos(488 * 1024);
const INTERVAL: Nanos = Nanos(9766 * 1024);

fn config() -> FqCodelConfig {
    FqCodelConfig {
        target: TARGET,
        interval: INTERVAL,
        ..FqCodelConfig::default()
    }
}

/// Converts random steps (a pause, arrivals of a flow, number of departures) to a load. Flows are
/// numbered in the order in which they first appear, which decides ties.
fn load(steps: &[(u64, u32, usize, u8, usize)]) -> Load {
    let mut known = Vec::new();
    let mut now = 200_000 * GRID;
    let mut load = Vec::new();
    for &(pause, flow, len, ecn, leave) in steps {
        now += pause * GRID;
        let number = known.iter().position(|other| *other == flow);
        let flow = number.unwrap_or_else(|| {
            known.push(flow);
            known.len() - 1
        }) as u32;
        let truesize = len as u64;
        let comes = Event::Comes {
            flow,
            len,
            truesize,
            ecn,
        };
        load.push((Nanos(now), comes));
        load.extend((0..leave).map(|_| (Nanos(now), Event::Leaves)));
    }
    load
}

fn steps(most: usize, flows: u32) -> impl Strategy<Value = Vec<(u64, u32, usize, u8, usize)>> {
    // Slightly more arrivals than departures on average, in bursts.
    let one = (
        prop_oneof![3 => 0u64..4, 1 => 0u64..200],
        0..flows,
        prop_oneof![Just(1514usize), 64usize..1515],
        0u8..3,
        prop_oneof![2 => Just(0usize), 5 => Just(1), 1 => 0usize..4],
    );
    prop::collection::vec(one, 1..most)
}

fn assert_same(ours: &[String], theirs: &[String], load: &Load) {
    assert_eq!(ours.len(), theirs.len());
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "event {at}: {:?}", load[at]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The order of packets and what an overload drops, with Linux's code as it is.
    #[test]
    fn fq_codel_turns_and_overload_drops_match_linux(
        steps in steps(1500, 40), packets in 1usize..200,
        quantum in 256u64..3000,
    ) {
        let Some(linux) = harness(Linux::AsItIs) else { return Ok(()) };
        let config = FqCodelConfig {
            packets,
            quantum: Bytes(quantum),
            // No packet waits this long.
            target: Nanos::from_secs(1),
            ..config()
        };
        let load = load(&steps);
        let (ours, _) = ours(&QueueConfig::FqCodel(config), config.flows, &load);
        assert_same(&ours, &theirs(linux, &config, &load), &load);
    }

    /// All results: turns, signals, marks and drops, with Linux's code except for [`DEVIATIONS`].
    #[test]
    fn every_packet_leaves_and_is_marked_and_dropped_as_in_linux(
        steps in steps(3000, 12), ecn: bool, l4s in prop::option::of(1u64..20),
        packets in prop_oneof![Just(10_240usize), 20usize..300],
    ) {
        let Some(linux) = harness(Linux::Alike) else { return Ok(()) };
        let config = FqCodelConfig {
            ecn,
            ce_threshold: l4s.map(|grains| Nanos(grains * GRID * 4)),
            packets,
            ..config()
        };
        let load = load(&steps);
        let (ours, _) = ours(&QueueConfig::FqCodel(config), config.flows, &load);
        assert_same(&ours, &theirs(linux, &config, &load), &load);
    }

    /// `CoDel` alone is one flow.
    #[test]
    fn codel_with_a_single_flow_matches_linux(steps in steps(3000, 1), ecn: bool) {
        let Some(linux) = harness(Linux::Alike) else { return Ok(()) };
        let config = FqCodelConfig { ecn, flows: 1, ..config() };
        let codel = CodelConfig {
            target: config.target,
            interval: config.interval,
            ecn,
            packets: 10_240,
            ..CodelConfig::default()
        };
        let load = load(&steps);
        let (ours, _) = ours(&QueueConfig::Codel(codel), 1, &load);
        assert_same(&ours, &theirs(linux, &config, &load), &load);
    }
}

/// A load of `over` percent in full frames of one flow, for two seconds, at 100 Mbit/s:
/// long enough for drops to quicken, and shorter than Linux's clock.
fn standing(over: u64, ecn: u8) -> Load {
    // A full frame takes 24 grains.
    let mut load = Vec::new();
    let (mut owed, mut now) = (0, 200_000 * GRID);
    for _ in 0..12_000 {
        now += 24 * GRID;
        owed += 100 + over;
        while owed >= 100 {
            owed -= 100;
            let comes = Event::Comes {
                flow: 0,
                len: 1514,
                truesize: 1514,
                ecn,
            };
            load.push((Nanos(now), comes));
        }
        load.push((Nanos(now), Event::Leaves));
    }
    load
}

/// Number of `CoDel`'s signals.
fn signals(lines: &[String]) -> usize {
    let dropped = |line: &String| {
        let words = line.split(" -> ").next().unwrap_or_default();
        words.split_whitespace().count() + usize::from(line.ends_with("ecn 3"))
    };
    lines.iter().map(dropped).sum()
}

#[test]
fn the_exact_root_signals_as_often_as_newtons_step() {
    let Some(linux) = harness(Linux::AsItIs) else {
        return;
    };
    for (over, ecn) in [(2, 0), (10, 0), (30, 0), (10, 2), (50, 2)] {
        let load = standing(over, ecn);
        let (ours, _) = ours(&QueueConfig::FqCodel(config()), 1024, &load);
        let (ours, theirs) = (signals(&ours), signals(&theirs(linux, &config(), &load)));
        // Newton's first steps are too short: Linux is ahead by a few signals, and stays so.
        assert!(theirs > 20, "{theirs} signals at {over} %");
        let apart = ours.abs_diff(theirs);
        assert!(
            apart <= 3 + theirs / 20,
            "{ours} and {theirs} signals at {over} %, ECN {ecn}"
        );
    }
}
