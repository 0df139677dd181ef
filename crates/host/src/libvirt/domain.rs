//! Parser of a domain's XML (<https://libvirt.org/formatdomain.html>): its vhost-user cards, and
//! their configuration in the metadata.

use crate::socket::Wrong;
use roxmltree::{Document, Node, NodeType, ParsingOptions};
use std::fmt::Write as _;

/// The XML namespace of tailbound's elements in a domain's metadata.
pub const NAMESPACE: &str = "https://github.com/tailbound/tailbound";

/// Largest number of nodes in a domain's XML.
const MOST_NODES: u32 = 1 << 20;

/// Keys of a guest that the domain's interface defines.
const SAID: [&str; 3] = ["name", "mac", "port"];

/// Lines of a guest's section before the text of the metadata.
const HEAD: usize = 4;

/// A domain of libvirt's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The domain's name.
    pub(super) name: String,
    /// True if the domain is running or about to start.
    pub(super) runs: bool,
    /// The cards, in the order of the XML.
    pub(super) cards: Vec<Card>,
}

/// An interface of type `vhostuser`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    /// The name of the card's guest.
    pub(super) guest: String,
    pub(super) socket: String,
    mac: String,
    /// True if QEMU creates the socket.
    is_made_by_qemu: bool,
    /// The number of queue pairs in the XML.
    queues: Option<u16>,
    /// The user of the QEMU process, if that is not root.
    user: Option<u32>,
    /// The guest's configuration in the metadata; `None` if the card is not for tailbound.
    text: Option<Text>,
}

/// A text in the XML.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Text {
    content: String,
    /// The line of the XML where the text begins, counted from 1.
    line: usize,
    /// The number of characters before the text in that line.
    indent: usize,
}

/// Reason why the XML of a domain cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// The text is not XML.
    #[error("libvirt's input for domain {domain} is not XML: {reason}")]
    NotXml {
        /// The domain's name.
        domain: String,
        /// The mistake, and its place.
        reason: String,
    },
    /// The XML describes something else.
    #[error(
        "libvirt's input for domain {domain} is not a domain; the XML of `virsh dumpxml \
            {domain}` is expected"
    )]
    NoDomain {
        /// The domain's name.
        domain: String,
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

impl Domain {
    /// Reads a domain from its XML, which libvirt returned for `called`.
    ///
    /// # Errors
    /// The first mistake in the parts for tailbound.
    pub fn read(called: &str, xml: &str) -> Result<Self, DomainError> {
        let options = ParsingOptions {
            nodes_limit: MOST_NODES,
            ..ParsingOptions::default()
        };
        let document = Document::parse_with_options(xml, options);
        let document = document.map_err(|error| DomainError::NotXml {
            domain: called.to_owned(),
            reason: error.to_string(),
        })?;
        let root = document.root_element();
        let name = child(root, "name").and_then(|name| name.text());
        let Some(name) = name.filter(|_| root.has_tag_name("domain")) else {
            let domain = called.to_owned();
            return Err(DomainError::NoDomain { domain });
        };
        let wrong = |node: Node<'_, '_>, message: String| DomainError::Wrong {
            domain: name.to_owned(),
            line: document.text_pos_at(node.range().start).row,
            message,
        };
        let mut cards = Vec::new();
        let user = user(root, &wrong)?;
        let interfaces =
            children(root, "devices").flat_map(|devices| children(devices, "interface"));
        for interface in interfaces.filter(|it| it.attribute("type") == Some("vhostuser")) {
            cards.push(card(
                interface,
                guest_name(name, cards.len()),
                user,
                &wrong,
            )?);
        }
        for metadata in children(root, "metadata") {
            for ours in metadata.children().filter(is_ours) {
                match ours.tag_name().name() {
                    "guests" => {}
                    // Of a domain on a bridge, which the kernel forwards.
                    "guarantee" => continue,
                    tag => {
                        let message =
                            format!("unknown element <{tag}>; write <guests> or <guarantee> there");
                        return Err(wrong(ours, message));
                    }
                }
                for guest in ours.children().filter(Node::is_element) {
                    take(&mut cards, guest, &wrong)?;
                }
            }
        }
        Ok(Self {
            name: name.to_owned(),
            runs: root.has_attribute("id"),
            cards,
        })
    }

    /// Returns the cards that the metadata configures.
    pub(super) fn guests(&self) -> impl Iterator<Item = &Card> {
        self.cards.iter().filter(|card| card.text.is_some())
    }

    /// Returns the sections of the domain's guests, in the configuration's format.
    pub(super) fn sections(&self) -> String {
        let mut toml = String::new();
        for card in self.guests() {
            // Writing to a String does not fail.
            let _ = writeln!(toml, "{}", card.section());
        }
        toml
    }

    /// Describes a mistake in the sections, or in another file, with its place in the XML.
    pub(super) fn tell(&self, wrong: &Wrong) -> String {
        let Wrong {
            file,
            line,
            column,
            message,
        } = wrong;
        if let Some(file) = file {
            return format!("{}:{line}:{column}: {message}", file.display());
        }
        let mut first = 1;
        for card in self.guests() {
            let lines = card.section().matches('\n').count() + 1;
            if *line < first + lines {
                return card.tell(line - first, *column, message);
            }
            first += lines;
        }
        message.clone()
    }
}

impl Card {
    /// Returns the `[[guest]]` section, without the end of its last line.
    fn section(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mode = if self.is_made_by_qemu {
            "client"
        } else {
            "server"
        };
        let mut port = format!(
            "kind = \"vhost-user\", socket = {}, mode = \"{mode}\"",
            quoted(&self.socket)
        );
        // Writing to a String does not fail.
        if let Some(user) = self.user {
            let _ = write!(port, ", user = {user}");
        }
        if let Some(queues) = self.queues {
            let _ = write!(port, ", queues = {queues}");
        }
        format!(
            "[[guest]]\nname = {}\nmac = {}\nport = {{ {port} }}\n{}",
            quoted(&self.guest),
            quoted(&self.mac),
            self.text
                .as_ref()
                .map_or("", |text| text.content.trim_end()),
        )
    }

    /// Describes a mistake in the section; `line` is counted from 0 there.
    fn tell(&self, line: usize, column: usize, message: &str) -> String {
        match &self.text {
            Some(text) if line >= HEAD => {
                let indent = if line == HEAD { text.indent } else { 0 };
                format!(
                    "line {}, column {} of its XML: {message}",
                    text.line + line - HEAD,
                    column + indent
                )
            }
            _ => format!("guest {}: {message}", self.guest),
        }
    }
}

/// Returns the default name of the guest of a domain's card.
fn guest_name(domain: &str, card: usize) -> String {
    match card {
        0 => domain.to_owned(),
        card => format!("{domain}.{card}"),
    }
}

/// Reads the interface of type `vhostuser` at `interface`.
fn card(
    interface: Node<'_, '_>,
    guest: String,
    user: Option<u32>,
    wrong: &dyn Fn(Node<'_, '_>, String) -> DomainError,
) -> Result<Card, DomainError> {
    let of = |tag, key| child(interface, tag).and_then(|child| child.attribute(key));
    let missing = |what: &str| wrong(interface, format!("the interface has no {what}; add one"));
    let queues = of("driver", "queues").map(|queues| {
        let number = queues.parse();
        number.map_err(|_| {
            wrong(
                interface,
                format!("{queues:?} is no number of queues; use 1"),
            )
        })
    });
    Ok(Card {
        guest,
        socket: of("source", "path")
            .ok_or_else(|| missing("<source type='unix' path='...' mode='client'/>"))?
            .to_owned(),
        mac: of("mac", "address")
            .ok_or_else(|| missing("<mac address='...'/>"))?
            .to_owned(),
        is_made_by_qemu: of("source", "mode") == Some("server"),
        queues: queues.transpose()?,
        user,
        text: None,
    })
}

/// Returns the user of the QEMU process, from libvirt's security label; `None` for root, and
/// without a label.
fn user(
    root: Node<'_, '_>,
    wrong: &dyn Fn(Node<'_, '_>, String) -> DomainError,
) -> Result<Option<u32>, DomainError> {
    let labels = children(root, "seclabel").filter(|it| it.attribute("model") == Some("dac"));
    let mut labels = labels.filter_map(|it| child(it, "label"));
    let Some(label) = labels.next() else {
        return Ok(None);
    };
    let text = label.text().unwrap_or_default();
    let user = text.split(':').next().unwrap_or_default();
    let user = user.strip_prefix('+').unwrap_or(user).parse();
    let user = user.map_err(|_| {
        let message = format!("{text:?} names no user by number; write +UID:+GID");
        wrong(label, message)
    })?;
    Ok((user != 0).then_some(user))
}

/// Adds the text of `guest` to its card.
fn take(
    cards: &mut [Card],
    guest: Node<'_, '_>,
    wrong: &dyn Fn(Node<'_, '_>, String) -> DomainError,
) -> Result<(), DomainError> {
    let refuse = |message: String| Err(wrong(guest, message));
    if guest.tag_name().name() != "guest" {
        let tag = guest.tag_name().name();
        return refuse(format!("unknown element <{tag}>; write <guest> there"));
    }
    let mut attributes = guest.attributes();
    if let Some(other) = attributes.find(|it| !matches!(it.name(), "name" | "mac")) {
        let name = other.name();
        return refuse(format!(
            "unknown attribute `{name}` of <guest>; known here: name, mac; all else is written \
             inside of it, as in a [[guest]] section"
        ));
    }
    let count = cards.len();
    let mac = guest.attribute("mac");
    let mut chosen = cards
        .iter_mut()
        .filter(|card| mac.is_none_or(|mac| card.mac.eq_ignore_ascii_case(mac)));
    let (Some(card), None) = (chosen.next(), chosen.next()) else {
        return refuse(match mac {
            Some(mac) => format!(
                "no interface of type vhostuser has the MAC address {mac}; name one that does"
            ),
            None if count == 0 => "the domain has no interface of type vhostuser; add one, or \
                                   take <guest> out"
                .to_owned(),
            None => format!(
                "the domain has {count} interfaces of type vhostuser; select one by mac='...'"
            ),
        });
    };
    if card.text.is_some() {
        return refuse(format!(
            "the interface {} has a <guest> already; leave one of them out",
            card.mac
        ));
    }
    if let Some(name) = guest.attribute("name") {
        name.clone_into(&mut card.guest);
    }
    let text = text_of(guest).map_err(|message| wrong(guest, message))?;
    card.text = Some(text);
    Ok(())
}

/// Returns the text inside of `guest`.
fn text_of(guest: Node<'_, '_>) -> Result<Text, String> {
    let mut inside = guest.children();
    let (first, None) = (inside.next(), inside.next()) else {
        return Err(NOT_TEXT.to_owned());
    };
    if first.is_some_and(|first| first.node_type() != NodeType::Text) {
        return Err(NOT_TEXT.to_owned());
    }
    let text = first.and_then(|first| first.text()).unwrap_or_default();
    let begin = first.unwrap_or(guest).range().start;
    let begin = guest.document().text_pos_at(begin);
    if let Ok(table) = text.parse::<toml::Table>() {
        if let Some(key) = SAID.iter().find(|key| table.contains_key(**key)) {
            return Err(format!(
                "`{key}` is taken from the domain; remove it, or set another name by <guest \
                    name='...'>"
            ));
        }
        if table.get("guest").is_some_and(toml::Value::is_array) {
            return Err("a <guest> is one section; leave [[guest]] out".to_owned());
        }
    }
    Ok(Text {
        content: text.to_owned(),
        line: begin.row as usize,
        indent: begin.col as usize - 1,
    })
}

const NOT_TEXT: &str = "<guest> has something else than text inside; write there what a \
                        [[guest]] section has";

/// Returns true for an element of tailbound's namespace.
fn is_ours(node: &Node<'_, '_>) -> bool {
    node.is_element() && node.tag_name().namespace() == Some(NAMESPACE)
}

/// Returns the elements of that name inside of another.
fn children<'a, 'x>(of: Node<'a, 'x>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'x>> {
    let elements = of.children().filter(Node::is_element);
    elements.filter(move |it| it.tag_name().namespace().is_none() && it.tag_name().name() == tag)
}

/// Returns the first element of that name.
fn child<'a, 'x>(of: Node<'a, 'x>, tag: &'static str) -> Option<Node<'a, 'x>> {
    children(of, tag).next()
}

#[cfg(test)]
mod tests;
