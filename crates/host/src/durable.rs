//! Files that are replaced as a whole, and that only their owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Creates the missing directory of the file at `path`, and checks that the file can be written,
/// before there is something to store.
pub(crate) fn make_room(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let fresh = fresh(path);
    // A leftover file may be readable for others.
    let _ = fs::remove_file(&fresh);
    create(&fresh)?;
    Ok(())
}

/// Replaces the content of the file at `path`. The new one is on disk when this returns;
/// after an error the file is as before.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = fresh(path);
    let mut file = create(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    // Sync the new name as well.
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    options.mode(0o600).open(path)
}

fn fresh(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
