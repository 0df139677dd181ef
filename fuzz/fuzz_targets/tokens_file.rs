//! A tokens file: tokens, or all its mistakes with their positions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_control::server::Tokens;

fuzz_target!(|text: &str| {
    match Tokens::parse(text) {
        Ok(tokens) => assert!(tokens.count() > 0),
        Err(mistakes) => assert!(!mistakes.is_empty()),
    }
});
