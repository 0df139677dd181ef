use super::*;
use crate::pipeline::Outgoing;
use crate::testing::Record;
use crate::{Class, FifoConfig, Guarantee, GuestId, NicConfig, PacerConfig, QueueConfig};
use tailbound_units::{Bytes, Rate};

const LINK: Rate = Rate::from_mbit(100);
const NOW: Nanos = Nanos::from_secs(1);

fn queued() -> EgressConfig {
    EgressConfig::Pipeline(PipelineConfig {
        queue: QueueConfig::Fifo(FifoConfig::default()),
        nic: Some(NicConfig::new(LINK)),
        ..PipelineConfig::default()
    })
}

fn paced(voids: bool) -> EgressConfig {
    EgressConfig::Pacer(PacedPipelineConfig::new(PacerConfig {
        batch: Nanos::from_micros(500),
        voids,
        ..PacerConfig::strict(LINK)
    }))
}

fn guarantee() -> Guarantee {
    Guarantee {
        horizon: Nanos::from_millis(100),
        ..Guarantee::new(Rate::from_mbit(10), Bytes(1538), LINK)
    }
}

/// Guest 1's frame `id`, as a switch brings it in.
fn push(egress: &mut Egress<Record>, now: Nanos, id: u64, coverage: Coverage) {
    let frame = Record::new(id, 1, 1000);
    match egress {
        Egress::Pipeline(pipeline) => pipeline.push(now, frame),
        Egress::Pacer(paced) => paced.push(now, Some(frame), coverage),
    }
}

/// Departures until `end`: number, class, launch time.
fn pull(egress: &mut Egress<Record>, end: Nanos) -> Vec<(u64, Class, Option<Nanos>)> {
    let mut left = Vec::new();
    while let Some(at) = egress.poll_at().filter(|at| *at <= end) {
        match egress {
            Egress::Pipeline(pipeline) => {
                let departure = pipeline.pull(at).expect("it is due");
                left.push((departure.frame.id, departure.frame.class, None));
            }
            Egress::Pacer(paced) => {
                let wire = |next: Outgoing<Record>, _| {
                    if let Outgoing::Frame { frame, launch_at } = next {
                        left.push((frame.id, frame.class, launch_at));
                    }
                };
                paced.pull(at, wire, |_, _| {});
            }
        }
    }
    left
}

fn pacer(egress: &mut Egress<Record>) -> &mut Pacer<Record> {
    egress.pacer_mut().expect("it is paced")
}

#[test]
fn a_queue_becomes_a_pacer_and_a_queue_again_and_no_frame_is_lost_or_overtakes() {
    let mut egress = Egress::new(queued()).expect("no rule is broken");
    for id in 0..10 {
        push(&mut egress, NOW, id, Coverage::AllDestinations);
    }
    egress
        .reconfigure(NOW, paced(true))
        .expect("no rule is broken");
    assert_eq!(egress.waiting(), 10);
    pacer(&mut egress)
        .set_guest(NOW, GuestId::first(1), Some(&guarantee()))
        .expect("no rule is broken");
    for id in 10..20 {
        push(&mut egress, NOW, id, Coverage::AllDestinations);
    }
    let mut left = pull(&mut egress, NOW + Nanos::from_millis(3));
    assert!((1..20).contains(&left.len()), "{} left", left.len());
    let now = NOW + Nanos::from_millis(3);
    egress
        .reconfigure(now, queued())
        .expect("no rule is broken");
    assert_eq!(egress.waiting() + left.len(), 20);
    left.extend(pull(&mut egress, now + Nanos::from_secs(1)));
    let order: Vec<_> = left.iter().map(|(id, ..)| *id).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_broken_rule_changes_nothing() {
    let mut egress = Egress::new(queued()).expect("no rule is broken");
    push(&mut egress, NOW, 0, Coverage::AllDestinations);
    let broken = PacerConfig::strict(Rate(0));
    let broken = EgressConfig::Pacer(PacedPipelineConfig::new(broken));
    assert!(Egress::<Record>::new(broken.clone()).is_err());
    assert!(egress.reconfigure(NOW, broken).is_err());
    assert!(egress.pacer().is_none());
    assert_eq!(egress.waiting(), 1);
}

#[test]
fn a_guarantee_gives_frames_its_class_where_it_covers_their_destination() {
    let mut egress = Egress::new(paced(true)).expect("no rule is broken");
    let class = |egress: &mut Egress<Record>, id, coverage| {
        push(egress, NOW, id, coverage);
        let left = pull(egress, NOW + Nanos::from_secs(1));
        left[0].1
    };
    let all = Coverage::AllDestinations;
    let limited = Coverage::LimitedDestinations;
    assert_eq!(class(&mut egress, 0, all), Class::Lowest);
    pacer(&mut egress)
        .set_guest(NOW, GuestId::first(1), Some(&guarantee()))
        .expect("no rule is broken");
    assert_eq!(class(&mut egress, 1, all), Class::Guaranteed);
    assert_eq!(class(&mut egress, 2, limited), Class::Lowest);
    let rate = Some(Rate::from_mbit(5));
    pacer(&mut egress)
        .set_destination(NOW, GuestId::first(1), 1, rate)
        .expect("no rule is broken");
    assert_eq!(class(&mut egress, 3, limited), Class::Guaranteed);
}

/// Waiting frames may leave beyond all guarantees, so not in the guaranteed class.
#[test]
fn frames_that_wait_when_their_guarantee_or_the_pace_ends_leave_in_the_lowest_class() {
    for end_pace in [false, true] {
        let mut egress = Egress::new(paced(true)).expect("no rule is broken");
        let guest = GuestId::first(1);
        pacer(&mut egress)
            .set_guest(NOW, guest, Some(&guarantee()))
            .expect("no rule is broken");
        for id in 0..20 {
            push(&mut egress, NOW, id, Coverage::AllDestinations);
        }
        let now = NOW + Nanos::from_millis(3);
        let before = pull(&mut egress, now);
        assert!(
            before
                .iter()
                .all(|(_, class, _)| *class == Class::Guaranteed)
        );
        if end_pace {
            egress.reconfigure(now, queued())
        } else {
            pacer(&mut egress).set_guest(now, guest, None)
        }
        .expect("no rule is broken");
        let after = pull(&mut egress, now + Nanos::from_secs(1));
        assert_eq!(before.len() + after.len(), 20);
        assert!(after.len() > 10, "{}", after.len());
        assert!(after.iter().all(|(_, class, _)| *class == Class::Lowest));
    }
}

#[test]
fn frames_have_launch_times_where_there_are_no_voids_between_them() {
    for voids in [true, false] {
        let mut egress = Egress::new(paced(voids)).expect("no rule is broken");
        pacer(&mut egress)
            .set_guest(Nanos::ZERO, GuestId::first(1), Some(&guarantee()))
            .expect("no rule is broken");
        for id in 0..4 {
            push(&mut egress, NOW, id, Coverage::AllDestinations);
        }
        let left = pull(&mut egress, NOW + Nanos::from_secs(1));
        let launches: Vec<_> = left.iter().filter_map(|(_, _, at)| *at).collect();
        assert_eq!(launches.len(), if voids { 0 } else { 4 });
        // 1024 bytes on the wire at 10 Mbit/s, rounded up to a byte of the link.
        let gap = Nanos(819_200);
        for pair in launches.windows(2).skip(1) {
            let apart = pair[1].since(pair[0]);
            assert!(apart >= gap && apart <= gap + Nanos(80), "{apart}");
        }
    }
}
