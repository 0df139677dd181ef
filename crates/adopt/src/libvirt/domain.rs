//! The protection in a domain's XML. Pure.

use super::super::mac::Mac;
use super::super::refusal::nearest;
use super::super::request::{Allowance, Bucket, Devices, Request, longest_packet};
use roxmltree::{Document, Node, ParsingOptions};
use std::net::IpAddr;
use std::str::FromStr;
use tailbound_units::{Bytes, Nanos, Rate};

/// The XML namespace of tailbound's elements in a domain's metadata.
pub const NAMESPACE: &str = "https://github.com/tailbound/tailbound";
/// The begin of the namespace of nova's elements, before its version.
const NOVA: &str = "http://openstack.org/xmlns/libvirt/nova/";
/// The begin of the names of tailbound's extra specs.
const SPEC: &str = "tailbound:";
/// Largest number of nodes in a domain's XML.
const MAX_NODES: u32 = 1 << 20;

/// The attributes of `<guarantee>`.
const ATTRIBUTES: [&str; 11] = [
    "bandwidth",
    "burst",
    "delay",
    "lateness",
    "packet",
    "limit-out",
    "limit-in",
    "dscp",
    "mac",
    "ip",
    "uplink",
];
/// The names of nova's extra specs.
const SPECS: [&str; 3] = ["bandwidth", "burst", "delay"];

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) name: String,
    uuid: String,
    /// The protection; none without metadata.
    pub(super) wish: Option<Wish>,
}

/// The protection of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    /// The name of the TAP.
    pub(super) interface: String,
    /// The MAC address of the NIC.
    pub(super) mac: Mac,
    pub(super) request: Request,
}

/// Reason why the XML of a domain cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// The text is no XML of a domain.
    #[error("libvirt's input for domain {domain} is not its XML: {reason}")]
    NoDomain {
        /// The domain's name.
        domain: String,
        /// The mistake.
        reason: String,
    },
    /// The domain has a mistake.
    #[error("domain {domain}, line {line} of its XML: {message}")]
    Wrong {
        /// The domain's name.
        domain: String,
        /// The line, counted from 1.
        line: u32,
        /// The mistake, and a valid setting.
        message: String,
    },
}

/// A server of nova with a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The owner of its tenant at the placement service: the project's id, as nova's scheduler
    /// names it there.
    pub owner: String,
    /// The name of its machine there: the server's id.
    pub machine: String,
}

/// Returns the server of nova that a domain is, if its flavor has a guarantee.
///
/// # Errors
/// The text is no domain's XML.
pub fn server(called: &str, xml: &str) -> Result<Option<Server>, DomainError> {
    let machine = Domain::identify(called, xml)?.uuid;
    let document = Document::parse_with_options(xml, options());
    let document = document.map_err(|error| DomainError::NoDomain {
        domain: called.to_owned(),
        reason: error.to_string(),
    })?;
    let nova = |tag: &str| {
        let tag = tag.to_owned();
        let all = document.descendants();
        all.filter(move |node| node.tag_name().name() == tag && is_nova(node))
    };
    let is_ours = |it: Node<'_, '_>| it.attribute("name").is_some_and(|it| it.starts_with(SPEC));
    if !nova("extraSpec").any(is_ours) {
        return Ok(None);
    }
    let project = nova("project").find_map(|it| it.attribute("uuid"));
    Ok(project.map(|project| Server {
        owner: owner(project),
        machine,
    }))
}

/// Returns a project's id as the placement service takes it for an owner's name.
fn owner(project: &str) -> String {
    let lower = project.to_lowercase();
    let valid = lower
        .chars()
        .filter(|it| matches!(it, 'a'..='z' | '0'..='9' | '-'));
    let text: String = valid.take(63).collect();
    match text.trim_matches('-') {
        "" => "nova".to_owned(),
        text => text.to_owned(),
    }
}

fn is_nova(node: &Node<'_, '_>) -> bool {
    let namespace = node.tag_name().namespace();
    namespace.is_some_and(|it| it.starts_with(NOVA))
}

fn options<'a>() -> ParsingOptions<'a> {
    ParsingOptions {
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    }
}

type Wrong<'w> = &'w dyn Fn(Node<'_, '_>, String) -> DomainError;

impl Domain {
    /// Returns the key that the host's other commands have for it.
    pub(super) fn key(&self) -> String {
        format!("domain/{}", self.uuid)
    }

    /// Reads a domain, which libvirt returned for `called`.
    ///
    /// # Errors
    /// The first mistake in the parts for tailbound.
    pub(super) fn read(called: &str, xml: &str) -> Result<Self, DomainError> {
        parse(called, xml, true)
    }

    /// Reads the name and the UUID alone.
    ///
    /// # Errors
    /// The text is no domain's XML.
    pub(super) fn identify(called: &str, xml: &str) -> Result<Self, DomainError> {
        parse(called, xml, false)
    }
}

fn parse(called: &str, xml: &str, has_wish: bool) -> Result<Domain, DomainError> {
    let no_domain = |reason: String| DomainError::NoDomain {
        domain: called.to_owned(),
        reason,
    };
    let document = Document::parse_with_options(xml, options());
    let document = document.map_err(|error| no_domain(error.to_string()))?;
    let root = document.root_element();
    let of = |tag: &str| children(root, tag).next().and_then(|it| it.text());
    let name = of("name").filter(|_| root.has_tag_name("domain"));
    let name = name.ok_or_else(|| no_domain("there is no <domain> with a <name>".to_owned()))?;
    let wrong = |node: Node<'_, '_>, message: String| DomainError::Wrong {
        domain: name.to_owned(),
        line: document.text_pos_at(node.range().start).row,
        message,
    };
    let mut domain = Domain {
        name: name.to_owned(),
        // A domain has always one; its name is unique, too.
        uuid: of("uuid").unwrap_or(name).trim().to_owned(),
        wish: None,
    };
    if has_wish {
        domain.wish = wish(root, &wrong)?;
    }
    Ok(domain)
}

/// A setting: its name, its value, and the element that has it.
struct Setting<'a, 'x> {
    name: &'a str,
    value: &'a str,
    node: Node<'a, 'x>,
}

/// Returns the protection; that of tailbound's own element before nova's.
fn wish(root: Node<'_, '_>, wrong: Wrong<'_>) -> Result<Option<Wish>, DomainError> {
    let metadata = || children(root, "metadata").flat_map(|it| it.children());
    let is_own = |node: &Node<'_, '_>| node.has_tag_name((NAMESPACE, "guarantee"));
    if let Some(own) = metadata().find(is_own) {
        let settings = own.attributes().map(|it| Setting {
            name: it.name(),
            value: it.value(),
            node: own,
        });
        let settings: Vec<_> = settings.collect();
        check_names(&settings, &ATTRIBUTES, wrong)?;
        let request = request(&settings, wrong)?;
        let card = card(root, request.mac, own, wrong)?;
        return Ok(Some(card.with(request)));
    }
    let specs = metadata().flat_map(|it| it.descendants());
    let specs = specs.filter(|node| node.tag_name().name() == "extraSpec" && is_nova(node));
    let settings = specs.filter_map(|node| {
        let name = node.attribute("name")?.strip_prefix(SPEC)?;
        let value = node.text().unwrap_or_default().trim();
        Some(Setting { name, value, node })
    });
    let settings: Vec<_> = settings.collect();
    let Some(first) = settings.first() else {
        return Ok(None);
    };
    check_names(&settings, &SPECS, wrong)?;
    let mut request = request(&settings, wrong)?;
    // Neutron checks the sources, and knows which addresses a port may use beside its own.
    request.guard = false;
    Ok(Some(first_card(root, first.node, wrong)?.with(request)))
}

fn check_names(
    settings: &[Setting<'_, '_>],
    known: &[&'static str],
    wrong: Wrong<'_>,
) -> Result<(), DomainError> {
    let Some(unknown) = settings.iter().find(|it| !known.contains(&it.name)) else {
        return Ok(());
    };
    let near = nearest(unknown.name, known.iter().copied());
    let near = near.map_or_else(
        || format!("known here: {}", known.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    let name = unknown.name;
    Err(wrong(
        unknown.node,
        format!("unknown setting `{name}`; {near}"),
    ))
}

/// The longest packet.
struct Packet(Bytes);

impl FromStr for Packet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        longest_packet(text).map(Self)
    }
}

/// Reads the settings.
fn request(settings: &[Setting<'_, '_>], wrong: Wrong<'_>) -> Result<Request, DomainError> {
    fn read<T: FromStr<Err: ToString>>(
        settings: &[Setting<'_, '_>],
        name: &str,
        wrong: Wrong<'_>,
    ) -> Result<Option<T>, DomainError> {
        let Some(setting) = settings.iter().find(|it| it.name == name) else {
            return Ok(None);
        };
        let value = setting.value.parse();
        let value = value
            .map_err(|error: T::Err| wrong(setting.node, format!("{name}: {}", error.to_string())));
        value.map(Some)
    }
    let at = |name: &str| settings.iter().find(|it| it.name == name);
    let rate = read::<Rate>(settings, "bandwidth", wrong)?;
    let burst = read::<Bytes>(settings, "burst", wrong)?;
    // The placement service admits delays; here it is read, so that a mistake is found.
    read::<Nanos>(settings, "delay", wrong)?;
    let guarantee = match (rate, burst) {
        (None, None) => None,
        (None, Some(_)) => {
            let node = at("burst").expect("it was read").node;
            let message = "burst without bandwidth; add bandwidth, for example 100Mbit/s";
            return Err(wrong(node, message.to_owned()));
        }
        (Some(_), burst) => {
            let setting = at("bandwidth").expect("it was read");
            let burst = burst.map_or(String::new(), |burst| format!(",{burst}"));
            let bucket = format!("{}{burst}", setting.value);
            let bucket = bucket.parse::<Bucket>();
            Some(bucket.map_err(|error| wrong(setting.node, format!("bandwidth: {error}")))?)
        }
    };
    let dscp = read::<u8>(settings, "dscp", wrong)?;
    if let Some(number) = dscp.filter(|number| *number > 63) {
        let node = at("dscp").expect("it was read").node;
        return Err(wrong(node, format!("dscp: {number}; use 0 to 63")));
    }
    let ips = at("ip").map_or(Ok(Vec::new()), |setting| {
        let texts = setting.value.split([' ', ',']).filter(|it| !it.is_empty());
        let ips = texts.map(|text| {
            let ip = text.parse::<IpAddr>();
            ip.map_err(|_| wrong(setting.node, format!("ip: {text:?} is no IP address")))
        });
        ips.collect()
    })?;
    Ok(Request {
        dscp,
        outward: read(settings, "limit-out", wrong)?,
        inward: read(settings, "limit-in", wrong)?,
        guarantee,
        allowance: Allowance {
            packet: read::<Packet>(settings, "packet", wrong)?.map(|it| it.0),
            lateness: read(settings, "lateness", wrong)?,
        },
        devices: Devices {
            uplink: read(settings, "uplink", wrong)?,
            ..Devices::default()
        },
        mac: read(settings, "mac", wrong)?,
        ips,
        ..Request::default()
    })
}

/// A NIC with an interface on the host.
struct Card {
    interface: String,
    mac: Mac,
}

impl Card {
    fn with(self, request: Request) -> Wish {
        Wish {
            interface: self.interface,
            mac: self.mac,
            request,
        }
    }
}

/// Returns the domain's NICs with an interface on the host, those of vhost-user not among them.
fn cards<'a, 'x>(root: Node<'a, 'x>) -> impl Iterator<Item = Card> + use<'a, 'x> {
    let interfaces = children(root, "devices").flat_map(|it| children(it, "interface"));
    let interfaces = interfaces.filter(|it| it.attribute("type") != Some("vhostuser"));
    interfaces.filter_map(|interface| {
        let of = |tag: &'static str, key: &str| {
            let child = children(interface, tag).next()?;
            child.attribute(key).map(str::to_owned)
        };
        Some(Card {
            interface: of("target", "dev")?,
            mac: of("mac", "address")?.parse().ok()?,
        })
    })
}

fn first_card(
    root: Node<'_, '_>,
    node: Node<'_, '_>,
    wrong: Wrong<'_>,
) -> Result<Card, DomainError> {
    let message = "the domain has no interface on a bridge, a network or Open vSwitch; an interface of \
                   the type vhostuser has its guarantee in <guests>";
    let first = cards(root).next();
    first.ok_or_else(|| wrong(node, message.to_owned()))
}

/// Returns the NIC of this MAC address, or the only one.
fn card(
    root: Node<'_, '_>,
    mac: Option<Mac>,
    node: Node<'_, '_>,
    wrong: Wrong<'_>,
) -> Result<Card, DomainError> {
    let first = first_card(root, node, wrong)?;
    let macs: Vec<_> = cards(root).map(|card| card.mac.to_string()).collect();
    let Some(mac) = mac else {
        if macs.len() > 1 {
            let message = format!(
                "the domain has the NICs {}; select one by mac='...'",
                macs.join(", ")
            );
            return Err(wrong(node, message));
        }
        return Ok(first);
    };
    let found = cards(root).find(|card| card.mac == mac);
    found.ok_or_else(|| {
        let message = format!(
            "mac: the domain has no NIC {mac}; it has {}",
            macs.join(", ")
        );
        wrong(node, message)
    })
}

/// Returns the elements of that name inside of another.
fn children<'a, 'x>(of: Node<'a, 'x>, tag: &str) -> impl Iterator<Item = Node<'a, 'x>> {
    let tag = tag.to_owned();
    let elements = of.children().filter(Node::is_element);
    elements.filter(move |it| it.tag_name().namespace().is_none() && it.tag_name().name() == tag)
}

#[cfg(test)]
mod tests;
