//! Hosts with departure times: their measured lateness against the one that admission counts with.

use super::*;
use crate::audit::audit;
use tailbound_api::{Code, HostLimits, Lateness, TenantState};
use tailbound_placement::{Policy, Spec};
use tailbound_units::Bytes;

const COUNTED: Nanos = Nanos::from_micros(50);

/// A tree of which the hosts on the left have departure times.
fn late() -> Ledger {
    let text = TREE.replacen("count = 3", "count = 3\nlateness = \"50us\"", 1);
    let spec = Spec::from_toml(&text).unwrap();
    Ledger::new(spec, Policy::Silo).unwrap().0
}

fn say(ledger: &mut Ledger, host: &str, lateness: Lateness) {
    let limits = HostLimits {
        lateness,
        packet: Some(Bytes(1_538)),
        ..limits_of_link(10_000)
    };
    let report = report_of(ledger, limits);
    send_report(ledger, host, report);
}

#[test]
fn a_host_that_becomes_late_keeps_its_machines_and_gets_no_more() {
    let mut ledger = late();
    let within = Lateness::Within(COUNTED);
    for host in ["host-1", "host-2", "host-3"] {
        say(&mut ledger, host, within);
    }
    // Nine machines need two hosts.
    let made = ledger.decide(&create("acme", "web", 9), Nanos(1)).unwrap();
    let Reply::Tenant(web) = made.reply else {
        panic!("{made:?}");
    };
    let runs = |ledger: &Ledger| ledger.snapshot().tenants[&web.id].runs.clone();
    let before = runs(&ledger);
    say(&mut ledger, "host-1", within);
    say(&mut ledger, "host-2", within);
    let standing = |ledger: &Ledger| ledger.standing(web.id, true).unwrap();
    assert_eq!(standing(&ledger).state, TenantState::Admitted);
    assert_eq!(audit(&ledger.snapshot()).late, []);

    say(
        &mut ledger,
        "host-1",
        Lateness::Within(Nanos::from_micros(80)),
    );
    let after = standing(&ledger);
    assert_eq!(after.state, TenantState::Degraded);
    let why = "its frames leave up to 80us late, and the topology counts with 50us";
    assert_eq!(after.hosts[0].why.as_deref(), Some(why));
    assert_eq!(runs(&ledger), before, "the machines stay");
    assert_eq!(ledger.hosts_by_word().late, 1);
    let report = audit(&ledger.snapshot());
    assert_eq!(report.findings, []);
    let told: Vec<String> = report.late.iter().map(ToString::to_string).collect();
    let machines = before[0].count;
    assert_eq!(
        told,
        [format!(
            "host \"host-1\" with {machines} guaranteed machines: {why}"
        )]
    );
    // The same after a restart of the service.
    let again = Ledger::load(ledger.snapshot()).unwrap();
    assert_eq!(standing(&again), after);
    assert_eq!(again.host("host-1").unwrap().lateness, Some(COUNTED));

    say(&mut ledger, "host-1", within);
    assert_eq!(standing(&ledger).state, TenantState::Admitted);
    assert_eq!(ledger.hosts_by_word().late, 0);
}

#[test]
fn a_host_that_warms_up_is_not_ready() {
    let mut ledger = late();
    let hosts = ["host-1", "host-2", "host-3"];
    for host in hosts {
        say(&mut ledger, host, Lateness::WarmingUp);
    }
    for host in ["other-1", "other-2", "other-3"] {
        say(&mut ledger, host, Lateness::Within(Nanos(1)));
    }
    let refused = ledger.decide(&create("acme", "web", 2), Nanos(1));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Refused);
    let error = refused.to_string();
    assert!(
        error.contains(
            "other-3: its frames leave up to 1ns late, and the topology counts on an exact pacer"
        ),
        "{error}"
    );
    for host in hosts {
        say(&mut ledger, host, Lateness::Within(Nanos::from_micros(32)));
    }
    assert!(ledger.decide(&create("acme", "web", 2), Nanos(1)).is_ok());
}

#[test]
fn a_report_without_lateness_means_an_exact_pacer() {
    let old = r#"{"link": "10Gbit/s", "frame": "1538B", "slowest": "10kbit/s"}"#;
    let limits: HostLimits = serde_json::from_str(old).unwrap();
    assert_eq!(limits.lateness, Lateness::Exact);
    let written = serde_json::to_string(&limits).unwrap();
    assert!(
        !written.contains("lateness"),
        "an older service reads it: {written}"
    );
    let late = HostLimits {
        lateness: Lateness::Within(COUNTED),
        ..limits
    };
    let written = serde_json::to_string(&late).unwrap();
    assert!(
        written.contains(r#""lateness":{"within":"50us"}"#),
        "{written}"
    );
    assert_eq!(serde_json::from_str::<HostLimits>(&written).unwrap(), late);
}
