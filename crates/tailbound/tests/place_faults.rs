//! Crashes of the placement service's processes amid their work: no admission is lost, none is made
//! twice, and no port is promised beyond its capacity.
//!
//! Real services (`tailbound place serve`) over `SQLite`, and three of them over a real etcd of
//! three members; clients that retry with idempotency keys; and `kill -9`. After each round the
//! store is read without any service, compared with the clients' answers, and audited. The small
//! versions run with all tests; the long one is `make faults`.

#[path = "place_faults/check.rs"]
mod check;
#[path = "place_faults/clients.rs"]
mod clients;
#[path = "../../control/tests/support/etcd.rs"]
mod etcd;
#[path = "place_faults/kills.rs"]
mod kills;
#[path = "place_faults/services.rs"]
mod services;

use check::{Findings, check};
use clients::{Clients, Tally};
use etcd::Etcd;
use kills::{Kills, Victim};
use services::Services;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The size of a round.
struct Size {
    /// Tenants that are admitted.
    admitted: usize,
    /// Number of concurrent clients.
    clients: usize,
    /// Number of processes that are killed.
    kills: usize,
}

/// One round's outcome.
struct Round {
    tally: Tally,
    kills: Kills,
    findings: Findings,
    took: Duration,
}

/// Starts services, sends requests, kills processes, and compares the results.
fn round(number: usize, etcd: Option<&mut Etcd>, size: &Size) -> Round {
    let start = Instant::now();
    let mut services = match &etcd {
        Some(etcd) => Services::over_etcd(&etcd.location(&format!("round-{number}"))),
        None => Services::over_sqlite(),
    };
    let clients = Clients::start(number, size.clients, size.admitted, &services.urls());
    let kills = kills::during(&clients, &mut services, etcd, size.kills);
    let (tally, told) = clients.finish();
    // The last kill: what the store has now is all there is.
    services.stop();
    let findings = check(&services.snapshot(), &told);
    Round {
        tally,
        kills,
        findings,
        took: start.elapsed(),
    }
}

fn run(title: &str, rounds: usize, etcd: bool, size: &Size) -> bool {
    let mut cluster = None;
    if etcd {
        let Some(started) = Etcd::start(3) else {
            return true;
        };
        cluster = Some(started);
    }
    println!("{title}: {rounds} rounds of {} admissions", size.admitted);
    println!("{}", header());
    let start = Instant::now();
    let (mut tally, mut kills, mut findings) =
        (Tally::default(), Kills::default(), Findings::default());
    for number in 0..rounds {
        let round = round(number, cluster.as_mut(), size);
        println!(
            "{}",
            line(
                &format!("{}", number + 1),
                &round.tally,
                &round.kills,
                &round.findings,
                round.took
            )
        );
        for what in &round.findings.messages {
            println!("  {what}");
        }
        tally += round.tally;
        kills += round.kills;
        findings += round.findings;
    }
    println!(
        "{}",
        line("all", &tally, &kills, &findings, start.elapsed())
    );
    findings.are_none()
}

fn header() -> String {
    let mut text = format!("{:>5}", "round");
    for victim in Victim::ALL {
        write!(text, " {:>9}", victim.title()).unwrap();
    }
    for title in [
        "admitted", "refused", "resized", "deleted", "retries", "replayed", "lost", "doubled",
        "unasked", "overfull", "seconds",
    ] {
        write!(text, " {title:>8}").unwrap();
    }
    text
}

fn line(round: &str, tally: &Tally, kills: &Kills, findings: &Findings, took: Duration) -> String {
    let mut text = format!("{round:>5}");
    for victim in Victim::ALL {
        write!(text, " {:>9}", kills.of(victim)).unwrap();
    }
    for number in [
        tally.admitted,
        tally.refused,
        tally.resized,
        tally.deleted,
        tally.retries,
        tally.replayed,
        findings.lost,
        findings.doubled,
        findings.unasked,
        findings.overfull,
    ] {
        write!(text, " {number:>8}").unwrap();
    }
    text + &format!(" {:>8.1}", took.as_secs_f64())
}

#[test]
fn a_killed_service_over_sqlite_loses_no_admission() {
    let size = Size {
        admitted: 300,
        clients: 16,
        kills: 3,
    };
    assert!(run("SQLite", 1, false, &size));
}

#[test]
fn killed_replicas_and_etcd_members_lose_no_admission() {
    let size = Size {
        admitted: 300,
        clients: 16,
        kills: Victim::ALL.len(),
    };
    assert!(run("etcd", 1, true, &size));
}

/// The size of the long run; smaller or larger by the environment.
fn long() -> (usize, Size) {
    let number =
        |name: &str, usual: usize| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let size = Size {
        admitted: number("TAILBOUND_FAULT_TENANTS", 10_000),
        clients: number("TAILBOUND_FAULT_CLIENTS", 128),
        kills: number("TAILBOUND_FAULT_KILLS", 6),
    };
    (number("TAILBOUND_FAULT_ROUNDS", 50), size)
}

#[test]
#[ignore = "takes minutes: make faults"]
fn fifty_rounds_of_ten_thousand_admissions_over_sqlite_lose_none() {
    let (rounds, size) = long();
    assert!(run("SQLite", rounds, false, &size));
}

#[test]
#[ignore = "takes minutes: make faults"]
fn fifty_rounds_of_ten_thousand_admissions_over_etcd_lose_none() {
    let (rounds, size) = long();
    assert!(run("etcd", rounds, true, &size));
}
