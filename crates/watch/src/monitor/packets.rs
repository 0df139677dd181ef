//! The measurement of packets, as the loop uses it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tailbound_agent::inventory::Guest;
use tailbound_look::divide::end;
use tailbound_look::evidence::{
    Ahead, Direction, Evidence, Points, QueueTimes, QueueWaits, Side, SlowRequest, Stall,
};
use tailbound_sys::bpf_program::ProgramCost;
use tailbound_sys::origin::Origin;
use tailbound_sys::packets::{
    Delay, Direction as PacketDirection, Event, Kind, Measurement, Occupant, Settings,
    SlowRequest as SeenRequest, Tracer,
};
use tailbound_units::Nanos;

/// Guests whose packets are measured at the same time.
const MAX_GUESTS: u32 = 1_024;
/// A request is slow from here on.
const SLOW: Nanos = Nanos::from_millis(1);
/// Largest number of one guest's stored slow requests.
const MAX_REQUESTS: usize = 10_000;

/// The name of the guest of each slot.
type Names = HashMap<u32, Arc<str>>;

/// The network namespaces of the guest of each slot.
#[derive(Debug, Default)]
struct Origins {
    /// A process in each; none of a VM, whose addresses the host does not know.
    networks: HashMap<u32, Vec<u32>>,
    /// The namespaces that were read since the last look.
    known: HashMap<u32, Vec<Origin>>,
}

impl Origins {
    /// Returns true if a guest made the packets with this source that come from it; false if it forwards
    /// them for another sender.
    fn can_be(&mut self, slot: u32, source: IpAddr) -> bool {
        let Some(networks) = self.networks.get(&slot).filter(|them| !them.is_empty()) else {
            return true;
        };
        let read = || networks.iter().filter_map(|it| Origin::of(*it).ok());
        let known = self.known.entry(slot).or_insert_with(|| read().collect());
        known.iter().any(|origin| origin.can_be(source))
    }
}

/// A guest and its unique name.
#[derive(Debug)]
pub(super) struct GuestName<'g> {
    pub(super) guest: &'g Guest,
    pub(super) name: Arc<str>,
    /// True if its own delay is examined.
    pub(super) is_examined: bool,
}

/// A guest whose packets are measured.
#[derive(Debug, Default)]
struct FollowedGuest {
    slot: u32,
    interfaces: BTreeSet<u32>,
    is_examined: bool,
    requests: VecDeque<SlowRequest>,
    /// Requests that were answered until each look.
    answered: VecDeque<(Nanos, u64)>,
    stalls: VecDeque<Stall>,
    waits: VecDeque<QueueWaits>,
    /// Waits in queues until the last look, by direction, interface and sender ahead.
    behind: BTreeMap<(PacketDirection, u32, Occupant), Delay>,
    /// The waits for peers to take data until the last look, and how long they took.
    held: Option<(Nanos, u64, Nanos)>,
}

impl FollowedGuest {
    /// Measures the interfaces that the guest has now, and no others.
    fn follow(&mut self, named: &GuestName<'_>, tracer: &mut Tracer, notes: &mut Vec<String>) {
        let mut wanted: BTreeSet<_> = named.guest.interfaces.iter().map(|it| it.index).collect();
        if self.is_examined != named.is_examined {
            self.interfaces.iter().for_each(|it| tracer.forget(*it));
            self.interfaces.clear();
        }
        for gone in self.interfaces.difference(&wanted) {
            tracer.forget(*gone);
        }
        // An interface that cannot be followed is tried at each look.
        wanted.retain(|index| {
            if self.interfaces.contains(index) {
                return true;
            }
            let added = if named.is_examined {
                tracer.follow(*index, self.slot)
            } else {
                // It may stand in the way of the guest that is examined.
                tracer.count(*index, self.slot)
            };
            if let Err(error) = &added {
                notes.push(format!("packets of {}: {error}", named.name));
            }
            added.is_ok()
        });
        self.interfaces = wanted;
        self.is_examined = named.is_examined;
    }

    fn look(&mut self, now: Nanos, measured: Measurement, names: &Names) {
        for (key, delay) in &measured.behind {
            let before = self.behind.get(key).copied().unwrap_or_default();
            let count = delay.packets.saturating_sub(before.packets);
            if count > 0 {
                let (packet_direction, interface, occupant) = *key;
                self.waits.push_back(QueueWaits {
                    until: now,
                    count,
                    time: delay.wait.saturating_sub(before.wait),
                    is_outward: packet_direction == PacketDirection::Out,
                    ahead: ahead(occupant, interface, &self.interfaces, names),
                });
            }
        }
        self.answered.push_back((now, answered(&measured)));
        let (count, time) = (measured.held.inward, measured.held_time.inward);
        if let Some((from, before, held)) = self.held.replace((now, count, time)) {
            let time = time.saturating_sub(held);
            if time > Nanos::ZERO {
                self.stalls.push_back(Stall {
                    from,
                    until: now,
                    count: count.saturating_sub(before).max(1),
                    time,
                });
            }
        }
        self.behind = measured.behind;
    }
}

/// Measures the packets of guests at the host's interfaces of them.
#[derive(Debug)]
pub(crate) struct Packets {
    tracer: Result<Tracer, String>,
    guests: BTreeMap<Arc<str>, FollowedGuest>,
    names: Names,
    origins: Origins,
    /// Free slots. One that was freed is used last, as an event of the guest before may be on its way.
    free: VecDeque<u32>,
    notes: Vec<String>,
}

impl Packets {
    /// Loads the measurement; without it, the reason is kept.
    pub(super) fn open() -> Self {
        let settings = Settings {
            slots: MAX_GUESTS,
            slow: SLOW,
            sample_shift: 0,
        };
        Self {
            tracer: Tracer::load(&settings).map_err(|error| error.to_string()),
            guests: BTreeMap::new(),
            names: HashMap::new(),
            origins: Origins::default(),
            free: (0..MAX_GUESTS).collect(),
            notes: Vec::new(),
        }
    }

    /// Why packets are not measured.
    pub(super) fn examined(&self) -> Result<(), String> {
        self.tracer.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Detaches the programs.
    pub(super) fn pause(&mut self) {
        if let Ok(tracer) = &mut self.tracer {
            tracer.pause();
        }
    }

    /// Attaches the programs again.
    pub(super) fn resume(&mut self) -> Result<(), String> {
        let Ok(tracer) = &mut self.tracer else {
            return Ok(());
        };
        let resumed = tracer.resume();
        resumed.map_err(|error| format!("packets are not measured any longer: {error}"))
    }

    /// The run time of each program until now and the number of its runs, by tracepoint, as far as the
    /// kernel has counted them.
    pub(super) fn cost(&self) -> Result<Vec<ProgramCost>, String> {
        let Ok(tracer) = &self.tracer else {
            return Ok(Vec::new());
        };
        tracer.cost().map_err(|error| error.to_string())
    }

    /// The facts that are not known, and why.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Measures the interfaces of these guests from now on, and no others.
    pub(super) fn follow(&mut self, now: Nanos, guests: &[GuestName<'_>]) {
        let Ok(tracer) = &mut self.tracer else {
            return;
        };
        self.notes = tracer.missing().to_vec();
        self.origins.known.clear();
        let keys: BTreeSet<_> = guests.iter().map(|it| &it.guest.key).collect();
        self.guests.retain(|key, followed| {
            let stays = keys.contains(key);
            if !stays {
                followed.interfaces.iter().for_each(|it| tracer.forget(*it));
                self.free.push_back(followed.slot);
            }
            stays
        });
        for named in guests {
            let GuestName { guest, name, .. } = named;
            let followed = match self.guests.entry(Arc::clone(&guest.key)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let Some(slot) = self.free.pop_front() else {
                        self.notes.push(format!(
                            "packets of {name} are not measured: {MAX_GUESTS} guests are the most"
                        ));
                        continue;
                    };
                    place.insert(FollowedGuest {
                        slot,
                        ..FollowedGuest::default()
                    })
                }
            };
            self.names.insert(followed.slot, Arc::clone(name));
            let networks = guest.networks.clone();
            self.origins.networks.insert(followed.slot, networks);
            followed.follow(named, tracer, &mut self.notes);
            if !followed.is_examined {
                continue;
            }
            if let Ok(measured) = tracer.read(followed.slot) {
                if measured.events_lost > 0 {
                    self.notes.push(format!(
                        "{} slow requests of {name} were too many to be reported",
                        measured.events_lost
                    ));
                }
                followed.look(now, measured, &self.names);
            }
        }
    }

    /// Takes the slow requests that were answered.
    pub(super) fn take(&mut self) {
        let Self {
            tracer,
            guests,
            names,
            origins,
            ..
        } = self;
        let Ok(tracer) = tracer else {
            return;
        };
        tracer.events(|event| {
            let Event::Slow(seen) = event else {
                return;
            };
            let mut examined = guests.values_mut().filter(|it| it.is_examined);
            let Some(followed) = examined.find(|it| it.slot == seen.slot) else {
                return;
            };
            if followed.requests.len() == MAX_REQUESTS {
                followed.requests.pop_front();
            }
            let source = seen.peer.ip();
            let origin = seen.neighbour.filter(|slot| origins.can_be(*slot, source));
            let peer_guest = origin.and_then(|slot| names.get(&slot).cloned());
            let request = request(&seen, &followed.interfaces, names, peer_guest);
            followed.requests.push_back(request);
        });
    }

    /// Enters the slow requests of a guest since `from`, and how many requests were answered.
    pub(super) fn enter(&self, key: &Arc<str>, from: Nanos, evidence: &mut Evidence) {
        let Some(followed) = self.guests.get(key) else {
            return;
        };
        let recent = followed.requests.iter().filter(|it| end(it) > from);
        evidence.requests = recent.cloned().collect();
        // The last one before, so that consecutive windows have all of them.
        let before = followed.answered.iter().rev().find(|(at, _)| *at <= from);
        let first = before.or(followed.answered.front());
        if let (Some((_, first)), Some((_, last))) = (first, followed.answered.back()) {
            evidence.answered = last.saturating_sub(*first);
        }
        let waits = followed.waits.iter().filter(|it| it.until > from);
        evidence.packets = waits.cloned().collect();
        let stalls = followed.stalls.iter().filter(|it| it.until > from);
        evidence.stalls = stalls.cloned().collect();
        // A request that was answered behind the last look.
        evidence.answered = evidence.answered.max(evidence.requests.len() as u64);
    }

    /// Forgets what happened before `from`.
    pub(super) fn forget(&mut self, from: Nanos) {
        for followed in self.guests.values_mut() {
            followed.requests.retain(|request| end(request) > from);
            followed.answered.retain(|(at, _)| *at >= from);
            followed.stalls.retain(|stall| stall.until > from);
            followed.waits.retain(|waits| waits.until > from);
        }
    }
}

/// Requests that have an answer, of both kinds.
fn answered(measured: &Measurement) -> u64 {
    measured.served.whole.count() + measured.made.whole.count()
}

/// The owner of the bytes ahead in the queue of an interface; `own` are the guest's interfaces.
fn ahead(occupant: Occupant, interface: u32, own: &BTreeSet<u32>, names: &Names) -> Ahead {
    match occupant {
        // All frames in the queue of the guest's own interface are for the guest.
        _ if own.contains(&interface) => Ahead::Own,
        Occupant::OnlyItself => Ahead::Own,
        Occupant::Guest(slot) => names
            .get(&slot)
            .map_or(Ahead::Unknown, |name| Ahead::Guest(Arc::clone(name))),
        Occupant::Others => Ahead::Unknown,
    }
}

/// A request as the judge takes it.
fn request(
    seen: &SeenRequest,
    own: &BTreeSet<u32>,
    names: &Names,
    peer_guest: Option<Arc<str>>,
) -> SlowRequest {
    let [first, second, third, fourth, fifth] = seen.times;
    let (direction, points) = match seen.kind {
        Kind::Served => (
            Direction::Served,
            Points {
                arrived: first,
                delivered: second,
                taken: Some(third),
                sent: fourth,
                left: fifth,
            },
        ),
        Kind::Made => (
            Direction::Made,
            Points {
                sent: first,
                left: second,
                arrived: third,
                delivered: fourth,
                taken: Some(fifth),
            },
        ),
    };
    let ahead = ahead(seen.occupant, seen.interface, own, names);
    // The occupant is that of the longer wait.
    let is_inward = seen.waited.inward >= seen.waited.outward;
    let (ahead_inward, ahead_outward) = if is_inward {
        (ahead, Ahead::Unknown)
    } else {
        (Ahead::Unknown, ahead)
    };
    let retransmits = seen.retransmitted.inward + seen.retransmitted.outward;
    let zero_window = if seen.closed.inward > 0 {
        Some(Side::Peer)
    } else if seen.closed.outward > 0 {
        Some(Side::Guest)
    } else {
        None
    };
    SlowRequest {
        direction,
        begun: seen.began,
        points,
        peer: seen.peer.ip().to_canonical().to_string().into(),
        peer_guest,
        ahead_inward,
        ahead_outward,
        retransmits,
        dropped: seen.lost,
        zero_window,
        queued: (retransmits == 0 && seen.lost == 0).then_some(QueueTimes {
            inward: seen.waited.inward,
            outward: seen.waited.outward,
        }),
        thread: None,
    }
}
