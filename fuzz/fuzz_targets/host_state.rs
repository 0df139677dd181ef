//! State files of hosts, from which a lost store is rebuilt: a store that can be read, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_control::ledger::{Ledger, Recovery, read_state, recover};
use tailbound_fuzz::service::ledger;
use tailbound_placement::Policy;

// One file a line.
fuzz_target!(|text: &[u8]| {
    let ledger = ledger();
    let files = text.split(|byte| *byte == b'\n').take(8);
    let read = files.filter_map(|text| read_state(text).ok());
    let mut held: Vec<_> = read.collect();
    held.extend(ledger.guarantees("a-1"));
    let spec = ledger.topology().spec.clone();
    let Ok(Recovery { snapshot, .. }) = recover(spec, Policy::Silo, held) else {
        return;
    };
    let again = Ledger::load(snapshot.clone()).expect("a recovered store can be read");
    assert!(again.snapshot() == snapshot);
});
