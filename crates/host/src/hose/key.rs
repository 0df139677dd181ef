//! The key that hosts share.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tailbound_dataplane::hose::Key;
use tailbound_dataplane::hose::wire::SHORTEST_KEY;

/// The longest key: more would not make it safer.
const LONGEST: u64 = 4096;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// Others may read or write it.
    #[error("others than its owner may use it (mode {0:04o}); use `chmod 0400`")]
    Open(u32),
    /// Too little to guess.
    #[error(
        "has {0} B without the white space around them; use at least {SHORTEST_KEY}, for example \
         from `openssl rand -hex 32`"
    )]
    Short(usize),
    /// It is something else.
    #[error("is longer than {LONGEST} B, or no file; use one from `openssl rand -hex 32`")]
    Long,
}

/// Reads a key: all bytes of the file but white space around them.
pub(super) fn read(path: &Path) -> Result<Key, KeyError> {
    let file = File::open(path)?;
    // Of what was opened, not of what is at that path by now.
    let metadata = file.metadata()?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Open(mode));
    }
    let mut secret = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut secret)?;
    if !metadata.is_file() || secret.len() as u64 > LONGEST {
        return Err(KeyError::Long);
    }
    let secret = secret.trim_ascii();
    Key::new(secret).ok_or(KeyError::Short(secret.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_its_owners_and_long_enough() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(matches!(read(&path), Err(KeyError::Read(_))));
        let put = |text: &str, mode| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        let hex = "0123456789abcdef0123456789abcdef";
        assert!(put(&format!("{hex}\n"), 0o600).is_ok());
        assert!(matches!(
            put(&format!("{}\n\n", &hex[1..]), 0o600),
            Err(KeyError::Short(31))
        ));
        assert!(matches!(put(hex, 0o640), Err(KeyError::Open(0o640))));
        assert!(matches!(put(hex, 0o604), Err(KeyError::Open(0o604))));
        assert!(matches!(put(&"x".repeat(4097), 0o600), Err(KeyError::Long)));
    }
}
