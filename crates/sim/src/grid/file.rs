//! Files that are there whole or not at all.

use super::GridError;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Writes a file so that it is there whole or not at all, and there for good. Others may write the
/// same one, from other machines, too.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), GridError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        let mut part = tempfile::Builder::new();
        part.prefix(".").suffix(".part");
        // As other files are made, and not as secrets are.
        part.permissions(Permissions::from_mode(0o666));
        let mut part = part.tempfile_in(folder)?;
        part.write_all(text.as_bytes())?;
        part.as_file().sync_all()?;
        part.persist(path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(GridError::file(path))
}
