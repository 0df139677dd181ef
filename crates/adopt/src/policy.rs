//! A policy file: the protection of guests by rules. Pure except for [`Policy::load`].
//!
//! The first rule that fits a guest applies. [`Policy::orders`] compares the host's guests with the
//! journal: it adopts those with a rule, and releases those that a policy adopted and that have gone or
//! have no rule any more. Guests that a person, libvirt or a container runtime adopted stay theirs.

use super::request::{Bucket, Devices, Request, fits};
use super::step::{Action, Entry, Origin};
use super::world::{Guest, World};
use serde::{Deserialize, Deserializer, de};
use std::path::Path;
use tailbound_document::{Document, DocumentError, Mistake, Problem, Step};

/// The words for kinds of guests, as `tailbound watch` shows them.
const KINDS: [&str; 12] = [
    "domain",
    "pod",
    "docker",
    "podman",
    "containerd",
    "cri-o",
    "container",
    "namespace",
    "qemu",
    "firecracker",
    "cloud-hypervisor",
    "vmm",
];

/// Protections of guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The rules; the first match of a guest applies.
    #[serde(rename = "guest")]
    rules: Vec<Rule>,
}

/// Matches guests, and sets their protection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rule {
    /// Guest's name or key; `*` matches any text.
    name: String,
    /// Kind of the guest: `"docker"`, `"domain"`; any.
    kind: Option<String>,
    /// Label of a Docker container, as NAME or NAME=VALUE; any.
    label: Option<String>,
    /// Adopts the guests; true.
    adopt: bool,
    /// Checks the sources of frames; true.
    guard: bool,
    /// DSCP of the guest's packets; the guest's own.
    dscp: Option<u8>,
    /// Limit on frames of the guest, as RATE or RATE,BURST; none.
    #[serde(deserialize_with = "bucket")]
    limit_out: Option<Bucket>,
    /// Limit on frames to the guest; none.
    #[serde(deserialize_with = "bucket")]
    limit_in: Option<Bucket>,
    /// Rate and burst of frames that leave the uplink; none.
    #[serde(deserialize_with = "bucket")]
    guarantee: Option<Bucket>,
    /// Interface by which frames leave the host; found if absent.
    uplink: Option<String>,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            name: "*".to_owned(),
            kind: None,
            label: None,
            adopt: true,
            guard: true,
            dscp: None,
            limit_out: None,
            limit_in: None,
            guarantee: None,
            uplink: None,
        }
    }
}

fn bucket<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bucket>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

/// The changes that a policy requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// The keys of the guests to adopt, with the protection of each.
    pub adopt: Vec<(String, Request)>,
    /// The keys of the guests to release.
    pub release: Vec<String>,
}

impl Policy {
    /// Reads a file.
    ///
    /// # Errors
    /// All mistakes found, as [`DocumentError`] prints them.
    pub fn load(path: &Path) -> Result<Self, DocumentError> {
        DocumentError::load(path, Self::parse)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// All mistakes found, in the order of their place; at least one.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let document = Document::parse(text)?;
        let policy: Self = document.whole()?;
        let rules = policy.rules.iter().enumerate();
        let problems: Vec<_> = rules.flat_map(|(index, rule)| rule.check(index)).collect();
        if problems.is_empty() {
            return Ok(policy);
        }
        Err(document.locate(problems))
    }

    /// Returns the protection of all rules together, as far as a plan needs to know of it.
    pub fn request(&self) -> Request {
        let limited = self.rules.iter().map(Rule::request);
        limited
            .into_iter()
            .find(Request::needs_fq)
            .unwrap_or_default()
    }

    /// Compares the guests of a host with the journal.
    pub fn orders(&self, world: &World, known: &[Entry]) -> Orders {
        let mut orders = Orders::default();
        let entry = |key: &str| known.iter().find(|entry| entry.key == key);
        let is_own = |entry: &Entry| entry.origin == Origin::Policy;
        for guest in world
            .guests
            .iter()
            .filter(|it| !it.is_plain && !it.devices.is_empty())
        {
            let rule = self.rules.iter().find(|rule| rule.fits(guest));
            let is_others = entry(&guest.key).is_some_and(|entry| !is_own(entry));
            match rule.filter(|rule| rule.adopt) {
                _ if is_others => {}
                Some(rule) => orders.adopt.push((guest.key.clone(), rule.request())),
                None if entry(&guest.key).is_some() => orders.release.push(guest.key.clone()),
                None => {}
            }
        }
        let is_running = |entry: &Entry| world.guests.iter().any(|guest| guest.key == entry.key);
        let gone = known.iter().filter(|entry| {
            is_own(entry)
                && !is_running(entry)
                && !has_device(world, entry)
                && is_here(world, entry)
        });
        orders.release.extend(gone.map(|entry| entry.key.clone()));
        orders
    }
}

/// Returns true if an entry is of this network namespace, or of a former boot.
fn is_here(world: &World, entry: &Entry) -> bool {
    entry.boot != world.boot || entry.namespace == world.namespace
}

/// Returns true if an interface of a guest is still there.
fn has_device(world: &World, entry: &Entry) -> bool {
    let mut steps = entry.steps.iter();
    entry.boot == world.boot
        && steps.any(|step| {
            let port = world.ports.get(&step.port.index);
            let is_guest = matches!(step.action, Action::Guest { .. });
            is_guest && port.is_some_and(|port| port.port.mac == step.port.mac)
        })
}

impl Rule {
    fn check(&self, index: usize) -> Vec<Problem> {
        let mut wrong = Vec::new();
        let mut refuse = |key: &'static str, message: String| {
            let path = [Step::Key("guest"), Step::Index(index), Step::Key(key)];
            wrong.push(Problem::new(&path, message));
        };
        if let Some(kind) = &self.kind
            && !KINDS.contains(&kind.as_str())
        {
            let known = KINDS.join(", ");
            refuse("kind", format!("unknown kind {kind:?}; use one of {known}"));
        }
        if let Some(dscp) = self.dscp.filter(|dscp| *dscp > 63) {
            refuse("dscp", format!("{dscp} is no DSCP; use 0 to 63"));
        }
        if self.name.is_empty() {
            refuse(
                "name",
                "an empty name fits no guest; use \"*\" for all".to_owned(),
            );
        }
        let is_docker = self.kind.as_deref().is_none_or(|kind| kind == "docker");
        if self.label.is_some() && !is_docker {
            let message = "labels are those of Docker's containers; use kind = \"docker\"";
            refuse("label", message.to_owned());
        }
        wrong
    }

    fn fits(&self, guest: &Guest) -> bool {
        let is_named = fits(&self.name, &guest.name) || fits(&self.name, &guest.key);
        let is_kind = self.kind.as_ref().is_none_or(|kind| *kind == guest.kind);
        let has_label = |wanted: &String| match wanted.split_once('=') {
            Some((name, value)) => guest.labels.get(name).is_some_and(|it| it == value),
            None => guest.labels.contains_key(wanted),
        };
        is_named && is_kind && self.label.as_ref().is_none_or(has_label)
    }

    fn request(&self) -> Request {
        Request {
            guard: self.guard,
            dscp: self.dscp,
            outward: self.limit_out,
            inward: self.limit_in,
            guarantee: self.guarantee,
            devices: Devices {
                uplink: self.uplink.clone(),
                ..Devices::default()
            },
            ..Request::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::request::Selection;
    use crate::testing::FakeHost;

    const FILE: &str = r#"
        [[guest]]
        name = "web-*"
        kind = "docker"
        label = "tier=front"
        limit_out = "1Gbit/s,30KB"
        [[guest]]
        name = "db"
        adopt = false
        [[guest]]
        dscp = 10
    "#;

    fn host() -> FakeHost {
        let mut host = FakeHost {
            has_tcx: true,
            ..FakeHost::default()
        };
        for (index, name) in [(11, "web-1"), (12, "web-2"), (13, "db")] {
            host.add_guest(index, name, None);
        }
        let web = host
            .guests
            .iter_mut()
            .find(|it| it.name == "web-1")
            .unwrap();
        web.kind = "docker".into();
        web.labels.insert("tier".into(), "front".into());
        host
    }

    /// The entry of an adopted guest.
    fn entry(host: &FakeHost, name: &str, origin: Origin) -> Entry {
        let selection = Selection::Patterns(vec![name.to_owned()]);
        let planned = plan(&host.world(), &selection, &Request::default(), &[]).unwrap();
        let mut entry = planned[0].entry.clone().unwrap();
        entry.origin = origin;
        entry
    }

    #[test]
    fn the_first_rule_that_fits_applies() {
        let policy = Policy::parse(FILE).unwrap();
        let orders = policy.orders(&host().world(), &[]);
        let adopt: Vec<_> = orders
            .adopt
            .iter()
            .map(|(key, request)| (key.as_str(), request.outward.is_some(), request.dscp))
            .collect();
        assert_eq!(
            adopt,
            [
                ("netns/web-1", true, None),
                ("netns/web-2", false, Some(10))
            ]
        );
        assert!(policy.request().needs_fq());
    }

    #[test]
    fn a_guest_is_released_when_it_has_gone_or_has_no_rule() {
        let policy = Policy::parse(FILE).unwrap();
        let mut host = host();
        let known = ["web-1", "web-2", "db"].map(|name| entry(&host, name, Origin::Policy));
        assert_eq!(policy.orders(&host.world(), &known).release, ["netns/db"]);
        // Its processes were not seen, and its interface is there.
        host.guests.retain(|guest| guest.name != "web-2");
        assert_eq!(policy.orders(&host.world(), &known).release, ["netns/db"]);
        host.ports.remove(&12);
        assert_eq!(
            policy.orders(&host.world(), &known).release,
            ["netns/db", "netns/web-2"]
        );
        // After a reboot the numbers are others'.
        let mut old = entry(&host, "web-1", Origin::Policy);
        (old.boot, old.key) = ("boot-0".into(), "netns/old".into());
        assert_eq!(
            policy.orders(&host.world(), &[old.clone()]).release,
            ["netns/old"]
        );
        (old.boot, old.namespace) = ("boot-1".into(), 8);
        assert!(policy.orders(&host.world(), &[old]).release.is_empty());
    }

    #[test]
    fn a_policy_ignores_guests_adopted_by_command() {
        let policy = Policy::parse(FILE).unwrap();
        let mut host = host();
        let known = ["web-1", "web-2", "db"].map(|name| entry(&host, name, Origin::Command));
        assert_eq!(policy.orders(&host.world(), &known), Orders::default());
        host.ports.clear();
        host.guests.clear();
        assert_eq!(policy.orders(&host.world(), &known), Orders::default());
    }

    #[test]
    fn mistakes_have_their_places() {
        for (from, to, said) in [
            ("1Gbit/s,30KB", "1Gb", "6:21: \"1Gb\" has the unknown unit"),
            (
                "kind = \"docker\"",
                "kind = \"lxc\"",
                "4:16: unknown kind \"lxc\"",
            ),
            (
                "kind = \"docker\"",
                "kind = \"pod\"",
                "labels are those of Docker",
            ),
            ("dscp = 10", "dscp = 64", "11:16: 64 is no DSCP"),
            ("limit_out", "limit_oud", "did you mean `limit_out`?"),
            ("name = \"db\"", "name = \"\"", "fits no guest"),
            ("[[guest]]\n        dscp", "[guest\n dscp", "not TOML"),
        ] {
            let mistakes = Policy::parse(&FILE.replacen(from, to, 1)).expect_err(said);
            let text: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
            assert!(text.join("\n").contains(said), "{text:?}");
        }
    }
}
