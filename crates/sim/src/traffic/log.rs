//! Logs of flows of many machines.

use super::CollectedMessages;
use crate::rows::{self, Row, Wrong};
use std::collections::HashMap;
use std::path::Path;
use tailbound_advise::{Kind, MachineId, Message, wire_size};
use tailbound_units::{Bytes, Nanos};

/// The columns, those of a log for `tailbound sim replay`.
const COLUMNS: [&str; 4] = ["time_ns", "guest", "destination", "bytes"];

/// The largest message, in bytes: 1 GB.
const MAX_MESSAGE_BYTES: u64 = 1_000_000_000;
/// Largest number of machines.
const MOST_MACHINES: usize = 100_000;

/// A row whose receiver is not known yet to be a machine of the tenant.
struct UnresolvedRow {
    at: Nanos,
    from: Option<MachineId>,
    to: u32,
    wire: Bytes,
}

/// State of reading a log.
struct Rows<'c> {
    collected: &'c mut CollectedMessages,
    takes_all: bool,
    machines: HashMap<String, MachineId>,
    destinations: HashMap<String, u32>,
    unresolved: Vec<UnresolvedRow>,
    last: u64,
}

/// Adds the messages of a log; if `takes_all`, each sender is a machine.
pub(super) fn read(
    path: &Path,
    takes_all: bool,
    collected: &mut CollectedMessages,
) -> Result<(), Wrong> {
    let names = collected.names.iter().cloned().zip(0..);
    let machines = names.map(|(name, index)| (name, MachineId::new(index)));
    let mut state = Rows {
        machines: machines.collect(),
        collected,
        takes_all,
        destinations: HashMap::new(),
        unresolved: Vec::new(),
        last: 0,
    };
    rows::read(path, COLUMNS, super::MOST_MESSAGES, |row| state.add(row))?;
    state.finish();
    Ok(())
}

impl Rows<'_> {
    fn add(&mut self, row: &Row<'_, 4>) -> Result<(), Wrong> {
        let (guest, destination) = (row.text(1)?, row.text(2)?);
        let time = row.number(0, 0..=u64::MAX)?;
        let bytes = row.number(3, 1..=MAX_MESSAGE_BYTES)?;
        if time < std::mem::replace(&mut self.last, time) {
            let what = "it is before the row above: rows are in the order of their times";
            return Err(row.wrong(0, what));
        }
        if guest == destination {
            return Err(row.wrong(2, format!("{guest:?} is the sender, too")));
        }
        let from = self.machine(guest);
        if self.collected.names.len() > MOST_MACHINES {
            let what = format!("a tenant has at most {MOST_MACHINES} machines");
            return Err(row.wrong(1, what));
        }
        let next = self.destinations.len() as u32;
        let to = match self.destinations.get(destination) {
            Some(to) => *to,
            None => *self
                .destinations
                .entry(destination.to_owned())
                .or_insert(next),
        };
        self.unresolved.push(UnresolvedRow {
            at: Nanos(time),
            from,
            to,
            wire: wire_size(Bytes(bytes)),
        });
        Ok(())
    }

    fn machine(&mut self, name: &str) -> Option<MachineId> {
        if let Some(known) = self.machines.get(name) {
            return Some(*known);
        }
        self.takes_all.then(|| {
            let new = MachineId::new(self.collected.names.len() as u32);
            self.collected.names.push(name.to_owned());
            self.machines.insert(name.to_owned(), new);
            new
        })
    }

    fn finish(self) {
        let mut receivers = vec![None; self.destinations.len()];
        for (name, index) in &self.destinations {
            receivers[*index as usize] = self.machines.get(name).copied();
        }
        let messages = self.unresolved.into_iter().map(|row| Message {
            at: row.at,
            from: row.from,
            to: receivers[row.to as usize],
            wire: row.wire,
            kind: Kind::Data,
        });
        let of_tenant = |message: &Message| message.from.or(message.to).is_some();
        self.collected.messages.extend(messages.filter(of_tenant));
    }
}
