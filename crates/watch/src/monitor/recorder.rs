//! The file of a record: a file of this user alone. No other file is ever written over: names come
//! from root's command line, and directories such as `/tmp` are hostile.

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use tailbound_look::record::{FILE_SIZE, Record, RecordError, Writer, header};

/// A file that is written.
#[derive(Debug)]
pub(super) struct Recorder(File);

fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}

impl Recorder {
    /// Makes a file, or goes on with a record. It can be read by its owner alone.
    ///
    /// # Errors
    /// The file is not a record, a link, another user's, or written by another program now.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Writer)> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let new = rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, mode);
        let (file, is_new) = match new {
            Ok(file) => (File::from(file), true),
            Err(rustix::io::Errno::EXIST) => {
                let old = rustix::fs::open(path, flags, Mode::empty());
                let old = old.map_err(|error| match error {
                    rustix::io::Errno::LOOP => wrong("is a symbolic link"),
                    error => error.into(),
                })?;
                (File::from(old), false)
            }
            Err(error) => return Err(error.into()),
        };
        if !is_new {
            check(&file)?;
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| wrong("is written by another `tailbound watch`"))?;
        let recorder = Self(file);
        if is_new {
            recorder.0.write_all_at(&header(), 0)?;
            return Ok((recorder, Writer::after(None)));
        }
        let bytes = contents(&recorder.0)?;
        let record = match Record::parse(&bytes) {
            Ok(record) => record,
            // One that was killed before it wrote anything.
            Err(RecordError::Foreign) if bytes.is_empty() => {
                recorder.0.write_all_at(&header(), 0)?;
                Record::default()
            }
            Err(error) => return Err(wrong(format!("{error}; it is left as it is"))),
        };
        Ok((recorder, Writer::after(Some(&record))))
    }

    /// Writes an entry at its place.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }
}

/// Checks that no other user has the file.
fn check(file: &File) -> io::Result<()> {
    let seen = file.metadata()?;
    if !seen.is_file() {
        return Err(wrong("is not a file"));
    }
    if seen.uid() != rustix::process::geteuid().as_raw() {
        return Err(wrong("belongs to another user"));
    }
    if seen.mode() & 0o077 != 0 {
        return Err(wrong(
            "can be opened by other users; a record has mode 0600",
        ));
    }
    if seen.nlink() != 1 {
        return Err(wrong("has another name (a hard link)"));
    }
    Ok(())
}

/// Reads a file that may be a record, up to a byte more than the largest one.
pub(crate) fn contents(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = FILE_SIZE as u64;
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use tailbound_look::record::Entry;

    fn error(path: &Path) -> String {
        Recorder::open(path).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_made_for_its_owner_alone_and_goes_on_as_a_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let (mut recorder, mut writer) = Recorder::open(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let (at, bytes) = writer.write(Entry::default());
        recorder.write(at, &bytes).unwrap();
        assert_eq!(error(&path), "is written by another `tailbound watch`");
        drop(recorder);
        let (mut recorder, mut writer) = Recorder::open(&path).unwrap();
        let (second, bytes) = writer.write(Entry::default());
        assert!(second > at);
        recorder.write(second, &bytes).unwrap();
        drop(recorder);
        // One that was killed at once.
        std::fs::write(&path, b"").unwrap();
        Recorder::open(&path).unwrap();
        assert!(Record::parse(&std::fs::read(&path).unwrap()).is_ok());
    }

    #[test]
    fn neither_a_link_nor_another_file_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("passwd"), "root:x:0:0").unwrap();
        symlink(path("passwd"), path("link")).unwrap();
        symlink(path("nothing"), path("dangling")).unwrap();
        assert_eq!(error(&path("link")), "is a symbolic link");
        assert_eq!(error(&path("dangling")), "is a symbolic link");
        assert!(!path("nothing").exists());
        let only = |name: &str, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path(name), mode).unwrap();
        };
        only("passwd", 0o644);
        assert!(error(&path("passwd")).starts_with("can be opened by other users"));
        only("passwd", 0o600);
        let foreign = "is not a record of `tailbound watch --record`; it is left as it is";
        assert_eq!(error(&path("passwd")), foreign);
        std::fs::write(path("short"), "root").unwrap();
        only("short", 0o600);
        assert_eq!(error(&path("short")), foreign);
        std::fs::hard_link(path("passwd"), path("hard")).unwrap();
        assert_eq!(error(&path("passwd")), "has another name (a hard link)");
        std::fs::create_dir(path("directory")).unwrap();
        assert!(Recorder::open(&path("directory")).is_err());
        let text = std::fs::read_to_string(path("passwd")).unwrap();
        assert_eq!(text, "root:x:0:0");
    }

    #[test]
    fn a_pipe_as_the_record_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(error(&path), "is not a file");
        }
    }
}
