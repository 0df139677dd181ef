//! A file of Parquet as anybody may write it, or another program's with some bytes changed: it has
//! rows, each of which has its numbers and texts, or there is one error.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tailbound_sim::columnar::{Kind, Row, read};

const MOST: u64 = 10_000;
const FILES: [&[u8]; 4] = [
    include_bytes!("../../crates/sim/src/columnar/tests/snappy.parquet"),
    include_bytes!("../../crates/sim/src/columnar/tests/null.parquet"),
    include_bytes!("../../crates/sim/src/columnar/tests/flows.parquet"),
    include_bytes!("../../crates/sim/src/columnar/tests/flows-plain.parquet"),
];

#[derive(Debug, Arbitrary)]
enum File {
    Any(Vec<u8>),
    /// One of [`FILES`], up to some byte, with others in some places.
    Changed(u8, u16, Vec<(u16, u8)>),
}

impl File {
    fn bytes(self) -> Bytes {
        let (file, left_out, changes) = match self {
            Self::Any(bytes) => return bytes.into(),
            Self::Changed(file, left_out, changes) => (file, left_out, changes),
        };
        let mut bytes = FILES[usize::from(file) % FILES.len()].to_vec();
        for (place, byte) in changes {
            let place = usize::from(place) % bytes.len();
            bytes[place] = byte;
        }
        // Mostly whole: what is without its end has no footer.
        if left_out % 16 == 0 {
            bytes.truncate(usize::from(left_out / 16) % (bytes.len() + 1));
        }
        bytes.into()
    }
}

/// A panic of the library's is an error of the reader's, whose thread it ends; any other is a find.
fn forgive_the_library() {
    let find = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(std::panic::Location::file);
        if !place.is_some_and(|file| file.contains("/parquet-")) {
            find(panic);
        }
    }));
}

fuzz_target!(init: forgive_the_library(), |file: File| {
    let file = file.bytes();
    let mut rows = 0;
    let numbers = ["start_ns", "source", "destination", "bytes"];
    let numbers = numbers.map(|name| (name, Kind::Numbers));
    let told = read(file.clone(), numbers, MOST, |row: Row<'_, 4>| {
        rows += 1;
        for field in 0..4 {
            assert!(row.text(field).is_err());
            row.number(field, 0..=u64::MAX)?;
        }
        Ok(())
    });
    assert!(rows <= MOST);
    assert!(told.is_ok() || !told.unwrap_err().to_string().is_empty());
    let flows = [
        ("time_ns", Kind::Numbers),
        ("guest", Kind::Texts),
        ("destination", Kind::Texts),
        ("bytes", Kind::Numbers),
    ];
    let mut rows = 0;
    let told = read(file, flows, MOST, |row: Row<'_, 4>| {
        rows += 1;
        row.number(0, 0..=u64::MAX)?;
        row.number(3, 0..=u64::MAX)?;
        for field in [1, 2] {
            assert!((1..=255).contains(&row.text(field)?.len()));
        }
        Ok(())
    });
    assert!(rows <= MOST);
    assert!(told.is_ok() || !told.unwrap_err().to_string().is_empty());
});
