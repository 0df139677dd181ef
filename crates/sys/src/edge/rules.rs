//! Rules for guests and uplinks, as callers write them, and counters, as callers read them.

use std::net::IpAddr;
use tailbound_units::{Bytes, Nanos, Rate};

/// The addresses that share the first `length` bits of `address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// Any of the addresses; its later bits are ignored.
    pub address: IpAddr,
    /// At most 32 for IPv4 and 128 for IPv6.
    pub length: u8,
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }
}

/// Network roles of a guest beside a plain station's. Each allows what the switch's key of the same
/// name allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// Answers of a DHCP server.
    DhcpServer = 1,
    /// Other link-layer addresses than the guest's in neighbour discovery.
    Stations = 1 << 1,
    /// IGMP and MLD queries.
    GroupQueries = 1 << 2,
    /// VRRP and CARP.
    Vrrp = 1 << 3,
    /// HSRP.
    Hsrp = 1 << 4,
    /// OSPF.
    Ospf = 1 << 5,
    /// ICMP and `ICMPv6` redirects.
    Redirects = 1 << 6,
    /// IPv4 source routes.
    SourceRoutes = 1 << 7,
    /// TCP fragments over IPv4 that hide or may replace its flags.
    TinyFragments = 1 << 8,
}

/// A set of roles; by default none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles(pub(super) u32);

impl Roles {
    /// Adds a role.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | role as u32)
    }

    /// Returns true if the role is in the set.
    pub const fn has(self, role: Role) -> bool {
        self.0 & role as u32 != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        roles.into_iter().fold(Self::default(), Self::with)
    }
}

/// The addresses in whose name a guest may send, and its roles. The decisions are those of the
/// switch's filter against spoofing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The guest's MAC address.
    pub mac: [u8; 6],
    /// IPv4 and IPv6 addresses of this guest alone, at most [`Guard::MAX_PREFIXES`] of each family.
    /// The link-local address that follows from its MAC is always one of them. An empty list allows
    /// any address, so that only the MAC and the roles are checked.
    pub own: Vec<Prefix>,
    /// IPv6 prefixes in which the guest may choose addresses (SLAAC), at most
    /// [`Guard::MAX_OPEN`]. Link-local addresses are always open.
    pub open: Vec<Prefix>,
    /// Maximum number of chosen addresses, link-local ones included.
    pub max_chosen: u32,
    /// Roles beside a station's.
    pub roles: Roles,
}

impl Guard {
    /// Maximum number of a guest's own prefixes of one family; the link-local address is not
    /// counted.
    pub const MAX_PREFIXES: usize = 16;
    /// Maximum number of open prefixes; that of link-local addresses is not counted.
    pub const MAX_OPEN: usize = 3;
    /// Default of the maximum number of chosen addresses.
    pub const MAX_CHOSEN: u32 = 16;

    /// A plain station with these addresses.
    pub fn new(mac: [u8; 6], own: impl IntoIterator<Item = Prefix>) -> Self {
        Self {
            mac,
            own: own.into_iter().collect(),
            open: Vec::new(),
            max_chosen: Self::MAX_CHOSEN,
            roles: Roles::default(),
        }
    }
}

/// Marks that replace those of a guest's IP frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Differentiated services code point, at most 63.
    pub dscp: u8,
    /// Priority of 802.1Q, at most 7, for frames that leave the uplink with a VLAN tag.
    pub pcp: Option<u8>,
}

/// A token bucket. Frames wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Bits a second on the wire.
    pub rate: Rate,
    /// Bytes on the wire.
    pub burst: Bytes,
}

/// A guarantee {B, S} with a peak rate (Silo, 4.3). Frames to the uplink keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    /// B and S.
    pub bucket: Bucket,
    /// Bmax: the rate within a burst, with room for one frame of `frame` bytes on the wire. `None`
    /// for the rate of the uplink.
    pub peak: Option<Rate>,
    /// Longest frame on the wire, 24 bytes of preamble, gap and check sequence included.
    pub frame: Bytes,
    /// Longest packet on the wire, the frames of segmentation offload counted together: it leaves
    /// whole. Longer ones are dropped and counted. `None` for any.
    pub packet: Option<Bytes>,
}

/// Rules for one guest, on the host's end of its interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestRules {
    /// Checks of what the guest sends; `None` for a guest that routes, bridges or tags.
    pub guard: Option<Guard>,
    /// Marks of what the guest sends.
    pub tag: Option<Tag>,
    /// Limit of what the guest sends, to the uplink and to other guests. All guests' interfaces get
    /// `fq` for it.
    pub outward: Option<Bucket>,
    /// Limit of what the guest receives.
    pub inward: Option<Bucket>,
    /// Guarantee for what the guest sends to an uplink, which must be attached.
    pub guarantee: Option<Guarantee>,
    /// Bits of the firewall mark that name the guest, for hosts where the uplink cannot know it by
    /// the interface: a bridge that routes or translates addresses (Docker's). The value must be
    /// within the uplink's [`UplinkRules::mark`] and not 0.
    pub mark: Option<u32>,
    /// Longest time that a frame waits; later ones are dropped and counted.
    pub horizon: Option<Nanos>,
    /// True if frames to other such guests of the same Linux bridge, and to stations beyond its uplink that
    /// answer, pass it directly. The bridge forwards those of one tick in 32, and thereby decides; rules of
    /// nftables for bridges, and other programs at the interface, see those alone. Requires [`Self::guard`].
    pub is_direct: bool,
}

/// A destination of a guest with a bucket of its own, which frames pass before the guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The MAC address to which frames go.
    pub station: [u8; 6],
    /// Rate and burst to it, on the wire.
    pub bucket: Bucket,
}

/// The rate of a guest to a destination by an exchange of rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedRate {
    /// Rate and burst while the lease lasts, on the wire.
    pub bucket: Bucket,
    /// Rate and burst after the pledge; until then those with the lower rate, of two equal ones these.
    pub alone: Bucket,
    /// Longest time that a frame waits; later ones are dropped and counted.
    pub horizon: Nanos,
}

/// The use of a destination's bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateUsage {
    /// Bytes on the wire of all frames so far.
    pub charged: Bytes,
    /// Bytes on the wire that are missing in the bucket; more than the burst if frames wait.
    pub lacks: Bytes,
    /// The burst, rounded down.
    pub burst: Bytes,
}

/// Longest time that a frame waits by default.
pub const HORIZON: Nanos = Nanos::from_millis(200);

/// Maximum of a horizon.
pub const MAX_HORIZON: Nanos = Nanos::from_secs(2);

/// Rules for an interface to the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UplinkRules {
    /// Bits of the firewall mark in which [`GuestRules::mark`] is; 0 for none.
    pub mark: u32,
    /// The qdisc in which frames wait; all uplinks of a host have the same kind.
    pub queue: UplinkQueue,
}

/// The qdisc in which frames to an uplink wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UplinkQueue {
    /// `fq`, by departure times. Buckets are charged when frames come: a host that is late sends a burst of up to
    /// B · lateness more than S.
    #[default]
    Fq,
    /// A qdisc of BPF programs, which charges buckets when frames leave. Frames without a bucket wait behind them, in
    /// fair queues with `CoDel`. One lock serves all queues of the interface. See
    /// [`supports_bpf_queue`](super::supports_bpf_queue).
    Bpf,
}

/// The way in which programs are attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Links of tcx, before other owners' links (Linux 6.6 and later).
    Tcx,
    /// Filters of clsact, with a priority and handle of tailbound's own.
    Clsact,
}

/// The queueing discipline that an attachment needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// The interface keeps what it has: nothing waits there.
    Untouched,
    /// `fq` in place of the kernel's default.
    Fq,
    /// `mq` with an `fq` for each queue of a NIC, in place of the kernel's default.
    MultiFq,
    /// Tailbound's own qdisc, a set of BPF programs, in place of the kernel's default.
    Bpf,
}

/// An interface with its programs and its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// The interface's index.
    pub ifindex: u32,
    /// True for an uplink, false for a guest's interface.
    pub is_uplink: bool,
    /// The way of the programs.
    pub way: Way,
    /// True if the qdisc `clsact` was added for the programs, and is removed with them.
    pub adds_clsact: bool,
    /// The queue.
    pub queue: Queue,
}

/// Reason of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum DropReason {
    /// Headers contradict the frame's length.
    Malformed,
    /// The source MAC is not the guest's.
    SpoofedMac,
    /// The IP source is not the guest's.
    SpoofedIp,
    /// The ARP sender is not the guest.
    SpoofedArp,
    /// A neighbour advertisement or a probe speaks for another guest.
    SpoofedNeighbour,
    /// A solicitation names another station.
    SpoofedSolicitation,
    /// A router advertisement.
    RouterClaim,
    /// An ICMP or `ICMPv6` redirect.
    Redirect,
    /// An IGMP or MLD query.
    GroupQuery,
    /// VRRP or CARP.
    Vrrp,
    /// HSRP.
    Hsrp,
    /// OSPF.
    Ospf,
    /// A source route among IPv4 options.
    SourceRoute,
    /// A fragment of TCP that hides or may replace its flags.
    TinyFragment,
    /// An answer of a DHCP server.
    DhcpServer,
    /// Neighbour discovery in a fragment.
    FragmentedDiscovery,
    /// A fragment without all headers of its packet.
    HiddenHeaders,
    /// The guest has chosen as many addresses as it may.
    AddressLimit,
    /// The frame has a VLAN tag.
    VlanTag,
    /// Neither IPv4, IPv6 nor ARP.
    EtherType,
    /// Outward, the frame would wait beyond the horizon.
    OutwardHorizon,
    /// Inward, the frame would wait beyond the horizon.
    InwardHorizon,
    /// A packet of segmentation offload is longer than the guarantee allows.
    LongPacket,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 23] = [
        Self::Malformed,
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
        Self::OutwardHorizon,
        Self::InwardHorizon,
        Self::LongPacket,
    ];

    /// A stable name, such as `spoofed_mac`: the switch's label of the same reason.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
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
            Self::OutwardHorizon => "outward_horizon",
            Self::InwardHorizon => "inward_horizon",
            Self::LongPacket => "long_packet",
        }
    }
}

/// Counts since the interface was attached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Dropped frames, by [`DropReason::ALL`].
    pub(super) drops: [u64; DropReason::ALL.len()],
    /// Frames, or packets of GSO, that wait outward and inward for a bucket.
    pub delayed_outward: u64,
    /// See [`Self::delayed_outward`].
    pub delayed_inward: u64,
    /// Bytes on the wire that buckets charged, outward and inward.
    pub charged_outward: Bytes,
    /// See [`Self::charged_outward`].
    pub charged_inward: Bytes,
}

impl Counters {
    /// Dropped frames of one reason; a packet of GSO counts once.
    pub const fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// All dropped frames.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// Delays of frames behind their departure times on this host, since the first queue was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lateness {
    /// Frames by bucket: bucket n holds times below 1,024 ns · 2^n and not below half of that, the
    /// last one all longer times.
    pub buckets: [u64; Self::BUCKETS],
    /// The longest time.
    pub max: Nanos,
}

impl Lateness {
    /// The number of buckets.
    pub const BUCKETS: usize = 24;

    /// Frames that were counted.
    pub fn frames(&self) -> u64 {
        self.buckets.iter().sum()
    }
}
