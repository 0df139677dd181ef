use super::*;
use proptest::prelude::*;

const MILLI: Nanos = Nanos::from_millis(1);

fn sequence(node: usize) -> Work {
    let sizes = std::array::from_fn(|call| Size::ALL[call % 3]);
    Work::Sequential { node, sizes }
}

/// A node that answers what it is asked.
fn answer(call: &Call) -> Vec<u8> {
    let header = Header::decode(call.bytes.first_chunk().unwrap()).unwrap();
    let Kind::Request(size) = header.kind else {
        panic!("{header:?} is no call");
    };
    let kind = Kind::Response(size);
    let mut bytes = Header { kind, ..header }.encode().to_vec();
    bytes.resize(HEADER + size.bytes(), 0xa5);
    bytes
}

fn calls(workflows: &mut Workflows) -> Vec<Call> {
    workflows.drain_calls().collect()
}

fn times(workflows: &mut Workflows) -> Vec<Nanos> {
    workflows.drain_answered().map(|it| it.took).collect()
}

#[test]
fn a_sequence_is_ten_consecutive_calls_of_1_2_and_4_kb() {
    let mut workflows = Workflows::new(&[7, 8]);
    workflows.begin(MILLI, MILLI, sequence(1));
    let mut now = MILLI;
    let mut sizes = Vec::new();
    while let [call] = calls(&mut workflows)[..] {
        assert_eq!(call.node, 1);
        now += MILLI;
        let bytes = answer(&call);
        sizes.push(bytes.len() - HEADER);
        workflows.received(now, 1, &bytes);
    }
    assert_eq!(
        sizes,
        [1000, 2000, 4000, 1000, 2000, 4000, 1000, 2000, 4000, 1000]
    );
    assert_eq!(times(&mut workflows), [Nanos::from_millis(10)]);
    assert!(workflows.is_idle());
}

#[test]
fn a_fan_out_takes_as_long_as_its_slowest_node() {
    let mut workflows = Workflows::new(&[7, 8, 9]);
    workflows.begin(MILLI, MILLI, Work::FanOut);
    let asked = calls(&mut workflows);
    for (at, place) in [(3, 2), (5, 0), (40, 1)] {
        let call = &asked[place];
        let bytes = answer(call);
        assert_eq!(bytes.len(), HEADER + 2000);
        workflows.received(Nanos::from_millis(at), call.node, &bytes);
    }
    assert_eq!(times(&mut workflows), [Nanos::from_millis(39)]);
    assert_eq!(workflows.counts().answered(), 1);
}

#[test]
fn a_late_start_of_the_client_is_timed_and_counted() {
    let mut workflows = Workflows::new(&[7]);
    workflows.begin(Nanos::from_millis(4), MILLI, Work::FanOut);
    let call = calls(&mut workflows)[0];
    workflows.received(Nanos::from_millis(7), 0, &answer(&call));
    assert_eq!(times(&mut workflows), [Nanos::from_millis(6)]);
    assert_eq!(workflows.counts().ours, 1);
}

/// One fan-out to two nodes, of which the second answers so.
fn hostile(say: impl Fn(&Call, &Call) -> Vec<u8>) -> (Workflows, Option<Fault>) {
    let mut workflows = Workflows::new(&[7, 8]);
    workflows.begin(MILLI, MILLI, Work::FanOut);
    let asked = calls(&mut workflows);
    let said = say(&asked[0], &asked[1]);
    workflows.received(MILLI, 1, &said);
    workflows.received(MILLI, 0, &answer(&asked[0]));
    let fault = workflows.fault(1).cloned();
    assert_eq!(workflows.fault(0), None);
    (workflows, fault)
}

#[test]
fn a_node_that_answers_wrongly_is_given_up_and_its_workflows_lost() {
    let turned = |at: usize| {
        move |_: &Call, call: &Call| {
            let mut bytes = answer(call);
            bytes[at] ^= 8;
            bytes
        }
    };
    let (workflows, fault) = hostile(turned(0));
    assert_eq!(fault, Some(Fault::Wire(WireError::Magic)));
    assert_eq!(workflows.counts().lost, 1);
    assert!(workflows.is_idle());
    // Another number, another token: of another call, or another node's.
    assert_eq!(hostile(turned(20)).1, Some(Fault::OtherCall));
    assert_eq!(hostile(turned(28)).1, Some(Fault::OtherCall));
    let (workflows, fault) = hostile(|first, _| answer(first));
    assert_eq!(fault, Some(Fault::OtherCall));
    assert_eq!(workflows.counts().lost, 1);
    // Longer or shorter than it was asked for.
    let sized = |size: Size| {
        move |_: &Call, call: &Call| {
            let header = Header::decode(call.bytes.first_chunk().unwrap()).unwrap();
            let kind = Kind::Response(size);
            let mut bytes = Header { kind, ..header }.encode().to_vec();
            bytes.resize(HEADER + size.bytes(), 0);
            bytes
        }
    };
    assert_eq!(hostile(sized(Size::Small)).1, Some(Fault::OtherCall));
    assert_eq!(hostile(sized(Size::Large)).1, Some(Fault::OtherCall));
    assert_eq!(hostile(sized(Size::Middle)).1, None);
}

#[test]
fn duplicate_or_excess_answers_count_once_and_end_the_node() {
    let twice = |_: &Call, call: &Call| [answer(call), answer(call)].concat();
    let (workflows, fault) = hostile(twice);
    assert_eq!(fault, Some(Fault::Unasked));
    // The answer itself was there.
    assert_eq!(workflows.counts().answered(), 1);
    assert_eq!(
        hostile(|_, call| [answer(call), vec![0]].concat()).1,
        Some(Fault::Unasked)
    );
    // In a sequence the next call is out by then: the answer is not to that one.
    let mut workflows = Workflows::new(&[7]);
    workflows.begin(MILLI, MILLI, sequence(0));
    let call = calls(&mut workflows)[0];
    workflows.received(MILLI, 0, &twice(&call, &call));
    assert_eq!(workflows.fault(0), Some(&Fault::OtherCall));
    assert_eq!(workflows.counts().lost, 1);
}

#[test]
fn a_short_answer_is_waited_for_and_then_the_node_is_given_up() {
    let (mut workflows, fault) = hostile(|_, call| answer(call)[..1500].to_vec());
    assert_eq!(fault, None);
    let end = MILLI + ANSWER;
    assert_eq!(workflows.poll_at(), Some(end));
    workflows.poll(Nanos(end.0 - 1));
    assert_eq!(workflows.counts().timed_out, 0);
    workflows.poll(end);
    assert_eq!(workflows.counts().timed_out, 1);
    assert_eq!(workflows.fault(1), Some(&Fault::Silent));
    assert_eq!(workflows.poll_at(), None);
}

#[test]
fn an_answer_after_the_timeout_is_ignored() {
    let mut workflows = Workflows::new(&[7]);
    workflows.begin(MILLI, MILLI, sequence(0));
    let mut now = MILLI;
    // A second for each answer: five of ten come in time.
    for _ in 0..5 {
        let call = calls(&mut workflows)[0];
        now += Nanos::from_secs(1);
        workflows.poll(now);
        workflows.received(now, 0, &answer(&call));
    }
    assert_eq!(workflows.counts().timed_out, 1);
    assert_eq!(workflows.fault(0), None);
    assert!(calls(&mut workflows).is_empty(), "it goes on");
    // The node itself is as good as before.
    workflows.begin(now, now, Work::FanOut);
    let call = calls(&mut workflows)[0];
    workflows.received(now + MILLI, 0, &answer(&call));
    assert_eq!(times(&mut workflows), [MILLI]);
}

#[test]
fn workflows_to_a_failed_node_are_lost_and_others_continue() {
    let mut workflows = Workflows::new(&[7, 8]);
    workflows.give_up(1, Fault::Connection("refused".into()));
    workflows.begin(MILLI, MILLI, Work::FanOut);
    workflows.begin(MILLI, MILLI, sequence(1));
    workflows.begin(MILLI, MILLI, sequence(0));
    let nodes: Vec<_> = calls(&mut workflows).iter().map(|call| call.node).collect();
    assert_eq!(nodes, [0, 0]);
    let counts = workflows.counts();
    assert_eq!((counts.workflows, counts.lost), (3, 2));
    assert!(!workflows.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn answers_are_read_in_pieces_of_any_size(
        cuts in proptest::collection::vec(1usize..3000, 1..40),
        flows in 1usize..6,
    ) {
        let mut workflows = Workflows::new(&[7]);
        (0..flows).for_each(|_| workflows.begin(MILLI, MILLI, sequence(0)));
        let (mut said, mut cuts) = (VecDeque::new(), cuts.into_iter().cycle());
        loop {
            for call in calls(&mut workflows) {
                said.extend(answer(&call));
            }
            let cut = cuts.next().unwrap().min(said.len());
            if cut == 0 {
                break;
            }
            let piece: Vec<u8> = said.drain(..cut).collect();
            workflows.received(MILLI, 0, &piece);
        }
        prop_assert_eq!(workflows.fault(0), None);
        prop_assert_eq!(times(&mut workflows).len(), flows);
    }

    #[test]
    fn every_workflow_ends_for_any_answers(
        said in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
    ) {
        let mut workflows = Workflows::new(&[7, 8]);
        for (place, bytes) in said.iter().enumerate() {
            workflows.begin(MILLI, MILLI, if place % 2 == 0 { Work::FanOut } else { sequence(0) });
            workflows.received(MILLI, place % 2, bytes);
        }
        workflows.poll(MILLI + ANSWER);
        prop_assert!(workflows.is_idle());
        let counts = workflows.counts();
        prop_assert_eq!(counts.timed_out + counts.lost, said.len() as u64);
    }
}
