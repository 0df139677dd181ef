//! The few commands of `bpf(2)` that a redirecting XDP program takes.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;

/// `BPF_OBJ_NAME_LEN`.
const NAME_LEN: usize = 16;

/// An instruction (`struct bpf_insn`): opcode, registers, offset, immediate.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    /// Destination in the lower four bits, source in the upper ones.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

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
unsafe fn bpf_fd<A>(command: c_int, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the attributes.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the command just returned this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an `XSKMAP`: from a queue's number to the socket that gets its frames.
pub(super) fn create_map(entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let attributes = Attributes {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
    };
    // SAFETY: this is the start of what BPF_MAP_CREATE reads; the kernel takes
    // the rest as zeros. It has no addresses.
    unsafe { bpf_fd(MAP_CREATE, &attributes) }
}

/// Puts a socket into the map.
pub(super) fn set_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map_fd: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let value = socket.as_raw_fd();
    let attributes = Attributes {
        map_fd: map.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: (&raw const queue) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: this is what BPF_MAP_UPDATE_ELEM reads; key and value are of the
    // four bytes that the map was made with, and live until it returns.
    unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// Loads a program. `PermissionDenied` also where the verifier refuses it.
pub(super) fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; NAME_LEN],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    let attributes = Attributes {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: c"Apache-2.0 OR MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"tailbound\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: this is the start of what BPF_PROG_LOAD reads; the instructions
    // are as many as it says, the license ends with a zero, and both live until
    // it returns.
    unsafe { bpf_fd(PROG_LOAD, &attributes) }
}

/// Attaches a program to an interface of this thread's network namespace. It is
/// detached when the last copy of the descriptor is closed: also when the
/// process is killed.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let attributes = Attributes {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: interface,
        attach_type: ATTACH_TYPE_XDP,
        flags,
    };
    // SAFETY: this is the start of what BPF_LINK_CREATE reads; it has no
    // addresses.
    unsafe { bpf_fd(LINK_CREATE, &attributes) }
}
