//! The file tree of VMs: this program as the first process, its tools, the libraries of all of
//! them, and the modules of the kernel.

use super::cpio::{Archive, DeviceNumber};
use super::{elf, modules};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tailbound_sys::process::find_program;

/// File with the names of the modules, in the order of their loading.
pub(crate) const MODULES: &str = "/modules";
/// Directory of programs.
pub(crate) const PROGRAMS: &str = "/bin";
/// Directory of libraries.
pub(crate) const LIBRARIES: &str = "/lib64";

/// Writes the tree: `program` as its first process, the installed `tools`, and the modules under
/// `modules`.
///
/// # Errors
/// A tool is not installed, or a file cannot be read.
pub(super) fn write(program: &Path, tools: &[&str], modules: &Path, to: &Path) -> io::Result<()> {
    let mut archive = Archive::default();
    for directory in ["dev", "proc", "sys", "tmp", &PROGRAMS[1..], &LIBRARIES[1..]] {
        archive.directory(directory);
    }
    archive.device("dev/console", DeviceNumber { major: 5, minor: 1 });
    let mut libraries = BTreeSet::new();
    let mut add = |archive: &mut Archive, path: &Path, name: &str| {
        let file = fs::read(path)?;
        libraries.extend(needed(path, &file)?);
        archive.file(name, &trimmed(file));
        Ok::<_, io::Error>(())
    };
    add(&mut archive, program, "init")?;
    for tool in tools {
        let path = find_program(tool).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{tool} is not installed"))
        })?;
        add(&mut archive, &path, &format!("{}/{tool}", &PROGRAMS[1..]))?;
    }
    for library in libraries {
        if let Some(name) = library.file_name().and_then(|name| name.to_str()) {
            let name = format!("{}/{name}", &LIBRARIES[1..]);
            archive.file(&name, &trimmed(fs::read(&library)?));
        }
    }
    let mut list = String::new();
    for module in modules::in_order(modules)? {
        if let Some(name) = module.file_name().and_then(|name| name.to_str()) {
            archive.file(name, &fs::read(&module)?);
            list.extend(["/", name, "\n"]);
        }
    }
    archive.file(&MODULES[1..], list.as_bytes());
    fs::write(to, archive.finish())
}

fn trimmed(mut file: Vec<u8>) -> Vec<u8> {
    elf::cut(&mut file);
    file
}

/// Returns the libraries of a program, its loader included, as that loader finds them here.
fn needed(program: &Path, file: &[u8]) -> io::Result<BTreeSet<PathBuf>> {
    let Some(loader) = elf::loader(file) else {
        return Ok(BTreeSet::new());
    };
    let output = Command::new(&loader).arg("--list").arg(program).output()?;
    let mut files = libraries(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() || files.is_empty() {
        let message = format!("{} --list {} fails", loader.display(), program.display());
        return Err(io::Error::other(message));
    }
    files.insert(loader);
    Ok(files)
}

/// Returns the files that a loader lists: `NAME => FILE (ADDRESS)`, or `FILE (ADDRESS)`.
fn libraries(list: &str) -> BTreeSet<PathBuf> {
    let file = |line: &str| {
        let file = line.split("=>").last()?.split_whitespace().next()?;
        file.starts_with('/').then(|| PathBuf::from(file))
    };
    list.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_the_loader_lists_each_once() {
        let list = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f00)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f01)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f01)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(libraries(list), expected.map(PathBuf::from).into());
    }

    #[test]
    fn a_tree_has_a_program_with_all_that_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let tree = directory.path().join("tree");
        write(&program, &["sh"], directory.path(), &tree).unwrap();
        let bytes = fs::read(&tree).unwrap();
        for name in ["init\0", "bin/sh\0", "lib64/libc.so.6\0", "modules\0"] {
            let found = bytes.windows(name.len()).any(|at| at == name.as_bytes());
            assert!(found, "{name}");
        }
        let missing = write(&program, &["no-such-tool"], directory.path(), &tree);
        let missing = missing.unwrap_err().to_string();
        assert_eq!(missing, "no-such-tool is not installed");
    }
}
