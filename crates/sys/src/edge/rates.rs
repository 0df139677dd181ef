//! Rates to destinations that an exchange with other hosts grants: an entry for each, which changes by one
//! system call, and a lease of all, which the exchange renews.

use super::change::{delete, get};
use super::pins::{SETTLE, map_error};
use super::raw::{LINES, Line, LineKey, LineSide, RawLease, Rules, Split};
use super::rules::{GrantedRate, RateUsage};
use super::{Edge, EdgeError, step};
use aya::TestRun as _;
use aya::programs::{SchedClassifier, TestRunOptions};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use tailbound_units::Nanos;

/// The entry of a guest's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RatePlace {
    pub(super) ifindex: u32,
    pub(super) key: LineKey,
    pub(super) place: u32,
}

impl RatePlace {
    /// Returns the interface of the guest.
    pub const fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Returns the MAC address of the destination.
    pub const fn station(&self) -> [u8; 6] {
        self.key.station
    }
}

/// The destinations with granted rates of a host, and their lease.
#[derive(Debug)]
pub struct EdgeRates {
    edge: Edge,
    /// The program that settles buckets, once it was used.
    settle: Option<SchedClassifier>,
}

impl EdgeRates {
    /// Opens what is pinned below `pin`, or loads it.
    ///
    /// # Errors
    /// As of [`Edge::open`].
    pub fn open(pin: &Path) -> Result<Self, EdgeError> {
        Ok(Self {
            edge: Edge::open(pin)?,
            settle: None,
        })
    }

    /// Returns the entries of all attached guests' destinations that an exchange has set.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn all(&self) -> Result<Vec<RatePlace>, EdgeError> {
        let guests = self.edge.maps.guests.iter();
        let guests = guests.map(|entry| entry.map(|(ifindex, rules)| (rules.slot, ifindex)));
        let guests: HashMap<_, _> = guests.collect::<Result<_, _>>().map_err(map_error)?;
        let mut all = Vec::new();
        for entry in &self.edge.maps.split.lines {
            let (key, line) = entry.map_err(map_error)?;
            if let Some(ifindex) = guests.get(&key.slot)
                && line.is_granted()
            {
                all.push(RatePlace {
                    ifindex: *ifindex,
                    key,
                    place: line.place,
                });
            }
        }
        Ok(all)
    }

    /// Adds a destination with a rate of its own, or changes the one that is there, whose tokens stay. A new
    /// bucket is empty at `now`, a time of `CLOCK_MONOTONIC`. [`Edge::set_destinations`] has the rest.
    ///
    /// # Errors
    /// As of [`Edge::set_destinations`].
    pub fn add(
        &mut self,
        ifindex: u32,
        station: [u8; 6],
        rate: &GrantedRate,
        now: Nanos,
    ) -> Result<RatePlace, EdgeError> {
        let _lock = self.edge.pins.lock()?;
        self.edge.guest(ifindex)?;
        let before = get(&self.edge.maps.guests, ifindex)?.ok_or(EdgeError::NoGuest(ifindex))?;
        let key = LineKey::new(before.slot, station);
        let known = get(&self.edge.maps.split.lines, key)?;
        let place = match known {
            Some(line) => line.place,
            None => self.free_place()?,
        };
        let line = Line::granted(rate, place)?;
        let split = self.edge.prepare_split()?;
        if known.is_none() {
            let sides = &mut self.edge.maps.split.sides;
            let empty = LineSide::empty(&line, now);
            sides.set(place, empty, 0).map_err(map_error)?;
        }
        let lines = &mut self.edge.maps.split.lines;
        lines.insert(key, line, 0).map_err(map_error)?;
        self.settle(key, now)?;
        if before.split_place() != split {
            self.mark_split(ifindex, &before, split)?;
        }
        Ok(RatePlace {
            ifindex,
            key,
            place,
        })
    }

    /// Changes the rate of an entry at `now`, a time of `CLOCK_MONOTONIC`, by two system calls.
    ///
    /// # Errors
    /// The bucket is out of range, or the entry has gone with its guest.
    pub fn change(
        &mut self,
        at: &RatePlace,
        rate: &GrantedRate,
        now: Nanos,
    ) -> Result<(), EdgeError> {
        /// `BPF_EXIST`: a guest that was released meanwhile gets no entry.
        const EXISTS: u64 = 2;
        let line = Line::granted(rate, at.place)?;
        let lines = &mut self.edge.maps.split.lines;
        lines.insert(at.key, line, EXISTS).map_err(map_error)?;
        self.settle(at.key, now)
    }

    /// Removes entries: frames to their destinations pass the guarantee alone. With the last destination on
    /// the host the splitter is removed.
    ///
    /// # Errors
    /// A map cannot be written, or the kernel refuses.
    pub fn remove(&mut self, all: &[RatePlace]) -> Result<(), EdgeError> {
        let _lock = self.edge.pins.lock()?;
        for it in all {
            delete(&mut self.edge.maps.split.lines, it.key)?;
        }
        let guests: HashSet<_> = all.iter().map(|it| it.ifindex).collect();
        for ifindex in guests {
            let Some(rules) = get(&self.edge.maps.guests, ifindex)? else {
                continue;
            };
            let is_split = rules.split_place() != Split::Not;
            if is_split && self.edge.maps.split.lines_of(rules.slot)?.is_empty() {
                self.mark_split(ifindex, &rules, Split::Not)?;
            }
        }
        self.edge.review_splitter()
    }

    /// Reads the bucket of an entry at a time of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn usage(&self, at: &RatePlace, now: Nanos) -> Result<RateUsage, EdgeError> {
        let side = self.edge.maps.split.sides.get(&at.place, 0);
        Ok(side.map_err(map_error)?.usage(now))
    }

    /// Sets until when granted rates hold, and until when the lower one of a granted rate and the rate without
    /// a grant holds, by `CLOCK_MONOTONIC`. Later the rates without a grant hold.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn renew(&mut self, until: Nanos, pledged: Nanos) -> Result<(), EdgeError> {
        let lease = RawLease {
            until: until.0,
            pledged: pledged.0,
        };
        let leases = &mut self.edge.maps.split.lease;
        leases.set(0, lease, 0).map_err(map_error)
    }

    /// Lets the bucket of an entry fill at its present rate from now on.
    fn settle(&mut self, key: LineKey, now: Nanos) -> Result<(), EdgeError> {
        /// The place of `tstamp` in `struct __sk_buff`, which only tests use.
        const TSTAMP: usize = 152;
        let failed = |error| step("settle the bucket of a destination".to_owned(), error);
        let program = match &mut self.settle {
            Some(program) => program,
            none => none.insert(self.edge.pins.program(SETTLE)?),
        };
        let mut context = [0; TSTAMP + 8];
        context[TSTAMP..].copy_from_slice(&now.0.to_ne_bytes());
        let frame = [&[0; 14][..], &key.bytes()].concat();
        let run = program.test_run(TestRunOptions {
            data_in: Some(&frame),
            ctx_in: Some(&context),
            ..TestRunOptions::new()
        });
        let run = run.map_err(|error| failed(std::io::Error::other(error)))?;
        match run.return_value {
            u32::MAX => Ok(()),
            _ => Err(failed(std::io::Error::other("its guest is gone"))),
        }
    }

    fn free_place(&self) -> Result<u32, EdgeError> {
        let taken = self
            .edge
            .maps
            .split
            .lines
            .iter()
            .map(|entry| Ok(entry?.1.place));
        let taken: HashSet<_> = taken.collect::<Result<_, _>>().map_err(map_error)?;
        let free = (0..LINES).find(|place| !taken.contains(place));
        free.ok_or_else(|| {
            EdgeError::Rule(format!(
                "a host has at most {LINES} destinations with buckets"
            ))
        })
    }

    fn mark_split(&mut self, ifindex: u32, before: &Rules, split: Split) -> Result<(), EdgeError> {
        let mut rules = *before;
        rules.succeed(Some(before), before.slot);
        rules.split(split);
        self.edge.place(ifindex, &rules)
    }
}
