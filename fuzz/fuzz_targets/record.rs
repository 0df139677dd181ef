//! A record as a stranger may send it: all guests in it have a verdict, or there is one error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_look::record::{Record, Wall, forged};
use tailbound_look::{Evidence, judge};

fuzz_target!(|bytes: &[u8]| {
    let _ = Record::parse(bytes);
    let record = Record::parse(&forged(bytes)).expect("its checksums are right");
    let window = record.window(Wall(i64::MIN), Wall(i64::MAX));
    let _ = (record.spans(), record.offset());
    let guests = window.entries.into_iter().flat_map(|entry| entry.guests);
    let verdict = judge(&Evidence::join(guests.map(|guest| guest.evidence)));
    let sum: u64 = verdict.shares.iter().map(|share| share.time.0).sum();
    assert_eq!(sum, verdict.judged_delay.0);
    let _ = (verdict.sentence(), verdict.evidence(), verdict.remedy());
});
