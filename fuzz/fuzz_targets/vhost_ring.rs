//! A ring of a guest whose memory is anything, and changes each time that it is looked at:
//! no step panics, takes more than it may, or costs more than it may.
#![no_main]

#[path = "../../crates/vhost/tests/support/shifting.rs"]
mod shifting;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use shifting::{Shifting, Step, run};
use tailbound_vhost::ring::{Format, Layout};

#[derive(Debug, Arbitrary)]
struct Input {
    size: u8,
    descriptors: u16,
    available: u16,
    used: u16,
    event_index: bool,
    long: bool,
    mergeable: bool,
    steps: Vec<(u8, u8)>,
    writes: Vec<(u16, u8)>,
    contents: Vec<u8>,
}

fuzz_target!(|input: Input| {
    let layout = Layout {
        size: 1 << (input.size % 12),
        descriptors: u64::from(input.descriptors) & !15,
        available: u64::from(input.available) & !1,
        used: u64::from(input.used) & !3,
        event_index: input.event_index,
    };
    let format = Format {
        header: if input.long { 12 } else { 10 },
        mergeable: input.mergeable,
    };
    let steps = input.steps.iter().take(64);
    let steps: Vec<_> = steps.map(|(step, more)| Step::of(*step, *more)).collect();
    run(
        &Shifting::new(&input.contents, input.writes),
        layout,
        format,
        &steps,
    );
});
