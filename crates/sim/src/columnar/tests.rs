use super::{Column, Kind, Row, Wrong, read, table};
use bytes::Bytes;
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor as _;
use parquet::record::reader::RowIter;
use proptest::prelude::*;

/// What another program wrote (pyarrow): 3,000 rows in two parts, Snappy, a dictionary, differences,
/// four types of numbers, a column more.
const SNAPPY: &[u8] = include_bytes!("tests/snappy.parquet");
/// The same in one part with pages of version 2, and nothing where row 2,501 has its bytes.
const NULL: &[u8] = include_bytes!("tests/null.parquet");
const ZSTD: &[u8] = include_bytes!("tests/zstd.parquet");
/// A time with its unit, and a fraction.
const TYPES: &[u8] = include_bytes!("tests/types.parquet");

/// A log of flows, 3,000 rows in two parts, Snappy, dictionaries, a column of bytes more;
const FLOWS: &[u8] = include_bytes!("tests/flows.parquet");
/// its first 100 rows with plain texts, and with such that begin as the last one does.
const PLAIN: &[u8] = include_bytes!("tests/flows-plain.parquet");
const DELTA: &[u8] = include_bytes!("tests/flows-delta.parquet");

const NAMES: [&str; 4] = ["start_ns", "source", "destination", "bytes"];

fn rows(file: impl Into<Bytes>, most: u64) -> Result<Vec<[u64; 4]>, Wrong> {
    let mut rows = Vec::new();
    let take = |row: Row<'_, 4>| {
        let mut numbers = [0; 4];
        for (field, number) in numbers.iter_mut().enumerate() {
            *number = row.number(field, 0..=u64::MAX)?;
        }
        rows.push(numbers);
        Ok(())
    };
    let columns = NAMES.map(|name| (name, Kind::Numbers));
    read(file.into(), columns, most, take)?;
    Ok(rows)
}

fn refused(file: impl Into<Bytes>) -> String {
    rows(file, 1_000_000).unwrap_err().to_string()
}

#[test]
fn what_another_program_wrote_is_read() {
    let expected: Vec<_> = (0..3000)
        .map(|i| [i * 1000, i % 4, (i + 1) % 4, 100 + i % 7])
        .collect();
    assert_eq!(rows(SNAPPY, 3000).unwrap(), expected);
}

fn flows(file: &'static [u8]) -> Result<Vec<(u64, String, String)>, Wrong> {
    let columns = [
        ("time_ns", Kind::Numbers),
        ("guest", Kind::Texts),
        ("destination", Kind::Texts),
    ];
    let mut rows = Vec::new();
    read(Bytes::from(file), columns, 3000, |row| {
        let text = |field| row.text(field).map(str::to_owned);
        rows.push((row.number(0, 0..=u64::MAX)?, text(1)?, text(2)?));
        Ok(())
    })?;
    Ok(rows)
}

#[test]
fn texts_that_another_program_wrote_are_read() {
    let row = |i: u64| (i * 1000, format!("g{}", i % 5), format!("wärme-{}", i % 7));
    for (file, rows) in [(FLOWS, 3000), (PLAIN, 100)] {
        let expected: Vec<_> = (0..rows).map(row).collect();
        assert_eq!(flows(file).unwrap(), expected);
    }
    let told = flows(DELTA).unwrap_err().to_string();
    let wanted = "column `guest`: is encoded by DELTA_BYTE_ARRAY: write it plainly";
    assert!(told.starts_with(wanted), "{told}");
    // A column of bytes is none of texts, even if they are.
    let bytes = [("ignored", Kind::Texts)];
    let told = read(Bytes::from(FLOWS), bytes, 3000, |_| Ok(())).unwrap_err();
    let wanted = "column `ignored`: is of type BYTE_ARRAY: write texts, BYTE_ARRAY with STRING";
    assert_eq!(told.to_string(), wanted);
}

#[test]
fn a_text_that_is_too_long_or_none_is_told_with_its_row() {
    let of = |text: Vec<u8>| {
        let names = vec!["a".to_owned(), "b".repeat(255), "c".repeat(255)];
        let file = table(&[("guest".to_owned(), Column::Texts(names))]);
        let file = with(file, &[b'c'; 255], &text);
        let mut told = Vec::new();
        let take = |row: Row<'_, 1>| row.text(0).map(|text| told.push(text.len()));
        let read = read(Bytes::from(file), [("guest", Kind::Texts)], 9, take);
        (read.map_err(|wrong| wrong.to_string()), told)
    };
    assert_eq!(of(vec![b'd'; 255]), (Ok(()), vec![1, 255, 255]));
    let (read, told) = of(vec![0xff]);
    let wanted = "row 3, column `guest`: is no text: write it in UTF-8";
    assert_eq!((read.unwrap_err().as_str(), told), (wanted, vec![1, 255]));
}

#[test]
fn what_is_wrong_is_told_with_its_row_and_column() {
    let told = refused(NULL);
    assert_eq!(told, "row 2501, column `bytes`: is null: write a value");
    let told = refused(ZSTD);
    assert!(
        told.starts_with("column `start_ns`: is compressed by ZSTD"),
        "{told}"
    );
    assert!(told.ends_with("write it with SNAPPY or uncompressed"));
    let told = refused(TYPES);
    assert!(
        told.starts_with("column `start_ns`: is of type Timestamp"),
        "{told}"
    );
    assert!(told.ends_with("write whole numbers, INT64"), "{told}");
    let told = rows(SNAPPY, 2999).unwrap_err().to_string();
    assert_eq!(told, "has more than 2999 rows: take a part of it");
    let told = refused(table(&[("time".to_owned(), Column::Numbers(vec![0]))]));
    assert_eq!(told, "column `start_ns`: is not there: there is `time`");
    for short in [&SNAPPY[..7], &SNAPPY[..2000], b"PAR1"] {
        let told = refused(short);
        assert!(told.starts_with("is no Parquet that can be read"), "{told}");
    }
}

/// A table of our own with a dictionary of 10,000 numbers, the first of which is this.
fn numbers(first: i64) -> Vec<u8> {
    let column = |name: &str| {
        let numbers = (0..10_000).map(|it| if it == 0 { first } else { it });
        (name.to_owned(), Column::Numbers(numbers.collect()))
    };
    table(&NAMES.map(column))
}

/// The file with these bytes instead of those, where they are first.
fn with(mut file: Vec<u8>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut places = file.windows(old.len());
    let place = places.position(|it| it == old).unwrap();
    file[place..][..new.len()].copy_from_slice(new);
    file
}

#[test]
fn memory_is_not_taken_because_a_file_says_so() {
    // The number of a dictionary's numbers, as thrift has it: 10,000, and a million.
    let file = with(numbers(0), &[0xa0, 0x9c, 0x01], &[0xfe, 0xff, 0x7f]);
    let told = refused(file);
    assert_eq!(
        told,
        "column `start_ns`: has a dictionary of 1048575 values in 80000 B"
    );
    // Its first number is what Snappy would unpack it to, 4 GB, were it packed.
    let named = |codec| [b"start_ns".as_slice(), &[0x15, codec]].concat();
    let file = with(numbers(0x0f_ffff_ffff), &named(0), &named(2));
    let told = refused(file);
    assert!(told.contains("has 4294967295 B at once"), "{told}");
    // A footer longer than the file, and one that is too long.
    for (length, expected) in [
        (1 << 20, "is no Parquet"),
        (1 << 30, "its footer would have"),
    ] {
        let mut file = numbers(0);
        let end = file.len() - 8;
        file[end..end + 4].copy_from_slice(&u32::to_le_bytes(length));
        let told = refused(file);
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_schema_nested_without_end_is_refused() {
    let groups = 52_000_u32;
    // FileMetaData: version 1, then a list of structs.
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    footer.extend([0, 7, 14].map(|bits| (groups >> bits) as u8 | if bits < 14 { 0x80 } else { 0 }));
    for _ in 0..groups {
        // Without a name, with one child.
        footer.extend([0x48, 0x00, 0x15, 0x02, 0x00]);
    }
    let length = u32::try_from(footer.len()).unwrap();
    let file = [b"PAR1", &footer[..], &length.to_le_bytes(), b"PAR1"].concat();
    let told = refused(file);
    assert!(told.starts_with("is no Parquet that can be read"), "{told}");
}

#[test]
fn a_table_is_read_as_it_was_written_and_has_the_same_bytes_each_time() {
    let columns = || {
        [
            ("seed".to_owned(), Column::Numbers(vec![i64::MIN, 7, 0])),
            (
                "figure".to_owned(),
                Column::Texts(vec!["a,b".to_owned(), String::new(), "µs".to_owned()]),
            ),
            (
                "value".to_owned(),
                Column::Measured(vec![Some(0.1), None, Some(-2.0)]),
            ),
        ]
    };
    let file = table(&columns());
    assert_eq!(file, table(&columns()));
    let file = SerializedFileReader::new(Bytes::from(file)).unwrap();
    let rows: Vec<_> = RowIter::from_file_into(Box::new(file))
        .map(Result::unwrap)
        .collect();
    let texts: Vec<_> = rows.iter().map(|row| row.get_string(1).unwrap()).collect();
    assert_eq!(texts, ["a,b", "", "µs"]);
    let numbers: Vec<_> = rows.iter().map(|row| row.get_long(0).unwrap()).collect();
    assert_eq!(numbers, [i64::MIN, 7, 0]);
    let values: Vec<_> = rows.iter().map(|row| row.get_double(2).ok()).collect();
    assert_eq!(values, [Some(0.1), None, Some(-2.0)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever bytes are wrong, the answer is rows or an error.
    #[test]
    fn a_damaged_file_is_refused_or_read(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut file = SNAPPY.to_vec();
        for (place, byte) in damage {
            file[place.index(SNAPPY.len())] = byte;
        }
        if let Ok(rows) = rows(file, 3000) {
            prop_assert!(rows.len() <= 3000);
        }
    }
}
