//! A guest that is a real virtual machine: QEMU, without KVM, with this very
//! program as its only process.
//!
//! Emulation is slow, but whoever sleeps needs little, and the guest has a
//! kernel, a timer and a vCPU thread of its own: for the CPU it waits as any
//! virtual machine does.

mod cpio;

use crate::guest::OUTCOME_PORT;
use crate::tools::words;
use cpio::Archive;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tailbound_sys::process::find_program;

/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// A kernel that guests can boot.
///
/// # Errors
/// What is missing, and how to get it.
pub(crate) fn kernel(chosen: Option<&Path>) -> Result<PathBuf, String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err("machines are emulated on x86-64 alone".into());
    }
    if find_program(QEMU).is_none() {
        return Err(format!(
            "{QEMU} is not installed: apt-get install qemu-system-x86"
        ));
    }
    if let Some(kernel) = chosen {
        let readable = fs::File::open(kernel).map(|_| kernel.to_owned());
        return readable.map_err(|error| format!("{}: {error}", kernel.display()));
    }
    let mut kernels: Vec<PathBuf> = fs::read_dir("/boot")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("vmlinuz")) && fs::File::open(path).is_ok()
        })
        .collect();
    kernels.sort();
    kernels.pop().ok_or_else(|| {
        "/boot has no kernel that may be read: apt-get install linux-image-cloud-amd64, or name \
         one with --guest-kernel"
            .into()
    })
}

/// Writes the machine's file tree: this program, the libraries it uses, and its
/// task.
pub(crate) fn write_tree(program: &Path, task: &Path, to: &Path) -> io::Result<()> {
    let mut archive = Archive::default();
    for directory in ["dev", "lib64"] {
        archive.directory(directory);
    }
    archive.device("dev/console", (5, 1));
    archive.device("dev/null", (1, 3));
    archive.device(OUTCOME_PORT.trim_start_matches('/'), (4, 65));
    archive.file("init", &fs::read(program)?);
    archive.file("task.json", &fs::read(task)?);
    for library in libraries(&fs::read_to_string("/proc/self/maps")?) {
        if let Some(name) = library.file_name().and_then(|name| name.to_str()) {
            archive.file(&format!("lib64/{name}"), &fs::read(&library)?);
        }
    }
    fs::write(to, archive.finish())
}

/// The libraries in the text of `/proc/PID/maps`.
fn libraries(maps: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let start = line.find('/')?;
        let path = Path::new(&line[start..]);
        let name = path.file_name()?.to_str()?;
        format!("{name}.").contains(".so.").then(|| path.to_owned())
    };
    maps.lines().filter_map(path).collect()
}

/// The command line of the emulator. Its standard input and output are the
/// machine's console; the outcome goes to a file. 512 MiB hold this program with its
/// debugging information, and a kernel.
pub(crate) fn args(kernel: &Path, tree: &Path, outcome: &Path) -> Vec<String> {
    // No messages on the console but the task's.
    let command_line = "console=ttyS0 loglevel=0 panic=-1 rdinit=/init LD_LIBRARY_PATH=/lib64 \
                        -- lab guest /task.json";
    let mut args = words(
        "-accel tcg,thread=single -machine pc -m 512 -nodefaults -no-user-config -no-reboot \
         -display none -serial stdio",
    );
    let outcome = format!("file:{}", outcome.display());
    let (kernel, tree) = (kernel.display().to_string(), tree.display().to_string());
    for (flag, value) in [
        ("-serial", outcome.as_str()),
        ("-kernel", &kernel),
        ("-initrd", &tree),
        ("-append", command_line),
    ] {
        args.extend([flag.to_owned(), value.to_owned()]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_what_is_mapped_from_files_of_that_name_each_once() {
        let maps = "7f00-7f01 r--p 00000000 fe:00 12    /usr/lib/libc.so.6\n\
                    7f01-7f02 r-xp 00001000 fe:00 12    /usr/lib/libc.so.6\n\
                    7f02-7f03 r--p 00000000 fe:00 13    /lib64/ld-2.so\n\
                    5500-5501 r-xp 00000000 fe:00 14    /usr/bin/tailbound\n\
                    7ffc-7ffd rw-p 00000000 00:00 0     [stack]\n";
        let expected = ["/lib64/ld-2.so", "/usr/lib/libc.so.6"].map(PathBuf::from);
        assert_eq!(libraries(maps), expected.into());
    }

    #[test]
    fn a_kernel_that_was_named_and_is_not_there_is_said_to_be_missing() {
        let missing = kernel(Some(Path::new("/nowhere/vmlinuz"))).unwrap_err();
        assert!(
            missing.contains("/nowhere/vmlinuz") || missing.contains(QEMU),
            "{missing}"
        );
    }
}
