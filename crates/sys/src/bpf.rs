//! `bpf(2)`, for programs that are short enough to need no loader, and for maps that the loader
//! lacks.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_UPDATE_ELEM: c_int = 2;
#[cfg(feature = "waits")]
const MAP_DELETE_ELEM: c_int = 3;

/// Runs one command.
///
/// # Safety
/// `A` must be the layout that `command` reads, and every address in
/// `attributes` must point to as much memory as it takes.
pub(crate) unsafe fn bpf<A>(command: c_int, attributes: &A) -> io::Result<c_int> {
    // SAFETY: the kernel reads as many bytes as `A` has, and what the caller
    // vouches for.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<A>(),
        )
    };
    c_int::try_from(result)
        .ok()
        .filter(|result| *result >= 0)
        .ok_or_else(io::Error::last_os_error)
}

/// As [`bpf`], for a command that makes a descriptor.
///
/// # Safety
/// As [`bpf`].
pub(crate) unsafe fn bpf_fd<A>(command: c_int, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the attributes.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the command just returned this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the value of a key in a map.
///
/// # Safety
/// `K` and `V` must be of the sizes that the map was made with, and have no padding.
pub(crate) unsafe fn update<K, V>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map_fd: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let attributes = Attributes {
        map_fd: map.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: std::ptr::from_ref(key) as u64,
        value: std::ptr::from_ref(value) as u64,
        flags: 0,
    };
    // SAFETY: this is what BPF_MAP_UPDATE_ELEM reads; key and value are of the map's sizes, as
    // the caller vouches for, and live until it returns.
    unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// Removes a key from a map.
///
/// # Safety
/// As [`update`].
#[cfg(feature = "waits")]
pub(crate) unsafe fn remove<K>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map_fd: u32,
        pad: u32,
        key: u64,
    }
    let attributes = Attributes {
        map_fd: map.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: std::ptr::from_ref(key) as u64,
    };
    // SAFETY: this is the start of what BPF_MAP_DELETE_ELEM reads; the key is of the map's size,
    // as the caller vouches for, and lives until it returns.
    unsafe { bpf(MAP_DELETE_ELEM, &attributes) }.map(drop)
}

/// `BPF_TCX_INGRESS`: programs for the frames that a device receives.
pub(crate) const TCX_INGRESS: u32 = 46;

/// Returns the number of programs that are attached to a device of this network namespace.
///
/// # Errors
/// The kernel has no such place (tcx: Linux 6.6), or the process lacks `CAP_NET_ADMIN`.
pub(crate) fn count_attached(ifindex: u32, place: u32) -> io::Result<u32> {
    const PROG_QUERY: c_int = 16;
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        target: u32,
        place: u32,
        query_flags: u32,
        attach_flags: u32,
        programs: u64,
        count: u32,
        pad: u32,
        program_flags: u64,
        links: u64,
        link_flags: u64,
        revision: u64,
    }
    // The kernel writes its answer there, too.
    let attributes = UnsafeCell::new(Attributes {
        target: ifindex,
        place,
        ..Attributes::default()
    });
    // SAFETY: this is what BPF_PROG_QUERY reads and writes; with a count of zero it writes to no
    // list of programs.
    unsafe { bpf(PROG_QUERY, &attributes) }?;
    Ok(attributes.into_inner().count)
}
