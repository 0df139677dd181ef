//! A backup of the placement service: the content of a store, or one error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_control::backup;
use tailbound_control::ledger::Ledger;
use tailbound_fuzz::service::ledger;

fuzz_target!(|input: (u16, &[u8])| {
    // A whole backup with other bytes in one place, or the bytes alone.
    let (at, bytes) = input;
    let mut text = backup::write(&ledger().snapshot()).into_bytes();
    let at = usize::from(at).min(text.len());
    let end = (at + bytes.len()).min(text.len());
    text.splice(at..end, bytes.iter().copied());
    for text in [text.as_slice(), bytes] {
        let Ok(text) = std::str::from_utf8(text) else {
            continue;
        };
        if let Ok(snapshot) = backup::read(text)
            && let Ok(ledger) = Ledger::load(snapshot.clone())
        {
            assert!(ledger.snapshot() == snapshot);
            let _ = tailbound_control::audit::audit(&snapshot);
        }
    }
});
