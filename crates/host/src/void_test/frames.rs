//! Frames of the void test, and their recognition.

use std::fs::File;
use std::io::{self, Read as _};

/// `IEEE 802 Local Experimental Ethertype 1`, the type of the pacer's voids.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const MARK: [u8; 8] = *b"tbswitch";
/// The shortest frame, without FCS.
const LEN: usize = 60;

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A frame whose destination and source are the same.
    Void,
    /// A frame to an address without a station.
    Control,
}

impl Kind {
    /// The control first: the switch then knows the place of the sender's address.
    pub(super) const ALL: [Self; 2] = [Self::Control, Self::Void];
}

/// One run of the test: a random number distinguishes its frames from another run's.
#[derive(Debug)]
pub(super) struct Run {
    address: [u8; 6],
    nonce: [u8; 8],
}

impl Run {
    /// Makes a run of the station `address`.
    pub(super) fn new(address: [u8; 6]) -> io::Result<Self> {
        let mut nonce = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut nonce)?;
        Ok(Self { address, nonce })
    }

    /// Makes a frame without FCS.
    pub(super) fn frame(&self, kind: Kind, number: u16) -> Vec<u8> {
        let mut destination = self.address;
        if kind == Kind::Control {
            // Locally administered, of one station, and random.
            destination[0] = 0x02;
            destination[1..].copy_from_slice(&self.nonce[..5]);
        }
        let mut frame = [&destination[..], &self.address, &ETHERTYPE, &MARK].concat();
        frame.extend(self.nonce);
        frame.push(kind as u8);
        frame.extend(number.to_be_bytes());
        frame.resize(LEN, 0);
        frame
    }

    /// Returns the kind of this run's frame in `bytes`, if it is one.
    pub(super) fn kind_of(&self, bytes: &[u8]) -> Option<Kind> {
        let body = bytes.get(12..)?.strip_prefix(&ETHERTYPE)?;
        let rest = body.strip_prefix(&MARK)?.strip_prefix(&self.nonce)?;
        let kind = *rest.first()?;
        Kind::ALL.into_iter().find(|known| *known as u8 == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RUN: Run = Run {
        address: [2, 0, 0, 0, 0, 1],
        nonce: [7; 8],
    };

    #[test]
    fn a_void_goes_to_its_sender_and_a_control_to_an_unknown_mac() {
        let (void, control) = (RUN.frame(Kind::Void, 1), RUN.frame(Kind::Control, 1));
        assert_eq!(void[..6], void[6..12]);
        assert_eq!(control[..6], [2, 7, 7, 7, 7, 7]);
        assert_eq!((void.len(), control.len()), (LEN, LEN));
    }

    #[test]
    fn frames_of_another_run_are_not_taken_for_ours() {
        let other = Run {
            nonce: [8; 8],
            ..RUN
        };
        assert_eq!(RUN.kind_of(&other.frame(Kind::Void, 1)), None);
    }

    proptest! {
        #[test]
        fn every_frame_is_known_again_and_no_other(number in any::<u16>(), cut in 0..LEN) {
            for kind in Kind::ALL {
                let frame = RUN.frame(kind, number);
                prop_assert_eq!(RUN.kind_of(&frame), Some(kind));
                let known = RUN.kind_of(&frame[..cut]);
                prop_assert_eq!(known, (cut > 30).then_some(kind));
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(RUN.kind_of(&bytes), None);
        }
    }
}
