//! The group that bears the weight of a guest's class.

use super::machine::{Machine, Process, qemu};
use std::path::{Path, PathBuf};
use tailbound_agent::AgentConfig;
use tailbound_agent::guest::{Guest, WeightBearer};

const POD: &str = "/kubepods/burstable/pod3f0c7ad2";

/// The groups of a pod's containers: the guest's, a sidecar's, the one that holds its
/// namespaces.
fn containers() -> [String; 3] {
    ["4fa6", "1234", "beef"].map(|id| format!("{POD}/{}", id.repeat(16)))
}

fn other<'p>(pid: u32, comm: &'p str, group: &'p str) -> Process<'p> {
    Process {
        comm,
        arguments: &["x"],
        group,
        threads: &["x"],
        ..qemu(pid, 0)
    }
}

/// The bearer of the weight of the guest that a rule selects, without the directory of the host.
fn weighed(machine: &Machine, rule: &str) -> (WeightBearer, String) {
    let config = format!("[[guest]]\n{rule}\nlevel = \"high\"\n");
    let rules = AgentConfig::parse(&config).unwrap().rules;
    let guests = machine.scanner().scan(&rules).unwrap();
    let picked: Vec<&Guest> = guests.iter().filter(|guest| guest.rule.is_some()).collect();
    assert_eq!(picked.len(), 1, "{guests:?}");
    let root = machine.directory.path().join("sys/fs/cgroup");
    let relative = |group: &Path| PathBuf::from("/").join(group.strip_prefix(&root).unwrap());
    let weighed = match picked[0].weighed.clone() {
        WeightBearer::Threads => WeightBearer::Threads,
        WeightBearer::Group(group) => WeightBearer::Group(relative(&group)),
        WeightBearer::Nothing { group, others } => WeightBearer::Nothing {
            group: relative(&group),
            others,
        },
    };
    (weighed, picked[0].notes.join("\n"))
}

fn group(path: &str) -> (WeightBearer, String) {
    (WeightBearer::Group(path.into()), String::new())
}

#[test]
fn a_pods_group_is_weighed_if_it_holds_only_the_guest() {
    let [own, sidecar, sandbox] = containers();
    let mut machine = Machine::new();
    machine.start(&Process {
        group: &own,
        nested: true,
        ..qemu(40, 107)
    });
    machine.start(&other(50, "virt-launcher", &own));
    machine.start(&other(60, "pause", &sandbox));
    machine.start(&other(70, "hog", "/kubepods/burstable/podbbbb"));
    let rule = "pod = \"3f0c7ad2\"";
    assert_eq!(weighed(&machine, rule), group(POD));
    machine.start(&other(80, "nginx", &sidecar));
    let (seen, _) = weighed(&machine, rule);
    let others = "80 (nginx)".to_owned();
    assert_eq!(
        seen,
        WeightBearer::Nothing {
            group: POD.into(),
            others
        }
    );
}

#[test]
fn the_outermost_group_with_only_the_guest_gets_its_weight() {
    let mut machine = Machine::new();
    machine.start(&Process {
        group: "/vms/web1/inner",
        ..qemu(40, 0)
    });
    machine.start(&other(50, "hog", "/system.slice/x.service"));
    assert_eq!(weighed(&machine, "name = \"web1\""), group("/vms"));
    machine.start(&other(60, "hog", "/vms/web2"));
    assert_eq!(weighed(&machine, "name = \"web1\""), group("/vms/web1"));
    // A slice is its manager's, whoever is in it for now.
    machine.start(&Process {
        group: "/vm.slice/web.service",
        arguments: &["qemu-kvm", "-name", "web3"],
        ..qemu(70, 0)
    });
    assert_eq!(
        weighed(&machine, "name = \"web3\""),
        group("/vm.slice/web.service")
    );
}

#[test]
fn a_guest_in_a_shared_group_gets_nice_values_and_a_note() {
    let mut machine = Machine::new();
    machine.start(&Process {
        group: "/",
        ..qemu(40, 0)
    });
    assert_eq!(
        weighed(&machine, "name = \"web1\""),
        (WeightBearer::Threads, String::new())
    );
    let mut machine = Machine::new();
    machine.start(&Process {
        group: "/user.slice/session-3.scope",
        ..qemu(40, 0)
    });
    machine.start(&other(50, "bash", "/user.slice/session-3.scope"));
    let (seen, note) = weighed(&machine, "name = \"web1\"");
    assert_eq!(seen, WeightBearer::Threads);
    assert!(
        note.contains("session-3.scope, which it shares with 50 (bash)"),
        "{note}"
    );
}

#[test]
fn the_weight_of_a_users_guest_is_not_for_all_that_the_user_runs() {
    let user = "/user.slice/user@1000.service";
    let mut machine = Machine::new();
    let root = PathBuf::from("/sys/fs/cgroup");
    machine.answers.unguarded = ["", "/app", "/app/vm"]
        .map(|below| root.join(format!("{}{below}", &user[1..])))
        .into();
    let own = format!("{user}/app/vm");
    machine.start(&Process {
        group: &own,
        ..qemu(40, 1000)
    });
    let rule = "name = \"web1\"\nuid = 1000";
    let init = format!("{user}/init.scope");
    machine.start(&other(50, "systemd", &init));
    let (seen, _) = weighed(&machine, rule);
    let others = "50 (systemd)".to_owned();
    let group = "/user.slice".into();
    assert_eq!(seen, WeightBearer::Nothing { group, others });
}
