//! Lines on standard error in the format of systemd's journal (systemd.journald-fields, sd-daemon).
//!
//! The journal adds its own time to each line and reads a priority of the form `<3>` at its start,
//! so that `journalctl -p err` finds errors.

use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

/// Priorities of syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Error = 3,
    Warning = 4,
    #[cfg(any(feature = "host", feature = "place"))]
    Info = 6,
    #[cfg(any(feature = "host", feature = "place"))]
    Debug = 7,
}

/// Returns whether standard error is a stream of the journal's.
pub(crate) fn reads_stderr() -> bool {
    std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_stream(&stream, &stderr()))
}

/// Returns whether `stream`, DEVICE:INODE, is the file behind `descriptor`. A child of a service has
/// the variable too, though its standard error may be another.
fn is_stream(stream: &str, descriptor: &impl AsFd) -> bool {
    let Ok(owned) = descriptor.as_fd().try_clone_to_owned() else {
        return false;
    };
    let metadata = std::fs::File::from(owned).metadata();
    metadata.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// The text with the priority at the start of each line.
pub(crate) fn with_priority(text: &str, priority: Priority) -> String {
    let start = format!("<{}>", priority as u8);
    let lines = text.lines();
    lines.flat_map(|line| [&start, line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_known_by_its_device_and_inode() {
        let file = tempfile::tempfile().expect("a file");
        let metadata = file.metadata().expect("of a file");
        let stream = format!("{}:{}", metadata.dev(), metadata.ino());
        assert!(is_stream(&stream, &file));
        let other = tempfile::tempfile().expect("a file");
        for (stream, file) in [(&stream[..], &other), ("", &file), ("1:", &file)] {
            assert!(!is_stream(stream, file), "{stream}");
        }
    }

    #[test]
    fn each_line_has_the_priority() {
        let text = with_priority("one\n<0>two\n", Priority::Error);
        assert_eq!(text, "<3>one\n<3><0>two\n");
    }
}
