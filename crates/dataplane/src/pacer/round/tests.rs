use super::super::config::PacerConfig;
use super::super::index::{GuestIndex, LineIndex};
use super::super::store::{Arrival, Store};
use super::*;
use crate::Connection;
use crate::testing::Record;
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos, Position, Rate};

/// A full frame of 1500 B of payload, on the wire.
const FULL_FRAME: WireBytes = WireBytes(1538);

/// A configuration with this longest frame.
fn config() -> PacerConfig {
    PacerConfig::new(Rate::from_mbit(10_000))
}

/// Lines of these weights that always have further frames, in one round.
fn round_of(weights: &[u32]) -> (Round<LineIndex>, Links<LineIndex>, Table<LineIndex, Line>) {
    let (mut round, mut order) = (Round::EMPTY, Links::new());
    let mut lines = Table::new();
    let mut store = Store::<Record>::new();
    order.reserve(weights.len());
    for share in weights {
        let mut line = Line::new(GuestIndex::new(0), *share, None);
        for _ in 0..2 {
            let arrival = Arrival {
                enqueued: Nanos::ZERO,
                at: Position::ZERO,
            };
            let size = (FULL_FRAME, Bytes(0));
            let place = store.place(Record::new(0, 0, 1500), size, arrival);
            line.push(&mut store, place, size, Connection(0));
        }
        round.push(&mut order, lines.push(line), *share);
    }
    (round, order, lines)
}

/// Cost of a turn: a check of each line whose deficit it has changed.
fn looks(before: &[i64], lines: &Table<LineIndex, Line>) -> usize {
    let pairs = before.iter().zip(lines.iter());
    pairs
        .filter(|(before, line)| **before != line.deficit)
        .count()
}

fn weight() -> impl Strategy<Value = u32> {
    let most = MAX_RATIO as u32;
    prop_oneof![Just(1), Just(most), 1..100_u32, 1..=most]
}

proptest! {
    /// A look adds to a line what it may send in a round, `frame` for each line of it on
    /// average, and a frame takes `frame` at most: so `k` frames take at most `k` looks, and
    /// three for each line, wherever the round begins. A single turn takes one look at each
    /// line at most, and adds no line's share twice.
    #[test]
    fn a_turn_visits_each_line_at_most_once(
        weights in prop::collection::vec(weight(), 2..60),
        lens in prop::collection::vec(84..=1538_u64, 1..400),
    ) {
        let (mut round, mut order, mut lines) = round_of(&weights);
        let sum: u64 = weights.iter().copied().map(u64::from).sum();
        let n = weights.len();
        let mut all = 0;
        for wire in &lens {
            let before: Vec<_> = lines.iter().map(|line| line.deficit).collect();
            let turn = round.turn(&mut lines, &mut order, config().longest_frame());
            let (_, line) = turn.expect("all have frames");
            prop_assert!(line.deficit > 0);
            all += looks(&before, &lines);
            for ((before, line), weight) in before.iter().zip(lines.iter()).zip(&weights) {
                let share = u64::from(*weight) * PARTS * n as u64 / sum * FULL_FRAME.0;
                let added = line.deficit - before;
                prop_assert!(added == 0 || added == share.cast_signed(), "twice");
            }
            let line = &mut lines[round.head];
            line.deficit -= of_deficit(WireBytes(*wire));
            if line.deficit <= 0 {
                round.rotate(&mut order);
            }
        }
        prop_assert!(all <= lens.len() + 3 * n, "{all} looks for {} frames", lens.len());
    }
}

/// The dearest turn there is: one line may send nearly all, and it comes last.
#[test]
fn a_turn_over_n_lines_costs_n_visits_and_pays_for_n_frames() {
    const LINES: usize = 1000;
    let mut weights = vec![1; LINES];
    weights[LINES - 1] = MAX_RATIO as u32;
    let (mut round, mut order, mut lines) = round_of(&weights);
    // A line that joins may send a frame immediately.
    for line in lines.iter_mut() {
        line.deficit -= of_deficit(FULL_FRAME);
    }
    let before: Vec<_> = lines.iter().map(|line| line.deficit).collect();
    let turn = round.turn(&mut lines, &mut order, config().longest_frame());
    let last = LineIndex::new(LINES - 1);
    assert_eq!(turn.expect("there are lines").0, last);
    assert_eq!(looks(&before, &lines), LINES);
    let mut frames = 0;
    while lines[last].deficit > 0 {
        let before: Vec<_> = lines.iter().map(|line| line.deficit).collect();
        round.turn(&mut lines, &mut order, config().longest_frame());
        assert_eq!(looks(&before, &lines), 0);
        lines[last].deficit -= of_deficit(FULL_FRAME);
        frames += 1;
    }
    assert!(frames > LINES - 10, "{frames}");
}
