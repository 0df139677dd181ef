//! The steps of a change: what is checked first, what is written, and how it is undone.

use super::attach::{attach, detach, is_attached, lacks_clsact, way};
use super::bridge;
use super::pins::map_error;
use super::qdisc::{Qdiscs, Root};
use super::raw::{Choices, Interface, PORTS, Port, Rules, SLOTS, Side, Split, WAYS, sides};
use super::rules::{Attachment, DropReason, GuestRules, Queue, UplinkQueue, Way};
use super::{Edge, EdgeError, name_of, step};
use aya::maps::lpm_trie::Key;
use aya::maps::{HashMap, MapData, MapError};

impl Interface {
    pub(super) const fn of(attachment: Attachment) -> Self {
        Self {
            is_uplink: attachment.is_uplink as u32,
            way: attachment.way as u32,
            adds_clsact: attachment.adds_clsact as u32,
            queue: attachment.queue as u32,
        }
    }

    pub(super) const fn attachment(self, ifindex: u32) -> Attachment {
        Attachment {
            ifindex,
            is_uplink: self.is_uplink != 0,
            way: if self.way == Way::Tcx as u32 {
                Way::Tcx
            } else {
                Way::Clsact
            },
            adds_clsact: self.adds_clsact != 0,
            queue: match self.queue {
                0 => Queue::Untouched,
                1 => Queue::Fq,
                2 => Queue::MultiFq,
                _ => Queue::Bpf,
            },
        }
    }
}

/// Plans an attachment; a qdisc that stands in the way is refused.
pub(super) fn plan(ifindex: u32, is_uplink: bool, queue: Queue) -> Result<Attachment, EdgeError> {
    name_of(ifindex)?;
    let way = way();
    Ok(Attachment {
        ifindex,
        is_uplink,
        way,
        adds_clsact: way == Way::Clsact && lacks_clsact(ifindex)?,
        queue,
    })
}

pub(super) fn root(ifindex: u32) -> Result<Root, EdgeError> {
    let root = Qdiscs::of(ifindex).and_then(|qdiscs| qdiscs.root());
    root.map_err(|error| step("list qdiscs".to_owned(), error))
}

/// The queue of a guest's interface on which frames wait.
pub(super) fn guest_queue(ifindex: u32) -> Result<Queue, EdgeError> {
    match root(ifindex)? {
        Root::Default(_) | Root::Own => Ok(Queue::Fq),
        Root::Others(kind) => Err(EdgeError::Qdisc { ifindex, kind }),
    }
}

const fn kind_of(queue: Queue) -> UplinkQueue {
    match queue {
        Queue::Bpf => UplinkQueue::Bpf,
        Queue::Untouched | Queue::Fq | Queue::MultiFq => UplinkQueue::Fq,
    }
}

/// The kind of queue that the host's uplinks have; `None` without an uplink.
pub(super) fn uplink_queue(edge: &Edge) -> Result<Option<UplinkQueue>, EdgeError> {
    let all = edge.attachments()?;
    let mut uplinks = all.into_iter().filter(|it| it.is_uplink);
    Ok(uplinks.next().map(|it| kind_of(it.queue)))
}

/// Refuses rules with another kind of queue than that of an uplink.
pub(super) fn same_kind(found: Attachment, queue: UplinkQueue) -> Result<(), EdgeError> {
    if kind_of(found.queue) == queue {
        return Ok(());
    }
    let ifindex = found.ifindex;
    Err(EdgeError::Rule(format!(
        "interface {ifindex} has the other kind of qdisc; detach it first"
    )))
}

/// Refuses a kind of queue that another uplink lacks, or that has no place for destinations' buckets.
pub(super) fn check_queue(edge: &Edge, queue: UplinkQueue) -> Result<(), EdgeError> {
    let wrong = |why: &str| Err(EdgeError::Rule(why.to_owned()));
    if uplink_queue(edge)?.is_some_and(|found| found != queue) {
        return wrong("another uplink has the other kind of qdisc; all uplinks have the same");
    }
    let split = match queue {
        UplinkQueue::Fq => Split::InQueue,
        UplinkQueue::Bpf => Split::Before,
    };
    for entry in &edge.maps.guests {
        let (_, rules) = entry.map_err(map_error)?;
        if rules.split_place() == split {
            return wrong(
                "a guest has destinations with buckets for the other kind of qdisc; remove them \
                 first",
            );
        }
    }
    Ok(())
}

impl Edge {
    pub(super) fn interface(&self, ifindex: u32) -> Result<Option<Attachment>, EdgeError> {
        let found = get(&self.maps.interfaces, ifindex)?;
        Ok(found.map(|raw| raw.attachment(ifindex)))
    }

    /// The attachment of a guest's interface.
    pub(super) fn guest(&self, ifindex: u32) -> Result<Attachment, EdgeError> {
        let found = self.interface(ifindex)?.filter(|it| !it.is_uplink);
        found.ok_or(EdgeError::NoGuest(ifindex))
    }

    pub(super) fn is_alive(&self, attachment: Attachment) -> bool {
        is_attached(&self.pins, attachment)
    }

    /// Converts rules, and refuses those that contradict another guest's.
    pub(super) fn check(&self, ifindex: u32, rules: &GuestRules) -> Result<Rules, EdgeError> {
        let masks = self.maps.uplinks.iter().flatten();
        let mask = masks.fold(0, |all, (_, uplink)| all | uplink.mark);
        let mut raw = Rules::new(rules, mask)?;
        if rules.is_direct {
            raw.pass_bridge(bridge::passable(ifindex)?);
        }
        let taken = |what: &str, other: u32| {
            EdgeError::Rule(format!("the {what} is that of interface {other} already"))
        };
        if raw.mark() != 0
            && let Some(other) = get(&self.maps.marks, raw.mark())?
            && other != ifindex
        {
            return Err(taken("mark", other));
        }
        if let Some(station) = raw.station()
            && let Some(other) = get(&self.maps.stations, station)?
            && other != ifindex
        {
            return Err(taken("MAC address", other));
        }
        Ok(raw)
    }

    /// Returns true if frames of any guest wait on their way to other guests.
    pub(super) fn anyone_waits(&self, fresh: &Rules) -> Result<bool, EdgeError> {
        if fresh.limits_outward() {
            return Ok(true);
        }
        let mut guests = self.maps.guests.iter();
        guests.try_fold(false, |waits, entry| {
            let (_, rules) = entry.map_err(map_error)?;
            Ok(waits || rules.limits_outward())
        })
    }

    /// The other guests' interfaces that need a queue for this guest's frames, and have none.
    pub(super) fn queues_for(&self, ifindex: u32, fresh: &Rules) -> Result<Vec<u32>, EdgeError> {
        if !fresh.limits_outward() {
            return Ok(Vec::new());
        }
        let mut lacking = Vec::new();
        for other in self.attachments()? {
            let lacks = !other.is_uplink && other.queue == Queue::Untouched;
            if lacks && other.ifindex != ifindex && name_of(other.ifindex).is_ok() {
                guest_queue(other.ifindex)?;
                lacking.push(other.ifindex);
            }
        }
        Ok(lacking)
    }

    /// Adds a queue to each of these guests' interfaces, or to none.
    pub(super) fn add_queues(&mut self, interfaces: &[u32]) -> Result<(), EdgeError> {
        for (at, ifindex) in interfaces.iter().enumerate() {
            let Err(error) = self.change_queue(*ifindex, Queue::Fq) else {
                continue;
            };
            for before in &interfaces[..=at] {
                let _ = self.change_queue(*before, Queue::Untouched);
            }
            return Err(error);
        }
        Ok(())
    }

    fn change_queue(&mut self, ifindex: u32, queue: Queue) -> Result<(), EdgeError> {
        let attachment = Attachment {
            queue,
            ..self.guest(ifindex)?
        };
        if queue == Queue::Untouched {
            remove_queue(ifindex)?;
        }
        self.note(attachment)?;
        add_queue(attachment)?;
        self.pins.measure(queue);
        Ok(())
    }

    /// Writes the entry of an interface, by which [`Edge::take_off`] undoes everything: before any
    /// other step, since the process may be killed after each.
    pub(super) fn note(&mut self, attachment: Attachment) -> Result<(), EdgeError> {
        let raw = Interface::of(attachment);
        put(&mut self.maps.interfaces, attachment.ifindex, raw)
    }

    pub(super) fn put_on(&mut self, attachment: Attachment) -> Result<(), EdgeError> {
        // The queue first: a departure time without one is never kept.
        if attachment.queue == Queue::Bpf {
            self.pins.register_queue(attachment.ifindex)?;
        }
        add_queue(attachment)?;
        self.pins.measure(attachment.queue);
        attach(&self.pins, attachment)
    }

    pub(super) fn or_undo(
        &mut self,
        attachment: Attachment,
        done: Result<(), EdgeError>,
    ) -> Result<Attachment, EdgeError> {
        if let Err(error) = done {
            let _ = self.take_off(attachment);
            return Err(error);
        }
        Ok(attachment)
    }

    /// New rules for a guest that is attached.
    pub(super) fn replace(&mut self, ifindex: u32, raw: &Rules) -> Result<(), EdgeError> {
        let mut lacking = self.queues_for(ifindex, raw)?;
        let waits = raw.limits_inward() || raw.limits_outward();
        if waits && self.guest(ifindex)?.queue == Queue::Untouched {
            guest_queue(ifindex)?;
            lacking.push(ifindex);
        }
        self.add_queues(&lacking)?;
        let before = get(&self.maps.guests, ifindex)?;
        self.write(ifindex, raw, before.as_ref())?;
        self.limit_offload(ifindex, raw.longest())
    }

    /// Writes the rules of a guest, and what others must know of it.
    pub(super) fn write(
        &mut self,
        ifindex: u32,
        raw: &Rules,
        before: Option<&Rules>,
    ) -> Result<(), EdgeError> {
        let slot = before.map_or_else(|| self.free_slot(), |before| Ok(before.slot))?;
        let maps = &mut self.maps;
        if before.is_none() {
            for side in sides(slot) {
                maps.quick
                    .sides
                    .set(side, Side::default(), 0)
                    .map_err(map_error)?;
            }
            for way in slot * WAYS..(slot + 1) * WAYS {
                maps.quick.ways.set(way, [0; 2], 0).map_err(map_error)?;
            }
            put(&mut maps.dropped, ifindex, [0; DropReason::ALL.len()])?;
            put(&mut maps.choices.by_guest, ifindex, Choices::NONE)?;
        }
        if let Some(before) = before {
            self.forget_claims(before)?;
        }
        let maps = &mut self.maps;
        if raw.mark() != 0 {
            put(&mut maps.marks, raw.mark(), ifindex)?;
        }
        if let Some(station) = raw.station() {
            put(&mut maps.stations, station, ifindex)?;
        }
        for (length, address) in raw.configured() {
            let key = Key::new(length, address);
            maps.configured
                .insert(&key, ifindex, 0)
                .map_err(map_error)?;
        }
        let mut placed = *raw;
        placed.succeed(before, slot);
        self.place(ifindex, &placed)?;
        self.review()
    }

    /// Brings rules into force, and the copies that plain frames follow. Programs see the new ones whole:
    /// the copy is another one, and its place is written last.
    pub(super) fn place(&mut self, ifindex: u32, rules: &Rules) -> Result<(), EdgeError> {
        put(&mut self.maps.guests, ifindex, *rules)?;
        let at = ifindex % PORTS;
        let of = self
            .maps
            .quick
            .ports
            .get(&at, 0)
            .map_err(map_error)?
            .ifindex;
        let is_free = of == ifindex || get(&self.maps.guests, of)?.is_none();
        let quick = &mut self.maps.quick;
        if is_free {
            let place = rules.plain_place();
            quick
                .plains
                .set(place, rules.plain(), 0)
                .map_err(map_error)?;
            quick
                .ports
                .set(at, Port { place, ifindex }, 0)
                .map_err(map_error)?;
        }
        let generation = rules.generation();
        quick
            .generations
            .set(rules.slot, generation, 0)
            .map_err(map_error)
    }

    fn forget_place(&mut self, ifindex: u32) -> Result<(), EdgeError> {
        let ports = &mut self.maps.quick.ports;
        let at = ifindex % PORTS;
        if ports.get(&at, 0).map_err(map_error)?.ifindex == ifindex {
            ports.set(at, Port::default(), 0).map_err(map_error)?;
        }
        Ok(())
    }

    fn free_slot(&self) -> Result<u32, EdgeError> {
        let taken = self.maps.guests.iter().map(|it| Ok(it?.1.slot));
        let taken: std::collections::HashSet<_> =
            taken.collect::<Result<_, _>>().map_err(map_error)?;
        let free = (0..SLOTS).find(|slot| !taken.contains(slot));
        free.ok_or_else(|| EdgeError::Rule(format!("{SLOTS} guests are attached already")))
    }

    /// Removes what a guest's rules claimed.
    fn forget_claims(&mut self, rules: &Rules) -> Result<(), EdgeError> {
        let maps = &mut self.maps;
        if rules.mark() != 0 {
            delete(&mut maps.marks, rules.mark())?;
        }
        if let Some(station) = rules.station() {
            delete(&mut maps.stations, station)?;
        }
        for (length, address) in rules.configured() {
            missing_is_fine(maps.configured.remove(&Key::new(length, address)))?;
        }
        Ok(())
    }

    /// Frees chosen addresses that their guest may not have any more.
    fn review(&mut self) -> Result<(), EdgeError> {
        let maps = &mut self.maps;
        let chosen: Vec<_> = maps.choices.by_address.iter().flatten().collect();
        for (address, choice) in chosen {
            let rules = get(&maps.guests, choice.ifindex)?;
            let is_open = rules.is_some_and(|rules| rules.is_open(address));
            let is_configured = maps.configured.get(&Key::new(128, address), 0).is_ok();
            if is_open && !is_configured {
                continue;
            }
            delete(&mut maps.choices.by_address, address)?;
            if let Some(mut choices) = get(&maps.choices.by_guest, choice.ifindex)?
                && let Some(used) = choices.used.get_mut(choice.slot as usize)
            {
                *used = 0;
                put(&mut maps.choices.by_guest, choice.ifindex, choices)?;
            }
        }
        Ok(())
    }

    /// Undoes an attachment, complete or not.
    pub(super) fn take_off(&mut self, attachment: Attachment) -> Result<(), EdgeError> {
        let Attachment { ifindex, queue, .. } = attachment;
        self.restore_offload(ifindex)?;
        detach(&self.pins, attachment)?;
        if queue != Queue::Untouched && name_of(ifindex).is_ok() {
            remove_queue(ifindex)?;
        }
        if queue == Queue::Bpf {
            self.pins.unregister_queue(ifindex)?;
        }
        if let Some(rules) = get(&self.maps.guests, ifindex)? {
            self.forget_claims(&rules)?;
            self.maps.split.forget_destinations(&rules)?;
        }
        self.forget_place(ifindex)?;
        let maps = &mut self.maps;
        delete(&mut maps.guests, ifindex)?;
        self.review()?;
        let maps = &mut self.maps;
        delete(&mut maps.dropped, ifindex)?;
        delete(&mut maps.choices.by_guest, ifindex)?;
        delete(&mut maps.uplinks, ifindex)?;
        delete(&mut maps.interfaces, ifindex)?;
        self.review_splitter()
    }
}

fn add_queue(attachment: Attachment) -> Result<(), EdgeError> {
    let added = Qdiscs::of(attachment.ifindex).and_then(|qdiscs| qdiscs.add(attachment.queue));
    added.map_err(|error| {
        step(
            format!("add a qdisc to interface {}", attachment.ifindex),
            error,
        )
    })
}

fn remove_queue(ifindex: u32) -> Result<(), EdgeError> {
    let removed = Qdiscs::of(ifindex).and_then(|qdiscs| qdiscs.remove());
    removed.map_err(|error| step(format!("remove the qdisc from interface {ifindex}"), error))
}

pub(super) fn get<K: aya::Pod, V: aya::Pod>(
    map: &HashMap<MapData, K, V>,
    key: K,
) -> Result<Option<V>, EdgeError> {
    match map.get(&key, 0) {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(map_error(error)),
    }
}

pub(super) fn put<K: aya::Pod, V: aya::Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: K,
    value: V,
) -> Result<(), EdgeError> {
    map.insert(key, value, 0).map_err(map_error)
}

pub(super) fn delete<K: aya::Pod, V: aya::Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: K,
) -> Result<(), EdgeError> {
    missing_is_fine(map.remove(&key))
}

fn missing_is_fine(removed: Result<(), MapError>) -> Result<(), EdgeError> {
    match removed {
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        Err(MapError::KeyNotFound) => Ok(()),
        other => other.map_err(map_error),
    }
}
