//! Buckets of a guest's destinations, and the pair of interfaces in which frames wait for them: the splitter.

use super::attach::{SPLITTER, attach_at, way};
use super::change::{delete, get, uplink_queue};
use super::offload::index_of;
use super::pins::{Pins, SplitMaps, map_error};
use super::qdisc::Qdiscs;
use super::raw::{LINES, Line, LineKey, LineSide, Rules, Split};
use super::rules::{Destination, Queue, UplinkQueue, Way};
use super::{Edge, EdgeError, step};
use crate::link;
use crate::rtnetlink::{LINK_HEAD, Netlink, attribute};
use std::collections::HashSet;
use std::io;

/// Both ends: frames go into the first one.
const NAMES: [&str; 2] = ["tb-split", "tb-split-out"];
/// The entry of a splitter that is not complete.
const BEGUN: u32 = u32::MAX;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const SET_LINK: u16 = 19;
/// `NLM_F_CREATE` and `NLM_F_EXCL`.
const CREATE: u16 = 0x600;

impl Edge {
    /// Replaces the destinations of a guest that have buckets of their own. Frames to other destinations
    /// pass the guarantee alone. Tokens of a destination stay; a new bucket is empty. With the first
    /// destination on the host, a pair of interfaces is added, in which frames wait; with the last one it
    /// is removed. Frames to an uplink with [`UplinkQueue::Bpf`] wait there, without the pair.
    ///
    /// # Errors
    /// [`EdgeError::NoGuest`], a bucket is out of range, there are more than 16,384 destinations on the
    /// host, or the kernel refuses; then nothing has changed.
    pub fn set_destinations(
        &mut self,
        ifindex: u32,
        destinations: &[Destination],
    ) -> Result<(), EdgeError> {
        let _lock = self.pins.lock()?;
        self.guest(ifindex)?;
        let before = get(&self.maps.guests, ifindex)?.ok_or(EdgeError::NoGuest(ifindex))?;
        let fresh = self.maps.split.plan_lines(&before, destinations)?;
        let split = if fresh.is_empty() {
            Split::Not
        } else {
            self.prepare_split()?
        };
        let kept: HashSet<_> = fresh.iter().map(|(key, _)| *key).collect();
        for (key, line) in &fresh {
            if get(&self.maps.split.lines, *key)?.is_none() {
                let side = LineSide::default();
                let sides = &mut self.maps.split.sides;
                sides.set(line.place, side, 0).map_err(map_error)?;
            }
            let lines = &mut self.maps.split.lines;
            lines.insert(key, line, 0).map_err(map_error)?;
        }
        for key in self.maps.split.lines_of(before.slot)? {
            if !kept.contains(&key) {
                delete(&mut self.maps.split.lines, key)?;
            }
        }
        let mut rules = before;
        rules.succeed(Some(&before), before.slot);
        rules.split(split);
        self.place(ifindex, &rules)?;
        self.review_splitter()
    }

    /// Returns where frames to destinations with buckets wait; adds the splitter if they wait there.
    pub(super) fn prepare_split(&mut self) -> Result<Split, EdgeError> {
        if uplink_queue(self)? == Some(UplinkQueue::Bpf) {
            return Ok(Split::InQueue);
        }
        self.maps.split.add_splitter(&self.pins)?;
        Ok(Split::Before)
    }

    /// Removes the splitter if no guest needs it any more.
    pub(super) fn review_splitter(&mut self) -> Result<(), EdgeError> {
        if self.maps.split.splitter()? == 0 {
            return Ok(());
        }
        for entry in &self.maps.guests {
            let (_, rules) = entry.map_err(map_error)?;
            if rules.split_place() == Split::Before {
                return Ok(());
            }
        }
        self.maps.split.remove_splitter(&self.pins)
    }
}

impl SplitMaps {
    /// Converts destinations; those that are known keep their places.
    fn plan_lines(
        &self,
        rules: &Rules,
        destinations: &[Destination],
    ) -> Result<Vec<(LineKey, Line)>, EdgeError> {
        let all = self.lines.iter();
        let all: Vec<_> = all.collect::<Result<_, _>>().map_err(map_error)?;
        let taken: HashSet<_> = all.iter().map(|(_, line)| line.place).collect();
        let mut free = (0..LINES).filter(|place| !taken.contains(place));
        let mut seen = HashSet::new();
        let plan = |it: &Destination| {
            let key = LineKey::new(rules.slot, it.station);
            if !seen.insert(key) {
                let text = it.station.map(|byte| format!("{byte:02x}")).join(":");
                return Err(EdgeError::Rule(format!(
                    "the destination {text} is there twice"
                )));
            }
            let known = all.iter().find(|(other, _)| *other == key);
            let place = known.map(|(_, line)| line.place).or_else(|| free.next());
            let place = place.ok_or_else(|| {
                EdgeError::Rule(format!(
                    "a host has at most {LINES} destinations with buckets"
                ))
            })?;
            Ok((key, Line::new(it.bucket, rules, place)?))
        };
        destinations.iter().map(plan).collect()
    }

    pub(super) fn lines_of(&self, slot: u32) -> Result<Vec<LineKey>, EdgeError> {
        let keys = self.lines.keys();
        let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(map_error)?;
        Ok(keys.into_iter().filter(|key| key.slot == slot).collect())
    }

    /// Removes the buckets of a guest's destinations.
    pub(super) fn forget_destinations(&mut self, rules: &Rules) -> Result<(), EdgeError> {
        for key in self.lines_of(rules.slot)? {
            delete(&mut self.lines, key)?;
        }
        Ok(())
    }

    fn splitter(&self) -> Result<u32, EdgeError> {
        self.splitter.get(&0, 0).map_err(map_error)
    }

    fn set_splitter(&mut self, ifindex: u32) -> Result<(), EdgeError> {
        let splitter = &mut self.splitter;
        splitter.set(0, ifindex, 0).map_err(map_error)
    }

    pub(super) fn add_splitter(&mut self, pins: &Pins) -> Result<(), EdgeError> {
        match self.splitter()? {
            0 => {}
            // One that was begun, or whose interface has gone away.
            found if index_of(NAMES[0]).ok() != Some(found) => self.remove_splitter(pins)?,
            _ => return Ok(()),
        }
        // A device of this name is another owner's: the entry says that there is none.
        add_pair().map_err(|error| failed("add", error))?;
        let added = self
            .set_splitter(BEGUN)
            .and_then(|()| self.equip_splitter(pins));
        if added.is_err() {
            let _ = self.remove_splitter(pins);
        }
        added
    }

    fn equip_splitter(&mut self, pins: &Pins) -> Result<(), EdgeError> {
        let way = way();
        for (name, place) in NAMES.into_iter().zip(SPLITTER) {
            let ifindex = index_of(name).map_err(|error| failed("find", error))?;
            set_up(ifindex, name).map_err(|error| failed("set up", error))?;
            attach_at(pins, ifindex, &[place], way, way == Way::Clsact)?;
        }
        let first = index_of(NAMES[0]).map_err(|error| failed("find", error))?;
        let queue = Qdiscs::of(first).and_then(|qdiscs| qdiscs.add(Queue::Fq));
        queue.map_err(|error| failed("add fq to", error))?;
        self.set_splitter(first)
    }

    fn remove_splitter(&mut self, pins: &Pins) -> Result<(), EdgeError> {
        self.set_splitter(BEGUN)?;
        for (name, place) in NAMES.into_iter().zip(SPLITTER) {
            if let Ok(ifindex) = index_of(name) {
                pins.remove_link(ifindex, place.program())?;
            }
        }
        if let Ok(ifindex) = index_of(NAMES[0]) {
            delete_link(ifindex).map_err(|error| failed("remove", error))?;
        }
        self.set_splitter(0)
    }
}

fn failed(doing: &str, error: io::Error) -> EdgeError {
    step(format!("{doing} the interface {}", NAMES[0]), error)
}

/// `struct ifinfomsg`, with flags to set.
fn head(ifindex: u32) -> [u8; LINK_HEAD] {
    let mut head = [0; LINK_HEAD];
    head[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    head
}

/// Adds the pair. It takes frames of any length, and cuts packets of segmentation offload into frames.
fn add_pair() -> io::Result<()> {
    const NAME: u16 = 3;
    const MTU: u16 = 4;
    const INFO: u16 = 18;
    const SEGMENTS: u16 = 40;
    const KIND: u16 = 1;
    const DATA: u16 = 2;
    const PEER: u16 = 1;
    let text = |name: &str| attribute(NAME, &[name.as_bytes(), &[0]].concat());
    let mtu = attribute(MTU, &65_535_u32.to_ne_bytes());
    let peer = [&head(0)[..], &text(NAMES[1]), &mtu].concat();
    let info = [
        attribute(KIND, b"veth"),
        attribute(DATA, &attribute(PEER, &peer)),
    ]
    .concat();
    let segments = attribute(SEGMENTS, &1_u32.to_ne_bytes());
    let attributes = [text(NAMES[0]), mtu, segments, attribute(INFO, &info)].concat();
    Netlink::open()?.change(NEW_LINK, CREATE, &[&head(0)[..], &attributes].concat())
}

/// Sets an end up, without an address of its own.
fn set_up(ifindex: u32, name: &str) -> io::Result<()> {
    const FAMILIES: u16 = 26;
    const INET6: u16 = 10;
    const GENERATION: u16 = 8;
    const NONE: u8 = 1;
    let none = attribute(INET6, &attribute(GENERATION, &[NONE]));
    let body = [&head(ifindex)[..], &attribute(FAMILIES, &none)].concat();
    // A kernel without IPv6 has no such addresses.
    let _ = Netlink::open()?.change(SET_LINK, 0, &body);
    link::set_up(name)
}

fn delete_link(ifindex: u32) -> io::Result<()> {
    Netlink::open()?.change(DELETE_LINK, 0, &head(ifindex))
}
