//! The directory that `/proc` and `/sys` are looked up under: the machine's own
//! root, or the recording of another machine.

use std::path::{Path, PathBuf};

/// Where the files of a machine are. What is read under another root than `/`
/// is what that machine said when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Root(PathBuf);

impl Root {
    /// A recording in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Where the file lies that the machine itself calls `path`. A relative path
    /// stays as it is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match path.strip_prefix("/") {
            Ok(below) => self.0.join(below),
            Err(_) => path.to_owned(),
        }
    }
}

impl Default for Root {
    /// This machine.
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
