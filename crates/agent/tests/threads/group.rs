//! Control groups with a weight.

use crate::guest::FakeGuest;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use tailbound_sys::cgroup::{Mounts, parse_groups};
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::root::Root;

/// The number of the next group.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A control group with a weight, and one process in it.
pub(crate) struct Grouped {
    pub(crate) directory: PathBuf,
    /// The group of the process.
    pub(crate) inner: PathBuf,
    pub(crate) process: Option<FakeGuest>,
}

impl Grouped {
    /// `None`, with a message, if no group can be created. The process is in the group, or in a
    /// group `inner` below it.
    pub(crate) fn start(inner: &str) -> Option<Self> {
        let mounts = Mounts::read(&Root::default()).unwrap();
        let own = parse_groups(&std::fs::read_to_string("/proc/self/cgroup").unwrap());
        let Some((parent, _)) = mounts.directory(&own, "cpu") else {
            let why = "this process is in no group with the cpu controller";
            skipped(Part::CpuWeight, why);
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailbound-test-{}-{number}", std::process::id());
        let directory = parent.join(name);
        if let Err(error) = std::fs::create_dir(&directory) {
            let parent = parent.display();
            let why = format!("no control group can be made in {parent}: {error}");
            skipped(Part::CpuWeight, why);
            return None;
        }
        let mut grouped = Self {
            inner: directory.join(inner),
            directory,
            process: None,
        };
        // Version 2 has a group's weights where the one above hands them down.
        let handed = grouped.directory.join("cgroup.subtree_control");
        if grouped.inner != grouped.directory {
            let _ = std::fs::write(handed, "+cpu");
            std::fs::create_dir(&grouped.inner).unwrap();
        }
        let process = FakeGuest::start(1);
        let moved = std::fs::write(
            grouped.inner.join("cgroup.procs"),
            process.process.id().to_string(),
        );
        grouped.process = Some(process);
        if let Err(error) = moved {
            let why = format!("a process cannot be moved to a group of its own: {error}");
            skipped(Part::CpuWeight, why);
            return None;
        }
        if !["cpu.weight", "cpu.shares"]
            .iter()
            .any(|file| grouped.directory.join(file).exists())
        {
            skipped(Part::CpuWeight, "a group that is made here has no weight");
            return None;
        }
        Some(grouped)
    }

    pub(crate) fn file(&self) -> PathBuf {
        let files = ["cpu.weight", "cpu.shares"].map(|file| self.directory.join(file));
        files.into_iter().find(|file| file.exists()).unwrap()
    }

    pub(crate) fn weight(&self) -> u64 {
        let text = std::fs::read_to_string(self.file()).unwrap();
        text.trim().parse().unwrap()
    }

    /// A rule with ten times the weight for its guest.
    pub(crate) fn rule(&self) -> String {
        let pid = self.process.as_ref().unwrap().process.id();
        format!(
            "[[guest]]\npid = {pid}\nlabel = \"grouped\"\nclass = {{ kind = \"aperiodic\", \
             weight = 10 }}\n"
        )
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        self.process = None;
        let _ = std::fs::remove_dir(&self.inner);
        let _ = std::fs::remove_dir(&self.directory);
    }
}
