//! The loaded part of a program's file. Most of a debug build is for debuggers; a VM's memory holds
//! every byte of its tree twice while it unpacks the tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Positions of a program header's fields, in bytes.
const OFFSET: usize = 8;
const FILE_SIZE: usize = 32;
/// The type of the header that names the loader.
const INTERPRETER: u32 = 3;
/// Positions of a file header's fields for sections, in bytes.
const SECTION_OFFSET: std::ops::Range<usize> = 40..48;
const SECTION_COUNTS: std::ops::Range<usize> = 60..64;

/// Returns a file's program headers; none if it is no 64-bit little-endian ELF file.
fn program_headers(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_elf = file.starts_with(b"\x7fELF\x02\x01");
    let start = number(file, 32).filter(|_| is_elf).unwrap_or(0);
    let size = half(file, 54).unwrap_or(0).max(56);
    let count = if is_elf { half(file, 56) } else { None };
    (0..count.unwrap_or(0)).map_while(move |n| {
        let at = start.checked_add(n * size)?;
        file.get(at..at.checked_add(size)?)
    })
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*bytes)))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u64::from_le_bytes(*bytes)).ok()
}

/// Returns a program header's part of the file.
fn part(header: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = number(header, OFFSET)?;
    Some(start..start.checked_add(number(header, FILE_SIZE)?)?)
}

/// Removes parts that are never loaded: sections for linkers and debuggers.
pub(super) fn cut(file: &mut Vec<u8>) {
    let ends = program_headers(file).map(|header| part(header).map(|part| part.end));
    let Some(end) = ends.collect::<Option<Vec<_>>>() else {
        return;
    };
    let Some(end) = end.into_iter().max().filter(|end| *end <= file.len()) else {
        return;
    };
    // The headers themselves are in the first loaded part, or the file is no program.
    if end < SECTION_COUNTS.end {
        return;
    }
    file.truncate(end);
    file[SECTION_OFFSET].fill(0);
    file[SECTION_COUNTS].fill(0);
}

/// Returns the loader of a dynamically linked program.
pub(super) fn loader(file: &[u8]) -> Option<PathBuf> {
    let is_loader = |header: &&[u8]| header.starts_with(&INTERPRETER.to_le_bytes());
    let header = program_headers(file).find(is_loader)?;
    let name = file.get(part(header)?)?;
    let name = name.strip_suffix(b"\0").unwrap_or(name);
    Some(Path::new(OsStr::from_bytes(name)).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    #[test]
    fn a_program_that_is_cut_runs_as_before() {
        let program = std::env::current_exe().unwrap();
        let mut file = fs::read(&program).unwrap();
        let whole = file.len();
        assert!(loader(&file).unwrap().exists());
        cut(&mut file);
        assert!(file.len() < whole);
        let directory = tempfile::tempdir().unwrap();
        let short = directory.path().join("short");
        fs::write(&short, &file).unwrap();
        fs::set_permissions(&short, Permissions::from_mode(0o755)).unwrap();
        let list = |program| {
            let mut command = Command::new(program);
            command.args(["--list", "vm::elf"]).output().unwrap()
        };
        let (before, after) = (list(&program), list(&short));
        assert!(after.status.success(), "{after:?}");
        assert_eq!(before.stdout, after.stdout);
    }

    proptest! {
        #[test]
        fn other_files_stay_as_they_are_and_none_is_read_beyond_its_end(
            bytes in prop::collection::vec(any::<u8>(), 0..200), is_elf: bool,
        ) {
            let mut file = bytes.clone();
            if is_elf {
                file.splice(0..0, *b"\x7fELF\x02\x01");
            }
            let before = file.clone();
            let _ = loader(&file);
            cut(&mut file);
            prop_assert!(is_elf || file == before);
            prop_assert!(file.len() <= before.len());
        }
    }
}
