//! Namespaces on one bridge, between which single directions can be cut.
//!
//! Neighbours are fixed entries. To cut the way from one node to another, the first one gets an entry with
//! the MAC of no node: its frames vanish, as behind a broken cable, while those of the other way arrive.

use std::process::Command;
use tailbound_sys::probe::required::{Part, skipped};

const INSIDE: &str = "TAILBOUND_TEST_SANDBOX";
/// A MAC that no node has.
const NOBODY: &str = "02:00:00:00:ff:ff";

/// A node by its number: the last part of its address and of its MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(pub(crate) u8);

impl Node {
    /// The namespace of this test, where the clients are.
    pub(crate) const CLIENTS: Self = Self(254);

    pub(crate) fn ip(self) -> String {
        format!("10.66.0.{}", self.0)
    }

    fn mac(self) -> String {
        format!("02:00:00:00:00:{:02x}", self.0)
    }

    fn name(self) -> String {
        format!("node{}", self.0)
    }

    /// A command that runs in this node.
    pub(crate) fn command(self, program: &str) -> Command {
        if self == Self::CLIENTS {
            return Command::new(program);
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(), program]);
        command
    }
}

/// Runs `test`, the body of the test called `name`, in a network namespace, or prints why there is none.
pub(crate) fn sandboxed(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let arguments = ["--net", "--mount", "--kill-child"];
    let mut probe = Command::new("unshare");
    match probe.args(arguments).args(["ip", "link"]).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return skipped(Part::NetworkNamespaces, why);
        }
        Err(error) => return skipped(Part::NetworkNamespaces, format!("unshare: {error}")),
    }
    let status = Command::new("unshare")
        .args(arguments)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .status();
    assert!(status.unwrap().success(), "{name} failed in its namespace");
}

/// The nodes and their network.
pub(crate) struct Network {
    nodes: Vec<Node>,
}

impl Network {
    /// Connects these nodes and the clients.
    pub(crate) fn new(nodes: &[Node]) -> Self {
        run("mount", "-t tmpfs run /run");
        run("ip", "link set lo up");
        run("ip", "link add net type bridge");
        run(
            "ip",
            &format!("link set net address {} up", Node::CLIENTS.mac()),
        );
        run(
            "ip",
            &format!("address add {}/24 dev net", Node::CLIENTS.ip()),
        );
        for node in nodes {
            let (name, ip, mac) = (node.name(), node.ip(), node.mac());
            run("ip", &format!("netns add {name}"));
            run(
                "ip",
                &format!(
                    "link add {name} master net type veth peer name net address {mac} netns {name}"
                ),
            );
            run("ip", &format!("link set {name} up"));
            run("ip", &format!("-n {name} link set lo up"));
            run("ip", &format!("-n {name} address add {ip}/24 dev net"));
            run("ip", &format!("-n {name} link set net up"));
        }
        let nodes = [nodes, &[Node::CLIENTS]].concat();
        let network = Self { nodes };
        network.heal();
        network
    }

    /// Cuts the way from one node to another; the other direction stays.
    pub(crate) fn cut(&self, from: Node, to: Node) {
        assert!(self.nodes.contains(&from) && self.nodes.contains(&to));
        neighbour(from, to, NOBODY);
    }

    /// Removes all cuts.
    pub(crate) fn heal(&self) {
        for from in &self.nodes {
            for to in self.nodes.iter().filter(|to| *to != from) {
                neighbour(*from, *to, &to.mac());
            }
        }
    }
}

fn neighbour(from: Node, to: Node, mac: &str) {
    let node = match from {
        Node::CLIENTS => String::new(),
        node => format!("-n {} ", node.name()),
    };
    let entry = format!("lladdr {mac} dev net nud permanent");
    run("ip", &format!("{node}neigh replace {} {entry}", to.ip()));
}

/// Runs a command that must succeed.
fn run(program: &str, line: &str) {
    let output = Command::new(program)
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {line}: {stderr}");
}
