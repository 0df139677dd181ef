//! Sockets and configurations of guests with vhost-user cards.

use crate::support::METRICS;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Guests whose sockets are in a directory.
pub(crate) struct Cards(pub(crate) tempfile::TempDir);

impl Cards {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn socket(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("card{number}"))
    }

    /// A configuration of `count` guests that may send in any name.
    pub(crate) fn config(&self, count: usize) -> String {
        let mut config = format!("metrics = {METRICS:?}\n");
        for number in 1..=count {
            let socket = self.socket(number);
            let socket = socket.display();
            write!(
                config,
                "[[guest]]\nname = \"g{number}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n\
                 anti_spoofing = false\nport = {{ kind = \"vhost-user\", socket = \"{socket}\" }}\n"
            )
            .expect("text");
        }
        config
    }
}

/// A frame from one guest to another.
pub(crate) fn frame(from: u8, to: u8, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; 200];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame
}
