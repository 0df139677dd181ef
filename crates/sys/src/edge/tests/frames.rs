//! Programs on single frames, in the kernel of this computer.

mod buckets;
mod guard;
mod lines;
mod marks;

use super::super::raw::Rules;
use super::*;
use aya::programs::SchedClassifier;
use aya::{TestRun as _, TestRunOptions};

/// The guest's interface and its neighbour's. A frame of a test arrives at the loopback interface.
const GUEST: u32 = 1;
const NEIGHBOUR: u32 = 2;

/// `struct __sk_buff`: its length, and the offsets of members that tests use.
const CONTEXT: usize = 192;
const MARK: usize = 8;
const FIRST_INTERFACE: usize = 36;
/// `cb[0]`, which has the slot in tests: the kernel takes no `tc_index` from them.
const SLOT: usize = 48;
const TSTAMP: usize = 152;
const WIRE_LEN: usize = 160;
const SEGMENTS: usize = 164;
const SEGMENT_SIZE: usize = 176;

/// The verdict of a program, and the frame afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    is_dropped: bool,
    /// True if the frame leaves for another interface.
    is_redirected: bool,
    frame: Vec<u8>,
    tstamp: u64,
    mark: u32,
}

/// A frame before a program.
#[derive(Debug, Clone, Default)]
struct Input {
    frame: Vec<u8>,
    mark: u32,
    /// The interface that it came from.
    from: u32,
    tstamp: u64,
    /// Length on the wire without overhead, number and size of segments; 0 for a plain frame.
    wire_len: u32,
    segments: u32,
    segment_size: u32,
    /// The guest's slot and 1, as its first program writes it; 0 for a frame that has none.
    slot: u32,
    /// Runs of the program on it; 0 is one.
    repeat: u32,
}

/// Programs with the rules of two guests.
struct Programs {
    edge: Edge,
    from_guest: SchedClassifier,
    to_guest: SchedClassifier,
    to_uplink: SchedClassifier,
    to_splitter: SchedClassifier,
    // Unmounted last.
    bpffs: Bpffs,
}

impl Programs {
    fn load(clock: Clock) -> Option<Self> {
        let bpffs = Bpffs::new()?;
        let edge = bpffs.open(clock)?;
        let program = |name| edge.pins.program(name).expect("a pinned program");
        let [from_guest, to_guest, to_uplink, to_splitter] =
            ["from_guest", "to_guest", "to_uplink", "to_splitter"].map(program);
        Some(Self {
            edge,
            from_guest,
            to_guest,
            to_uplink,
            to_splitter,
            bpffs,
        })
    }

    /// Starts a guest anew.
    fn start(&mut self, ifindex: u32, rules: &GuestRules) {
        let attachment = Attachment {
            ifindex,
            is_uplink: false,
            way: Way::Tcx,
            adds_clsact: false,
            queue: Queue::Untouched,
        };
        self.edge.take_off(attachment).expect("writable maps");
        let raw = self.edge.check(ifindex, rules).expect("right rules");
        self.edge.write(ifindex, &raw, None).expect("writable maps");
    }

    fn rules(&self, ifindex: u32) -> Rules {
        self.edge.maps.guests.get(&ifindex, 0).expect("a guest")
    }

    /// Changes the rules of a guest.
    fn change(&mut self, ifindex: u32, rules: &GuestRules) {
        let of_before = self.rules(ifindex);
        let raw = self.edge.check(ifindex, rules).expect("right rules");
        self.edge
            .write(ifindex, &raw, Some(&of_before))
            .expect("writable maps");
    }
}

fn run_on(program: &SchedClassifier, input: &Input) -> Outcome {
    let mut context = [0; CONTEXT];
    let mut put = |at: usize, value: u32| {
        context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    };
    put(MARK, input.mark);
    put(FIRST_INTERFACE, input.from);
    put(SLOT, input.slot);
    put(WIRE_LEN, input.wire_len);
    put(SEGMENTS, input.segments);
    put(SEGMENT_SIZE, input.segment_size);
    context[TSTAMP..TSTAMP + 8].copy_from_slice(&input.tstamp.to_ne_bytes());
    let (mut after, mut frame) = ([0; CONTEXT], vec![0; input.frame.len() + 256]);
    let result = program
        .test_run(TestRunOptions {
            data_in: Some(&input.frame),
            data_out: Some(&mut frame),
            ctx_in: Some(&context),
            ctx_out: Some(&mut after),
            repeat: input.repeat.max(1),
            ..TestRunOptions::new()
        })
        .expect("a frame that the kernel takes");
    frame.truncate(result.data_size_out as usize);
    let word = |at: usize| {
        after[at..at + 4]
            .first_chunk()
            .map(|it| u32::from_ne_bytes(*it))
    };
    let tstamp = after[TSTAMP..]
        .first_chunk()
        .map(|it| u64::from_ne_bytes(*it));
    let (is_dropped, is_redirected) = match result.return_value {
        2 => (true, false),
        7 => (false, true),
        u32::MAX => (false, false),
        other => panic!("verdict {other}"),
    };
    Outcome {
        is_dropped,
        is_redirected,
        frame,
        tstamp: tstamp.expect("within the context"),
        mark: word(MARK).expect("within the context"),
    }
}

#[test]
fn pinned_programs_are_reopened_and_removed_completely() {
    let Some(bpffs) = Bpffs::new() else { return };
    let Some(first) = bpffs.open(Clock::Monotonic) else {
        return;
    };
    assert!(first.lateness().expect("a map").is_some());
    drop(first);
    let again = Edge::open(&bpffs.pin()).expect("the same layout");
    assert_eq!(again.attachments().expect("a map"), []);
    again.remove().expect("nothing is in the way");
    assert!(!bpffs.pin().exists());
    assert!(!Edge::is_pinned(&bpffs.pin()));
}

#[test]
fn another_layout_is_refused_and_half_a_load_is_done_again() {
    let Some(bpffs) = Bpffs::new() else { return };
    let Some(first) = bpffs.open(Clock::Monotonic) else {
        return;
    };
    drop(first);
    let layout = |value: u64| {
        let data = aya::maps::MapData::from_pin(bpffs.pin().join("layout")).expect("a pin");
        let map = aya::maps::Map::from_map_data(data).expect("an array");
        let mut map: aya::maps::Array<_, u64> = map.try_into().expect("an array");
        map.set(0, value, 0).expect("writable");
    };
    layout(77);
    let error = Edge::open(&bpffs.pin()).expect_err("another layout");
    assert!(
        matches!(error, EdgeError::Layout { found: 77, .. }),
        "{error}"
    );
    layout(0);
    let done = Edge::open(&bpffs.pin()).expect("a new load");
    done.remove().expect("nothing is in the way");
}

#[test]
fn a_directory_outside_a_bpffs_is_refused_and_not_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("edge");
    let error = Edge::open(&path).expect_err("no bpffs");
    assert!(matches!(error, EdgeError::NoBpffs(_)), "{error}");
    assert!(!path.exists());
}
