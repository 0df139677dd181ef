//! Trials of BPF programs.

use super::{advice, root};
use crate::probe::TrialResult;
use rustix::thread::CapabilitySet;
use std::path::Path;

/// Loads the program that measures waits, and unloads it.
#[cfg(feature = "waits")]
pub(in crate::probe) fn bpf_waits() -> TrialResult {
    use crate::waits::{Tracer, WaitsError};
    match Tracer::try_load() {
        Ok(tracer) => TrialResult::works(format!("loaded; {}", tracer.way())),
        Err(WaitsError::Load(error)) => no_bpf(&error),
        Err(WaitsError::Io(error)) => no_bpf(&refused(&error)),
    }
}

#[cfg(not(feature = "waits"))]
pub(in crate::probe) fn bpf_waits() -> TrialResult {
    not_built()
}

/// Loads the program that measures packets, and unloads it.
#[cfg(feature = "packets")]
pub(in crate::probe) fn bpf_packets() -> TrialResult {
    use crate::packets::{PacketsError, Tracer};
    match Tracer::try_load() {
        Ok(tracer) if tracer.missing().is_empty() => TrialResult::works("loaded"),
        Ok(tracer) => TrialResult::works(format!("loaded without {}", tracer.missing().join("; "))),
        Err(PacketsError::Load(error)) => no_bpf(&error),
        Err(error) => no_bpf(&refused(&error)),
    }
}

#[cfg(not(feature = "packets"))]
pub(in crate::probe) fn bpf_packets() -> TrialResult {
    not_built()
}

#[cfg(any(not(feature = "waits"), not(feature = "packets")))]
fn not_built() -> TrialResult {
    TrialResult::lacks(
        "this program was built without it",
        advice("use tailbound as it is shipped"),
    )
}

#[cfg(any(feature = "waits", feature = "packets"))]
fn refused(error: &dyn std::error::Error) -> crate::bpf_program::LoadError {
    crate::bpf_program::LoadError::Refused(error.to_string())
}

/// Returns the outcome if a BPF program cannot be loaded.
#[cfg(any(feature = "waits", feature = "packets"))]
fn no_bpf(error: &crate::bpf_program::LoadError) -> TrialResult {
    use crate::bpf_program::LoadError;
    let locked = super::text("/sys/kernel/security/lockdown").unwrap_or_default();
    let remedy = match &error {
        LoadError::NotPermitted if locked.contains("[confidentiality]") => {
            "start the kernel with lockdown=integrity: with confidentiality no program may read it"
        }
        LoadError::NotPermitted => {
            "run as root, or with AmbientCapabilities=CAP_BPF CAP_PERFMON; not in a container's \
             user namespace"
        }
        LoadError::NoBtf(_) => "use a kernel with CONFIG_DEBUG_INFO_BTF",
        LoadError::Refused(_) => {
            "use Linux 6.1 or later; if this is one, report its `uname -r` and these words"
        }
    };
    TrialResult::lacks(error.to_string(), advice(remedy))
}

/// Looks for the kernel's types and the capabilities. No program is loaded: that takes a second.
pub(in crate::probe) fn bpf_edge() -> TrialResult {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return TrialResult::lacks(
            "the kernel has no BTF",
            advice("use a kernel with CONFIG_DEBUG_INFO_BTF"),
        );
    }
    let wanted = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
    let own = rustix::thread::capabilities(None).map(|own| own.effective);
    match own {
        Ok(own) if own.contains(wanted) => TrialResult::works("BTF, and the capabilities"),
        _ => TrialResult::lacks(
            "this process lacks CAP_BPF, CAP_PERFMON or CAP_NET_ADMIN",
            advice("run as root of the host"),
        ),
    }
}

/// Looks whether a BPF file system is mounted.
pub(in crate::probe) fn bpf_fs() -> TrialResult {
    const PATH: &str = "/sys/fs/bpf";
    const MAGIC: u64 = 0xcafe_4a11;
    let found = rustix::fs::statfs(PATH).map(|it| it.f_type as u64 & 0xffff_ffff);
    if found == Ok(MAGIC) {
        return TrialResult::works(format!("mounted at {PATH}"));
    }
    let remedy = root(format!("mount -t bpf bpf {PATH}"));
    TrialResult::lacks(format!("none is mounted at {PATH}"), remedy)
}

/// Queries the programs of the loopback's ingress.
pub(in crate::probe) fn tcx() -> TrialResult {
    const LOOPBACK: u32 = 1;
    match crate::bpf::count_attached(LOOPBACK, crate::bpf::TCX_INGRESS) {
        Ok(_) => TrialResult::works("the programs of the loopback can be queried"),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => TrialResult::lacks(
            "not allowed to query the programs of an interface",
            advice("run as root of the host"),
        ),
        Err(error) => TrialResult::lacks(
            format!("{error}; clsact is used instead"),
            advice("use Linux 6.6 or later beside other programs on guests' interfaces"),
        ),
    }
}

/// Looks among the kernel's types for the operations of a BPF qdisc.
pub(in crate::probe) fn bpf_qdisc() -> TrialResult {
    const NAME: &[u8] = b"bpf_struct_ops_Qdisc_ops\0";
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let mut words = types.split_inclusive(|byte| *byte == 0);
    if words.any(|word| word == NAME) {
        return TrialResult::works("the kernel has it; fq is the default without --qdisc bpf");
    }
    TrialResult::lacks(
        "this kernel has no BPF qdiscs; guests' frames wait in fq",
        advice("use Linux 6.16 or later with CONFIG_NET_SCH_BPF where bursts must be exact"),
    )
}
