use super::*;
use crate::evidence::{CpuWait, Evidence, ExaminedParts, Handles, Limits, Occupant};
use crate::judge::judge;
use crate::testing;

fn waits(count: usize, length: u64, occupant: &Occupant, is_real_time: bool) -> Vec<CpuWait> {
    let mut waits = testing::waits(&vec![length; count], occupant);
    for run in waits
        .iter_mut()
        .flat_map(|wait| Arc::get_mut(&mut wait.runs).unwrap())
    {
        run.is_real_time = is_real_time;
    }
    waits
}

fn evidence(waits: Vec<CpuWait>) -> Evidence {
    Evidence {
        examined: ExaminedParts {
            packets: Err("not asked for".to_owned()),
            ..ExaminedParts::default()
        },
        handles: Handles {
            select: Some("--guest db-3".to_owned()),
            quota: Some("docker update --cpus 2 db-3".to_owned()),
            ..Handles::default()
        },
        ..testing::evidence(waits)
    }
}

#[test]
fn a_verdict_is_a_sentence_three_lines_and_a_command() {
    let mut all = waits(41, 40, &Occupant::Guest("web-7".into()), false);
    all.extend(waits(19, 10, &Occupant::Idle, false));
    let verdict = judge(&evidence(all));
    assert_eq!(
        verdict.sentence(),
        "db-3: 41 of its 60 longest waits for a CPU in the last minute were for a CPU that web-7 had."
    );
    assert_eq!(
        verdict.evidence(),
        [
            "Delay: 1.83 s in 60 periods, the longest 40.0 ms: 89.6 % the guest web-7, 10.3 % a CPU \
             that was idle or waking up.",
            "Its own limits: no CPU quota.",
            "Not examined: packets (not asked for)."
        ]
    );
    let remedy = verdict.remedy().unwrap();
    let command = "tailbound vcpu apply --guest db-3 --level high";
    assert_eq!(remedy.command.as_deref(), Some(command));
    assert!(
        remedy.cost.starts_with("web-7 gets the CPU later"),
        "{remedy:?}"
    );
}

#[test]
fn a_partly_examined_window_is_reported_with_its_share() {
    let mut seen = evidence(Vec::new());
    let examined = |interrupts_time| ExaminedParts {
        time: Some(Nanos::from_secs(15)),
        interrupts_time,
        ..ExaminedParts::default()
    };
    for (interrupts_time, words) in [
        (None, "Packets: in 25.0 %"),
        (
            Some(Nanos::from_secs(54)),
            "Packets: in 25.0 %, interrupts and CPU waits in 90.0 %",
        ),
    ] {
        seen.examined = examined(interrupts_time);
        let [.., line] = judge(&seen).evidence();
        let words = format!(" {words} of the time, to bound the cost.");
        assert!(line.ends_with(&words), "{line}");
    }
    seen.examined = examined(Some(Nanos::from_secs(15)));
    let verdict = judge(&seen);
    let [.., examined] = verdict.evidence();
    assert_eq!(
        examined,
        "Examined: CPU waits, quota, steal, interrupts, packets. Packets and interrupts: in 25.0 % of \
         the time, to bound the cost."
    );
    assert_eq!(
        verdict.sentence(),
        "db-3: nothing was slow in the last minute: no thread waited long for a CPU. Its packets were \
         examined in 25.0 % of that time."
    );
}

#[test]
fn each_cause_has_its_own_sentence_and_command() {
    let sentence = |waits: Vec<CpuWait>| {
        let verdict = judge(&evidence(waits));
        let command = verdict.remedy().and_then(|remedy| remedy.command);
        let (_, end) = verdict.sentence().split_once("in the last ").map_or_else(
            || panic!("{}", verdict.sentence()),
            |(begin, end)| (begin.to_owned(), end.to_owned()),
        );
        (end, command.unwrap_or_default())
    };
    let apply = |level: &str| format!("tailbound vcpu apply --guest db-3 --level {level}");
    let program = Occupant::Program("tar (backup.service)".into());
    let mut throttled = waits(5, 40, &Occupant::Guest("web-7".into()), false);
    for wait in &mut throttled {
        wait.quota = Nanos::from_secs(1);
    }
    for (waits, end, command) in [
        (
            waits(5, 40, &program, false),
            "minute were for a CPU that the host's program tar (backup.service) had.",
            apply("high"),
        ),
        (
            waits(5, 40, &program, true),
            "minute were for a CPU that a real-time thread of tar (backup.service) had.",
            apply("top"),
        ),
        (
            throttled,
            "minute were for its own CPU quota, which was used up.",
            "docker update --cpus 2 db-3".to_owned(),
        ),
        (
            waits(5, 40, &Occupant::Own, false),
            "minute were for a CPU that its own threads had.",
            String::new(),
        ),
        (
            Vec::new(),
            "minute: no thread waited long for a CPU. Its packets were not measured, so the network \
             is not ruled out.",
            String::new(),
        ),
        (
            waits(2, 40, &program, false),
            "minute: 2 of 2 slow periods have the same cause, and fewer than three, or two of a second \
             in all, prove nothing.",
            String::new(),
        ),
    ] {
        assert_eq!(sentence(waits), (end.to_owned(), command));
    }
}

#[test]
fn a_quota_that_was_used_up_is_shown_with_its_time() {
    let mut one = evidence(Vec::new());
    one.limits = Limits {
        quota: Some("20ms in 100ms".into()),
        throttled_periods: 3,
        throttled: Nanos::from_millis(250),
        interfaces: Vec::new(),
    };
    let [_, line, _] = judge(&one).evidence();
    assert_eq!(
        line,
        "Its own limits: CPU quota 20ms in 100ms, used up in 3 periods for 250.0 ms of CPU time."
    );
}

#[test]
fn a_percentage_is_never_above_the_whole() {
    let shown = |part, whole| percent(Nanos(part), Nanos(whole));
    assert_eq!(shown(2, 3), "66.6 %");
    assert_eq!(shown(u64::MAX, u64::MAX), "100.0 %");
    assert_eq!(shown(0, 0), "0.0 %");
}

#[test]
fn a_neighbour_in_the_hosts_queue_is_limited_by_an_adoption() {
    let mut verdict = judge(&evidence(waits(5, 40, &Occupant::Own, false)));
    let mut remedy = |by: &str| {
        verdict.finding = Finding::Because(Cause::by(Kind::HostQueue, &by.into()));
        verdict.remedy().unwrap()
    };
    let web = remedy("web-7");
    assert_eq!(
        web.command.as_deref(),
        Some("tailbound adopt web-7 --limit-out RATE")
    );
    assert!(web.cost.contains("tailbound release"), "{web:?}");
    let odd = remedy("a b; reboot").command.unwrap();
    assert_eq!(odd, "tailbound adopt 'a b; reboot' --limit-out RATE");
    assert_eq!(remedy("other guests").command, None);
}
