//! Figures of an experiment: what it found, one a line.

use std::fmt;

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A number of frames, none of which may be lost.
    Count,
    /// A number of waits for a CPU.
    Waits,
    /// A number of bytes.
    Bytes,
    /// Bits a second.
    BitsPerSecond,
    /// Nanoseconds of the machine.
    Nanos,
    /// Instructions that the machine executed.
    Instructions,
    /// Thousandths of another figure.
    PerMille,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Waits => "waits",
            Self::Bytes => "B",
            Self::BitsPerSecond => "bit/s",
            Self::Nanos => "ns",
            Self::Instructions => "instructions",
            Self::PerMille => "per mille",
        }
    }
}

/// Figures in the order in which they were found. Values are whole, so that equal runs print
/// equal lines.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<(String, i64, Unit)>);

impl Figures {
    /// Adds a figure; a name has dots between its parts and no space.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: u64, unit: Unit) {
        self.add_signed(name, i64::try_from(value).unwrap_or(i64::MAX), unit);
    }

    /// Adds all of another list, each with `first` as the first part of its name.
    pub(crate) fn add_all(&mut self, first: &str, others: Self) {
        let named = others.0.into_iter();
        self.0
            .extend(named.map(|(name, value, unit)| (format!("{first}.{name}"), value, unit)));
    }

    /// Adds a figure that may be negative.
    pub(crate) fn add_signed(&mut self, name: impl Into<String>, value: i64, unit: Unit) {
        self.0.push((name.into(), value, unit));
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value, unit) in &self.0 {
            writeln!(f, "{name:40} {value:>14} {}", unit.name())?;
        }
        Ok(())
    }
}
