//! The few commands of `bpf(2)` that a redirecting XDP program takes.

use crate::bpf::{bpf_fd, update};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const MAP_CREATE: c_int = 0;
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
    // SAFETY: key and value are of the four bytes that the map was made with.
    unsafe { update(map, &queue, &socket.as_raw_fd()) }
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
