//! The queueing discipline `fq` of a device: whether the kernel has it, and its removal.

use super::ROOT;
use crate::rtnetlink::{DELETE_QDISC, NEW_QDISC, Netlink, attribute, tc_head};
use rustix::thread::UnshareFlags;
use std::io;

/// `NLM_F_REPLACE | NLM_F_CREATE`.
const REPLACE: u16 = 0x500;

/// The handle of a device's own discipline that tailbound attached (`7b1d:`).
pub const HANDLE: u32 = 0x7b1d_0000;

/// Tries whether the kernel has `fq`, on the loopback of a network namespace of its own. The kernel
/// may load the module.
///
/// # Errors
/// The kernel has no `fq`, or the process lacks `CAP_SYS_ADMIN`.
pub fn try_fq() -> io::Result<()> {
    const LOOPBACK: u32 = 1;
    const KIND: u16 = 1;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no descriptors are unshared, which is what would let others see closed ones.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            let head = tc_head(LOOPBACK, HANDLE, ROOT);
            let body = [&head[..], &attribute(KIND, b"fq\0")].concat();
            Netlink::open()?.change(NEW_QDISC, REPLACE, &body)
        });
        match thread.join() {
            Ok(tried) => tried,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Removes the discipline with [`HANDLE`] from a device, whose default follows it.
///
/// # Errors
/// The device has no such discipline, or the process lacks `CAP_NET_ADMIN`.
pub fn remove(index: u32) -> io::Result<()> {
    Netlink::open()?.change(DELETE_QDISC, 0, &tc_head(index, HANDLE, ROOT))
}

/// Removes the `clsact` of a device, with all classifiers.
///
/// # Errors
/// The device has none, or the process lacks `CAP_NET_ADMIN`.
pub fn remove_clsact(index: u32) -> io::Result<()> {
    const CLSACT: u32 = 0xffff_fff1;
    Netlink::open()?.change(DELETE_QDISC, 0, &tc_head(index, 0, CLSACT))
}
