//! A datagram between hosts whose MAC was right, byte for byte as somebody with
//! the key may make it: it is an error, or is written again as it was read. And
//! the same bytes without a MAC: refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_hose::Key;
use tailbound_hose::wire::{Message, Writer};

fuzz_target!(|data: &[u8]| {
    let key = Key::new(&[7; 32]).expect("it is long enough");
    assert!(key.open(data).is_err());
    let Ok(message) = Message::parse(data) else {
        return;
    };
    let mut writer = Writer::default();
    writer.start(&message.header);
    for entry in &message.entries {
        assert!(writer.push(entry));
    }
    let datagram = writer.finish(&key);
    assert_eq!(key.open(datagram), Ok(data));
});
