use super::{Row, Wrong, of_csv, of_json_lines, of_parquet};
use crate::columnar::{Column, table};
use bytes::Bytes;

/// A table written by pyarrow: 3,000 rows in two parts, Snappy, a dictionary, differences, four
/// types of numbers, an additional column.
const SNAPPY: &[u8] = include_bytes!("tests/snappy.parquet");
/// The same table in one part with pages of version 2, and a null for the bytes of row 2,501.
const NULL: &[u8] = include_bytes!("tests/null.parquet");
/// A log of flows, 3,000 rows in two parts, Snappy, dictionaries, an additional column of bytes.
const FLOWS: &[u8] = include_bytes!("tests/flows.parquet");

const NAMES: [&str; 4] = ["start_ns", "source", "destination", "bytes"];

/// Returns the numbers of a row.
fn numbers<const N: usize>(row: &Row<'_, N>) -> Result<[u64; N], Wrong> {
    let mut numbers = [0; N];
    for (field, number) in numbers.iter_mut().enumerate() {
        *number = row.number(field, 0..=u64::MAX)?;
    }
    Ok(numbers)
}

fn rows(file: impl Into<Bytes>, most: usize) -> Result<Vec<[u64; 4]>, Wrong> {
    let mut rows = Vec::new();
    of_parquet(file.into(), NAMES, most, |row| {
        rows.push(numbers(row)?);
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
    of_parquet(Bytes::from(FLOWS), names, 3000, |row| {
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
    let null = ": row 2501, column `bytes`: null is not a whole number from 0 to";
    assert!(refusal(NULL).starts_with(null), "{}", refusal(NULL));
    let said = rows(SNAPPY, 2999).unwrap_err().to_string();
    assert_eq!(said, ": has more than 2999 rows: take a part of it");
    let said = refusal(table(&[("time".to_owned(), Column::Numbers(vec![0]))]));
    assert_eq!(said, ": column `start_ns`: is not there: there is `time`");
    // Bytes are no text, even if they could be one.
    let take = |row: &Row<'_, 1>| row.text(0).map(|_| ());
    let said = of_parquet(Bytes::from(FLOWS), ["ignored"], 3000, take).unwrap_err();
    let said = said.to_string();
    assert!(said.starts_with(": row 1, column `ignored`: "), "{said}");
    assert!(said.ends_with(" is no text"), "{said}");
    for short in [&SNAPPY[..7], &SNAPPY[..2000], b"PAR1"] {
        let said = refusal(short);
        assert!(
            said.starts_with(": it is no Parquet that can be read"),
            "{said}"
        );
    }
}

/// Returns the numbers of the columns `a` and `b` of a CSV file.
fn of_text(text: impl AsRef<[u8]>, most: usize) -> Result<Vec<[u64; 2]>, String> {
    let mut rows = Vec::new();
    let read = of_csv(text.as_ref(), ["a", "b"], most, |row| {
        rows.push(numbers(row)?);
        Ok(())
    });
    read.map(|()| rows).map_err(|wrong| wrong.to_string())
}

#[test]
fn csv_columns_are_found_by_name_despite_quotes_and_spaces() {
    let text = "b, more ,a\r\n1,x,2\r\n\r\n\"3\",\"x,\n\", 4\r\n5,,6";
    assert_eq!(of_text(text, 3).unwrap(), [[2, 1], [4, 3], [6, 5]]);
}

#[test]
fn mistakes_in_csv_have_their_line_and_column() {
    for (text, most, expected) in [
        ("", 9, ": it is empty: begin with the line `a,b`"),
        (
            "a,c\n1,2\n",
            9,
            ": column `b`: is not there: there is `a`, `c`",
        ),
        ("a,b\n1,2\n3\n", 9, ":3: a row has 2 fields, and this one 1"),
        ("a,b\n1,2,\n", 9, ":2: a row has 2 fields, and this one 3"),
        (
            "a,b,c\n1,2,\"\n\"\n3,4kB,\n",
            9,
            ":4: column `b`: \"4kB\" is not a whole number from 0 to 18446744073709551615",
        ),
        (
            "a,b\n1,2\n3,4\n",
            1,
            ": has more than 1 rows: take a part of it",
        ),
    ] {
        assert_eq!(of_text(text, most).unwrap_err(), expected);
    }
    let said = of_text(b"a,b\n\xff,1\n", 9).unwrap_err();
    assert!(
        said.starts_with(":2: it is no CSV that can be read"),
        "{said}"
    );
    let take = |row: &Row<'_, 1>| row.text(0).map(|_| ());
    let said = of_csv(&b"a,b\n,1\n"[..], ["a"], 9, take).unwrap_err();
    assert_eq!(said.to_string(), ":2: column `a`: is empty");
}

#[test]
fn json_lines_are_rows_and_mistakes_have_their_line() {
    let read = |text: &str| {
        let mut rows = Vec::new();
        of_json_lines(text.as_bytes(), ["bytes", "guest"], 3, |row| {
            rows.push((row.number(0, 1..=9)?, row.text(1)?.to_owned()));
            Ok(())
        })
        .map(|()| rows)
        .map_err(|wrong| wrong.to_string())
    };
    let row = r#"{"guest": "a", "other": null, "bytes": 3}"#;
    assert_eq!(read(row), Ok(vec![(3, "a".to_owned())]));
    for (second, reason) in [
        ("", ":2: it is no JSON object that can be read"),
        ("[1]", ":2: it is no JSON object that can be read"),
        (r#"{"guest": "a"}"#, ":2: column `bytes`: is not there"),
        (
            r#"{"guest": "a", "bytes": 1.5}"#,
            ":2: column `bytes`: 1.5 is not a whole number from 1 to 9",
        ),
        (
            r#"{"guest": 7, "bytes": 1}"#,
            ":2: column `guest`: 7 is no text",
        ),
        (
            r#"{"guest": "", "bytes": 1}"#,
            ":2: column `guest`: is empty",
        ),
    ] {
        let error = read(&format!("{row}\n{second}\n{row}\n")).unwrap_err();
        assert!(error.starts_with(reason), "{second}: {error}");
    }
    assert!(
        read(&format!("{row}\n").repeat(4))
            .unwrap_err()
            .contains("3 rows")
    );
}
