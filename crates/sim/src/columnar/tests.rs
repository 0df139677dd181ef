use super::{Column, table};
use bytes::Bytes;
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor as _;
use parquet::record::reader::RowIter;

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
