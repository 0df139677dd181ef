//! Secrets in files that only their owner can access.

use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The longest secret, in bytes: a longer one would not be safer.
const MAX_SECRET_BYTES: u64 = 4096;

/// Reason why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// Other users may read or write the file.
    #[error(
        "others than its owner may use it (mode {0:04o}); use `chmod 0400`, or 0440 where root \
         owns it"
    )]
    Open(u32),
    /// The secret is short enough to be guessed.
    #[error(
        "has {len} B without the white space around them; use at least {shortest}, for example \
         from `openssl rand -hex 32`"
    )]
    Short {
        /// The length of the secret.
        len: usize,
        /// The smallest permitted length.
        shortest: usize,
    },
    /// The path is no file, or the file is longer than a secret may be.
    #[error("is longer than {MAX_SECRET_BYTES} B, or no file; use one from `openssl rand -hex 32`")]
    NoSecret,
}

/// Reads a secret of at least `shortest` bytes: the content of the file without surrounding white
/// space.
///
/// # Errors
/// See [`SecretError`].
pub fn read(path: &Path, shortest: usize) -> Result<Vec<u8>, SecretError> {
    // Opening a pipe could wait for its other end for ever.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    // The metadata of the opened file, as the path may name another one by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(SecretError::NoSecret);
    }
    let mode = metadata.mode() & 0o7777;
    if !is_private(mode, metadata.uid()) {
        return Err(SecretError::Open(mode));
    }
    let mut secret = Vec::new();
    file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut secret)?;
    if secret.len() as u64 > MAX_SECRET_BYTES {
        return Err(SecretError::NoSecret);
    }
    let secret = secret.trim_ascii();
    if secret.len() < shortest {
        let len = secret.len();
        return Err(SecretError::Short { len, shortest });
    }
    Ok(secret.to_vec())
}

/// Returns true if only its owner may use a file. A file of root may be readable for its group: a
/// credential of systemd's is, as its mode shows the mask of an access control list.
const fn is_private(mode: u32, owner: u32) -> bool {
    let group_read = if owner == 0 { 0o040 } else { 0 };
    mode & 0o077 & !group_read == 0
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
        assert!(matches!(read(&path, 32), Err(SecretError::Read(_))));
        let put = |text: &str, mode| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path, 32)
        };
        let hex = "0123456789abcdef0123456789abcdef";
        let read = put(&format!("{hex}\n"), 0o600).unwrap();
        assert_eq!(read, hex.as_bytes());
        assert!(matches!(
            put(&format!("{}\n\n", &hex[1..]), 0o600),
            Err(SecretError::Short { len: 31, .. })
        ));
        assert!(matches!(put(hex, 0o660), Err(SecretError::Open(0o660))));
        assert!(matches!(put(hex, 0o604), Err(SecretError::Open(0o604))));
        let long = "x".repeat(4097);
        assert!(matches!(put(&long, 0o600), Err(SecretError::NoSecret)));
    }

    #[test]
    fn only_root_may_let_a_group_read_it() {
        assert!(is_private(0o440, 0));
        assert!(!is_private(0o440, 1000));
        assert!(!is_private(0o460, 0));
        assert!(!is_private(0o444, 0));
    }

    #[test]
    fn a_pipe_is_refused_as_a_key_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(read(&path, 1), Err(SecretError::NoSecret)));
    }
}
