//! A datagram between hosts with a valid MAC and arbitrary bytes, as a holder of the key can make
//! it: it is an error, or is written again as it was read. And the same bytes without a MAC:
//! refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_hose::Key;
use tailbound_hose::wire::{Envelope, Message, Writer};

fuzz_target!(|data: &[u8]| {
    let key = Key::new([7; 32]);
    if let Ok(envelope) = Envelope::read(data) {
        assert!(envelope.open(&key).is_err());
    }
    let Ok(message) = Message::parse(data) else {
        return;
    };
    let mut writer = Writer::default();
    writer.start(&message.header);
    for entry in &message.entries {
        assert!(writer.push(entry));
    }
    let datagram = writer.finish(&key);
    let envelope = Envelope::read(datagram).expect("it is as long as a datagram");
    assert_eq!(
        (envelope.from, envelope.to),
        (message.header.from, message.header.to)
    );
    assert_eq!(envelope.key, message.header.key);
    assert_eq!(envelope.open(&key), Ok(data));
});
