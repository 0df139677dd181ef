use super::{Column, Row, Wrong, read, table};
use bytes::Bytes;
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor as _;
use parquet::record::reader::RowIter;

/// A table written by pyarrow: 3,000 rows in two parts, Snappy, a dictionary, differences, four
/// types of numbers, an additional column.
const SNAPPY: &[u8] = include_bytes!("tests/snappy.parquet");
/// The same table in one part with pages of version 2, and a null for the bytes of row 2,501.
const NULL: &[u8] = include_bytes!("tests/null.parquet");
/// A log of flows, 3,000 rows in two parts, Snappy, dictionaries, an additional column of bytes.
const FLOWS: &[u8] = include_bytes!("tests/flows.parquet");

const NAMES: [&str; 4] = ["start_ns", "source", "destination", "bytes"];

fn rows(file: impl Into<Bytes>, most: u64) -> Result<Vec<[u64; 4]>, Wrong> {
    let mut rows = Vec::new();
    read(file.into(), NAMES, most, |row: Row<4>| {
        let mut numbers = [0; 4];
        for (field, number) in numbers.iter_mut().enumerate() {
            *number = row.number(field, 0..=u64::MAX)?;
        }
        rows.push(numbers);
        Ok(())
    })?;
    Ok(rows)
}

fn refusal(file: impl Into<Bytes>) -> String {
    rows(file, 1_000_000).unwrap_err().to_string()
}

#[test]
fn a_table_of_another_program_is_read() {
    let expected: Vec<_> = (0..3000)
        .map(|i| [i * 1000, i % 4, (i + 1) % 4, 100 + i % 7])
        .collect();
    assert_eq!(rows(SNAPPY, 3000).unwrap(), expected);

    let mut flows = Vec::new();
    let names = ["time_ns", "guest", "destination"];
    read(Bytes::from(FLOWS), names, 3000, |row| {
        let text = |field| row.text(field).map(str::to_owned);
        flows.push((row.number(0, 0..=u64::MAX)?, text(1)?, text(2)?));
        Ok(())
    })
    .unwrap();
    let row = |i: u64| (i * 1000, format!("g{}", i % 5), format!("wärme-{}", i % 7));
    assert_eq!(flows, (0..3000).map(row).collect::<Vec<_>>());
}

#[test]
fn mistakes_are_reported_with_row_and_column() {
    let null = "row 2501, column `bytes`: null is not a whole number from 0 to";
    assert!(refusal(NULL).starts_with(null), "{}", refusal(NULL));
    let said = rows(SNAPPY, 2999).unwrap_err().to_string();
    assert_eq!(said, "has more than 2999 rows: take a part of it");
    let said = refusal(table(&[("time".to_owned(), Column::Numbers(vec![0]))]));
    assert_eq!(said, "column `start_ns`: is not there: there is `time`");
    // Bytes are no text, even if they could be one.
    let take = |row: Row<1>| row.text(0).map(|_| ());
    let said = read(Bytes::from(FLOWS), ["ignored"], 3000, take).unwrap_err();
    let said = said.to_string();
    assert!(said.starts_with("row 1, column `ignored`: "), "{said}");
    assert!(said.ends_with(" is no text"), "{said}");
    for short in [&SNAPPY[..7], &SNAPPY[..2000], b"PAR1"] {
        let said = refusal(short);
        assert!(said.starts_with("is no Parquet that can be read"), "{said}");
    }
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
                Column::Figures(vec![Some(0.1), None, Some(-2.0)]),
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
