//! Plans on recorded hosts, and their refusals.

use super::live::{Condition, condition, make, read, served, undo};
use super::partition::{PathError, PathStep, plan};
use super::*;
use crate::testing::cpus;
use std::fs;
use tailbound_sys::root::Root;

/// A host with systemd, four CPUs and cgroup v2, as its kernel shows it.
const HOST: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3\n"),
    (
        "proc/self/mounts",
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    ),
    (
        "proc/700/cgroup",
        "0::/tailbound.slice/tailbound-host.service\n",
    ),
    ("proc/700/comm", "tailbound\n"),
    ("proc/900/comm", "nginx\n"),
    (
        "sys/fs/cgroup/cgroup.controllers",
        "cpuset cpu io memory pids\n",
    ),
    ("sys/fs/cgroup/cgroup.subtree_control", "cpu memory pids\n"),
    ("sys/fs/cgroup/tailbound.slice/cgroup.procs", ""),
    ("sys/fs/cgroup/tailbound.slice/cpuset.cpus", "\n"),
    (
        "sys/fs/cgroup/tailbound.slice/cpuset.cpus.partition",
        "member\n",
    ),
    (
        "sys/fs/cgroup/tailbound.slice/tailbound-host.service/cgroup.procs",
        "700\n",
    ),
    ("sys/fs/cgroup/system.slice/cgroup.procs", ""),
    (
        "sys/fs/cgroup/system.slice/nginx.service/cgroup.procs",
        "900\n",
    ),
    ("sys/fs/cgroup/system.slice/nginx.service/cpuset.cpus", "\n"),
    ("sys/devices/pci0/virtio3/net/eth0/mtu", "1500\n"),
    ("sys/devices/pci0/msi_irqs/41", "msix\n"),
    ("sys/devices/pci0/msi_irqs/42", "msix\n"),
    ("proc/irq/41/smp_affinity_list", "0-3\n"),
    ("proc/irq/42/smp_affinity_list", "1\n"),
];

struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    fn new(changes: &[(&str, &str)]) -> Self {
        let host = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        for (file, content) in HOST.iter().chain(changes) {
            let file = host.directory.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let nic = host.directory.path().join("sys/class/net/eth0");
        fs::create_dir_all(&nic).unwrap();
        let device = host.directory.path().join("sys/devices/pci0/virtio3");
        std::os::unix::fs::symlink(device, nic.join("device")).unwrap();
        host
    }

    fn root(&self) -> Root {
        Root::at(self.directory.path())
    }

    fn text(&self, file: &str) -> String {
        let text = fs::read_to_string(self.directory.path().join(file)).unwrap();
        text.trim().to_owned()
    }

    fn plan(&self, wanted: &str, done: &[PathStep]) -> Result<Vec<PathStep>, PathError> {
        let config = PathConfig {
            cpus: Some(cpus(wanted)),
            interrupts: vec!["eth0".to_owned()],
            ..PathConfig::default()
        };
        let machine = read(&self.root(), &config, &[700], !done.is_empty()).unwrap();
        plan(&config, &machine, done, &[700])
    }

    /// Returns the plan, without the directory of this test, or the reason of a refusal.
    fn said(&self, wanted: &str) -> String {
        let said = match self.plan(wanted, &[]) {
            Ok(steps) => steps.iter().map(|step| step.to_string() + "\n").collect(),
            Err(error) => error.to_string(),
        };
        said.replace(&self.directory.path().display().to_string(), "")
    }
}

const SLICE: &str = "sys/fs/cgroup/tailbound.slice";

#[test]
fn the_daemons_slice_becomes_a_partition_and_its_nics_interrupts_come_to_it() {
    let host = Host::new(&[]);
    assert_eq!(
        host.said("1"),
        "group /sys/fs/cgroup/tailbound.slice: a partition of the CPUs 1\n\
         interrupt 41 (eth0): CPUs 0-3 -> 1\n"
    );
    let steps = host.plan("1", &[]).unwrap();
    let file = |name: &str| host.text(&format!("{SLICE}/{name}"));
    for step in &steps {
        make(&host.root(), step).unwrap();
        assert_eq!(condition(&host.root(), step), Condition::InForce);
    }
    assert_eq!(
        (&*file("cpuset.cpus"), &*file("cpuset.cpus.partition")),
        ("1", "root")
    );
    assert_eq!(served(&host.root(), 41), Some(cpus("1")));
    assert_eq!(host.text("sys/fs/cgroup/cgroup.subtree_control"), "+cpuset");
    // Nothing is left to do, and somebody else's change shows.
    assert_eq!(host.plan("1", &steps).unwrap(), []);
    fs::write(
        host.directory.path().join("proc/irq/41/smp_affinity_list"),
        "2\n",
    )
    .unwrap();
    assert_eq!(
        steps
            .iter()
            .filter(|step| condition(&host.root(), step) == Condition::Changed)
            .count(),
        1
    );
    assert_eq!(host.plan("1", &steps).unwrap(), []);
    for step in steps.iter().rev() {
        undo(&host.root(), step).unwrap();
    }
    // The kernel takes the group's CPUs with the controller.
    assert_eq!(file("cpuset.cpus.partition"), "member");
    assert_eq!(served(&host.root(), 41), Some(cpus("0-3")));
    assert_eq!(host.text("sys/fs/cgroup/cgroup.subtree_control"), "-cpuset");
}

#[test]
fn other_cpu_managers_are_named_and_block_the_partition_plan() {
    let nginx = "sys/fs/cgroup/system.slice/nginx.service/cpuset.cpus";
    let pod = "sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope/cpuset.cpus";
    let machine = "sys/fs/cgroup/machine.slice/machine-qemu-1.scope/libvirt/vcpu0/cpuset.cpus";
    let beside = "sys/fs/cgroup/tailbound.slice/other.service/cgroup.procs";
    let state = "var/lib/kubelet/cpu_manager_state";
    let fixed = r#"{"policyName":"static","defaultCpuSet":"0-3","checksum":1}"#;
    for (changes, wanted, why) in [
        (
            &[(nginx, "0-1\n")][..],
            "1",
            "nginx.service has the CPUs 0-1 (systemd gave it these: AllowedCPUs",
        ),
        (&[(pod, "0,2-3\n")], "2", "(the kubelet gave it these)"),
        (
            &[(machine, "3\n")],
            "2-3",
            "(libvirt gave it these: vcpupin",
        ),
        (
            &[(state, fixed)],
            "1",
            "the kubelet hands out CPUs here (policy static",
        ),
        (
            &[(beside, "900\n")],
            "1",
            "900 (nginx) is in the control group /sys/fs/cgroup/tailbound.slice as well",
        ),
        (
            &[("sys/fs/cgroup/cgroup.controllers", "cpu io\n")],
            "1",
            "there are no cpusets here",
        ),
        (&[], "0-3", "cannot have the CPUs 0-3 of 0-3"),
        (&[], "7", "cannot have the CPUs 7 of 0-3"),
    ] {
        let said = Host::new(changes).said(wanted);
        assert!(said.contains(why), "{said}");
    }
    // Others' CPUs beside those of the path are no hindrance; nor a kubelet that hands none out.
    let none = (state, r#"{"policyName":"none","checksum":1}"#);
    let host = Host::new(&[(nginx, "0-1\n"), none]);
    assert!(
        host.said("3")
            .starts_with("group /sys/fs/cgroup/tailbound.slice: a partition")
    );
    fs::remove_file(host.directory.path().join("sys/class/net/eth0/device")).unwrap();
    assert!(host.said("3").contains("eth0 has no interrupts of its own"));
}

#[test]
fn cpus_that_an_earlier_partition_left_are_none_for_the_next() {
    let handed_down = ("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu\n");
    let own = "sys/fs/cgroup/tailbound.slice/cpuset.cpus";
    let possible = ("sys/devices/system/cpu/possible", "0-7\n");
    for (seen, before) in [("0-7\n", ""), ("\n", ""), ("0-3\n", "0-3"), ("1\n", "1")] {
        let host = Host::new(&[handed_down, possible, (own, seen)]);
        let step = host.plan("1", &[]).unwrap().remove(0);
        let PathStep::Partition {
            before: recorded,
            hand_down: None,
            ..
        } = &step
        else {
            panic!("{step:?}");
        };
        assert_eq!(recorded, before);
        make(&host.root(), &step).unwrap();
        undo(&host.root(), &step).unwrap();
        assert_eq!(host.text(own), before);
    }
}

#[test]
fn kernel_changes_of_a_partition_are_distinguished_from_others() {
    let partition = format!("{SLICE}/cpuset.cpus.partition");
    let own = format!("{SLICE}/cpuset.cpus");
    let online = "sys/devices/system/cpu/online";
    let invalid = "root invalid (Cpu list in cpuset.cpus not exclusive)\n";
    let offline = "root invalid (Parent unable to distribute cpu downstream)\n";
    for (changes, expected) in [
        (&[(&*partition, invalid)][..], Condition::Changed),
        (&[(&*partition, "member\n")], Condition::Changed),
        (&[(&*own, "2\n")], Condition::Changed),
        (
            &[(&*partition, offline), (online, "0,2-3\n")],
            Condition::Suspended,
        ),
        // Of a group that was made again.
        (&[(&*partition, "member\n"), (&*own, "\n")], Condition::Lost),
    ] {
        let host = Host::new(&[]);
        let step = host.plan("1", &[]).unwrap().remove(0);
        make(&host.root(), &step).unwrap();
        for (file, content) in changes {
            fs::write(host.directory.path().join(file), content).unwrap();
        }
        assert_eq!(condition(&host.root(), &step), expected, "{changes:?}");
    }
    let host = Host::new(&[]);
    let step = host.plan("1", &[]).unwrap().remove(0);
    make(&host.root(), &step).unwrap();
    for file in [&own, &partition] {
        fs::remove_file(host.directory.path().join(file)).unwrap();
    }
    assert_eq!(condition(&host.root(), &step), Condition::Lost);
    fs::remove_dir_all(host.directory.path().join(SLICE)).unwrap();
    assert_eq!(condition(&host.root(), &step), Condition::Suspended);
}

#[test]
fn shrunk_v1_cpusets_are_restored_when_all_cpus_are_online() {
    let host = Host::new(&[]);
    let top = host.directory.path().join("cpuset");
    let (own, rest) = (top.join("tailbound-path"), top.join("tailbound-rest"));
    for set in [&own, &rest] {
        fs::create_dir_all(set).unwrap();
    }
    let step = PathStep::Sets {
        top,
        cpus: cpus("1"),
        rest: cpus("0,2-3"),
        balanced: true,
        daemon: Vec::new(),
    };
    for (of_path, of_rest, online, expected) in [
        ("1", "0,2-3", "0-3", Condition::InForce),
        ("", "0,2-3", "0,2-3", Condition::Suspended),
        ("", "0,2-3", "0-3", Condition::Lost),
        ("1", "0,2", "0-2", Condition::Suspended),
        ("1", "0-3", "0-3", Condition::Changed),
        ("2", "0,2-3", "0-3", Condition::Changed),
    ] {
        fs::write(own.join("cpuset.cpus"), of_path).unwrap();
        fs::write(rest.join("cpuset.cpus"), of_rest).unwrap();
        let file = host.directory.path().join("sys/devices/system/cpu/online");
        fs::write(file, online).unwrap();
        assert_eq!(
            condition(&host.root(), &step),
            expected,
            "{of_path} {of_rest}"
        );
    }
}

#[test]
fn cpus_that_the_path_takes_are_not_there_for_reservations() {
    use crate::plan::plan;
    use crate::testing::{Fake, desired, machine, periodic};
    use std::collections::BTreeMap;
    let kernel = Fake::new(1..=4);
    // 0.9 of each CPU: four of 0.75 fit four, not three.
    let guests: Vec<_> = (2..=4)
        .map(|tid| desired(tid, periodic(3500, 4000)))
        .collect();
    let wanted = [&guests[..], &[desired(1, Class::RealTime)]].concat();
    let observed = kernel.observe(machine());
    plan(&wanted, &observed, &BTreeMap::new()).unwrap();
    let mut without = observed.clone();
    without.set_aside(cpus("0-1"), &wanted);
    let refused = plan(&wanted, &without, &BTreeMap::new()).unwrap_err();
    assert!(
        refused[0].to_string().contains("reserved in 2-3"),
        "{refused:?}"
    );
    // On CPUs of its own no reservation goes before the loop.
    let held = |observed: &_| {
        let notes = plan(&wanted[2..], observed, &BTreeMap::new())
            .unwrap()
            .notes;
        notes.iter().any(|note| note.contains("go before it"))
    };
    let mut bound = observed;
    bound
        .threads
        .get_mut(&crate::testing::id(1))
        .unwrap()
        .state
        .cpus = cpus("0");
    assert!(held(&bound));
    assert!(!held(&without));
}
