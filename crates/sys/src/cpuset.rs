//! Sets of CPUs: as masks of threads, and in the kernel's list format (`0-3,8`).

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::io;
use std::str::FromStr;

/// A set of CPUs as a list such as `0-3,8`. Numbers are below [`Cpus::MAX`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Cpus(CpuSet);

/// Reason why a text is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a list of CPUs: write for example \"0-3,8\", with numbers below {}",
    Cpus::MAX
)]
pub struct CpusError {
    /// The text.
    pub text: String,
}

impl Cpus {
    /// The first invalid number.
    pub const MAX: u32 = CpuSet::MAX_CPU as u32;

    /// Returns a set of one CPU; empty if the number is too large.
    pub fn one(cpu: u32) -> Self {
        [cpu].into_iter().collect()
    }

    /// Returns true if the set contains `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        cpu < Self::MAX && self.0.is_set(cpu as usize)
    }

    /// Returns the number of CPUs.
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Returns true for the empty set.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns true if the set contains all of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|cpu| self.contains(cpu))
    }

    /// Returns the CPUs in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| other.contains(*cpu)).collect()
    }

    /// Returns the CPUs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| !other.contains(*cpu)).collect()
    }

    /// Returns the CPUs in at least one of the sets.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Returns the numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::MAX).filter(|cpu| self.contains(*cpu))
    }
}

impl FromIterator<u32> for Cpus {
    /// Numbers that are too large are skipped.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = CpuSet::new();
        for cpu in cpus {
            if cpu < Self::MAX {
                set.set(cpu as usize);
            }
        }
        Self(set)
    }
}

impl FromStr for Cpus {
    type Err = CpusError;
    /// Reads the kernel's lists: `0-3,8`; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, CpusError> {
        let wrong = || CpusError {
            text: text.to_owned(),
        };
        let mut set = CpuSet::new();
        for range in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= Self::MAX {
                return Err(wrong());
            }
            for cpu in first..=last {
                set.set(cpu as usize);
            }
        }
        Ok(Self(set))
    }
}

impl fmt::Display for Cpus {
    /// In the kernel's format: `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut next = 0;
        while let Some(first) = (next..Self::MAX).find(|cpu| self.contains(*cpu)) {
            let end = (first..Self::MAX).find(|cpu| !self.contains(*cpu));
            next = end.unwrap_or(Self::MAX);
            write!(f, "{separator}{first}")?;
            if next - first > 1 {
                write!(f, "-{}", next - 1)?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cpus({self})")
    }
}

impl serde::Serialize for Cpus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

fn pid(thread: u32) -> io::Result<Option<Pid>> {
    match thread {
        0 => Ok(None),
        _ => Ok(Some(
            Pid::from_raw(thread.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?,
        )),
    }
}

/// Returns the CPUs on which a thread (0: the calling one) may run.
///
/// # Errors
/// The thread is gone (ESRCH), or the machine has more than [`Cpus::MAX`] CPUs.
pub fn affinity(thread: u32) -> io::Result<Cpus> {
    Ok(Cpus(sched_getaffinity(pid(thread)?)?))
}

/// Sets the CPUs on which a thread (0: the calling one) may run. The kernel removes CPUs that the
/// thread's cpuset forbids: read the result back.
///
/// # Errors
/// No CPU is left (EINVAL); the thread is another user's (EPERM), or has a deadline and the set
/// does not cover its root domain (EBUSY); it is gone (ESRCH).
pub fn set_affinity(thread: u32, cpus: &Cpus) -> io::Result<()> {
    Ok(sched_setaffinity(pid(thread)?, &cpus.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_lists_are_read() {
        let cpus: Cpus = "0-3,8\n".parse().unwrap();
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!("".parse::<Cpus>().unwrap().count(), 0);
        assert_eq!("\n".parse::<Cpus>().unwrap().count(), 0);
    }

    #[test]
    fn invalid_cpu_lists_are_refused() {
        for text in [
            "-",
            "3-1",
            "0-",
            "x",
            "0,,1",
            "1024",
            "0-99999999999",
            "0-4294967295",
        ] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn this_thread_may_run_somewhere_and_can_be_confined_there() {
        let allowed = affinity(0).unwrap();
        let first = Cpus::one(allowed.iter().next().unwrap());
        std::thread::spawn(move || {
            set_affinity(0, &first).unwrap();
            assert_eq!(affinity(0).unwrap(), first);
        })
        .join()
        .unwrap();
        assert!(allowed.covers(&first));
    }

    proptest! {
        #[test]
        fn a_list_reads_back_as_it_was_written(cpus in prop::collection::btree_set(0u32..1024, 0..40)) {
            let set: Cpus = cpus.iter().copied().collect();
            prop_assert_eq!(set.to_string().parse::<Cpus>().unwrap(), set);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[-0-9, x\n]{0,24}") {
            let _ = text.parse::<Cpus>();
        }
    }
}
