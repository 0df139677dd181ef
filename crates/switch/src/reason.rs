//! Reasons for dropped frames.

/// Reason why the host dropped a frame outside of a pipeline. Each has a counter; the pipelines
/// count their own drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its headers, or its offloads, contradict its bytes.
    Malformed,
    /// Its offloads need an unsupported segmentation: inside of a tunnel, or as fragments (UFO).
    UnsupportedGso,
    /// The frame exceeds the longest one of the port.
    Truncated,
    /// Its source MAC is not the guest's.
    SpoofedMac,
    /// Its IP source is not one of the guest's.
    SpoofedIp,
    /// Its ARP sender, MAC or IP, is not the guest's.
    SpoofedArp,
    /// Its neighbour advertisement speaks for another guest, or names another station.
    SpoofedNeighbour,
    /// Its neighbour or router solicitation names another station than the guest's as its source.
    SpoofedSolicitation,
    /// A guest sends router advertisements.
    RouterClaim,
    /// A guest sends ICMP or `ICMPv6` redirects.
    Redirect,
    /// A guest sends IGMP or MLD queries.
    GroupQuery,
    /// A guest stands for a router by VRRP or CARP.
    Vrrp,
    /// A guest stands for a router by HSRP.
    Hsrp,
    /// A guest is a neighbour in OSPF.
    Ospf,
    /// Its IPv4 options have a source route (LSRR, SSRR).
    SourceRoute,
    /// A fragment of TCP that does not show its flags, or may replace them.
    TinyFragment,
    /// A guest hands out addresses (DHCP).
    DhcpServer,
    /// Its neighbour discovery is in a fragment.
    FragmentedDiscovery,
    /// The frame is a fragment without all headers of its packet.
    HiddenHeaders,
    /// Its guest has chosen as many IPv6 addresses as it may.
    AddressLimit,
    /// A guest sends with a VLAN tag.
    VlanTag,
    /// A guest sends what is neither IPv4, IPv6 nor ARP.
    EtherType,
    /// Its source MAC is pinned to another port, as it is a guest's.
    MacMove,
    /// Its source MAC is a group's or all zeros.
    InvalidSource,
    /// Its destination is reserved for the link itself (01:80:C2:00:00:0X).
    LinkLocalGroup,
    /// Its destination is behind the port that it came from.
    SamePort,
    /// Its destination is unknown, and there is no uplink.
    UnknownDestination,
    /// Its guest, or for frames from outside the uplink, has spent its budget for frames to
    /// groups: broadcast and multicast.
    GroupBudget,
    /// Its guest has spent its budget for frames to unknown addresses.
    UnknownBudget,
    /// The frame exceeds the MTU of the port it goes to, and may not be segmented.
    AboveMtu,
    /// Its destination is a guest that is away, and it came from the uplink, or there is no uplink.
    Away,
    /// The port it goes to has lost its interface.
    PortMissing,
    /// The interface it goes to is down.
    LinkDown,
    /// The queue of the interface it goes to was full.
    DeviceFull,
    /// The kernel refused it.
    Refused,
    /// The socket was full: more frames came than the host took.
    Overrun,
}

impl Reason {
    /// All reasons, in the order of [`Reason::index`].
    pub const ALL: [Self; 36] = [
        Self::Malformed,
        Self::UnsupportedGso,
        Self::Truncated,
        Self::SpoofedMac,
        Self::SpoofedIp,
        Self::SpoofedArp,
        Self::SpoofedNeighbour,
        Self::SpoofedSolicitation,
        Self::RouterClaim,
        Self::Redirect,
        Self::GroupQuery,
        Self::Vrrp,
        Self::Hsrp,
        Self::Ospf,
        Self::SourceRoute,
        Self::TinyFragment,
        Self::DhcpServer,
        Self::FragmentedDiscovery,
        Self::HiddenHeaders,
        Self::AddressLimit,
        Self::VlanTag,
        Self::EtherType,
        Self::MacMove,
        Self::InvalidSource,
        Self::LinkLocalGroup,
        Self::SamePort,
        Self::UnknownDestination,
        Self::GroupBudget,
        Self::UnknownBudget,
        Self::AboveMtu,
        Self::Away,
        Self::PortMissing,
        Self::LinkDown,
        Self::DeviceFull,
        Self::Refused,
        Self::Overrun,
    ];

    /// Returns the place in [`Reason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the value of the label `reason`. Stable.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnsupportedGso => "unsupported_gso",
            Self::Truncated => "truncated",
            Self::SpoofedMac => "spoofed_mac",
            Self::SpoofedIp => "spoofed_ip",
            Self::SpoofedArp => "spoofed_arp",
            Self::SpoofedNeighbour => "spoofed_neighbour",
            Self::SpoofedSolicitation => "spoofed_solicitation",
            Self::RouterClaim => "router_claim",
            Self::Redirect => "redirect",
            Self::GroupQuery => "group_query",
            Self::Vrrp => "vrrp",
            Self::Hsrp => "hsrp",
            Self::Ospf => "ospf",
            Self::SourceRoute => "source_route",
            Self::TinyFragment => "tiny_fragment",
            Self::DhcpServer => "dhcp_server",
            Self::FragmentedDiscovery => "fragmented_discovery",
            Self::HiddenHeaders => "hidden_headers",
            Self::AddressLimit => "address_limit",
            Self::VlanTag => "vlan_tag",
            Self::EtherType => "ethertype",
            Self::MacMove => "mac_move",
            Self::InvalidSource => "invalid_source",
            Self::LinkLocalGroup => "link_local_group",
            Self::SamePort => "same_port",
            Self::UnknownDestination => "unknown_destination",
            Self::GroupBudget => "group_budget",
            Self::UnknownBudget => "unknown_budget",
            Self::AboveMtu => "above_mtu",
            Self::Away => "away",
            Self::PortMissing => "port_missing",
            Self::LinkDown => "link_down",
            Self::DeviceFull => "device_full",
            Self::Refused => "refused",
            Self::Overrun => "overrun",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_its_own_place_and_label() {
        for (i, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
        let labels: HashSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
    }
}
