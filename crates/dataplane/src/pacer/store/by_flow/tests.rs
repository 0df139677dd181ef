use super::super::super::index::GuestIndex;
use super::super::{Arrival, Store};
use super::*;
use crate::pacer::limit::Limit;
use crate::pacer::line::{Line, put_back};
use crate::testing::Record;
use crate::{FlowKey, Frame, GuestId};
use proptest::prelude::*;
use std::collections::VecDeque;
use tailbound_units::exact::TokenBucket;
use tailbound_units::{Nanos, Position, Rate};

/// A line of a destination: only these serve their flows in turn.
fn limited() -> Line {
    let key = FlowKey {
        source: GuestId::first(0),
        destination: 1,
    };
    let rate = Rate::from_mbit(1_000);
    let bucket = TokenBucket::on_wire(rate, rate, WireBytes(30_000)).expect("short");
    Line::new(
        GuestIndex::new(0),
        1,
        Some(Limit::new(key, bucket, None, WireBytes::ZERO)),
    )
}

/// Operation on a line.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Frames of a flow arrive, of this length.
    Push(u32, usize),
    /// The first frame leaves.
    Pop,
    /// The first frame is removed, and put back.
    PutBack,
    /// A frame behind the first is dropped.
    Drop,
    /// The frames of a flow move to another line.
    TakeFlow(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // More flows than queues, some with one home.
    let flow = prop_oneof![0..4_u32, (0..40_u32).prop_map(|n| n << 27), Just(u32::MAX)];
    let step = prop_oneof![
        6 => (flow.clone(), 60..1515_usize).prop_map(|(flow, len)| Step::Push(flow, len)),
        5 => Just(Step::Pop),
        1 => Just(Step::PutBack),
        1 => Just(Step::Drop),
        1 => flow.prop_map(Step::TakeFlow),
    ];
    proptest::collection::vec(step, 1..400)
}

/// A line, and its frames by flow in order of arrival.
struct Model {
    line: Line,
    store: Store<Record>,
    flows: Vec<(u32, VecDeque<u64>)>,
    next: u64,
}

impl Model {
    fn push(&mut self, flow: u32, len: usize) {
        let record = Record {
            connection: flow,
            ..Record::new(self.next, 0, len)
        };
        let (size, of) = (
            (WireBytes(len as u64 + 24), Bytes(len as u64)),
            record.connection(),
        );
        let arrival = Arrival {
            enqueued: Nanos::ZERO,
            at: Position::ZERO,
        };
        let place = self.store.place(record, size, arrival);
        self.line.push(&mut self.store, place, size, of);
        let id = self.next;
        self.flow(flow).push_back(id);
        self.next += 1;
    }

    fn flow(&mut self, flow: u32) -> &mut VecDeque<u64> {
        if !self.flows.iter().any(|(of, _)| *of == flow) {
            self.flows.push((flow, VecDeque::new()));
        }
        let found = self.flows.iter_mut().find(|(of, _)| *of == flow);
        &mut found.expect("it was added").1
    }

    /// Takes a frame out of its place; it must be one of the first two of its flow.
    fn left(&mut self, place: FrameIndex) {
        let record = self.store.take(place).expect("a frame");
        let flow = self.flow(record.connection);
        let at = flow.iter().position(|id| *id == record.id);
        // The first of a line may stay in front of a dropped one.
        assert!(at <= Some(1), "{record:?} of {flow:?}");
        flow.remove(at.expect("it waits"));
    }

    fn step(&mut self, step: Step) {
        let Self { line, store, .. } = self;
        match step {
            Step::Push(flow, len) => self.push(flow, len),
            Step::Pop if !line.is_empty() => {
                let head = line.head();
                line.pop(store);
                if line.is_empty() {
                    line.advance(store);
                }
                let record = self.store.take(head).expect("a frame");
                let first = self.flow(record.connection).pop_front();
                assert_eq!(first, Some(record.id), "each flow keeps its order");
            }
            Step::PutBack if !line.is_empty() => {
                let (head, rest) = (line.head(), line.has_one());
                line.pop(store);
                put_back(line, store, head);
                assert_eq!((line.head(), line.has_one()), (head, rest));
            }
            Step::Drop if !line.is_empty() => {
                let had_one = line.has_one();
                let head = line.head();
                match line.pop_second(store) {
                    Some(dropped) => self.left(dropped),
                    None => assert!(had_one),
                }
                assert_eq!(self.line.head(), head, "the first may be released");
            }
            Step::TakeFlow(flow) => {
                let mut taken = limited();
                taken.take_from(store, line, |record| record.connection == flow);
                while !taken.is_empty() {
                    let head = taken.head();
                    taken.pop(store);
                    let record = store.take(head).expect("a frame");
                    assert_eq!(record.connection, flow);
                    let of = self.flows.iter_mut().find(|(of, _)| *of == flow);
                    let first = of.expect("it waits").1.pop_front();
                    assert_eq!(first, Some(record.id));
                }
            }
            Step::Pop | Step::PutBack | Step::Drop => {}
        }
    }

    fn check(&self) {
        let (mut frames, mut wire, mut memory) = (0, WireBytes::ZERO, Bytes(0));
        let mut last = std::collections::BTreeMap::new();
        for index in self.line.frames(&self.store) {
            let waiting = self.store.at(index);
            let record = waiting.frame.as_ref().expect("a frame");
            let before = last.insert(record.connection, record.id);
            assert!(before < Some(record.id), "in order in the list, too");
            frames += 1;
            wire += waiting.wire;
            memory.0 += waiting.memory.0;
        }
        let known: usize = self.flows.iter().map(|(_, of)| of.len()).sum();
        assert_eq!(frames, known, "none is lost");
        assert_eq!((self.line.wire, self.line.memory), (wire, memory));
        assert_eq!(
            self.line.is_empty(),
            frames == 0,
            "it works while it has frames"
        );
    }
}

proptest! {
    #[test]
    fn a_line_keeps_all_frames_and_the_order_of_each_flow(steps in steps()) {
        let mut model = Model {
            line: limited(),
            store: Store::new(),
            flows: Vec::new(),
            next: 0,
        };
        for step in steps {
            model.step(step);
            model.check();
        }
        while !model.line.is_empty() {
            model.step(Step::Pop);
            model.check();
        }
        prop_assert_eq!(model.store.flows.in_use(), 0);
    }

    /// In any turn of the others a backlogged flow sends a quantum, up to the rest of a frame.
    #[test]
    fn backlogged_flows_share_a_line_equally(
        lens in proptest::collection::vec(60..1515_usize, 2..QUEUES),
        pops in 100..400,
    ) {
        let mut model = Model {
            line: limited(),
            store: Store::new(),
            flows: Vec::new(),
            next: 0,
        };
        let mut sent = vec![0_u64; lens.len()];
        let flow = |index: usize| (index as u32) << 28;
        let mut queued = vec![0; lens.len()];
        for _ in 0..pops {
            for (index, &len) in lens.iter().enumerate() {
                while queued[index] < 60 {
                    model.push(flow(index), len);
                    queued[index] += 1;
                }
            }
            let record = model.store.at(model.line.head()).frame.as_ref();
            let index = (record.expect("a frame").connection >> 28) as usize;
            sent[index] += lens[index] as u64 + 24;
            queued[index] -= 1;
            model.step(Step::Pop);
        }
        let (least, most) = (sent.iter().min(), sent.iter().max());
        let apart = most.expect("flows") - least.expect("flows");
        prop_assert!(apart <= 3 * QUANTUM.0, "{:?}", sent);
    }
}

#[test]
fn queues_are_used_again_and_freed_when_nothing_waits() {
    let mut model = Model {
        line: limited(),
        store: Store::new(),
        flows: Vec::new(),
        next: 0,
    };
    for round in 0..10 {
        for flow in 0..3 {
            model.push(flow << 28, 100 + round);
            model.push(flow << 28, 100);
        }
        assert_eq!(model.store.flows.in_use(), 1);
        while !model.line.is_empty() {
            model.step(Step::Pop);
        }
        assert_eq!(model.store.flows.in_use(), 0);
    }
    assert_eq!(model.store.flows.all.len(), 1, "one line needs one");
    while model.store.give_back() != crate::queue::Spare::Nothing {}
    assert!(model.store.flows.all.is_empty());
    assert!(model.line.head().is_none());
}

/// More flows than queues: one that shares the last queue with frames stays in order.
#[test]
fn flows_of_one_queue_do_not_become_a_list_of_one_flow() {
    const SHARES: u32 = 1;
    let mut model = Model {
        line: limited(),
        store: Store::new(),
        flows: Vec::new(),
        next: 0,
    };
    for flow in (0..QUEUES as u32).map(|n| n << 28).cycle().take(2 * QUEUES) {
        model.push(flow, 1_514);
    }
    for _ in 0..40 {
        model.push(SHARES, 1_514);
    }
    let others = |model: &Model| {
        let mut flows = model.flows.iter();
        flows.any(|(flow, ids)| *flow != SHARES && !ids.is_empty())
    };
    while others(&model) {
        model.step(Step::Pop);
    }
    // The turns of the empty queues end.
    for _ in 0..8 {
        model.step(Step::Pop);
    }
    assert!(model.flow(SHARES).len() > 2);
    model.push(SHARES, 1_514);
    while !model.line.is_empty() {
        model.step(Step::Pop);
    }
}
