//! The time of the searches over all hosts, in a large data centre.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::time::Duration;
use tailbound_api::{FaultKind, HostLimits};
use tailbound_placement::{Policy, Spec};
use tailbound_units::Bytes;

const RACKS: u32 = 1_000;
const HOSTS_OF_RACK: u32 = 100;
const TENANTS: u64 = 1_000;
/// The limit on the CPU time of a search: 50 ms, and five times as much without optimisation.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 250 } else { 50 });

fn large() -> Ledger {
    let mut text = "frame = \"1538B\"\n".to_owned();
    for rack in 0..RACKS {
        let _ = write!(
            text,
            "[[group]]\nname = \"r{rack}\"\nuplink = {{ rate = \"400Gbit/s\", buffer = \"4MB\" }}\n\
             [[host]]\nname = \"h{rack}\"\ngroup = \"r{rack}\"\ncount = {HOSTS_OF_RACK}\nslots = 8\n\
             uplink = {{ rate = \"10Gbit/s\", buffer = \"300KB\", up_buffer = \"62500B\" }}\n"
        );
    }
    let spec = Spec::from_toml(&text).unwrap();
    let mut ledger = Ledger::new(spec, Policy::Silo).unwrap().0;
    for number in 0..TENANTS {
        let call = create("acme", &format!("web-{number}"), 49);
        let _ = ledger.decide(&call, Nanos(1)).unwrap();
    }
    ledger
}

fn say(ledger: &mut Ledger, change: u64) {
    let limits = HostLimits {
        packet: Some(Bytes(1_538)),
        ..limits_of_link(10_000)
    };
    let report = HostReport {
        change,
        ..report_of(ledger, limits)
    };
    for rack in 0..RACKS {
        for number in 1..=HOSTS_OF_RACK {
            let host = format!("h{rack}-{number}");
            send_report(ledger, &host, report.clone());
        }
    }
}

/// Returns a result with the CPU time of its search.
fn timed<T>(search: impl FnOnce() -> T) -> (T, Duration) {
    let cpu_time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let begin = cpu_time();
    let found = search();
    (found, cpu_time().saturating_sub(begin))
}

/// Returns the number of hosts with a fault of this kind, and checks the time of both searches.
fn search(ledger: &Ledger, what: &str, kind: FaultKind) -> u64 {
    let (found, searched) = timed(|| faults::faults(ledger, 1, |_| Quota::default()));
    let (counts, counted) = timed(|| ledger.hosts_by_word());
    let hosts = counts.silent + counts.following + counts.unheard + counts.refusing;
    assert_eq!(hosts, u64::from(RACKS * HOSTS_OF_RACK));
    println!("{what}: faults {searched:.1?}, metrics {counted:.1?}");
    assert!(searched < LIMIT && counted < LIMIT, "{what}");
    found.0.get(&kind).map_or(0, |found| found.count)
}

#[test]
#[ignore = "it takes a minute: cargo test -p tailbound-control --lib of_100_000_hosts -- --ignored --nocapture"]
fn a_search_of_100_000_hosts_for_faults_has_a_time_limit() {
    let mut ledger = large();
    let used = search(&ledger, "none has reported", FaultKind::HostsUnheard);
    assert!(used > 1_000, "{used}");
    say(&mut ledger, 1);
    let behind = search(&ledger, "behind", FaultKind::HostsBehind);
    assert!(behind > used / 2 && behind <= used, "{behind} of {used}");
    let last = ledger.last_change();
    say(&mut ledger, last);
    assert_eq!(search(&ledger, "no fault", FaultKind::HostsBehind), 0);
    let hosts = ledger.datacentre.topology().hosts().iter();
    let names = hosts.map(|host| ledger.datacentre.topology().name(*host).to_owned());
    let hosts = names.map(|name| (name, 1_700_000_000)).collect();
    let silence = call(Command::Silence { hosts });
    let _ = ledger.decide(&silence, Nanos(1)).unwrap();
    let silent = search(&ledger, "silent", FaultKind::HostsSilent);
    assert_eq!(silent, u64::from(RACKS * HOSTS_OF_RACK));
}
