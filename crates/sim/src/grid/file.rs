//! Atomic writes of files.

use super::GridError;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Writes a file atomically and durably. Other processes may write the same one, also on other
/// computers.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), GridError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut part = tempfile::Builder::new();
        part.prefix(".").suffix(".part");
        // With the mode of ordinary files, and not of secrets.
        part.permissions(Permissions::from_mode(0o666));
        let mut part = part.tempfile_in(folder)?;
        part.write_all(text.as_bytes())?;
        part.as_file().sync_all()?;
        part.persist(path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(GridError::file(path))
}
