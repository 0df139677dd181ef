//! Paths of the files of a configuration's daemon.

use rustix::process::geteuid;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The directory for state if systemd sets none.
const STATE: &str = "/var/lib/tailbound";

/// Returns the directories for files that live as long as a daemon, the best one first: `configured`
/// alone, or `$RUNTIME_DIRECTORY`, `/run/tailbound`, `$XDG_RUNTIME_DIR/tailbound` and
/// `/tmp/tailbound-UID`.
pub(crate) fn runtime_directories(configured: Option<&Path>) -> Vec<PathBuf> {
    if let Some(directory) = configured {
        return vec![directory.to_owned()];
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let all = [
        of_systemd("RUNTIME_DIRECTORY"),
        Some("/run/tailbound".into()),
        own.map(|directory| directory.join("tailbound")),
        Some(std::env::temp_dir().join(format!("tailbound-{}", geteuid().as_raw()))),
    ];
    all.into_iter().flatten().collect()
}

/// Returns the directory for state: `$STATE_DIRECTORY`, or `/var/lib/tailbound`.
pub(crate) fn state_directory() -> PathBuf {
    of_systemd("STATE_DIRECTORY").unwrap_or_else(|| STATE.into())
}

/// Returns a directory that systemd sets for a service. Several are separated by colons; the first
/// one is used.
fn of_systemd(variable: &str) -> Option<PathBuf> {
    let directories = std::env::var_os(variable)?;
    let first = directories.as_bytes().split(|byte| *byte == b':').next()?;
    Some(OsString::from_vec(first.to_vec()).into())
}

/// Returns a file name for the configuration at `config`, with `suffix` at its end: the path with
/// one letter for each of its bytes, or four (`\x2f`) for bytes that file names cannot have. Two
/// configurations never have the same name.
pub(crate) fn name(config: &Path, suffix: &str) -> OsString {
    // A missing configuration has mistakes, which are reported better elsewhere.
    let whole = std::fs::canonicalize(config).unwrap_or_else(|_| config.to_owned());
    let mut bytes = b"host-".to_vec();
    for byte in whole.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => bytes.push(*byte),
            b'/' => bytes.push(b'-'),
            _ => bytes.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    bytes.extend(suffix.bytes());
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_configurations_have_one_name_and_all_names_are_of_one_file() {
        let names = [
            "/nonexistent/a.toml",
            "/nonexistent-a.toml",
            "/nonexistent/a\\x2d.toml",
            "/nonexistent/a-.toml",
            "/é",
        ];
        let locks: std::collections::BTreeSet<_> = names
            .iter()
            .map(|path| name(Path::new(path), ".lock"))
            .collect();
        assert_eq!(locks.len(), names.len());
        assert!(
            locks.contains(&OsString::from("host--nonexistent-a.toml.lock")),
            "{locks:?}"
        );
        assert!(locks.iter().all(|lock| !lock.as_bytes().contains(&b'/')));
    }
}
