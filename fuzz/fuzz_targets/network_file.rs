//! A network file from an untrusted user: it is read and has bounds, or there is one error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use tailbound_netcalc::NetworkFile;

fuzz_target!(|text: &str| {
    let Ok(file) = NetworkFile::parse(text.to_owned(), Path::new("fuzz.toml")) else {
        return;
    };
    let Ok(bounds) = file.bounds() else {
        return;
    };
    assert_eq!(bounds.flows.len(), file.network().flows().len());
    for (flow, bounds) in file.network().flows().iter().zip(&bounds.flows) {
        // Nothing passes faster than its own burst, or the first frame of it,
        // and its latencies let it.
        let latencies = flow
            .path
            .iter()
            .map(|port| file.network().port(*port).latency.0);
        let latency: u64 = latencies.sum();
        assert!(bounds.delay().ceil() >= i128::from(latency));
        assert!(!bounds.backlog().is_negative());
    }
});
