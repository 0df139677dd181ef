//! `bpf(2)`, for programs that are short enough to need no loader, and for maps that the loader
//! lacks.

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
unsafe fn bpf<A>(command: c_int, attributes: &A) -> io::Result<c_int> {
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
