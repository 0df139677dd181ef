//! A file tree in the format of Linux's initial one: cpio in the "newc" form
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// The number of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceNumber {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The number of an entry that is no device.
const NO_DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 0 };

/// A tree under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory; its parent must exist.
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, NO_DEVICE, &[]);
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, NO_DEVICE, content);
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, number: DeviceNumber) {
        self.entry(path, DEVICE, number, &[]);
    }

    /// Returns the archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, NO_DEVICE, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: DeviceNumber, content: &[u8]) {
        let DeviceNumber { major, minor } = device;
        self.entries += 1;
        let (size, name) = (content.len() as u32, path.len() as u32 + 1);
        let fields = [
            self.entries,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            size,
            0,
            0, // the device it lies on
            major,
            minor,
            name,
            0, // no checksum
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpio_entry_has_a_110_byte_header_and_padded_parts() {
        let mut archive = Archive::default();
        archive.file("init", b"abcde");
        let bytes = archive.finish();
        let text = |range| std::str::from_utf8(&bytes[range]).unwrap();
        assert_eq!(text(0..6), "070701");
        assert_eq!(text(14..22), "000081ED", "the mode");
        assert_eq!(text(54..62), "00000005", "the size");
        assert_eq!(text(110..116), "init\0\0");
        assert_eq!(&bytes[116..124], b"abcde\0\0\0");
        assert_eq!(text(124..130), "070701");
        assert!(bytes.windows(10).any(|name| name == b"TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }
}
