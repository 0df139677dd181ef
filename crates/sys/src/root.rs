//! The directory under which `/proc` and `/sys` are looked up: this computer's own root, or the
//! recording of another one.

use std::path::{Path, PathBuf};

/// The root directory of a computer's files. Files under another root than `/` have the content
/// that they had on that computer when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Root(PathBuf);

impl Root {
    /// Returns the root of a recording in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Returns the place of the file that the computer itself calls `path`. A relative path is
    /// returned unchanged.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match path.strip_prefix("/") {
            Ok(below) => self.0.join(below),
            Err(_) => path.to_owned(),
        }
    }
}

impl Default for Root {
    /// Returns this computer's root.
    fn default() -> Self {
        Self::at("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_as_it_is_on_this_machine_and_moves_into_a_recording() {
        let path = Path::new("/proc/1/stat");
        assert_eq!(Root::default().path(path), path);
        let recording = Root::at("/tmp/r");
        assert_eq!(recording.path(path), Path::new("/tmp/r/proc/1/stat"));
        assert_eq!(recording.path("qmp.sock"), Path::new("qmp.sock"));
    }
}
