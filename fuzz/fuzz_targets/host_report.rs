//! Reports of hosts that lie: each is refused, or changes what its host alone answers for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_api::HostReport;
use tailbound_control::ledger::Command;
use tailbound_fuzz::service::{decide, ledger};

// One report a line.
fuzz_target!(|text: &str| {
    let mut ledger = ledger();
    for text in text.lines().take(4) {
        let Ok(report) = serde_json::from_str::<HostReport>(text) else {
            continue;
        };
        if report.check().is_ok() {
            let tenants = ledger.snapshot().tenants;
            let command = Command::Report {
                host: "a-1".to_owned(),
                report: Box::new(report),
            };
            decide(&mut ledger, command);
            assert!(ledger.snapshot().tenants == tenants, "nothing moves");
        }
    }
});
