//! The emulated hardware: a NIC's wire and a switch's ports, as `tc` commands.
//!
//! The wire is a TBF on a host's uplink. It cuts packets to one MTU, like a NIC with segmentation
//! offload, and sends them at the link rate. A switch port is an HTB with three classes that may
//! each use the whole link, in strict priority, each with a finite buffer. If a wire counts all
//! bytes of an Ethernet wire, void frames take their time like others.
//!
//! Both run half a percent faster than the rate in the hosts' configuration. The limit of a sender
//! is then the byte-limited NIC queue of its own host, as with a real NIC, and no queue builds
//! before the wire, or before a switch port with a single sending host.

use crate::experiment::{SwitchMode, Wire};
use tailbound_dataplane::Mark;
use tailbound_units::{Bytes, Nanos, Rate};

/// Slightly more than a full frame: the TBF cuts a longer GSO packet.
const FRAME: u64 = 1_540;
/// Delay of a timer that does not reduce the rate.
const LATENESS: Nanos = Nanos::from_micros(200);

/// Returns the rate of the wire and the switch for hosts with the rate `link`.
pub(crate) fn wire_rate(link: Rate) -> Rate {
    Rate(link.as_bit_s() + link.as_bit_s() / 200)
}

/// Returns the burst that compensates a late timer.
fn burst(link: Rate) -> u64 {
    link.bytes_in(LATENESS).as_u64().max(3 * FRAME)
}

/// Returns the overhead of a frame on the wire, as an option of `tc`.
const fn counted(wire: Wire) -> &'static str {
    match wire {
        Wire::Frame => "",
        // IEEE 802.3: preamble and start delimiter 8, FCS 4, gap 12; at least 64 B
        // of frame.
        Wire::Ethernet => " overhead 24 mpu 84",
    }
}

/// Returns the size above which a packet is cut. The kernel subtracts the overhead from it.
const fn longest(wire: Wire) -> u64 {
    match wire {
        Wire::Frame => FRAME,
        Wire::Ethernet => FRAME + 24,
    }
}

/// Returns the `tc` commands that make `interface` a wire of `link`, for a host whose NIC queue
/// holds `nic_queue`.
pub(crate) fn wire(interface: &str, link: Rate, counting: Wire, nic_queue: Bytes) -> String {
    let rate = wire_rate(link).as_bit_s();
    // Room for the packets that the NIC's queue admits, its one overshooting packet, and the
    // packets that the host sends past its queue. It is never full.
    let limit = nic_queue.as_u64() + 1_000_000;
    format!(
        "qdisc replace dev {interface} root handle 1: tbf rate {rate}bit burst {} limit {limit} peakrate {}bit mtu {}{}\n",
        burst(link),
        2 * rate,
        longest(counting),
        counted(counting),
    )
}

/// Returns the `tc` commands that make `interface` a switch port of `link`.
pub(crate) fn switch_port(
    interface: &str,
    link: Rate,
    counting: Wire,
    buffer: Bytes,
    mode: SwitchMode,
) -> String {
    let rate = wire_rate(link).as_bit_s();
    let burst = burst(link);
    let buffer = buffer.as_u64();
    let counted = counted(counting);
    // The leaves have almost no rate of their own: they borrow from the link, and the class with
    // the highest priority borrows first. A packet in transmission is not interrupted.
    let mut batch = vec![format!(
        "qdisc replace dev {interface} root handle 1: htb default 30\n\
         class replace dev {interface} parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit burst {burst} cburst {burst} quantum {FRAME}{counted}\n"
    )];
    for (class, priority) in [(10, 0), (20, 1), (30, 2)] {
        batch.push(format!(
            "class replace dev {interface} parent 1:1 classid 1:{class} htb rate 8kbit ceil {rate}bit burst {FRAME} cburst {burst} quantum {FRAME} prio {priority}{counted}\n\
             qdisc replace dev {interface} parent 1:{class} handle {class}: bfifo limit {buffer}\n"
        ));
    }
    if mode == SwitchMode::TagsHonoured {
        for (mark, class) in [(Mark::FIRST, 10), (Mark::SECOND, 20)] {
            let tag = mark.dscp << 2;
            batch.push(format!(
                "filter add dev {interface} parent 1: protocol ip prio 1 u32 match ip dsfield {tag:#x} 0xfc flowid 1:{class}\n\
                 filter add dev {interface} parent 1: protocol ipv6 prio 2 u32 match ip6 priority {tag:#x} 0xfc flowid 1:{class}\n"
            ));
        }
    }
    batch.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Rate = Rate::from_mbit(100);

    #[test]
    fn a_switch_that_ignores_tags_has_no_filter() {
        let port = |mode| switch_port("port-E", LINK, Wire::Frame, Bytes(650_000), mode);
        assert!(!port(SwitchMode::TagsIgnored).contains("filter"));
        let honoured = port(SwitchMode::TagsHonoured);
        assert!(honoured.contains("ip dsfield 0xb8 0xfc flowid 1:10"));
        assert!(honoured.contains("ip dsfield 0x48 0xfc flowid 1:20"));
    }

    #[test]
    fn the_wire_is_half_a_percent_faster_than_the_hosts_link_rate() {
        assert_eq!(wire_rate(LINK), Rate(100_500_000));
    }

    #[test]
    fn the_wires_limit_exceeds_the_nic_queue() {
        let deep = Bytes(50_000_000);
        assert!(wire("uplink", LINK, Wire::Frame, deep).contains("limit 51000000"));
    }

    #[test]
    fn an_ethernet_wire_counts_framing_overhead_at_both_ends() {
        let count = |text: String| text.matches("overhead 24 mpu 84").count();
        let ends = |counting| {
            let (nic, buffer) = (Bytes(1), Bytes(650_000));
            let port = switch_port("port-E", LINK, counting, buffer, SwitchMode::TagsIgnored);
            [count(wire("uplink", LINK, counting, nic)), count(port)]
        };
        assert_eq!(ends(Wire::Frame), [0, 0]);
        assert_eq!(ends(Wire::Ethernet), [1, 4]);
    }
}
