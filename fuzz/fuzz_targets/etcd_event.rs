//! Documents of etcd and events of a watch, as another program may write them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use tailbound_control::ledger::Change;
use tailbound_control::store::etcd::messages::WatchResponse;
use tailbound_control::store::etcd::{Keys, change};
use tailbound_fuzz::service::ledger;

fn apply(name: &str, document: Option<&[u8]>) {
    let Ok(change) = change(name, document) else {
        return;
    };
    let mut ledger = ledger();
    let before = ledger.snapshot();
    // A new topology may be large.
    if matches!(change, Change::Topology(_)) {
        return;
    }
    if ledger.apply(&[change]).is_err() {
        assert!(ledger.snapshot() == before, "half of it was applied");
    }
}

// A line with the name of a document, and the document or a message of the watch.
fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (name, bytes) = input.split_at(end.unwrap_or(0));
    let bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
    let Ok(name) = std::str::from_utf8(name) else {
        return;
    };
    apply(name, Some(bytes));
    apply(name, None);
    let keys = Keys::new("/p");
    if let Ok(message) = WatchResponse::decode(bytes) {
        for event in &message.events {
            let Some(kv) = &event.kv else { continue };
            if let Some(name) = keys.document(&kv.key) {
                apply(name, event.put().map(|kv| kv.value.as_slice()));
            }
        }
    }
});
