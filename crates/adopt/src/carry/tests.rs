use super::*;
use crate::mac::Mac;
use crate::plan::plan;
use crate::refusal::Refusal;
use crate::request::{Request, Selection};
use crate::testing::{FakeHost, FakeJournal};
use crate::world::QueueOrigin;
use proptest::prelude::*;

fn here() -> Here {
    Here {
        boot: "boot-1".into(),
        namespace: 7,
    }
}

/// A bridge with a physical port and two guests, and a guest whose frames are routed.
fn host() -> FakeHost {
    let mut host = FakeHost {
        default_device: Some(2),
        has_tcx: true,
        ..FakeHost::default()
    };
    host.add(2, "eth0", None, None);
    host.add(3, "br0", Some("bridge"), None);
    host.add(4, "eth1", None, Some(3));
    host.add_guest(11, "db-1", Some(3));
    host.add_guest(12, "db-2", Some(3));
    host.add_guest(13, "web", None);
    host
}

fn request(outward: bool, inward: bool, guard: bool) -> Request {
    Request {
        guard,
        outward: outward.then(|| "50Mbit/s".parse().unwrap()),
        inward: inward.then(|| "20Mbit/s".parse().unwrap()),
        ..Request::default()
    }
}

fn selected(pattern: &str) -> Selection {
    Selection::Patterns(vec![pattern.to_owned()])
}

/// Adopts guests, as the command does.
fn adopt_all(
    host: &mut FakeHost,
    journal: &mut FakeJournal,
    pattern: &str,
    request: &Request,
) -> Result<Vec<Adopted>, CarryError> {
    let known = journal.entries()?;
    let planned = plan(&host.world(), &selected(pattern), request, &known).unwrap();
    let entries = planned.into_iter().map(|it| it.entry.unwrap());
    entries.map(|entry| adopt(host, journal, &entry)).collect()
}

fn release_all(host: &mut FakeHost, journal: &mut FakeJournal) -> Vec<Released> {
    let keys: Vec<_> = journal.entries.keys().cloned().collect();
    let released = keys.iter().map(|key| release(host, journal, &here(), key));
    released.map(Result::unwrap).collect()
}

#[test]
fn the_uplink_is_shared_and_restored_with_the_last_guest() {
    let (mut host, mut journal) = (host(), FakeJournal::default());
    let before = host.snapshot();
    let adopted = adopt_all(&mut host, &mut journal, "db-*", &request(true, true, true)).unwrap();
    let steps: Vec<_> = adopted.iter().flat_map(|it| &it.changed).collect();
    let names: Vec<_> = steps.iter().map(|step| step.port.name.as_str()).collect();
    assert_eq!(names, ["eth1", "veth11", "veth12"]);
    assert_eq!(adopted[1].unchanged, 1);
    let released = release(&mut host, &mut journal, &here(), "netns/db-1").unwrap();
    assert_eq!((released.undone.len(), released.shared.len()), (1, 1));
    assert_eq!(host.ports[&4].attached, Some(Attached::Uplink));
    release(&mut host, &mut journal, &here(), "netns/db-2").unwrap();
    assert_eq!(host.snapshot(), before);
    assert!(journal.entries.is_empty());
}

#[test]
fn a_second_adoption_changes_only_differing_steps() {
    let (mut host, mut journal) = (host(), FakeJournal::default());
    let before = host.snapshot();
    let both = request(true, true, true);
    adopt_all(&mut host, &mut journal, "web", &both).unwrap();
    let again = adopt_all(&mut host, &mut journal, "web", &both).unwrap();
    assert_eq!((again[0].changed.len(), again[0].unchanged), (0, 2));
    // Without the limits the uplink is given back, and the discipline of the guest's device too.
    let fewer = adopt_all(&mut host, &mut journal, "web", &request(false, false, true)).unwrap();
    assert_eq!(fewer[0].changed.len(), 1);
    assert_eq!(host.ports[&2], before.0[&2]);
    assert_eq!(journal.entries["netns/web"].steps.len(), 1);
    release_all(&mut host, &mut journal);
    assert_eq!(host.snapshot(), before);
}

#[test]
fn a_refused_step_leaves_everything_as_it_was() {
    let (mut host, mut journal) = (host(), FakeJournal::default());
    let before = host.snapshot();
    host.refuses = Some(13);
    let failed = adopt_all(&mut host, &mut journal, "web", &request(true, false, true));
    let text = failed.unwrap_err().to_string();
    assert!(text.ends_with("everything is as it was before"), "{text}");
    assert_eq!(host.snapshot(), before);
    assert!(journal.entries.is_empty());
    // A refused change of an adopted guest leaves its former rules.
    adopt_all(&mut host, &mut journal, "web", &request(false, true, true)).unwrap();
    let (adopted, entries) = (host.snapshot(), journal.entries.clone());
    host.refuses = Some(2);
    adopt_all(&mut host, &mut journal, "web", &request(true, true, false)).unwrap_err();
    assert_eq!(host.snapshot(), adopted);
    assert_eq!(journal.entries, entries);
}

#[test]
fn a_device_that_took_the_place_of_another_is_not_touched() {
    let (mut host, mut journal) = (host(), FakeJournal::default());
    adopt_all(&mut host, &mut journal, "web", &request(true, true, true)).unwrap();
    // It has a clsact of its own, and the same number and name.
    host.add(13, "veth13", Some("veth"), None);
    let stranger = host.ports.get_mut(&13).unwrap();
    stranger.port.mac = Mac([2, 0, 0, 0, 9, 9]);
    stranger.clsact = true;
    let stranger = stranger.clone();
    let released = release_all(&mut host, &mut journal);
    assert_eq!(host.ports[&13], stranger);
    assert!(released[0].notes[0].contains("another MAC address"));
    // A device that is gone is forgotten.
    adopt_all(&mut host, &mut journal, "db-1", &request(false, true, true)).unwrap();
    host.ports.remove(&11);
    let released = release_all(&mut host, &mut journal);
    assert!(released[0].notes[0].contains("is gone"), "{released:?}");
    assert!(journal.entries.is_empty());
}

#[test]
fn after_a_reboot_there_is_nothing_to_undo() {
    let (mut host, mut journal) = (host(), FakeJournal::default());
    adopt_all(&mut host, &mut journal, "web", &request(true, true, true)).unwrap();
    let mut entry = journal.entries["netns/web"].clone();
    entry.boot = "boot-0".into();
    journal.entries.insert(entry.key.clone(), entry);
    let adopted = host.snapshot();
    let released = release_all(&mut host, &mut journal);
    assert!(released[0].notes[0].contains("booted"), "{released:?}");
    assert_eq!(host.snapshot(), adopted);
    let elsewhere = Here {
        namespace: 8,
        ..here()
    };
    adopt_all(&mut host, &mut journal, "web", &request(false, false, true)).unwrap();
    let refused = release(&mut host, &mut journal, &elsewhere, "netns/web");
    assert!(matches!(refused, Err(CarryError::Elsewhere(_))));
}

#[test]
fn an_administrators_queue_discipline_is_kept_and_refused() {
    let (mut host, journal) = (host(), FakeJournal::default());
    let chosen = host.ports.get_mut(&13).unwrap();
    (chosen.qdisc, chosen.origin) = ("tbf".into(), QueueOrigin::Administrator);
    let world = host.world();
    let refusal = |request: &Request| {
        let known = journal.entries().unwrap();
        let planned = plan(&world, &selected("web"), request, &known).unwrap();
        planned.into_iter().next().unwrap().entry
    };
    let refused = refusal(&request(false, true, true)).unwrap_err();
    assert!(matches!(refused, Refusal::Qdisc { .. }));
    assert!(refused.to_string().contains("tbf"));
    // The discipline is not in the way of a guard.
    assert!(refusal(&request(false, false, true)).is_ok());
}

proptest! {
    /// Random adoptions, changes and releases, of which one dies at any call.
    #[test]
    fn a_release_gives_back_the_host_after_a_crash_at_any_call(
        has_tcx: bool,
        clsact in 0_u32..16,
        runs in prop::collection::vec((0_usize..3, 0_u8..8, any::<bool>()), 1..6),
        dies in prop::option::of(1_u32..60),
    ) {
        let (mut host, mut journal) = (host(), FakeJournal::default());
        host.has_tcx = has_tcx;
        for (at, port) in host.ports.values_mut().enumerate() {
            port.clsact = clsact & (1 << at) != 0;
        }
        journal.life = host.life.clone();
        let before = host.snapshot();
        host.life.ends_at(dies);
        for (guest, bits, is_release) in runs {
            if host.life.is_over() {
                break;
            }
            let name = ["db-1", "db-2", "web"][guest];
            let key = format!("netns/{name}");
            if is_release && journal.entries.contains_key(&key) {
                let _ = release(&mut host, &mut journal, &here(), &key);
            } else {
                let request = request(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
                let _ = adopt_all(&mut host, &mut journal, name, &request);
            }
        }
        // The next process.
        host.life.ends_at(None);
        // The journal lists each program and queue that the kernel has.
        for (index, port) in &host.ports {
            let is_changed = port != &before.0[index];
            let mut steps = journal.entries.values().flat_map(|entry| &entry.steps);
            prop_assert!(!is_changed || steps.any(|step| step.port.index == *index));
        }
        release_all(&mut host, &mut journal);
        prop_assert_eq!(host.snapshot(), before);
        prop_assert!(journal.entries.is_empty());
    }
}

#[test]
fn an_interface_that_goes_amid_an_adoption_takes_nothing_along() {
    let request = request(true, true, true);
    for replaced in [false, true] {
        let mut host = host();
        let mut journal = FakeJournal::default();
        let planned = plan(&host.world(), &selected("db-1"), &request, &[]).unwrap();
        let entry = planned[0].entry.clone().unwrap();
        if replaced {
            host.ports.get_mut(&11).unwrap().port.mac = Mac([2, 0, 0, 0, 9, 9]);
        } else {
            host.ports.remove(&11);
        }
        let before = host.snapshot();
        // The uplink comes before it, and is restored.
        let error = adopt(&mut host, &mut journal, &entry)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("everything is as it was before"), "{error}");
        assert!(error.contains("meanwhile"), "{error}");
        assert_eq!(host.snapshot(), before);
        assert!(journal.entries.is_empty());
    }
}

#[test]
fn the_missing_parts_of_an_adoption_are_named() {
    let mut host = host();
    let mut journal = FakeJournal::default();
    adopt_all(&mut host, &mut journal, "db-1", &request(true, true, true)).unwrap();
    let entry = journal.entries["netns/db-1"].clone();
    let lacks = |host: &mut FakeHost| missing(host, &here(), &entry).unwrap().join("; ");
    assert_eq!(lacks(&mut host), "");
    let guest = host.ports[&11].clone();
    host.ports.get_mut(&4).unwrap().qdisc = "mq".into();
    host.ports.get_mut(&4).unwrap().origin = QueueOrigin::Kernel;
    host.ports.get_mut(&11).unwrap().attached = None;
    let text = lacks(&mut host);
    assert_eq!(
        text,
        "eth1 has mq instead of fq; veth11 has no programs of tailbound"
    );
    host.ports.remove(&11);
    assert!(lacks(&mut host).ends_with("veth11 is gone"));
    let mut other = guest;
    other.port.mac = Mac([2, 0, 0, 0, 9, 9]);
    host.ports.insert(11, other);
    assert!(lacks(&mut host).ends_with("another interface has the number of veth11"));
    let elsewhere = Here {
        namespace: 8,
        ..here()
    };
    assert_eq!(missing(&mut host, &elsewhere, &entry).unwrap().len(), 1);
}
