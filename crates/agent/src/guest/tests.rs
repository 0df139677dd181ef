use super::*;
use proptest::prelude::*;

fn process(name: &str, arguments: &[&str], threads: &[&str]) -> Process {
    Process {
        pid: 40,
        name: name.to_owned(),
        arguments: arguments.iter().map(ToString::to_string).collect(),
        groups: Groups::default(),
        origin: Origin {
            uid: Some(1000),
            own: false,
            nested: false,
            place: None,
        },
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
fn a_managers_name_counts_before_the_command_lines() {
    let scope = Some("evil");
    let cases: [(&[&str], Option<&str>, &str); 5] = [
        (&["qemu-kvm", "-name", "db"], None, "db"),
        (
            &["qemu-kvm", "-name", "debug-threads=on"],
            None,
            "qemu-kvm-40",
        ),
        (&["qemu-kvm"], None, "qemu-kvm-40"),
        (&["qemu-kvm", "-name", "web1"], scope, "evil"),
        (
            &["qemu-kvm", "-name", "e\x1b[2Jvil\n"],
            None,
            r"e\u{1b}[2Jvil\u{a}",
        ),
    ];
    for (arguments, domain, name) in cases {
        let mut seen = process("qemu-kvm", arguments, &[]);
        let path = "/machine.slice/x.scope".to_owned();
        seen.origin.place = domain.map(|domain| (Manager::Libvirt(domain.into()), path));
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
fn libvirts_uuid_and_proxmoxs_number_stand_on_the_command_line() {
    let found = |arguments: &[&str]| {
        let guest = recognise(&process("kvm", arguments, &["kvm", "CPU 0/KVM"])).unwrap();
        let uuid = guest.uuid.map(|uuid| uuid.to_string());
        (uuid, guest.vmid.map(|vmid| vmid.to_string()))
    };
    let uuid = "3f0c7ad2-9b1e-4c55-8d7a-444455556666";
    let upper = uuid.to_uppercase();
    let libvirt = ["qemu-system-x86_64", "-name", "guest=web", "-uuid", &upper];
    assert_eq!(found(&libvirt), (Some(uuid.to_owned()), None));
    let proxmox = [
        "/usr/bin/kvm",
        "-id",
        "100",
        "-name",
        "web,debug-threads=on",
    ];
    assert_eq!(found(&proxmox), (None, Some("100".to_owned())));
    assert_eq!(found(&["kvm", "-uuid", "web", "-id", "7"]), (None, None));
    assert_eq!(found(&["kvm", "-uuid"]), (None, None));
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
        pattern in "[*a-z]{0,9}",
    ) {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let seen = process(&name, &arguments, &[&name]);
        let _ = recognise(&seen);
        let _ = matches(&pattern, &name);
    }
}
