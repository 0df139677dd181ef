//! Network roles of a guest beside a station's.

use crate::reason::Reason;
use serde::Deserialize;
use tailbound_dataplane::Role;

/// Network roles of a guest that can attract other guests' packets or pass stateless firewalls;
/// none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key, and allows what no other does"
)]
pub struct GuardConfig {
    /// Other link-layer addresses than the guest's in neighbour discovery options (bond, VRRP).
    pub stations: bool,
    /// IGMP and MLD queries, which attract a switch's groups.
    pub group_queries: bool,
    /// VRRP and CARP (routers).
    pub vrrp: bool,
    /// HSRP (routers).
    pub hsrp: bool,
    /// OSPF.
    pub ospf: bool,
    /// ICMP and `ICMPv6` redirects, which name a better router.
    pub redirects: bool,
    /// IPv4 source routes (LSRR, SSRR).
    pub source_routes: bool,
    /// TCP fragments over IPv4 that hide or may replace its flags.
    pub tiny_fragments: bool,
}

impl GuardConfig {
    /// All roles.
    pub const EVERYTHING: Self = Self {
        stations: true,
        group_queries: true,
        vrrp: true,
        hsrp: true,
        ospf: true,
        redirects: true,
        source_routes: true,
        tiny_fragments: true,
    };

    /// Returns each key and its value.
    pub const fn keys(self) -> [(&'static str, bool); 8] {
        [
            ("stations", self.stations),
            ("group_queries", self.group_queries),
            ("vrrp", self.vrrp),
            ("hsrp", self.hsrp),
            ("ospf", self.ospf),
            ("redirects", self.redirects),
            ("source_routes", self.source_routes),
            ("tiny_fragments", self.tiny_fragments),
        ]
    }

    /// Checks a role of the sender.
    pub(super) fn role(self, role: Role) -> Result<(), Reason> {
        let (is_allowed, otherwise) = match role {
            Role::GroupQuerier => (self.group_queries, Reason::GroupQuery),
            Role::Vrrp => (self.vrrp, Reason::Vrrp),
            Role::Hsrp => (self.hsrp, Reason::Hsrp),
            Role::Ospf => (self.ospf, Reason::Ospf),
            Role::Redirect => (self.redirects, Reason::Redirect),
        };
        is_allowed.then_some(()).ok_or(otherwise)
    }
}
