use super::super::observed::Domain;
use super::super::step::Call;
use super::super::testing::{Fake, cpus, desired as wanted, id, machine, periodic, reservation};
use super::super::{Aperiodic, Class};
use super::*;
use proptest::prelude::*;
use tailbound_units::Nanos;

fn plan_for(desired: &[Desired], observed: &Observed) -> Result<Plan, Vec<PlanError>> {
    plan(desired, observed, &BTreeMap::new())
}

fn errors(desired: &[Desired], observed: &Observed) -> String {
    let errors = plan_for(desired, observed).unwrap_err();
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn a_plan_prints_one_line_for_each_thread() {
    let mut kernel = Fake::new([1, 2]);
    kernel.threads.get_mut(&id(1)).unwrap().cpus = cpus("2");
    let mut observed = kernel.observe(machine());
    observed
        .threads
        .get_mut(&id(2))
        .unwrap()
        .state
        .scheduling
        .nice = 3;
    let desired = [
        wanted(1, periodic(500, 3000)),
        wanted(2, Class::Aperiodic(Aperiodic::default())),
        wanted(9, Class::Normal),
    ];
    assert_eq!(
        plan_for(&desired, &observed).unwrap().to_string(),
        "thread 1 (vm vcpu 1): SCHED_OTHER -> SCHED_DEADLINE 500us/3ms/3ms, CPUs 2 -> 0-3\n\
         thread 2 (vm vcpu 2): SCHED_OTHER nice 3 -> SCHED_OTHER nice -10 slice 100us\n\
         exited: vm vcpu 9\n\
         note: vm vcpu 1: at worst 49ms without a CPU, and what interrupts and steal take; the \
         kernel ends runtimes at ticks, every 4ms; with timers (`echo HRTICK_DL > \
         /sys/kernel/debug/sched/features`) it is 5ms from the second runtime on\n\
         2 to change, 0 as they should be\n"
    );
}

#[test]
fn a_packet_loop_gets_fifo_and_the_plan_bounds_its_preemption() {
    let kernel = Fake::new(1..=6);
    let path = |observed: &Observed, reserved: u32| {
        let reserved = (2..2 + reserved).map(|tid| wanted(tid, periodic(2000, 20_000)));
        let desired: Vec<_> = reserved.chain([wanted(1, Class::RealTime)]).collect();
        let mut plan = plan_for(&desired, observed).unwrap();
        let step = plan.threads.pop().unwrap();
        assert_eq!(step.thread, id(1));
        let notes = plan.notes.into_iter();
        let notes: Vec<_> = notes
            .filter(|note| note.starts_with("vm vcpu 1: "))
            .collect();
        (step.after.scheduling, notes.join("\n"))
    };
    let mut observed = kernel.observe(machine());
    observed.machine.limits.overrun = Nanos::ZERO;
    let (given, notes) = path(&observed, 3);
    assert_eq!(given.to_string(), "SCHED_FIFO 3");
    assert_eq!(given.flags, Scheduling::RESET_ON_FORK);
    // Three of them never have four CPUs.
    assert_eq!(notes, "");
    let one = cpus("0");
    observed.threads.get_mut(&id(1)).unwrap().state.cpus = one;
    let (_, notes) = path(&observed, 3);
    assert_eq!(
        notes,
        "vm vcpu 1: reservations go before it, and may keep it from CPUs 0 for 17.143ms at a stretch"
    );
    let booked = &mut observed.machine.domains[0];
    booked.booked.insert(id(77), reservation(1000, 4000));
    booked.reclaiming.insert(id(77));
    let (_, notes) = path(&observed, 0);
    assert!(notes.contains("nothing proves for how long"), "{notes}");

    // Where the kernel refuses that class to its group the next best is left.
    let seen = observed.threads.get_mut(&id(1)).unwrap();
    seen.no_real_time = Some("/sys/fs/cgroup/system.slice".into());
    let (given, notes) = path(&observed, 0);
    assert_eq!(given.to_string(), "SCHED_OTHER nice -10 slice 100us");
    assert!(notes.contains("/sys/fs/cgroup/system.slice"), "{notes}");
}

#[test]
fn excess_reservations_are_refused_with_a_runtime_that_fits() {
    // 4 CPUs of 0.90 each: 3.6 in all.
    let kernel = Fake::new(1..=4);
    let mut observed = kernel.observe(machine());
    observed.machine.domains[0]
        .booked
        .insert(id(77), reservation(4000, 4000));
    let desired: Vec<_> = (1..=4)
        .map(|tid| wanted(tid, periodic(3000, 4000)))
        .collect();
    assert_eq!(
        errors(&desired, &observed),
        "vm vcpu 1 and 3 more want 3.000 of a CPU reserved in 0-3, where 2.600 is free: 0.400 too \
         much (3.600 in all, 1.000 booked by others); a runtime of 2.6ms in 4ms would pass, or \
         fewer threads"
    );
    let nearest: Vec<_> = (1..=4)
        .map(|tid| wanted(tid, periodic(2600, 4000)))
        .collect();
    assert!(plan_for(&nearest, &observed).is_ok());
}

#[test]
fn a_thread_that_has_a_reservation_is_not_counted_twice() {
    let kernel = Fake::new(1..=4);
    let mut observed = kernel.observe(machine());
    for tid in 1..=4 {
        observed.machine.domains[0]
            .booked
            .insert(id(tid), reservation(800, 1000));
    }
    let desired: Vec<_> = (1..=4)
        .map(|tid| wanted(tid, periodic(3500, 4000)))
        .collect();
    assert!(plan_for(&desired, &observed).is_ok());
}

#[test]
fn without_a_limit_everything_is_admitted() {
    let mut observed = Fake::new(1..=4).observe(machine());
    observed.machine.limits.share = None;
    let desired: Vec<_> = (1..=4)
        .map(|tid| wanted(tid, periodic(4000, 4000)))
        .collect();
    assert!(plan_for(&desired, &observed).is_ok());
}

#[test]
fn a_deadline_widens_a_narrow_affinity_or_is_refused() {
    let mut kernel = Fake::new([1]);
    kernel.threads.get_mut(&id(1)).unwrap().cpus = cpus("1");
    let observed = kernel.observe(machine());
    let mut pinned = wanted(1, periodic(500, 3000));
    let step = &plan_for(&[pinned.clone()], &observed).unwrap().threads[0];
    assert_eq!(step.after.cpus, cpus("0-3"));

    pinned.affinity = Affinity::Keep;
    assert!(errors(&[pinned.clone()], &observed).contains("vcpupin"));

    let mut confined = observed.clone();
    confined.threads.get_mut(&id(1)).unwrap().allowed = cpus("1-2");
    pinned.affinity = Affinity::Widen;
    assert!(errors(&[pinned.clone()], &confined).contains("partition"));

    // In a partition of its own the narrow mask is right.
    confined.machine.domains = ["1-2", "0,3"]
        .map(|list| Domain {
            cpus: cpus(list),
            booked: BTreeMap::new(),
            reclaiming: std::collections::BTreeSet::new(),
        })
        .to_vec();
    confined.threads.get_mut(&id(1)).unwrap().processor = 1;
    let step = &plan_for(&[pinned], &confined).unwrap().threads[0];
    assert_eq!(step.after.cpus, cpus("1-2"));
}

#[test]
fn a_home_must_be_in_the_root_domain() {
    let observed = Fake::new([1]).observe(machine());
    let mut homed = wanted(1, periodic(500, 3000));
    homed.home = Some(9);
    assert!(errors(&[homed.clone()], &observed).contains("home CPU 9"));
    homed.home = Some(2);
    let calls = plan_for(&[homed], &observed).unwrap().threads[0].calls();
    assert_eq!(calls[0], Call::Affinity(cpus("2")));
    assert_eq!(calls[1], Call::Affinity(cpus("0-3")));
    assert!(matches!(calls[2], Call::Schedule(to) if to.is_deadline()));
}

#[test]
fn a_deadline_gives_its_bandwidth_back_before_it_is_left() {
    let observed = Fake::new([1]).observe(machine());
    let step = &plan_for(&[wanted(1, periodic(500, 3000))], &observed)
        .unwrap()
        .threads[0];
    let back = step.undo().calls();
    assert_eq!(back[0], Call::Release(step.after.scheduling));
    assert_eq!(back[1], Call::Schedule(step.before.scheduling));
}

#[test]
fn without_the_privilege_nothing_is_raised() {
    let mut observed = Fake::new([1]).observe(machine());
    observed.machine.privileged = false;
    for class in [periodic(500, 3000), Class::Aperiodic(Aperiodic::default())] {
        assert!(errors(&[wanted(1, class)], &observed).contains("CAP_SYS_NICE"));
    }
    let slice_alone = Class::Aperiodic(Aperiodic {
        weight: 1,
        ..Aperiodic::default()
    });
    assert!(plan_for(&[wanted(1, slice_alone)], &observed).is_ok());
    observed.threads.get_mut(&id(1)).unwrap().ours = false;
    assert!(errors(&[wanted(1, slice_alone)], &observed).contains("another user's"));
}

#[test]
fn a_kernel_without_slices_gets_only_the_weight_and_a_note() {
    let mut observed = Fake::new([1]).observe(machine());
    observed.machine.slices = false;
    let plan = plan_for(
        &[wanted(1, Class::Aperiodic(Aperiodic::default()))],
        &observed,
    )
    .unwrap();
    let to = plan.threads[0].after.scheduling;
    assert_eq!((to.nice, to.runtime), (-10, Nanos::ZERO));
    assert!(plan.notes[0].contains("6.12"));
}

#[test]
fn a_nice_value_that_counts_in_its_session_alone_is_noted() {
    let mut observed = Fake::new([1]).observe(machine());
    observed.threads.get_mut(&id(1)).unwrap().autogrouped = true;
    let wanted = wanted(1, Class::Aperiodic(Aperiodic::default()));
    let notes = |wish: &Desired| {
        plan_for(std::slice::from_ref(wish), &observed)
            .unwrap()
            .notes
            .len()
    };
    assert_eq!(notes(&wanted), 1);
    let grouped = Desired {
        weighed: crate::guest::WeightBearer::Group("vm".into()),
        ..wanted
    };
    assert_eq!(notes(&grouped), 0);
}

#[test]
fn a_period_that_the_administrator_forbids_is_refused() {
    let observed = Fake::new([1]).observe(machine());
    assert!(
        errors(&[wanted(1, periodic(20, 50))], &observed).contains("sched_deadline_period_min_us")
    );
}

#[test]
fn a_weight_becomes_the_nearest_nice_value() {
    for (weight, nice) in [(1, 0), (2, -3), (10, -10), (28, -15), (87, -20), (100, -20)] {
        let class = Aperiodic {
            weight,
            ..Aperiodic::default()
        };
        assert_eq!(class.nice(), nice, "{weight}");
    }
}

fn states() -> impl Strategy<Value = ThreadState> {
    let scheduling = prop_oneof![
        (-20i32..20, 0u64..3).prop_map(|(nice, slice)| Scheduling {
            nice,
            runtime: Nanos::from_micros(slice * 100),
            ..Scheduling::PLAIN
        }),
        (2u64..10, 10u64..20).prop_map(|(runtime, period)| Scheduling {
            policy: tailbound_sys::thread::PolicyNumber::DEADLINE,
            runtime: Nanos::from_millis(runtime),
            deadline: Nanos::from_millis(period),
            period: Nanos::from_millis(period),
            ..Scheduling::PLAIN
        }),
    ];
    (scheduling, 0u32..4).prop_map(|(scheduling, cpu)| ThreadState {
        cpus: if scheduling.is_deadline() {
            cpus("0-3")
        } else {
            Cpus::one(cpu)
        },
        scheduling,
    })
}

proptest! {
    /// The fake kernel is as strict as the real one about the order of calls.
    #[test]
    fn any_state_is_reached_from_any_other_and_back(before in states(), after in states()) {
        use super::super::kernel::Kernel;
        let mut kernel = Fake::new([1]);
        kernel.threads.insert(id(1), before);
        let step = ThreadStep {
            thread: id(1),
            name: String::new(),
            before,
            after,
            home: None,
            group: None,
        };
        for call in step.calls() {
            kernel.call(id(1), &call).unwrap();
        }
        prop_assert!(same(&kernel.threads[&id(1)], &after));
        for call in step.undo().calls() {
            kernel.call(id(1), &call).unwrap();
        }
        prop_assert!(same(&kernel.threads[&id(1)], &before));
    }
}

#[test]
fn a_quota_above_a_share_is_noted_with_its_throttle_time() {
    let kernel = Fake::new([1, 2]);
    let mut observed = kernel.observe(machine());
    for seen in observed.threads.values_mut() {
        let quota = tailbound_sys::cgroup::Quota {
            runtime: Nanos::from_millis(20),
            period: Nanos::from_millis(100),
        };
        seen.quota = Some(("/vms/web".into(), quota));
    }
    let shares = [1, 2].map(|tid| wanted(tid, Class::Aperiodic(Aperiodic::default())));
    let plan = plan_for(&shares, &observed).unwrap();
    assert_eq!(
        plan.notes,
        [
            "a CPU quota of 20ms in 100ms at /vms/web can throttle all threads in it for 95ms at a time, regardless of their share; raise the quota, or use reservations for vCPUs (periodic), to which quotas do not apply"
        ]
    );
    // Four CPUs cannot use up four times the period.
    for seen in observed.threads.values_mut() {
        seen.quota.as_mut().unwrap().1.runtime = Nanos::from_millis(400);
    }
    assert!(plan_for(&shares, &observed).unwrap().notes.is_empty());
    let reserved = [wanted(1, periodic(500, 3000))];
    let notes = plan_for(&reserved, &observed).unwrap().notes;
    assert!(
        !notes.iter().any(|note| note.contains("quota")),
        "{notes:?}"
    );
}

#[test]
fn a_weight_in_a_group_with_other_threads_is_refused() {
    let observed = Fake::new([1]).observe(machine());
    let weighed = crate::guest::WeightBearer::Nothing {
        group: "/kubepods/podab".into(),
        others: "80 (nginx)".into(),
    };
    let with = |weight| Desired {
        weighed: weighed.clone(),
        ..wanted(
            1,
            Class::Aperiodic(Aperiodic {
                weight,
                ..Aperiodic::default()
            }),
        )
    };
    assert_eq!(
        errors(&[with(10)], &observed),
        "vm vcpu 1: the control group /kubepods/podab competes with other guests, and 80 (nginx) would get its weight as well; move the other threads out of the group, or use weight = 1 or a reservation (periodic)"
    );
    let plan = plan_for(&[with(1)], &observed).unwrap();
    assert_eq!(plan.threads[0].after.scheduling.nice, 0);
}

#[test]
fn a_short_slice_that_ticks_end_is_noted_to_gain_little_beside_loops() {
    let high = [wanted(1, Class::Aperiodic(Aperiodic::default()))];
    let notes = |slice_timers: bool, slices: bool, desired: &[Desired]| {
        let mut machine = machine();
        (machine.slice_timers, machine.slices) = (slice_timers, slices);
        let plan = plan_for(desired, &Fake::new([1]).observe(machine)).unwrap();
        plan.notes.join("\n")
    };
    let said = notes(false, true, &high);
    assert!(
        said.starts_with("ticks end time slices here, every 4ms") && said.contains("HRTICK"),
        "{said}"
    );
    assert_eq!(notes(true, true, &high), "");
    // Without slices another note says more.
    assert!(!notes(false, false, &high).contains("ticks end"));
    let top = [wanted(1, periodic(1000, 4000))];
    assert!(!notes(false, true, &top).contains("ticks end time slices"));
}

/// The plan for one thread of class `class` that had the mask `original`, has `seen` now, and whose
/// cpuset allows `allowed`, all else being as planned.
fn with_mask(class: Class, original: &str, seen: &str, allowed: &str) -> Plan {
    let mut kernel = Fake::new([1]);
    kernel.threads.get_mut(&id(1)).unwrap().cpus = cpus(original);
    let before = kernel.threads[&id(1)];
    let desired = [wanted(1, class)];
    let given = plan_for(&desired, &kernel.observe(machine()))
        .unwrap()
        .threads[0]
        .after;
    kernel.threads.insert(
        id(1),
        ThreadState {
            cpus: cpus(seen),
            ..given
        },
    );
    let mut observed = kernel.observe(machine());
    observed.threads.get_mut(&id(1)).unwrap().allowed = cpus(allowed);
    observed.machine.domains[0].cpus = cpus(allowed);
    plan(&desired, &observed, &[(id(1), before)].into()).unwrap()
}

#[test]
fn cpus_that_are_offline_or_that_a_cpuset_took_are_no_drift() {
    let high = Class::Aperiodic(Aperiodic::default());
    for (class, original, left) in [
        (high, "0-3", "0-2"),
        (high, "3", "0-2"),
        (high, "2-3", "2"),
        (periodic(1000, 4000), "0-3", "0-2"),
        (Class::RealTime, "3", "0-2"),
    ] {
        let allowed = "0-2";
        let plan = with_mask(class, original, left, allowed);
        assert!(plan.is_empty(), "{original}: {plan}");
    }
}

#[test]
fn a_mask_reset_by_the_kernel_is_distinguished_from_others() {
    let high = Class::Aperiodic(Aperiodic::default());
    let plan = with_mask(high, "2", "0-3", "0-3");
    assert_eq!(plan.threads[0].after.cpus, cpus("2"));
    assert_eq!(plan.reset, [id(1)].into());
    let plan = with_mask(high, "2", "1", "0-3");
    assert_eq!(plan.threads[0].after.cpus, cpus("2"));
    assert_eq!(plan.reset, [].into());
}
