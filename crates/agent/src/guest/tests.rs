use super::*;
use proptest::prelude::*;
use tailbound_sys::cgroup::parse_groups;

fn process(name: &str, arguments: &[&str], threads: &[&str]) -> Process {
    Process {
        pid: 40,
        name: name.to_owned(),
        arguments: arguments.iter().map(ToString::to_string).collect(),
        groups: Groups::default(),
        threads: (40..)
            .zip(threads)
            .map(|(tid, name)| NamedThread {
                id: ThreadId {
                    pid: 40,
                    tid,
                    start: 7,
                },
                name: (*name).to_owned(),
            })
            .collect(),
    }
}

fn roles(guest: &Guest) -> Vec<Role> {
    guest.threads.iter().map(|thread| thread.role).collect()
}

#[test]
fn a_qemu_guest_is_its_vcpus_iothreads_vhosts_and_the_rest() {
    let threads = [
        "qemu-system-x86",
        "CPU 0/KVM",
        "CPU 11/TCG",
        "IO iothread1",
        "vhost-40",
        "worker",
    ];
    let arguments = [
        "/usr/bin/qemu-system-x86_64",
        "-name",
        "guest=web,,1,debug-threads=on",
    ];
    let guest = recognise(&process("qemu-system-x86", &arguments, &threads)).unwrap();
    assert_eq!(guest.name, "web,1");
    assert_eq!(
        roles(&guest),
        [
            Role::Emulator,
            Role::Vcpu(0),
            Role::Vcpu(11),
            Role::Io,
            Role::Vhost,
            Role::Emulator
        ]
    );
}

#[test]
fn names_come_from_the_command_line_or_libvirts_scope() {
    let cases: [(&[&str], &str); 3] = [
        (&["qemu-kvm", "-name", "db"], "db"),
        (&["qemu-kvm", "-name", "debug-threads=on"], "a-b"),
        (&["qemu-kvm"], "a-b"),
    ];
    for (arguments, name) in cases {
        let mut seen = process("qemu-kvm", arguments, &[]);
        seen.groups =
            parse_groups("0::/machine.slice/machine-qemu\\x2d3\\x2da\\x2db.scope/libvirt/emulator");
        assert_eq!(recognise(&seen).unwrap().name, name, "{arguments:?}");
    }
}

#[test]
fn micro_vms_are_known_by_their_threads() {
    let fc = process(
        "firecracker",
        &["/firecracker", "--id", "vm-7", "--api-sock", "/x"],
        &["firecracker", "fc_api", "fc_vcpu 0", "fc_vcpu 1"],
    );
    let guest = recognise(&fc).unwrap();
    assert_eq!((guest.name.as_str(), guest.vmm), ("vm-7", Vmm::Firecracker));
    assert_eq!(roles(&guest)[2..], [Role::Vcpu(0), Role::Vcpu(1)]);

    let ch = process(
        "cloud-hyperviso",
        &["cloud-hypervisor", "--api-socket", "path=/run/ch/db.sock"],
        &["cloud-hyperviso", "vmm", "vcpu0", "_net0_qp0", "vcpux"],
    );
    let guest = recognise(&ch).unwrap();
    assert_eq!(guest.name, "db");
    assert_eq!(
        roles(&guest),
        [
            Role::Emulator,
            Role::Emulator,
            Role::Vcpu(0),
            Role::Io,
            Role::Emulator
        ]
    );
}

#[test]
fn tools_and_other_programs_are_no_guests() {
    for name in ["qemu-img", "qemu-nbd", "qemu-ga", "bash", "vcpu0"] {
        assert_eq!(recognise(&process(name, &[name], &[name])), None, "{name}");
    }
}

#[test]
fn the_qmp_socket_is_found_in_both_ways_to_write_it() {
    let cases: [(&[&str], Option<&str>); 4] = [
        (
            &["q", "-qmp", "unix:/run/a.sock,server=on,wait=off"],
            Some("/run/a.sock"),
        ),
        (
            &[
                "q",
                "-chardev",
                "socket,id=m,path=/run/b,server=on",
                "-mon",
                "chardev=m,mode=control",
            ],
            Some("/run/b"),
        ),
        (
            &[
                "q",
                "-chardev",
                "socket,id=m,path=/run/b",
                "-mon",
                "chardev=m",
            ],
            None,
        ),
        (&["q", "-qmp", "stdio"], None),
    ];
    for (arguments, socket) in cases {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        assert_eq!(qmp_socket(&arguments), socket.map(PathBuf::from));
    }
}

#[test]
fn containers_are_known_by_their_groups() {
    let id = "4fa6".repeat(16);
    for path in [
        format!("/docker/{id}"),
        format!("/system.slice/docker-{id}.scope"),
        format!("/kubepods/besteffort/podb3c5/{id}"),
        format!("/kubepods.slice/kubepods-podb3.slice/cri-containerd-{id}.scope"),
        format!("/machine.slice/libpod-{id}.scope"),
        format!("/system.slice/x.service:cri-containerd:{id}"),
    ] {
        assert_eq!(container(&path), Some((id.as_str(), path.as_str())));
        let inside = format!("{path}/init.scope");
        assert_eq!(own_group(&inside), Some(path.as_str()));
    }
    assert_eq!(container("/user.slice/session-3.scope"), None);
}

#[test]
fn libvirts_scope_is_the_guests_own_group() {
    let scope = r"/machine.slice/machine-qemu\x2d1\x2dvm.scope";
    assert_eq!(own_group(&format!("{scope}/libvirt/vcpu0")), Some(scope));
    assert_eq!(own_group("/machine.slice"), None);
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, name, fits) in [
        ("web", "web", true),
        ("web", "web1", false),
        ("web*", "web", true),
        ("*1", "web1", true),
        ("w*b*1", "web-1", true),
        ("a*a", "a", false),
        ("*", "", true),
    ] {
        assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
    }
}

proptest! {
    #[test]
    fn no_process_makes_recognition_panic(
        name in "(qemu-system-|firecracker|CPU |vcpu)?[ -~]{0,8}",
        arguments in prop::collection::vec("(-name|-qmp|--id|-mon|-chardev|unix:|guest=)?[ -~]{0,12}", 0..6),
        group in "/(machine-qemu)?[\\\\x2d0-9a-zé./]{0,40}",
    ) {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut seen = process(&name, &arguments, &[&name]);
        seen.groups = parse_groups(&format!("0::{group}"));
        let _ = recognise(&seen);
        let _ = own_group(&group);
        let _ = matches(&name, &group);
    }
}
