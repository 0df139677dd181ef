//! A container that plugins of CNI connect: bridge or ptp, then that of tailbound. The limits are those
//! of the capability `bandwidth`, as the kubelet has them from annotations of a pod.

use super::{Ends, IN, TAILBOUND};
use crate::Outcome;
use crate::load::socket;
use crate::network::{Guest, add_bridge, join, mac_text, run as ip, silence};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use tailbound_sys::{netns, network};

/// The name by which a runtime starts the plugin.
const PLUGIN: &str = "/tmp/tailbound-cni";
/// The container's address behind ptp, and that of the host there.
const ROUTED: [&str; 2] = ["10.1.0.2", "10.1.0.1"];
/// The host's address beside the outside.
const GATEWAY: &str = "10.0.0.254";

/// Runs a trial behind the plugin `kind`.
pub(super) fn run(kind: &str) -> Outcome<()> {
    symlink(TAILBOUND, PLUGIN)?;
    let (container, outside) = (Guest::numbered(1), Guest::add(3)?);
    let space = container.namespace_name();
    ip(&format!("ip netns add {space}"))?;
    netns::within(&container.namespace(), silence)??;
    silence()?;
    let is_routed = kind == "ptp";
    let (address, gateway) = if is_routed {
        (ROUTED[0].to_owned(), ROUTED[1])
    } else {
        (container.address(), GATEWAY)
    };
    let uplink = outside.port_name();
    if is_routed {
        ip(&format!("ip addr add {GATEWAY}/24 dev {uplink}"))?;
        ip(&format!(
            "ip -n {} route add 10.1.0.0/24 via {GATEWAY}",
            outside.namespace_name()
        ))?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    } else {
        add_bridge("switch")?;
        join("switch", &uplink)?;
    }
    let first = format!(
        r#"{{"cniVersion":"1.0.0","name":"pods","type":"{kind}","bridge":"switch","ipam":{{"type":"static",
        "addresses":[{{"address":"{address}/24","gateway":"{gateway}"}}],"routes":[{{"dst":"0.0.0.0/0"}}]}}}}"#
    );
    let result = call(&format!("/bin/{kind}"), "ADD", &first)?;
    let (mac, _) = netns::within(&container.namespace(), || network::station("eth0"))??;
    if !is_routed {
        container.knows(&outside.address(), &outside.mac_text())?;
        outside.knows(&address, &mac_text(mac))?;
    }
    let ends = Ends {
        out: socket(container, &outside.address())?,
        inward: socket(outside, &address)?,
        guest: host_end()?,
        uplink,
    };
    let own = |out: u64| {
        format!(
            r#"{{"cniVersion":"1.0.0","name":"pods","type":"tailbound-cni","uplink":"{}","state":"/tmp/adopted",
            "prevResult":{result},"runtimeConfig":{{"bandwidth":{{"egressRate":{out},"egressBurst":4294967295,
            "ingressRate":{IN},"ingressBurst":4294967295}}}}}}"#,
            ends.uplink
        )
    };
    let adopt = |out: u64| call(PLUGIN, "ADD", &own(out)).map(drop);
    ends.measure(&adopt, &|| {
        call(PLUGIN, "DEL", &own(IN))?;
        call(PLUGIN, "DEL", &own(IN)).map(drop)
    })
}

/// Returns the host's interface that a plugin made.
fn host_end() -> Outcome<String> {
    let names = std::fs::read_dir("/sys/class/net")?.flatten();
    let mut names = names.filter_map(|it| it.file_name().into_string().ok());
    let found = names.find(|name| name.starts_with("veth"));
    found.ok_or_else(|| "the plugin made no veth".into())
}

/// Calls a plugin, and returns what it prints.
fn call(program: &str, command: &str, config: &str) -> Outcome<String> {
    let mut child = Command::new(program)
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "container-1")
        .env("CNI_NETNS", "/run/netns/guest-1")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no pipe")?;
    stdin.write_all(config.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{program} {command}: {text}").into());
    }
    Ok(text)
}
