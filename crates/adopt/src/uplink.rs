//! The uplink of a guest: the physical port of its bridge, or else the device of the default route.
//! Pure.

use super::refusal::{Refusal, nearest};
use super::world::{PortState, World};

/// The uplink of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Its index.
    pub index: u32,
    /// The way in which it was found, in words.
    pub why: String,
    /// True if frames reach it by routing, which changes their MAC address and their device.
    pub is_routed: bool,
}

/// Finds the uplink of a guest's device.
///
/// # Errors
/// There is none, there are several, or frames do not leave the host by it.
pub fn find(world: &World, device: &PortState, asked: Option<&str>) -> Result<Uplink, Refusal> {
    let master = device.master.and_then(|master| world.ports.get(&master));
    if let Some(asked) = asked {
        let port = world
            .port_named(asked)
            .ok_or_else(|| unknown(world, asked))?;
        check(world, port)?;
        return Ok(Uplink {
            index: port.port.index,
            why: "--uplink".to_owned(),
            is_routed: master.is_none() || port.master != device.master,
        });
    }
    if let Some(master) = master
        && let Some(port) = physical_port(world, master)?
    {
        check(world, port)?;
        return Ok(Uplink {
            index: port.port.index,
            why: format!("the physical port of {}", master.port.name),
            is_routed: false,
        });
    }
    let default = world.default_device.and_then(|it| world.ports.get(&it));
    let default = default.ok_or(Refusal::NoUplink(
        "the guest's bridge has no physical port, and the host no default route",
    ))?;
    let inner = match default.kind.as_deref() {
        Some("bridge") => physical_port(world, default)?,
        // A bridge of Open vSwitch; its ports are those of the datapath.
        Some("openvswitch") => match world.port_named("ovs-system") {
            Some(datapath) => physical_port(world, datapath)?,
            None => None,
        },
        _ => None,
    };
    let (port, why) = match inner {
        Some(port) => (
            port,
            format!(
                "the physical port of {}, which has the default route",
                default.port.name
            ),
        ),
        None => (default, "the device of the default route".to_owned()),
    };
    check(world, port)?;
    Ok(Uplink {
        index: port.port.index,
        why,
        is_routed: true,
    })
}

fn unknown(world: &World, asked: &str) -> Refusal {
    let names = || world.ports.values().map(|port| port.port.name.as_str());
    Refusal::NoSuchUplink {
        asked: asked.to_owned(),
        near: nearest(asked, names()),
        known: names().map(str::to_owned).collect(),
    }
}

/// Returns the only port of a bridge that leads out of the host; `None` if it has none.
fn physical_port<'w>(
    world: &'w World,
    master: &PortState,
) -> Result<Option<&'w PortState>, Refusal> {
    let index = master.port.index;
    let is_outside = |port: &&PortState| {
        let leads_out = match port.kind.as_deref() {
            None => !port.is_loopback,
            Some(kind) => reason(kind).is_some(),
        };
        port.master == Some(index) && leads_out
    };
    let found: Vec<_> = world.ports.values().filter(is_outside).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => Err(Refusal::SeveralUplinks {
            bridge: master.port.name.clone(),
            ports: found.iter().map(|port| port.port.name.clone()).collect(),
        }),
    }
}

/// Returns the reason why a device of this kind, which leads out of the host, is no uplink.
fn reason(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "bond" | "team" => {
            "its ports send at their own times, so no departure time holds; omit the limit, or use the \
             daemon (`tailbound host`)"
        }
        "vlan" => "frames wait in the queue of the device below it; name that one by --uplink",
        "vxlan" | "geneve" | "gre" | "gretap" | "ip6gre" | "ip6gretap" | "erspan" | "ipip"
        | "sit" | "ip6tnl" | "vti" | "wireguard" | "xfrm" => {
            "it is a tunnel, whose packets hide the guest's addresses; name the device that carries \
             the tunnel by --uplink, or omit the limit"
        }
        "macvlan" | "ipvlan" | "macvtap" | "ipvtap" => {
            "frames leave by the device below it; name that one by --uplink"
        }
        _ => return None,
    })
}

/// Checks that a device can be an uplink.
fn check(world: &World, port: &PortState) -> Result<(), Refusal> {
    let device = &port.port.name;
    let refuse = |kind: &str, why: String| {
        Err(Refusal::UplinkKind {
            device: device.clone(),
            kind: kind.to_owned(),
            why,
        })
    };
    if port.is_loopback {
        return refuse(
            "loopback",
            "no frame leaves the host by it; name another".to_owned(),
        );
    }
    if let Some(kind) = &port.kind {
        if let Some(why) = reason(kind) {
            let parent = port.parent.and_then(|parent| world.ports.get(&parent));
            let why = parent.map_or_else(
                || why.to_owned(),
                |parent| format!("{why} ({})", parent.port.name),
            );
            return refuse(kind, why);
        }
        if matches!(kind.as_str(), "bridge" | "openvswitch" | "vrf" | "dummy") {
            return refuse(
                kind,
                "frames leave by another device; name that by --uplink".to_owned(),
            );
        }
    }
    let master = port.master.and_then(|master| world.ports.get(&master));
    if let Some(master) = master
        && matches!(master.kind.as_deref(), Some("bond" | "team"))
    {
        let kind = format!("port of the bond {}", master.port.name);
        return refuse(&kind, "frames leave by its other ports, too".to_owned());
    }
    if let Some(by) = world.driven.get(&port.port.index) {
        return Err(Refusal::Driven {
            device: device.clone(),
            by: by.clone(),
        });
    }
    Ok(())
}
