//! A trace as a load: senders, receivers, lengths and times of messages from a file.

use super::sizes::Kind;
use crate::rows::{self, Wrong};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tailbound_experiment::{Mistakes, Name};
use tailbound_units::Nanos;

/// Workload: messages of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// CSV or Parquet file, relative to the experiment.
    pub file: Name,
    /// A connection per message, as in `flows`.
    #[serde(default)]
    pub own_connections: bool,
    /// Rows of the file, once it was read.
    #[serde(skip)]
    rows: Arc<[Row]>,
}

/// A message of a trace.
#[derive(Debug, Clone, Copy)]
struct Row {
    begins: Nanos,
    from: u32,
    to: u32,
    bytes: u64,
}

/// Names of the columns, in their order.
const COLUMNS: [&str; 4] = ["start_ns", "source", "destination", "bytes"];
/// Largest number of rows: they are all in memory, 24 B each.
const MOST_ROWS: usize = 20_000_000;
/// Longest message, in bytes.
const MOST_BYTES: u64 = 1_000_000_000;

impl Trace {
    /// Reads the file, for `hosts` hosts. `experiment` is the path of the experiment.
    pub(super) fn load(&mut self, experiment: &str, hosts: usize, mistakes: &mut Mistakes) {
        let folder = Path::new(experiment).parent().unwrap_or(Path::new(""));
        let path = folder.join(self.file.get_ref());
        let shown = path.display();
        match read(&path, hosts) {
            Ok(rows) => self.rows = rows.into(),
            Err(wrong) => mistakes.at(&self.file, format!("{shown}{wrong}")),
        }
    }

    /// Returns the rows as text.
    pub(super) fn input(&self) -> String {
        format!("{:?}", self.rows)
    }

    /// Returns the sending and the receiving host of all messages, without repetitions.
    pub(super) fn connections(&self) -> Vec<(usize, usize)> {
        let mut pairs: Vec<_> = self
            .rows
            .iter()
            .map(|row| (row.from as usize, row.to as usize))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// Returns the sum of the bytes of messages that begin before `until`.
    pub(super) fn bytes(&self, until: Nanos) -> u64 {
        let there = self.rows.iter().take_while(|row| row.begins < until);
        there.map(|row| row.bytes).sum()
    }
}

/// Returns the rows of a file.
fn read(path: &Path, hosts: usize) -> Result<Vec<Row>, Wrong> {
    let mut rows = Rows::of(hosts);
    rows::read(path, COLUMNS, MOST_ROWS, |row| rows.add(row))?;
    rows.all()
}

/// The rows of a trace, while they are read.
struct Rows {
    rows: Vec<Row>,
    last_host: u64,
}

impl Rows {
    fn of(hosts: usize) -> Self {
        Self {
            rows: Vec::new(),
            last_host: hosts as u64 - 1,
        }
    }

    fn add(&mut self, row: &rows::Row<'_, 4>) -> Result<(), Wrong> {
        let hosts = 0..=self.last_host;
        let read = Row {
            begins: Nanos(row.number(0, 0..=u64::MAX / 2)?),
            from: row.number(1, hosts.clone())? as u32,
            to: row.number(2, hosts)? as u32,
            bytes: row.number(3, 1..=MOST_BYTES)?,
        };
        if self.rows.last().is_some_and(|it| it.begins > read.begins) {
            let what = "it is before the row above: rows are in the order of their times";
            return Err(row.wrong(0, what));
        }
        if read.from == read.to {
            let what = "it is the source: frames pass switches here, so name another host";
            return Err(row.wrong(2, what));
        }
        self.rows.push(read);
        Ok(())
    }

    /// Returns all rows; fails if there are none.
    fn all(self) -> Result<Vec<Row>, Wrong> {
        if self.rows.is_empty() {
            let what = "there is no row: write `0,0,1,1000` for 1,000 bytes from host 0 to 1";
            return Err(Wrong::file(what));
        }
        Ok(self.rows)
    }
}

/// State of a trace during a run.
#[derive(Debug, Clone)]
pub(super) struct Replaying {
    rows: Arc<[Row]>,
    next: usize,
    /// Sending ends, by hosts.
    ends: BTreeMap<(u32, u32), u32>,
    pub(super) has_own_connections: bool,
    /// End of the time in which messages begin.
    until: Nanos,
}

impl Replaying {
    /// Returns a trace over connections with these first ends, in the order of
    /// [`Trace::connections`].
    pub(super) fn new(trace: &Trace, ends: impl Iterator<Item = u32>, until: Nanos) -> Self {
        let pairs = trace.connections().into_iter();
        let pairs = pairs.map(|(from, to)| (from as u32, to as u32));
        Self {
            rows: Arc::clone(&trace.rows),
            next: 0,
            ends: pairs.zip(ends).collect(),
            has_own_connections: trace.own_connections,
            until,
        }
    }

    pub(super) fn next_at(&self) -> Nanos {
        let begins = self
            .rows
            .get(self.next)
            .map_or(Nanos::MAX, |row| row.begins);
        if begins < self.until {
            begins
        } else {
            Nanos::MAX
        }
    }

    /// Begins the message that is due.
    pub(super) fn begin(&mut self, begun: &mut Vec<(u32, Kind, u64)>) {
        let row = self.rows[self.next];
        self.next += 1;
        begun.push((self.ends[&(row.from, row.to)], Kind::Flow, row.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columnar::{Column, table};

    /// Reads a file of these bytes, for four hosts; an error follows the file's path.
    fn of(bytes: impl AsRef<[u8]>) -> Result<Vec<Row>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read(file.path(), 4).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn trace_row_mistakes_are_reported_with_line_and_column() {
        let head = "start_ns,source,destination,bytes\n";
        assert!(
            of(head)
                .unwrap_err()
                .starts_with(": there is no row: write")
        );
        for (row, expected) in [
            ("5,0,1", ":3: a row has 4 fields, and this one 3"),
            ("5,0,,9", ":3: column `destination`: \"\" is not"),
            ("1ms,0,1,9", ":3: column `start_ns`: \"1ms\" is not a whole"),
            (
                "5,0,1,9KB",
                ":3: column `bytes`: \"9KB\" is not a whole number from 1",
            ),
            (
                "5,4,1,9",
                ":3: column `source`: \"4\" is not a whole number from 0 to 3",
            ),
            ("5,2,web,9", ":3: column `destination`: \"web\" is not"),
            ("5,2,2,9", ":3: column `destination`: it is the source"),
            (
                "5,0,1,9\n4,0,1,9",
                ":4: column `start_ns`: it is before the row above",
            ),
        ] {
            let told = of(format!("{head}0,0,1,1000\n{row}\n")).unwrap_err();
            assert!(told.starts_with(expected), "{told}");
        }
        assert_eq!(
            of(format!("{head}0,0,1,9\n\n7, 3, 0, 12\n")).unwrap().len(),
            2
        );
    }

    /// Returns a Parquet file with these rows.
    fn parquet(rows: &[[i64; 4]]) -> Vec<u8> {
        let column = |at: usize| Column::Numbers(rows.iter().map(|row| row[at]).collect());
        let columns = (0..4).map(|at| (COLUMNS[at].to_owned(), column(at)));
        table(&columns.collect::<Vec<_>>())
    }

    #[test]
    fn a_parquet_trace_equals_the_csv_one_with_located_mistakes() {
        let rows = [
            [0, 2, 0, 5000],
            [1_000_000, 1, 3, 200],
            [1_000_000, 2, 0, 7],
        ];
        let text = COLUMNS.join(",") + "\n0,2,0,5000\n1000000,1,3,200\n1000000,2,0,7\n";
        let of_table = of(parquet(&rows)).unwrap();
        assert_eq!(format!("{:?}", of(text).unwrap()), format!("{of_table:?}"));
        for (wrong, expected) in [
            (
                [999_999, 0, 1, 9],
                ": row 4, column `start_ns`: it is before the row above",
            ),
            (
                [-1, 0, 1, 9],
                ": row 4, column `start_ns`: -1 is not a whole number from 0",
            ),
            (
                [1_000_000, 4, 1, 9],
                ": row 4, column `source`: 4 is not a whole number from 0 to 3",
            ),
            (
                [1_000_000, 2, 2, 9],
                ": row 4, column `destination`: it is the source",
            ),
            ([1_000_000, 2, 1, 0], ": row 4, column `bytes`: 0 is not"),
        ] {
            let told = of(parquet(&[&rows[..], &[wrong]].concat())).unwrap_err();
            assert!(told.starts_with(expected), "{told}");
        }
        let told = of(parquet(&[])).unwrap_err();
        assert!(told.starts_with(": there is no row"), "{told}");
    }
}
