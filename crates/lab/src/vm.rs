//! A guest that is a real virtual machine: QEMU with a distribution's kernel and this program as
//! its first process.
//!
//! [`Machines`] is shared by all VMs of a run: the kernel, the file tree (`tree`), and whether KVM
//! boots it here. [`Machines::arguments`] returns one VM's command line: the daemon at the other
//! side of its NIC (vhost-user) shares its memory, and its virtio-serial ports are sockets in the
//! run's directory. The lab sets up the VM's links and clock through the first port ([`Boot`]);
//! each of the others accepts one order (`channel`). A process of the lab represents the order on
//! this side ([`relay`]), so that the rest of the lab treats all guests the same. `inside` is the
//! other side of the ports.
//!
//! Emulation is slow, but a sleeping guest needs little CPU, and the guest has a kernel, a timer
//! and a vCPU thread of its own: it waits for the CPU like any VM.

mod boot;
mod channel;
mod cpio;
mod elf;
mod inside;
mod modules;
mod relay;
mod tree;

pub use boot::Boot;
use channel::{Message, Order};
pub use inside::{boot, prove, serve};
pub use relay::{GuestCommand, relay};
use tree::{LIBRARIES, MODULES, PROGRAMS};

use crate::tools::words;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tailbound_sys::process::{Spawn, find_program};

/// The VMM's program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// Number of a VM's orders: one for each port.
pub(crate) const ORDERS: usize = 15;

/// Argument of the first process for the test of KVM, and its output in that test.
const PROVE: &str = "prove";
const PROVEN: &str = "the machine runs";

/// Time limit for this output: several times the usual time.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(4);

/// A kernel that guests can boot, and its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Returns `chosen`, or the newest in `/boot`.
    ///
    /// # Errors
    /// The missing file or package, and the command that installs it.
    pub fn find(chosen: Option<&Path>) -> Result<Self, String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err("machines run on x86-64 alone".into());
        }
        if find_program(QEMU).is_none() {
            return Err(format!(
                "{QEMU} is not installed: apt-get install qemu-system-x86"
            ));
        }
        let image = match chosen {
            Some(kernel) => kernel.to_owned(),
            None => newest().ok_or(
                "/boot has no kernel that may be read: apt-get install linux-image-cloud-amd64, \
                 or name one with --guest-kernel",
            )?,
        };
        let modules = modules::directory(&image)?;
        Ok(Self { image, modules })
    }
}

fn newest() -> Option<PathBuf> {
    let entries = fs::read_dir("/boot").ok()?;
    let kernels = entries.filter_map(|entry| Some(entry.ok()?.path()));
    kernels
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("vmlinuz")) && File::open(path).is_ok()
        })
        .max()
}

/// Executor of a VM's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor, through the kernel's KVM.
    Kvm,
    /// QEMU's own emulation.
    Emulation,
}

impl Accelerator {
    /// Returns its word in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Emulation => "tcg",
        }
    }
}

/// Files that all VMs of a run share.
#[derive(Debug)]
pub struct Machines {
    kernel: PathBuf,
    tree: PathBuf,
    /// Executor of their instructions.
    pub accelerator: Accelerator,
}

/// A vhost-user NIC.
#[derive(Debug, Clone)]
pub struct Card<'a> {
    /// The socket of the daemon at its other side.
    pub socket: &'a Path,
    /// Its MAC address.
    pub mac: &'a str,
}

impl Machines {
    /// Writes the tree of `program` and `tools` into `directory`, and tests with a boot whether KVM
    /// runs it.
    ///
    /// # Errors
    /// A file cannot be read or written, or a tool is not installed.
    pub fn prepare(
        kernel: &Kernel,
        program: &Path,
        tools: &[&str],
        directory: &Path,
    ) -> io::Result<Self> {
        let tree = directory.join("machines.cpio");
        tree::write(program, tools, &kernel.modules, &tree)?;
        let mut machines = Self {
            kernel: kernel.image.clone(),
            tree,
            accelerator: Accelerator::Kvm,
        };
        if !machines.is_proven(&directory.join("kvm.out"))? {
            machines.accelerator = Accelerator::Emulation;
        }
        Ok(machines)
    }

    /// Returns whether a VM boots in time under KVM. Permissions are no proof: `/dev/kvm` may exist
    /// and the kernel may hang nevertheless.
    fn is_proven(&self, log: &Path) -> io::Result<bool> {
        if !Path::new("/dev/kvm").exists() {
            return Ok(false);
        }
        let output = File::create(log)?;
        let mut child = Spawn::new(QEMU)
            .args(self.hardware(PROVE))
            .output(output.try_clone()?, output)
            .start()?;
        let end = Instant::now() + OUTPUT_TIMEOUT;
        while child.try_wait()?.is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(String::from_utf8_lossy(&fs::read(log)?).contains(PROVEN))
    }

    /// Returns the command line of a VM without memory and devices except its console, which is
    /// standard input and output.
    fn hardware(&self, task: &str) -> Vec<String> {
        let (accelerator, processor, clock) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host", ""),
            // The HPET follows this computer's clock; the processor's own would have to be
            // measured, and drift. The kernel's check of its timer fails on a starved emulator.
            Accelerator::Emulation => (
                "tcg,thread=multi",
                "qemu64,+rdrand",
                "clocksource=hpet no_timer_check",
            ),
        };
        // Before 8.1, QEMU leaves the guest's memory barriers out if at most one CPU is possible.
        // Then a guest can miss that the daemon wants a kick, and its ring stands still.
        let mut arguments = words(&format!(
            "-accel {accelerator} -cpu {processor} -smp 1,maxcpus=2 -m 512 -nodefaults -no-user-config \
             -no-reboot -display none -serial stdio"
        ));
        let command_line = format!(
            "console=ttyS0 loglevel=1 panic=-1 mitigations=off {clock} rdinit=/init \
             LD_LIBRARY_PATH={LIBRARIES} PATH={PROGRAMS} -- lab machine {task}"
        );
        for (flag, value) in [
            ("-kernel", self.kernel.display().to_string()),
            ("-initrd", self.tree.display().to_string()),
            ("-append", command_line),
        ] {
            arguments.extend([flag.to_owned(), value]);
        }
        arguments
    }

    /// Returns the command line of the VM `name`, whose channels are in `directory`. Its threads
    /// have names, so that the vCPU agent can find its vCPU.
    pub fn arguments(&self, name: &str, directory: &Path, card: Option<&Card<'_>>) -> Vec<String> {
        let mut arguments = self.hardware("boot");
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        add("-name", format!("guest={name},debug-threads=on"));
        // 512 MiB hold this program's debug build and a kernel.
        add(
            "-object",
            "memory-backend-memfd,id=memory,size=512M,share=on".into(),
        );
        add("-machine", "pc,memory-backend=memory".into());
        add(
            "-device",
            format!("virtio-serial-pci,max_ports={}", ORDERS + 2),
        );
        for number in 0..=ORDERS {
            let path = channel(directory, name, number);
            add(
                "-chardev",
                format!(
                    "socket,id=c{number},path={},server=on,wait=off",
                    path.display()
                ),
            );
            // Port 0 is the kernel's console.
            add(
                "-device",
                format!("virtserialport,chardev=c{number},nr={}", number + 1),
            );
        }
        if let Some(card) = card {
            let path = card.socket.display();
            add(
                "-chardev",
                format!("socket,id=card,path={path},reconnect=1"),
            );
            add("-netdev", "vhost-user,id=net,chardev=card".into());
            let mac = card.mac;
            // QEMU 7.2 crashes when a driver unmasks a vector of such a NIC without KVM.
            let vectors = match self.accelerator {
                Accelerator::Kvm => "",
                Accelerator::Emulation => ",vectors=0",
            };
            // The VM does not boot from the network.
            add(
                "-device",
                format!("virtio-net-pci,netdev=net,mac={mac},romfile={vectors}"),
            );
        }
        arguments
    }
}

/// Returns the socket of a VM's channel: 0 is for [`Boot`], each other for one order.
pub fn channel(directory: &Path, machine: &str, number: usize) -> PathBuf {
    directory.join(format!("{machine}.{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_kernel_that_does_not_exist_is_reported_missing() {
        let missing = Kernel::find(Some(Path::new("/nowhere/vmlinuz"))).unwrap_err();
        assert!(
            missing.contains("/nowhere/vmlinuz") || missing.contains(QEMU),
            "{missing}"
        );
    }
}
