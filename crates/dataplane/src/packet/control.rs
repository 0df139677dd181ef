//! Detection of packets without data.

use super::Packet;
use super::wire::{ICMP, ICMPV6, Network, TCP, UDP, be16};
use crate::{Control, Frame};

/// The longest control packet, in bytes: 512 bytes of DNS (RFC 1035, 2.3.4) with all headers.
pub(super) const MAX_CONTROL_PACKET: usize = 512 + 8 + 40 + 22;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

impl Packet {
    /// Returns the kind of a short packet without data.
    #[cold]
    pub(super) fn control_of_short(&self) -> Option<Control> {
        let (frame, headers) = (self.bytes(), self.facts().headers);
        if self.segments() > 1 {
            return None;
        }
        if headers.network_kind == Network::Arp {
            return Some(Control::Neighbour);
        }
        let transport = usize::from(headers.transport);
        if transport == 0 {
            return None;
        }
        let first = *frame.get(transport)?;
        match headers.protocol {
            TCP => {
                let data = headers.tcp_end(frame).ok()?;
                let flags = *frame.get(transport + 13)?;
                match flags & (FIN | SYN | RST | ACK) {
                    flags if flags & SYN != 0 && flags & (FIN | RST) == 0 => Some(Control::Opening),
                    _ if data < headers.end(frame) => None,
                    ACK => Some(Control::Acknowledgement),
                    flags if flags & (FIN | RST) != 0 => Some(Control::Closing),
                    _ => None,
                }
            }
            // Echo and its answer (RFC 792, 4443); the latter's neighbour discovery (4861).
            ICMP => matches!(first, 0 | 8).then_some(Control::Echo),
            ICMPV6 => match first {
                128 | 129 => Some(Control::Echo),
                133..=137 => Some(Control::Neighbour),
                _ => None,
            },
            UDP => {
                headers.udp_end(frame).ok()?;
                let is_name = [0, 2].iter().any(|at| be16(frame, transport + at) == 53);
                is_name.then_some(Control::Name)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
