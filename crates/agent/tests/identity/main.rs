//! Threads that get a class: those of guests with a trusted creator, not those with claims only;
//! and the control group that bears the weight. The hosts of these tests are directories with
//! made-up processes.

mod machine;
mod weighed;

use machine::{KTHREAD, Machine, Process, file, picked, qemu};
use std::fs;
use std::path::PathBuf;
use tailbound_agent::AgentConfig;
use tailbound_agent::cri::Pod;
use tailbound_agent::guest::Role;
use tailbound_units::Nanos;

const SCOPE: &str = r"/machine.slice/machine-qemu\x2d1\x2dweb1.scope";

const NOBODY: u32 = 65534;

#[test]
fn a_guest_name_claimed_by_another_user_matches_no_rule() {
    let named = "name = \"web*\"";
    for process in [
        // By its arguments, by its threads alone, and the real QEMU.
        qemu(40, NOBODY),
        Process {
            comm: "web1",
            arguments: &["web1", "-name", "web1"],
            threads: &["web1", "CPU 0/KVM"],
            ..qemu(40, NOBODY)
        },
        Process {
            comm: "firecracker",
            arguments: &["firecracker", "--id", "web1"],
            threads: &["fc_vcpu 0"],
            ..qemu(40, NOBODY)
        },
        // In groups that he can have made, named as managers name theirs.
        Process {
            group: r"/user.slice/machine.slice/machine-qemu\x2d1\x2dweb1.scope",
            ..qemu(40, NOBODY)
        },
        // Root of a container is not root.
        Process {
            nested: true,
            ..qemu(40, 0)
        },
    ] {
        let mut machine = Machine::new();
        machine.start(&process);
        let (pids, said) = machine.picked(named);
        assert_eq!(pids, [] as [u32; 0], "{said}");
        assert!(said.contains("does not count for it"), "{said}");
    }
    // Root's own does.
    let mut machine = Machine::new();
    machine.start(&qemu(40, 0));
    assert_eq!(machine.picked(named), (vec![40], String::new()));
}

#[test]
fn libvirts_scope_names_its_domain_despite_the_arguments() {
    let mut machine = Machine::new();
    let inside = format!("{SCOPE}/libvirt/emulator");
    machine.start(&Process {
        group: &inside,
        arguments: &["/usr/bin/qemu-system-x86_64", "-name", "guest=db"],
        ..qemu(40, 64055)
    });
    assert_eq!(machine.picked("name = \"web1\"").0, [40]);
    assert_eq!(machine.picked("name = \"db\"").0, [] as [u32; 0]);
    assert_eq!(machine.picked("name = \"web1\"\nuid = 64055").0, [40]);
    let (pids, said) = machine.picked("name = \"web1\"\nuid = 107");
    assert_eq!(pids, [] as [u32; 0]);
    assert!(said.contains("it runs as user 64055, not 107"), "{said}");
    // Of a domain's name the scope has less.
    assert_eq!(machine.picked("name = \"web_1\"").0, [40]);

    // One level that a user can change, and it proves nothing.
    for level in [SCOPE, "/machine.slice", "/"] {
        let level = format!("/sys/fs/cgroup{}", level.trim_end_matches('/'));
        machine.answers.unguarded = [PathBuf::from(&level)].into();
        let (pids, _) = machine.picked("name = \"web1\"");
        assert_eq!(pids, [] as [u32; 0], "{level}");
    }
}

const UUID: &str = "3f0c7ad2-9b1e-4c55-8d7a-444455556666";

/// A QEMU as libvirt starts it, of the domain with that number and name.
fn libvirts<'p>(pid: u32, group: &'p str, arguments: &'p [&'p str]) -> Process<'p> {
    Process {
        arguments,
        group,
        ..qemu(pid, 64055)
    }
}

#[test]
fn domains_with_ambiguous_group_names_are_picked_by_uuid() {
    let other = "aaaaaaaa-9b1e-4c55-8d7a-444455556666";
    let second = SCOPE.replace(r"2d1\x", r"2d2\x");
    let mut machine = Machine::new();
    machine.start(&libvirts(
        40,
        SCOPE,
        &["qemu-system-x86_64", "-name", "guest=web1", "-uuid", UUID],
    ));
    machine.start(&libvirts(
        50,
        &second,
        &["qemu-system-x86_64", "-name", "guest=web_1", "-uuid", other],
    ));
    let (pids, said) = machine.picked("name = \"web_1\"");
    assert_eq!(pids, [] as [u32; 0]);
    assert!(
        said.contains("the rule for \"web_1\" fits 2 guests (processes 40, 50)"),
        "{said}"
    );
    let advice = format!("pick each by its UUID: uuid = \"{UUID}\" (40), uuid = \"{other}\" (50)");
    assert!(said.contains(&advice), "{said}");
    let rule = |uuid: &str| machine.picked(&format!("uuid = \"{uuid}\""));
    assert_eq!(rule(UUID), (vec![40], String::new()));
    assert_eq!(rule(&other.to_uppercase()), (vec![50], String::new()));
    assert_eq!(
        rule("00000000-9b1e-4c55-8d7a-444455556666").0,
        [] as [u32; 0]
    );
    let of_user = |uid| machine.picked(&format!("uuid = \"{UUID}\"\nuid = {uid}")).0;
    assert_eq!(of_user(64055), [40]);
    assert_eq!(of_user(107), [] as [u32; 0]);
}

#[test]
fn a_uuid_or_vmid_claimed_by_another_user_matches_no_rule() {
    let arguments = ["kvm", "-id", "100", "-uuid", UUID];
    let claim = Process {
        arguments: &arguments,
        ..qemu(40, NOBODY)
    };
    let rules = [format!("uuid = \"{UUID}\""), "vmid = 100".to_owned()];
    for rule in &rules {
        for process in [
            claim.clone(),
            // In a group that he can have made, and in a container, where root is not root.
            Process {
                group: r"/user.slice/machine.slice/machine-qemu\x2d1\x2dweb1.scope",
                ..claim.clone()
            },
            Process {
                nested: true,
                uid: 0,
                ..claim.clone()
            },
            Process {
                group: "/kubepods/burstable/pod3f0c7ad2-1111-2222-3333-444455556666",
                uid: 0,
                ..claim.clone()
            },
        ] {
            let mut machine = Machine::new();
            let group = "/sys/fs/cgroup/user.slice";
            machine.answers.unguarded = [PathBuf::from(group)].into();
            machine.start(&process);
            let (pids, said) = machine.picked(rule);
            assert_eq!(pids, [] as [u32; 0], "{said}");
            assert!(said.contains("does not count for it"), "{said}");
        }
        // Root's own does, and that of the user that the rule names.
        let mut machine = Machine::new();
        machine.start(&Process {
            uid: 0,
            ..claim.clone()
        });
        assert_eq!(machine.picked(rule), (vec![40], String::new()));
        let mut machine = Machine::new();
        machine.start(&claim);
        assert_eq!(machine.picked(&format!("{rule}\nuid = {NOBODY}")).0, [40]);
        // Of two that claim it neither has it.
        machine.start(&Process {
            pid: 50,
            ..claim.clone()
        });
        let (pids, said) = machine.picked(&format!("{rule}\nuid = {NOBODY}"));
        assert_eq!(pids, [] as [u32; 0]);
        assert!(said.contains("fits 2 guests (processes 40, 50)"), "{said}");
    }
    // libvirt knows no VMIDs: who may define domains may also add arguments to its QEMU.
    let mut machine = Machine::new();
    machine.start(&libvirts(40, SCOPE, &arguments));
    assert_eq!(machine.picked(&rules[1]).0, [] as [u32; 0]);
}

#[test]
fn each_way_of_starting_a_guest_has_a_rule_that_works() {
    let uid = "3f0c7ad2-1111-2222-3333-444455556666";
    let pod = format!("/kubepods/burstable/pod{uid}");
    let container = format!("{pod}/{}", "4fa6".repeat(16));
    let session = "/user.slice/user-1000.slice/user@1000.service/app.slice/vm.scope";
    let mut machine = Machine::new();
    let own = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service";
    machine.answers.unguarded = [PathBuf::from(own)].into();
    let firecracker = Process {
        comm: "firecracker",
        arguments: &["/firecracker", "--id", "fn-42"],
        group: "/firecracker/fn-42",
        threads: &["firecracker", "fc_api", "fc_vcpu 0"],
        ..qemu(200, 123)
    };
    for process in [
        Process {
            group: SCOPE,
            ..qemu(100, 64055)
        },
        Process {
            group: "/machine/qemu-2-web2.libvirt-qemu/libvirt/vcpu0",
            ..qemu(110, 64055)
        },
        firecracker,
        Process {
            group: &container,
            nested: true,
            ..qemu(300, 107)
        },
        Process {
            comm: "virt-launcher",
            arguments: &["/usr/bin/virt-launcher"],
            group: &pod,
            nested: true,
            threads: &["virt-launcher"],
            ..qemu(310, 107)
        },
        Process {
            group: session,
            arguments: &["qemu-kvm", "-name", "mine"],
            ..qemu(400, 1000)
        },
    ] {
        machine.start(&process);
    }
    for (rule, pid) in [
        ("name = \"web1\"", 100),
        ("name = \"web1\"\nuid = 64055", 100),
        ("name = \"web2\"", 110),
        ("name = \"fn-42\"\nuid = 123", 200),
        ("cgroup = \"/firecracker/fn-42\"", 200),
        (&format!("pod = \"{uid}\""), 300),
        ("container = \"4fa6\"", 300),
        ("name = \"mine\"\nuid = 1000", 400),
        (&format!("cgroup = \"{session}\"\nuid = 1000"), 400),
    ] {
        assert_eq!(machine.picked(rule), (vec![pid], String::new()), "{rule}");
    }
    let (pids, said) = machine.picked(&format!("cgroup = \"{session}\""));
    assert_eq!(pids, [] as [u32; 0]);
    assert!(said.contains("an ordinary user can create"), "{said}");
    assert_eq!(
        machine.picked("cgroup = \"/firecracker\"\nuid = 1").0,
        [] as [u32; 0]
    );
}

#[test]
fn fake_containers_match_no_rule_and_ambiguous_ids_are_refused() {
    let made_up = format!(
        "/user.slice/user@1000.service/docker-{}.scope",
        "4fa6".repeat(16)
    );
    let real = format!("/system.slice/docker-{}{}.scope", "4fa6".repeat(15), "beef");
    let other = format!("/system.slice/docker-{}{}.scope", "4fa6".repeat(15), "dead");
    let mut machine = Machine::new();
    let own = "/sys/fs/cgroup/user.slice/user@1000.service";
    machine.answers.unguarded = [PathBuf::from(own)].into();
    machine.start(&Process {
        group: &made_up,
        ..qemu(40, 1000)
    });
    let rule = "container = \"4fa6\"";
    assert_eq!(machine.picked(rule).0, [] as [u32; 0]);
    machine.start(&Process {
        group: &real,
        ..qemu(50, 0)
    });
    assert_eq!(machine.picked(rule).0, [50]);
    machine.start(&Process {
        group: &other,
        ..qemu(60, 0)
    });
    let (pids, said) = machine.picked(rule);
    assert_eq!(pids, [] as [u32; 0]);
    assert!(
        said.contains("fits 2 containers (4fa64fa64fa6, 4fa64fa64fa6)")
            || said.contains("use more digits"),
        "{said}"
    );
}

#[test]
fn a_name_that_fits_several_guests_picks_none_of_them() {
    let mut machine = Machine::new();
    machine.start(&qemu(40, 0));
    machine.start(&Process {
        group: SCOPE,
        ..qemu(50, 64055)
    });
    let (pids, said) = machine.picked("name = \"web1\"");
    assert_eq!(pids, [] as [u32; 0]);
    assert!(said.contains("fits 2 guests (processes 40, 50)"), "{said}");
    assert_eq!(machine.picked("name = \"web1\"\nuid = 64055").0, [50]);
    assert_eq!(machine.picked("name = \"web1*\"").0, [40, 50]);
}

#[test]
fn an_exe_rule_matches_by_inode_and_still_needs_the_uid() {
    let mut machine = Machine::new();
    machine.start(&qemu(40, 1000));
    machine.start(&qemu(50, NOBODY));
    let path = "/usr/bin/qemu-system-x86_64";
    machine.answers.files.insert(path.into(), file(7));
    machine.answers.runs = [(40, file(7)), (50, file(7))].into();
    let narrow = |uid: &str| format!("name = \"web1\"\nexe = \"{path}\"{uid}");
    // The real one, run by somebody else.
    assert_eq!(machine.picked(&narrow("")).0, [] as [u32; 0]);
    assert_eq!(machine.picked(&narrow("\nuid = 1000")).0, [40]);
    // The right user, and another file below that name: a bind mount, or one that cannot
    // be looked at.
    machine.answers.runs.insert(40, file(8));
    let (pids, said) = machine.picked(&narrow("\nuid = 1000"));
    assert_eq!(pids, [] as [u32; 0]);
    assert!(said.contains("exe"), "{said}");
    machine.answers.runs.clear();
    assert_eq!(machine.picked(&narrow("\nuid = 1000")).0, [] as [u32; 0]);
}

#[test]
fn a_reused_pid_matches_no_pid_rule() {
    let mut machine = Machine::new();
    machine.start(&qemu(40, 0));
    let mut scanner = machine.scanner();
    assert_eq!(picked(&mut scanner, "pid = 40").0, [40]);
    // It ends; then another process has its number.
    fs::remove_dir_all(machine.directory.path().join("proc/40")).unwrap();
    assert_eq!(picked(&mut scanner, "pid = 40").0, [] as [u32; 0]);
    machine.start(&Process {
        start: 900,
        ..qemu(40, 0)
    });
    let (pids, said) = picked(&mut scanner, "pid = 40");
    assert_eq!(pids, [] as [u32; 0]);
    assert!(
        said.contains("its number is another process's now"),
        "{said}"
    );
    // Whoever takes the rule out and puts it in again means the new one.
    picked(&mut scanner, "pid = 41");
    assert_eq!(picked(&mut scanner, "pid = 40").0, [40]);
}

#[test]
fn only_the_kernels_own_threads_are_a_guests_vhost() {
    let mut machine = Machine::new();
    machine.start(&Process {
        group: SCOPE,
        ..qemu(40, 64055)
    });
    let vhost = Process {
        comm: "vhost-40",
        arguments: &[],
        group: "/",
        threads: &["vhost-40"],
        ..qemu(50, 0)
    };
    machine.start(&Process {
        flags: KTHREAD | 0x8040,
        ..vhost.clone()
    });
    // Anybody can call himself so; and another at the same.
    machine.start(&Process {
        pid: 60,
        uid: NOBODY,
        arguments: &["vhost-40"],
        ..vhost.clone()
    });
    machine.start(&Process {
        pid: 70,
        arguments: &[],
        ..vhost
    });
    let guests = machine.scanner().scan(&[]).unwrap();
    let vhosts = guests
        .iter()
        .flat_map(|guest| &guest.threads)
        .filter(|t| t.role == Role::Vhost);
    assert_eq!(vhosts.map(|thread| thread.id.pid).collect::<Vec<_>>(), [50]);
}

#[test]
fn check_config_in_the_daemons_unit_is_no_packet_loop() {
    let mut machine = Machine::new();
    let daemon = Process {
        comm: "tailbound-loop",
        arguments: &["/usr/bin/tailbound", "host", "--config", "host.toml"],
        group: "/tailbound.slice/tailbound-host.service",
        threads: &["tailbound-loop", "tailbound-loop", "metrics"],
        ..qemu(40, 0)
    };
    machine.start(&daemon);
    // By ExecReload of the unit: of one control group, and of one executable.
    machine.start(&Process {
        pid: 30,
        comm: "tailbound",
        arguments: &["/usr/bin/tailbound", "check-config", "host.toml"],
        threads: &["tailbound"],
        ..daemon
    });
    let rules = AgentConfig::parse("[path]\n").unwrap().rules;
    let guests = machine.scanner().scan(&rules).unwrap();
    let [path] = &guests[..] else {
        panic!("{guests:?}");
    };
    let loops: Vec<_> = path
        .threads
        .iter()
        .filter(|thread| thread.role == Role::PacketLoop)
        .map(|thread| thread.id.tid)
        .collect();
    assert_eq!((loops, path.threads.len()), (vec![40], 4));
}

#[test]
fn no_name_of_a_process_or_thread_reaches_a_terminal_as_it_is() {
    let mut machine = Machine::new();
    machine.start(&Process {
        arguments: &["qemu-kvm", "-name", "a\x1b]0;x\x07\nweb1  vcpu 0  forged"],
        threads: &["qemu-kvm", "CPU 0/KVM", "\x1b[2J\nroot"],
        ..qemu(40, NOBODY)
    });
    let guests = machine.scanner().scan(&[]).unwrap();
    let shown = format!("{guests:?}");
    let threads = guests[0].threads.iter().map(|thread| thread.name.as_str());
    let mut names = threads.chain([guests[0].name.as_str()]);
    assert!(
        !names.any(|name| name.chars().any(char::is_control)),
        "{shown}"
    );
}

#[test]
fn a_pod_has_its_runtimes_name_and_is_picked_by_its_uid() {
    let uid = "3f0c7ad2-1111-2222-3333-444455556666";
    let group = format!("/kubepods/burstable/pod{uid}/{}", "4fa6".repeat(16));
    let mut machine = Machine::new();
    machine.start(&Process {
        group: &group,
        nested: true,
        ..qemu(300, 107)
    });
    let rule = |text: &str| {
        let config = format!("[[guest]]\n{text}\nlevel = \"top\"\n");
        tailbound_agent::AgentConfig::parse(&config).unwrap().rules
    };
    let seen = |machine: &Machine, text: &str| {
        let mut scanner = machine.scanner();
        let guests = scanner.scan(&rule(text)).unwrap();
        let [guest] = guests.as_slice() else {
            panic!("{guests:?}")
        };
        let missing = scanner.missing_names().is_some();
        (guest.name.clone(), guest.rule.is_some(), missing)
    };
    let by_uid = format!("pod = \"{uid}\"");
    let own = format!("pod-{uid}");
    assert_eq!(seen(&machine, &by_uid), (own.clone(), true, true));
    let called = |uid: &str, name: &str| Pod {
        uid: uid.to_owned(),
        namespace: "tenant".to_owned(),
        name: name.to_owned(),
    };
    machine.answers.pods = Some(vec![
        called("other", "web"),
        called(uid, "virt-launcher-web"),
    ]);
    let shown = "tenant/virt-launcher-web".to_owned();
    assert_eq!(seen(&machine, &by_uid), (shown.clone(), true, false));
    assert_eq!(
        seen(&machine, &format!("name = \"{own}\"")),
        (shown.clone(), true, false)
    );
    // A name in the cluster is no rule's, and a label stays.
    assert_eq!(
        seen(&machine, &format!("name = \"{shown}\"")),
        (shown, false, false)
    );
    let labelled = format!("{by_uid}\nlabel = \"mine\"");
    assert_eq!(seen(&machine, &labelled), ("mine".to_owned(), true, false));
    machine.answers.pods = Some(vec![called(uid, "\x1b[2Jroot")]);
    let escaped = r"tenant/\u{1b}[2Jroot".to_owned();
    assert_eq!(seen(&machine, &by_uid), (escaped, true, false));
}

/// A wrapper's name hides QEMU's, so the names of threads alone show a guest.
fn kvm(threads: &'static [&'static str]) -> Process<'static> {
    Process {
        comm: "kvm",
        arguments: &["kvm", "-name", "web1,debug-threads=on"],
        threads,
        ..qemu(40, 0)
    }
}

#[test]
fn a_late_guest_is_found_when_its_vcpus_start() {
    let mut machine = Machine::new();
    // Its guest's memory is allocated first.
    machine.start(&kvm(&["kvm"]));
    let mut scanner = machine.scanner();
    let mut found = |milliseconds| {
        let guests = scanner.scan_at(Nanos::from_millis(milliseconds), &[]);
        guests.unwrap().len()
    };
    for milliseconds in [0, 500, 1_000, 2_900] {
        assert_eq!(found(milliseconds), 0);
    }
    machine.start(&kvm(&["kvm", "CPU 0/KVM", "CPU 1/KVM"]));
    assert_eq!(found(3_000), 1);
    assert_eq!(found(3_100), 1);
}

#[test]
fn a_thread_scanned_before_it_is_named_is_found_within_a_second() {
    let mut machine = Machine::new();
    machine.start(&kvm(&["kvm"]));
    let mut scanner = machine.scanner();
    let mut found = |milliseconds| {
        let guests = scanner.scan_at(Nanos::from_millis(milliseconds), &[]);
        guests.unwrap().len()
    };
    assert_eq!(found(0), 0);
    machine.start(&kvm(&["kvm", "kvm"]));
    assert_eq!(found(90_000), 0);
    machine.start(&kvm(&["kvm", "CPU 0/KVM"]));
    assert_eq!(found(91_000), 1);
}
