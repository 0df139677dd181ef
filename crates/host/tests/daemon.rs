//! The daemon as a process, on real interfaces.

mod support;

use rustix::process::Signal;
use std::io::IoSliceMut;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;
use support::{
    Daemon, Guest, Kind, METRICS, Nic, command, datagram, datagram_of, kinds, plugged_in,
    sandboxed, until,
};
use tailbound_dataplane::Mark;
use tailbound_otlp::testing::{attribute, collector, number};
use tailbound_sys::cpuset::Cpus;
use tailbound_sys::probe::required::{Part, skipped};
use tailbound_sys::process::Spawn;
use tailbound_sys::tap::Tap;
use tailbound_sys::{sched, thread};
use tailbound_units::Nanos;

/// Not a test of its own: the process of the daemons below.
#[test]
fn daemon_process() {
    support::daemon_process();
}

fn config(guests: &[&Guest], rest: &str) -> String {
    let sections: String = guests.iter().map(|guest| guest.section()).collect();
    format!("metrics = {METRICS:?}\n{rest}\n{sections}")
}

#[test]
fn guests_reach_each_other_and_spoofed_frames_are_dropped() {
    sandboxed(
        "guests_reach_each_other_and_spoofed_frames_are_dropped",
        || {
            for kind in kinds() {
                let (a, b) = (Guest::new(kind, 1), Guest::new(kind, 2));
                let daemon = Daemon::start(&config(&[&a, &b], ""));
                let (mut nic_a, mut nic_b) = (a.nic(), b.nic());
                let spoofed = datagram_of(b.mac, a.mac, [10, 77, 0, 9], 1);
                nic_a.send(&spoofed);
                nic_a.send(&datagram(&b, &a, 2));
                let mut seen = Vec::new();
                until("the honest frame", || {
                    seen.extend(nic_b.receive().iter().map(|packet| packet.bytes().to_vec()));
                    seen.contains(&datagram(&b, &a, 2))
                });
                assert!(!seen.contains(&spoofed));
                let drops = "tailbound_drops_total{port=\"g1\",reason=\"spoofed_ip\"}";
                assert!(daemon.metric(drops) >= Some(1.0), "{}", daemon.log());
                nic_b.send(&datagram(&a, &b, 3));
                nic_a.expect(&datagram(&a, &b, 3));
            }
        },
    );
}

#[test]
fn a_vlan_tag_crosses_from_a_guest_that_may_send_it() {
    sandboxed("a_vlan_tag_crosses_from_a_guest_that_may_send_it", || {
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        let guarded = a.section();
        let free = format!("{guarded}anti_spoofing = false\n");
        let daemon = Daemon::start(&config(&[&a, &b], "").replace(&guarded, &free));
        let (mut nic_a, mut nic_b) = (a.nic(), b.nic());
        let frame = datagram(&b, &a, 1);
        let tag = [0x81, 0x00, 0xa0, 0x07];
        nic_a.send(&[&frame[..12], &tag, &frame[12..]].concat());
        until("the tagged frame", || {
            nic_b.receive();
            nic_b.tags.contains(&tag)
        });
        daemon.configure(&config(&[&a, &b], ""));
        until("the reload", || {
            daemon.metric("tailbound_reloads_total{result=\"applied\"}") == Some(1.0)
        });
        nic_a.send(&[&frame[..12], &tag, &frame[12..]].concat());
        let drops = "tailbound_drops_total{port=\"g1\",reason=\"vlan_tag\"}";
        until("the drop", || daemon.metric(drops) == Some(1.0));
    });
}

#[test]
fn a_port_that_a_reload_closed_can_be_opened_by_the_next_one() {
    let name = "a_port_that_a_reload_closed_can_be_opened_by_the_next_one";
    sandboxed(name, || {
        for kind in kinds() {
            let (a, b) = (Guest::new(kind, 1), Guest::new(kind, 2));
            let daemon = Daemon::start(&config(&[&a, &b], ""));
            for n in 1..=10 {
                // Each as soon as the one before is done.
                let guests = if n % 2 == 0 { vec![&a, &b] } else { vec![&a] };
                daemon.configure(&config(&guests, ""));
                until("the reload", || {
                    let refused = "tailbound_reloads_total{result=\"refused\"}";
                    assert_eq!(daemon.metric(refused), Some(0.0));
                    let applied = "tailbound_reloads_total{result=\"applied\"}";
                    daemon.metric(applied) == Some(f64::from(n))
                });
            }
        }
    });
}

#[test]
fn a_reload_is_applied_whole_or_not_at_all() {
    sandboxed("a_reload_is_applied_whole_or_not_at_all", || {
        for kind in kinds() {
            let (a, b, c) = (
                Guest::new(kind, 1),
                Guest::new(kind, 2),
                Guest::new(kind, 3),
            );
            let daemon = Daemon::start(&config(&[&a, &b], ""));
            let (mut nic_a, mut nic_b) = (a.nic(), b.nic());
            let reloads = |result: &str| {
                daemon.metric(&format!("tailbound_reloads_total{{result={result:?}}}"))
            };
            // A wrong one: guest c is new and right, guest a is not.
            let wrong = config(&[&a, &b, &c], "").replacen("10.77.0.1", "10.77.0.300", 1);
            daemon.configure(&wrong);
            until("the refusal", || reloads("refused") == Some(1.0));
            assert_eq!(daemon.metric("tailbound_port_up{port=\"g3\"}"), None);
            nic_a.send(&datagram(&b, &a, 1));
            nic_b.expect(&datagram(&b, &a, 1));
            // One whose port cannot be opened.
            let missing = "[uplink]\nport = { kind = \"af-packet\", interface = \"nowhere\" }\n";
            daemon.configure(&config(&[&a, &b, &c], missing));
            until("the refusal", || reloads("refused") == Some(2.0));
            assert_eq!(daemon.metric("tailbound_port_up{port=\"g3\"}"), None);
            // A right one; the counters of those that stay go on.
            daemon.configure(&config(&[&c, &a], ""));
            until("the reload", || reloads("applied") == Some(1.0));
            let mut nic_c = c.nic();
            nic_a.send(&datagram(&c, &a, 2));
            nic_c.expect(&datagram(&c, &a, 2));
            let received = "tailbound_packets_total{port=\"g1\",direction=\"received\"}";
            assert!(daemon.metric(received) >= Some(2.0));
            assert_eq!(daemon.metric("tailbound_port_up{port=\"g2\"}"), None);
        }
    });
}

#[test]
fn a_collector_receives_metrics_until_a_reload_ends_it() {
    sandboxed(
        "a_collector_receives_metrics_until_a_reload_ends_it",
        || {
            let (endpoint, requests) = collector(&[]);
            let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
            let told = format!("otlp = {endpoint:?}");
            let daemon = Daemon::start(&config(&[&a, &b], &told));
            a.nic().send(&datagram(&b, &a, 1));
            // Some fifteen seconds apart.
            let patience = std::time::Duration::from_mins(2);
            let request = requests.recv_timeout(patience).expect("it is told");
            let name = attribute(&request.resource, "service.name");
            assert_eq!(name.as_deref(), Some("tailbound-host"));
            let points = request.points("tailbound_packets");
            assert!(points.iter().any(|point| {
                let label = |name| attribute(&point.attributes, name);
                label("port").as_deref() == Some("g1")
                    && label("direction").as_deref() == Some("received")
                    && number(point) >= 1.0
            }));

            daemon.configure(&config(&[&a, &b], ""));
            until("the reload", || {
                daemon.metric("tailbound_reloads_total{result=\"applied\"}") == Some(1.0)
            });
            // What it has still to tell comes before it goes, and then nobody has the address.
            until("nobody tells any more", || {
                !daemon.threads().contains(&"otlp".to_owned())
            });
            daemon.configure(&config(&[&a, &b], "otlp = \"localhost:4318\""));
            until("the refusal", || {
                daemon.metric("tailbound_reloads_total{result=\"refused\"}") == Some(1.0)
            });
        },
    );
}

#[test]
fn an_interface_that_vanishes_is_reported_and_taken_up_again() {
    sandboxed(
        "an_interface_that_vanishes_is_reported_and_taken_up_again",
        || {
            for kind in kinds() {
                let (a, b, c) = (
                    Guest::new(kind, 1),
                    Guest::new(kind, 2),
                    Guest::new(kind, 3),
                );
                let daemon = Daemon::start(&config(&[&a, &b, &c], ""));
                let (mut nic_a, mut nic_c) = (a.nic(), c.nic());
                b.unplug();
                let up = "tailbound_port_up{port=\"g2\"}";
                if kind == Kind::Veth {
                    until("the loss", || daemon.metric(up) == Some(0.0));
                    nic_a.send(&datagram(&c, &a, 1));
                    nic_c.expect(&datagram(&c, &a, 1));
                    b.plug();
                }
                // The daemon itself creates a TAP anew.
                until("the return", || daemon.metric(up) == Some(1.0));
                let mut nic_b = b.nic();
                until("frames for the one that returned", || {
                    nic_a.send(&datagram(&b, &a, 2));
                    nic_b
                        .receive()
                        .iter()
                        .any(|packet| packet.bytes() == datagram(&b, &a, 2))
                });
                nic_a.send(&datagram(&c, &a, 3));
                nic_c.expect(&datagram(&c, &a, 3));
            }
        },
    );
}

/// A VM's monitor holds the file side of a TAP, and is stopped for some time.
#[test]
fn frames_that_a_vm_behind_a_tap_does_not_take_are_counted() {
    let name = "frames_that_a_vm_behind_a_tap_does_not_take_are_counted";
    sandboxed(name, || {
        let vm = match Tap::open("vm0", None) {
            Ok(vm) => vm,
            Err(error) => return skipped(Part::Tap, error),
        };
        command("ip", &["link", "set", "vm0", "addrgenmode", "none", "up"]);
        let section = "[[guest]]\nname = \"vm\"\nmac = \"02:00:00:00:00:07\"\n\
                       ip = [\"10.77.0.7\"]\n";
        let on = |kind: &str, more: &str| {
            format!("{section}port = {{ kind = \"{kind}\", interface = \"vm0\"{more} }}\n")
        };
        let a = Guest::new(Kind::Veth, 1);
        let mut refused = Daemon::spawn(&config(&[&a], &on("tap", "")));
        refused.wait();
        assert!(
            refused.log().contains("kind \"vhost-user\""),
            "{}",
            refused.log()
        );
        let shorter = on("af-packet", ", txqueuelen = 100");
        let daemon = Daemon::start(&config(&[&a], &shorter));
        let shown = Command::new("ip").args(["link", "show", "vm0"]).output();
        let shown = shown.expect("it was there a moment ago").stdout;
        assert!(String::from_utf8_lossy(&shown).contains("qlen 100"));
        let mut nic = a.nic();
        let frames = 1000;
        for n in 0..frames {
            nic.send(&datagram_of([2, 0, 0, 0, 0, 7], a.mac, [10, 77, 0, 1], n));
        }
        let metric = |name: &str| daemon.metric(name).unwrap_or_default();
        let refused = || metric("tailbound_drops_total{port=\"vm\",reason=\"device_full\"}");
        let sent = || metric("tailbound_packets_total{port=\"vm\",direction=\"sent\"}");
        until("all frames to be away", || {
            sent() + refused() >= f64::from(frames)
        });
        let mut buffer = [0; 2048];
        let mut taken = 0;
        while let Ok(len) = vm.receive(&mut [IoSliceMut::new(&mut buffer)]) {
            taken += u16::from(len == 10 + 60 && buffer[10..16] == [2, 0, 0, 0, 0, 7]);
        }
        assert!(taken < frames, "its queue holds {taken}");
        // The kernel's own count is read now and then.
        until("what the machine did not get to be counted", || {
            let dropped = metric("tailbound_interface_drops_total{port=\"vm\"}");
            dropped + refused() >= f64::from(frames - taken)
        });
    });
}

#[test]
fn sigterm_drains_queued_frames_and_exits_with_0() {
    sandboxed("sigterm_drains_queued_frames_and_exits_with_0", || {
        let a = Guest::new(Kind::Veth, 1);
        command(
            "ip",
            &["link", "add", "up0", "type", "veth", "peer", "name", "far0"],
        );
        command("ip", &["link", "set", "up0", "up"]);
        command("ip", &["link", "set", "far0", "up"]);
        plugged_in("up0", None);
        // 100 frames of 60 bytes at 400 kbit/s: 120 ms, minus the burst at the start.
        let uplink = "[uplink]\nport = { kind = \"af-packet\", interface = \"up0\" }\n\
                      pipeline = { nic = { rate = \"400kbit/s\", limit = \"1514B\" } }\n";
        let mut daemon = Daemon::start(&config(&[&a], uplink));
        let mut far = Nic::open("far0", None);
        let mut nic = a.nic();
        let stranger = [2, 9, 9, 9, 9, 9];
        for n in 0..100 {
            nic.send(&datagram_of(stranger, a.mac, [10, 77, 0, 1], n));
        }
        let received = "tailbound_packets_total{port=\"g1\",direction=\"received\"}";
        until("the daemon to have them", || {
            daemon.metric(received) >= Some(100.0)
        });
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success(), "{}", daemon.log());
        let mut seen = 0;
        until("all frames", || {
            let came = far.receive();
            seen += came
                .iter()
                .filter(|packet| packet.destination_mac() == stranger)
                .count();
            seen == 100
        });
    });
}

#[test]
fn a_port_that_is_missing_at_the_start_is_named_and_nothing_starts() {
    sandboxed(
        "a_port_that_is_missing_at_the_start_is_named_and_nothing_starts",
        || {
            let a = Guest::new(Kind::Veth, 1);
            let uplink = "[uplink]\nport = { kind = \"af-packet\", interface = \"nowhere\" }\n";
            let mut daemon = Daemon::spawn(&config(&[&a], uplink));
            assert_eq!(daemon.wait().code(), Some(1));
            let log = daemon.log();
            assert!(
                log.contains("port uplink") && log.contains("no interface \"nowhere\""),
                "{log}"
            );
            command("ip", &["link", "set", "g1", "down"]);
            let mut daemon = Daemon::spawn(&config(&[&a], ""));
            assert_eq!(daemon.wait().code(), Some(1));
            assert!(
                daemon.log().contains("ip link set g1 up"),
                "{}",
                daemon.log()
            );
        },
    );
}

#[test]
fn a_tap_of_another_process_is_busy() {
    sandboxed("a_tap_of_another_process_is_busy", || {
        if !kinds().contains(&Kind::Tap) {
            return;
        }
        let first = tailbound_sys::tap::Tap::open("tap0", None).expect("it is free");
        let error = tailbound_sys::tap::Tap::open("tap0", None).expect_err("it is taken");
        assert!(
            matches!(error, tailbound_sys::tap::TapError::Busy { .. }),
            "{error}"
        );
        // Most often it is a machine's, which is not to be ended for that.
        let said = error.to_string();
        assert!(said.contains("vhost-user"), "{said}");
        assert!(said.contains("machine's monitor"), "{said}");
        drop(first);
        command("ip", &["link", "add", "bridge0", "type", "bridge"]);
        let error = tailbound_sys::tap::Tap::open("bridge0", None).expect_err("it is no TAP");
        assert!(
            matches!(error, tailbound_sys::tap::TapError::NotTap { .. }),
            "{error}"
        );
    });
}

#[test]
fn the_vcpu_agent_follows_reloads_and_its_waits_are_served_beside_the_packets() {
    sandboxed(
        "the_vcpu_agent_follows_reloads_and_its_waits_are_served_beside_the_packets",
        || {
            let odd = Nanos::from_micros(300);
            if sched::probe_slice(odd).ok() != Some(odd) {
                skipped(
                    Part::CustomSlice,
                    "this kernel has no time slices of a thread's own",
                );
                return;
            }
            let a = Guest::new(Kind::Veth, 1);
            let sleeper = Spawn::new("sleep")
                .args(["60"])
                .start()
                .expect("it is there");
            let slice = || thread::scheduling(sleeper.id()).expect("it sleeps").runtime;
            let before = slice();
            let directory = tempfile::tempdir().expect("/tmp is there");
            let agent = |slice: &str| {
                let vcpu = format!(
                    "[vcpu]\nevery = \"20ms\"\nsample = \"10ms\"\nbeside_others = true\nstate = \"{}\"\n\
                     [[vcpu.guest]]\npid = {}\nlabel = \"vm\"\n\
                     class = {{ kind = \"aperiodic\", slice = \"{slice}\", weight = 1 }}\n",
                    directory.path().join("vcpu.json").display(),
                    sleeper.id(),
                );
                config(&[&a], &vcpu)
            };
            let mut daemon = Daemon::start(&agent("300us"));
            until("the class", || slice() == odd);
            let class = "tailbound_vcpu_class{guest=\"vm\",class=\"aperiodic\"}";
            until("the metric", || daemon.metric(class) == Some(1.0));
            // Measured in the kernel where that can be.
            let waits = ["", ",wait=\"approximate\""].map(|how| {
                let labels = format!("guest=\"vm\",thread=\"task\"{how}");
                daemon.metric(&format!("tailbound_vcpu_wait_seconds_count{{{labels}}}"))
            });
            assert_eq!(waits.iter().flatten().count(), 1, "{waits:?}");
            assert_eq!(daemon.metric("tailbound_port_up{port=\"g1\"}"), Some(1.0));

            daemon.configure(&agent("400us"));
            until("the other class", || slice() == Nanos::from_micros(400));
            // An agent that is back at once has to wait for the end of the one before.
            for _ in 0..10 {
                daemon.configure(&config(&[&a], ""));
                until("the restoration", || slice() == before);
                assert_eq!(daemon.metric(class), None);
                daemon.configure(&agent("300us"));
                until("the class", || slice() == odd);
            }
            daemon.signal(Signal::TERM);
            assert!(daemon.wait().success(), "{}", daemon.log());
            assert_eq!(slice(), before);
        },
    );
}

#[test]
fn a_paced_uplink_keeps_a_guests_frames_apart_and_a_reload_loses_none() {
    sandboxed(
        "a_paced_uplink_keeps_a_guests_frames_apart_and_a_reload_loses_none",
        || {
            const FRAMES: u16 = 300;
            let a = Guest::new(Kind::Veth, 1);
            command(
                "ip",
                &["link", "add", "up0", "type", "veth", "peer", "name", "far0"],
            );
            command("ip", &["link", "set", "up0", "up"]);
            command("ip", &["link", "set", "far0", "up"]);
            plugged_in("up0", None);
            let configured = |bandwidth: &str| {
                let uplink = "[uplink]\n\
                    port = { kind = \"af-packet\", interface = \"up0\" }\n\
                    pacer = { link = \"10Mbit/s\", batch = \"2ms\", \
                    work_conserving = false }\n";
                let guarantee = format!(
                    "guarantee = {{ bandwidth = {bandwidth:?}, burst = \"2KB\", \
                     burst_rate = \"5Mbit/s\" }}\n"
                );
                config(&[&a], uplink) + &guarantee
            };
            let daemon = Daemon::start(&configured("500kbit/s"));
            let (mut nic, mut far) = (a.nic(), Nic::open("far0", None));
            let stranger = [2, 9, 9, 9, 9, 9];
            for n in 0..FRAMES {
                nic.send(&datagram_of(stranger, a.mac, [10, 77, 0, 1], n));
            }
            let (mut seen, mut voids) = (Vec::new(), 0);
            let mut reloaded = false;
            until("every frame", || {
                for packet in far.receive() {
                    if packet.destination_mac() == packet.source_mac() {
                        voids += 1;
                    } else if packet.destination_mac() == stranger {
                        assert_eq!(packet.bytes()[15] >> 2, Mark::FIRST.dscp);
                        seen.push(packet.bytes()[42..44].to_vec());
                    }
                }
                if !reloaded && seen.len() > 50 {
                    reloaded = true;
                    daemon.configure(&configured("5Mbit/s"));
                }
                seen.len() == usize::from(FRAMES)
            });
            let expected: Vec<_> = (0..FRAMES).map(|n| n.to_be_bytes().to_vec()).collect();
            assert_eq!(seen, expected, "{}", daemon.log());
            assert!(voids > 0);
            let metric = |name: &str| daemon.metric(name).unwrap_or_default();
            assert!(metric("tailbound_pacer_voids_total{}") >= f64::from(voids));
            let bandwidth = "tailbound_pacer_guest_bandwidth_bits_per_second{guest=\"g1\"}";
            assert!(metric(bandwidth) >= 5e6);
            let sent = "tailbound_packets_total{port=\"uplink\",direction=\"sent\"}";
            assert!(metric(sent) < f64::from(FRAMES) + f64::from(voids));
        },
    );
}

/// The CPUs on which a guest's own end of its veth receives, as the kernel writes them.
fn receive_cpus(guest: &Guest) -> String {
    let net = format!("--net={}", guest.netns().display());
    // A namespace's interfaces are in a sysfs that was mounted there.
    let shown = "mount -t sysfs sysfs /mnt && cat /mnt/class/net/eth0/queues/rx-0/rps_cpus";
    let shell = ["unshare", "--mount", "sh", "-c", shown];
    let output = Command::new("nsenter").arg(net).args(shell).output();
    let output = output.expect("util-linux is there");
    assert!(output.status.success(), "{output:?}");
    let mask = String::from_utf8(output.stdout).expect("text");
    mask.trim().trim_start_matches(['0', ',']).to_owned()
}

#[test]
fn a_guest_behind_a_veth_receives_on_other_cpus_than_the_loops_while_it_is_served() {
    let name = "a_guest_behind_a_veth_receives_on_other_cpus_than_the_loops_while_it_is_served";
    sandboxed(name, || {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let online: Cpus = online.expect("a sysfs").trim().parse().expect("a list");
        let mask = |cpus: Cpus| {
            // There is no other CPU to receive on.
            let cpus = cpus.iter().filter(|_| online.count() > 1);
            let mask = cpus.fold(0u128, |mask, cpu| mask | 1 << cpu);
            if mask == 0 {
                String::new()
            } else {
                format!("{mask:x}")
            }
        };
        let (beside, anywhere) = (mask(online.without(&Cpus::one(0))), mask(online));
        let (a, b) = (Guest::new(Kind::Veth, 1), Guest::new(Kind::Veth, 2));
        // One of them has steering disabled, and one of them has CPUs of its own.
        let quiet = b.section().replace("\"g2\" }", "\"g2\", rps = false }");
        let config = |cpu: &str| {
            let both = config(&[&a, &b], cpu);
            both.replace(&b.section(), &quiet)
        };
        let mut daemon = Daemon::start(&config("cpu = 0"));
        until("a receives beside the loop", || receive_cpus(&a) == beside);
        assert_eq!(receive_cpus(&b), "");
        // A successor continues with the steering, and the last daemon restores the CPUs.
        daemon.take_over();
        until("it is taken over", || {
            !daemon.threads().iter().any(|thread| thread == "rps")
        });
        assert_eq!(receive_cpus(&a), beside);
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success());
        assert_eq!(receive_cpus(&a), "", "{}", daemon.log());
        drop(daemon);
        // A loop that runs anywhere has none of its own.
        let mut daemon = Daemon::start(&config(""));
        until("a receives anywhere", || receive_cpus(&a) == anywhere);
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success());
        assert_eq!(receive_cpus(&a), "");
    });
}

/// The class of a daemon's packet loop.
fn loop_policy(daemon: &Daemon) -> sched::Policy {
    let task = daemon.packet_loop();
    let number = task
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    sched::policy(number.expect("a number")).expect("it runs")
}

#[test]
fn the_packet_loop_has_a_real_time_class_unless_the_configuration_keeps_it_from_that() {
    let name = "the_packet_loop_has_a_real_time_class_unless_the_configuration_keeps_it_from_that";
    sandboxed(name, || {
        if let Err(error) = sched::probe(sched::Policy::Fifo(1)) {
            return skipped(Part::SchedFifo, error);
        }
        let (a, b) = (Guest::new(Kind::Tap, 1), Guest::new(Kind::Tap, 2));
        let daemon = Daemon::start(&config(&[&a, &b], ""));
        assert_eq!(loop_policy(&daemon), sched::Policy::Fifo(1));
        assert_eq!(daemon.metric("tailbound_loop_real_time"), Some(1.0));
        daemon.configure(&config(&[&a, &b], "loop_class = \"share\""));
        daemon.signal(Signal::HUP);
        until("a proportional share", || {
            daemon.metric("tailbound_loop_real_time") == Some(0.0)
        });
        assert_eq!(loop_policy(&daemon), sched::Policy::Normal);
    });
}

#[test]
fn the_packet_loop_sends_signs_of_life_though_no_packet_comes_and_none_while_it_stands_still() {
    let name =
        "the_packet_loop_sends_signs_of_life_though_no_packet_comes_and_none_while_it_stands_still";
    sandboxed(name, || {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("notify");
        let listener = UnixDatagram::bind(&socket).expect("bound");
        let (a, b) = (Guest::new(Kind::Tap, 1), Guest::new(Kind::Tap, 2));
        // 0.3 s: a sign each 0.1 s.
        let daemon = Daemon::watched(&config(&[&a, &b], ""), &socket, "300000");
        let sign = || {
            let mut text = [0; 4096];
            let length = listener.recv(&mut text).ok()?;
            Some(text[..length] == *b"WATCHDOG=1")
        };
        listener
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("set");
        let mut signs = 0;
        while signs < 5 {
            signs += u32::from(sign().expect("a message within 20 s"));
        }
        daemon.stop();
        listener
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("set");
        // Those of before are read first.
        let after = std::iter::from_fn(sign).take(10).count();
        assert!(after < 10, "a daemon that is stopped sends signs");
        daemon.signal(Signal::CONT);
        until("a sign", || sign() == Some(true));
    });
}
