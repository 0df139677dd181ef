//! XDP features of a driver, by the generic netlink family `netdev` (since Linux 6.3; features of
//! sending since 6.8).

use crate::rtnetlink::{Netlink, attribute, find};
use rustix::net::netlink::GENERIC;
use std::io;
use std::path::Path;

/// XDP features of an interface's driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Run an XDP program itself, and redirect frames from there.
    pub driver: bool,
    /// Receive and send from a socket's own memory.
    pub zero_copy: bool,
    /// Launch frames of zero-copy sockets at a given time, in order (since Linux
    /// 6.14).
    pub launch_time: bool,
}

impl Features {
    /// Queries the features of an interface of the network namespace `netns`, or of the caller's.
    ///
    /// # Errors
    /// There is no such interface, or the kernel is older than 6.3.
    pub fn of(interface: &str, netns: Option<&Path>) -> io::Result<Self> {
        match netns {
            None => Self::of_here(interface),
            Some(path) => crate::netns::within(path, || Self::of_here(interface))?,
        }
    }

    pub(super) fn of_here(interface: &str) -> io::Result<Self> {
        let netlink = Netlink::open_protocol(Some(GENERIC))?;
        let index = rustix::net::netdevice::name_to_index(&netlink, interface)?;
        let ask = |family: u16, command: u8, attributes: &[u8]| {
            let request = [&[command, 1, 0, 0], attributes].concat();
            let mut answer = netlink.ask(family, family, &request)?;
            Ok::<_, io::Error>(answer.split_off(GENERIC_HEADER.min(answer.len())))
        };
        let answer = ask(CONTROL, GET_FAMILY, &attribute(FAMILY_NAME, b"netdev\0"))?;
        let family = find(&answer, FAMILY_ID)
            .and_then(|value| value.first_chunk())
            .map(|id| u16::from_ne_bytes(*id))
            .ok_or(io::ErrorKind::Unsupported)?;
        let device = attribute(DEVICE_INDEX, &index.to_ne_bytes());
        Ok(Self::parse(&ask(family, GET_DEVICE, &device)?))
    }

    fn parse(attributes: &[u8]) -> Self {
        let bits = |kind| {
            find(attributes, kind)
                .and_then(|value| value.first_chunk())
                .map_or(0, |bits| u64::from_ne_bytes(*bits))
        };
        let (xdp, sending) = (bits(XDP_FEATURES), bits(XSK_FEATURES));
        Self {
            driver: xdp & 3 == 3,
            zero_copy: xdp & 8 != 0,
            launch_time: sending & 4 != 0,
        }
    }
}

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and its attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `NETDEV_CMD_DEV_GET` and its attributes.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const XSK_FEATURES: u16 = 6;

/// The size of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::required::{Part, skipped};
    use proptest::prelude::*;

    #[test]
    fn all_xdp_features_of_a_driver_are_parsed() {
        let xdp = attribute(XDP_FEATURES, &0x7f_u64.to_ne_bytes());
        let sending = attribute(XSK_FEATURES, &7_u64.to_ne_bytes());
        let index = attribute(DEVICE_INDEX, &5_u32.to_ne_bytes());
        let features = Features::parse(&[index, xdp, sending].concat());
        let all = Features {
            driver: true,
            zero_copy: true,
            launch_time: true,
        };
        assert_eq!(features, all);
    }

    #[test]
    fn timestamps_and_checksums_alone_are_no_launch_time() {
        let sending = attribute(XSK_FEATURES, &3_u64.to_ne_bytes());
        assert_eq!(Features::parse(&sending), Features::default());
    }

    #[test]
    fn the_loopback_interface_is_asked_about_where_the_kernel_can_be() {
        match Features::of_here("lo") {
            Ok(features) => assert!(!features.zero_copy),
            Err(error) => skipped(Part::NetdevFamily, error),
        }
        assert!(Features::of_here("no-such-if0").is_err());
    }

    proptest! {
        #[test]
        fn answers_of_any_bytes_are_read_without_harm(
            answer in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            Features::parse(&answer);
        }
    }
}
