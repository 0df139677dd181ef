use super::*;
use crate::testing::tcp::Tcp;
use crate::{Control, Frame, GuestId, Pool};

fn of(frame: &[u8]) -> Option<Control> {
    let pool = Pool::new();
    let mut buffer = pool.buffer(Packet::HEADROOM + frame.len());
    buffer[Packet::HEADROOM..][..frame.len()].copy_from_slice(frame);
    let source = Some(GuestId::first(0));
    let packet = Packet::new(buffer, Packet::HEADROOM, frame.len(), None, source);
    packet.expect("well formed").control()
}

fn tcp(v6: bool, flags: u8, payload: usize) -> Tcp {
    Tcp {
        v6,
        flags,
        payload,
        gso: 0,
        ..Tcp::default()
    }
}

#[test]
fn flags_and_payload_determine_the_kind_of_a_segment() {
    for v6 in [false, true] {
        for (flags, payload, expected) in [
            (SYN, 0, Some(Control::Opening)),
            (SYN | ACK, 0, Some(Control::Opening)),
            (ACK, 0, Some(Control::Acknowledgement)),
            (ACK, 1, None),
            (ACK | 8, 0, Some(Control::Acknowledgement)),
            (ACK | FIN, 0, Some(Control::Closing)),
            (ACK | FIN, 1, None),
            (RST, 0, Some(Control::Closing)),
            (RST | ACK, 0, Some(Control::Closing)),
            (SYN | RST, 0, Some(Control::Closing)),
            (0, 0, None),
        ] {
            let frame = tcp(v6, flags, payload).frame();
            assert_eq!(of(&frame), expected, "flags {flags:#x}, {payload} bytes");
        }
    }
}

#[test]
fn padding_is_no_payload_and_a_fragment_is_no_control_packet() {
    let mut ack = tcp(false, ACK, 0).frame();
    ack.extend([0; 6]);
    assert_eq!(of(&ack), Some(Control::Acknowledgement));
    // More fragments follow.
    ack[20] = 0x20;
    assert_eq!(of(&ack), None);
}

#[test]
fn echo_neighbour_and_dns_packets_are_distinguished() {
    let v4 = tcp(false, 0, 0);
    let with = |protocol: u8, first: u8, port: u16| {
        let mut frame = v4.frame();
        frame[23] = protocol;
        let transport = v4.transport();
        frame[transport] = first;
        frame[transport + 2..transport + 4].copy_from_slice(&port.to_be_bytes());
        of(&frame)
    };
    assert_eq!(with(ICMP, 8, 0), Some(Control::Echo));
    assert_eq!(with(ICMP, 0, 0), Some(Control::Echo));
    assert_eq!(with(ICMP, 3, 0), None);
    assert_eq!(with(UDP, 0x99, 53), Some(Control::Name));
    assert_eq!(with(UDP, 0x99, 54), None);
    let v6 = tcp(true, 0, 0);
    let icmpv6 = |kind: u8| {
        let mut frame = v6.frame();
        frame[20] = ICMPV6;
        frame[v6.transport()] = kind;
        of(&frame)
    };
    assert_eq!(icmpv6(128), Some(Control::Echo));
    assert_eq!(icmpv6(135), Some(Control::Neighbour));
    assert_eq!(icmpv6(1), None);
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(60, 0);
    assert_eq!(of(&arp), Some(Control::Neighbour));
}

#[test]
fn a_long_echo_is_no_control_packet() {
    let mut echo = tcp(false, 0, 600).frame();
    echo[23] = ICMP;
    assert_eq!(of(&echo), None);
}
