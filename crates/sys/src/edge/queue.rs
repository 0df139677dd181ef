//! The qdisc of an uplink as BPF programs (`queue.bpf.c`), from Linux 6.16 on.

use crate::bpf_program::LoadError;
use crate::struct_ops::{self, Set};
use std::path::Path;

/// The programs as they were built; `scripts/bpf` makes them.
static PROGRAM: &[u8] = aya::include_bytes_aligned!("queue.bpf.o");

/// The functions that the programs call, as `kfuncs.h` numbers them.
const FUNCTIONS: [&str; 13] = [
    "bpf_obj_new_impl",
    "bpf_obj_drop_impl",
    "bpf_rbtree_add_impl",
    "bpf_rbtree_first",
    "bpf_rbtree_remove",
    "bpf_list_push_back_impl",
    "bpf_list_push_front_impl",
    "bpf_list_pop_front",
    "bpf_list_front",
    "bpf_qdisc_skb_drop",
    "bpf_kfree_skb",
    "bpf_qdisc_watchdog_schedule",
    "bpf_qdisc_bstats_update",
];

const MEMBERS: [(&str, &str); 5] = [
    ("enqueue", "enqueue"),
    ("dequeue", "dequeue"),
    ("init", "start"),
    ("reset", "reset"),
    ("destroy", "destroy"),
];

/// The set of the qdisc with this name.
const fn set(kind: &str) -> Set<'_> {
    Set {
        name: "Qdisc_ops",
        id: ("id", kind),
        members: &MEMBERS,
        functions: &FUNCTIONS,
    }
}

/// The kind of the qdisc of an uplink. Each uplink has its own, since a set of programs has the frames of one.
pub(super) fn kind(ifindex: u32) -> String {
    format!("tb{ifindex}")
}

/// Loads the qdisc of an uplink and pins its registration.
pub(super) fn register(maps: &Path, ifindex: u32, pin: &Path) -> Result<(), LoadError> {
    struct_ops::register(PROGRAM, &set(&kind(ifindex)), maps, pin)
}

/// Returns an error if this kernel cannot have [`UplinkQueue::Bpf`](super::UplinkQueue::Bpf).
///
/// # Errors
/// [`LoadError::NoBtf`]; [`LoadError::Refused`] by a kernel before Linux 6.16 or without `CONFIG_NET_SCH_BPF`.
pub fn supports_bpf_queue() -> Result<(), LoadError> {
    struct_ops::has(&set("tb"))
}
