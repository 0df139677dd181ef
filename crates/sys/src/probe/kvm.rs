//! Trial of KVM with a real VM: permissions and versions are no proof if the CPU is itself a
//! guest's. The numbers are those of Linux's `<linux/kvm.h>` on x86-64.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::{c_ulong, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};

const GET_API_VERSION: c_ulong = 0xae00;
const CREATE_VM: c_ulong = 0xae01;
const GET_VCPU_MMAP_SIZE: c_ulong = 0xae04;
const CREATE_VCPU: c_ulong = 0xae41;
const SET_USER_MEMORY_REGION: c_ulong = 0x4020_ae46;
const RUN: c_ulong = 0xae80;
const SET_REGS: c_ulong = 0x4090_ae82;
const GET_SREGS: c_ulong = 0x8138_ae83;
const SET_SREGS: c_ulong = 0x4138_ae84;

/// The only existing version.
const VERSION: i32 = 12;
/// `KVM_EXIT_HLT`.
const EXIT_HALT: u32 = 5;
const PAGE: usize = 4096;
/// The instruction `hlt`.
const HLT: u8 = 0xf4;

/// `struct kvm_userspace_memory_region`.
#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest_address: u64,
    size: u64,
    address: u64,
}

/// `struct kvm_sregs`: 312 bytes. The first segment is that of the code: its base in 8 bytes, its
/// limit in 4 and its selector in 2.
#[repr(C, align(8))]
struct Segments([u8; 312]);

/// `struct kvm_regs`: 18 words, the last two of which are the instruction pointer and the flags.
type Registers = [u64; 18];

/// Mapped memory, until it is dropped.
struct MappedMemory(*mut c_void, usize);

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: `self` was mapped with this length, and nobody uses it any longer.
        let _ = unsafe { munmap(self.0, self.1) };
    }
}

/// Runs a VM whose only instruction halts it, until it has halted.
///
/// # Errors
/// `/dev/kvm` is missing or closed to this user; no VM can be made; or the VM ended differently.
pub(crate) fn halt() -> io::Result<()> {
    let kvm = OpenOptions::new().read(true).write(true).open("/dev/kvm")?;
    if call(&kvm, GET_API_VERSION, 0)? != VERSION {
        return Err(io::Error::other("its version is not 12"));
    }
    let machine = opened(call(&kvm, CREATE_VM, 0)?);
    let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: new memory, wherever the kernel likes.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, read_write, private) }?;
    let memory = MappedMemory(memory, PAGE);
    // SAFETY: the page was just mapped for writing.
    unsafe { memory.0.cast::<u8>().write(HLT) };
    let region = Region {
        slot: 0,
        flags: 0,
        guest_address: 0,
        size: PAGE as u64,
        address: memory.0 as u64,
    };
    call(
        &machine,
        SET_USER_MEMORY_REGION,
        (&raw const region) as c_ulong,
    )?;
    let vcpu = opened(call(&machine, CREATE_VCPU, 0)?);

    let mut segments = Segments([0; 312]);
    call(&vcpu, GET_SREGS, (&raw mut segments) as c_ulong)?;
    segments.0[..8].fill(0);
    segments.0[12..14].fill(0);
    call(&vcpu, SET_SREGS, (&raw const segments) as c_ulong)?;
    let mut registers: Registers = [0; 18];
    // Bit 1 of the flags is always set.
    registers[17] = 2;
    call(&vcpu, SET_REGS, (&raw const registers) as c_ulong)?;

    let size = usize::try_from(call(&kvm, GET_VCPU_MMAP_SIZE, 0)?).unwrap_or(PAGE);
    // SAFETY: the kernel's part of a vCPU, of the size that it says, wherever it likes.
    let state = unsafe {
        mmap(
            std::ptr::null_mut(),
            size,
            read_write,
            MapFlags::SHARED,
            &vcpu,
            0,
        )
    }?;
    let state = MappedMemory(state, size);
    call(&vcpu, RUN, 0)?;
    // SAFETY: `struct kvm_run` has its reason in bytes 8 to 11, and was mapped above.
    let reason = unsafe { state.0.cast::<u32>().add(2).read_volatile() };
    if reason == EXIT_HALT {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "it ended for reason {reason}, and did not halt"
        )))
    }
}

fn call(file: &File, request: c_ulong, argument: c_ulong) -> io::Result<i32> {
    // SAFETY: each request above takes a number, or a pointer to the structure that its caller
    // passes, which lives until the call has returned. Of a machine's memory the kernel notices
    // when it is unmapped.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, argument) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Returns the file of a descriptor that an ioctl opened.
fn opened(descriptor: i32) -> File {
    // SAFETY: the ioctl just returned it and nobody else has it.
    unsafe { File::from_raw_fd(descriptor) }
}
