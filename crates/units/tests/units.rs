//! Units parse, print and compute exactly.

use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos, ParseError, Rate};

#[test]
fn text_with_a_unit_is_read_exactly() {
    assert_eq!("10ms".parse(), Ok(Nanos(10_000_000)));
    assert_eq!("0.5 ms".parse(), Ok(Nanos(500_000)));
    assert_eq!("1.5KB".parse(), Ok(Bytes(1500)));
    assert_eq!("64KiB".parse(), Ok(Bytes(65536)));
    assert_eq!("1Gbit/s".parse(), Ok(Rate(1_000_000_000)));
    assert_eq!("37_500B".parse(), Ok(Bytes(37_500)));
    assert_eq!("0".parse(), Ok(Nanos::ZERO));
}

#[test]
fn a_unit_error_suggests_the_correct_text() {
    let message = |text: &str| text.parse::<Nanos>().unwrap_err().to_string();
    assert_eq!(
        message("10"),
        "\"10\" has no unit: use one of s, ms, us, ns"
    );
    assert_eq!(
        message("10mins"),
        "\"10mins\" has the unknown unit \"mins\": use one of s, ms, us, ns; did you mean \
         10min?"
    );
    assert_eq!(
        message("0.3ns"),
        "\"0.3ns\" is not a whole number of nanoseconds"
    );
    assert_eq!(
        message("fast"),
        "\"fast\" does not start with a number: write for example \"10ms\""
    );
    assert!(matches!(
        "-1ms".parse::<Nanos>(),
        Err(ParseError::Number { .. })
    ));
    assert!(matches!(
        "1..5ms".parse::<Nanos>(),
        Err(ParseError::Number { .. })
    ));
    assert!(matches!(
        "99999999999999999999s".parse::<Nanos>(),
        Err(ParseError::TooLarge { .. })
    ));
    assert!(matches!(
        "20000000000s".parse::<Nanos>(),
        Err(ParseError::TooLarge { .. })
    ));
}

#[test]
fn a_number_without_a_unit_is_refused_in_a_document() {
    #[derive(Debug, serde::Deserialize)]
    struct Document {
        #[expect(dead_code, reason = "only read")]
        burst: Bytes,
    }
    let error = toml::from_str::<Document>("burst = 30000").unwrap_err();
    assert_eq!(
        error.message(),
        "invalid type: integer `30000`, expected a text with a unit, such as \"1.5KB\""
    );
}

#[test]
fn unambiguous_spellings_of_units_are_accepted() {
    for text in [
        "10Mbit/s",
        "10mbit",
        "10Mbit",
        "10 MBIT/S",
        "10Mbps",
        "10Mb/s",
        "10M",
        "10000kbit/s",
        "10000K",
        "10000k",
        "0.01Gbit",
        "0.00001Tbit/s",
    ] {
        assert_eq!(text.parse(), Ok(Rate::from_mbit(10)), "{text}");
    }
    for text in ["15KB", "15kB", "15 kB", "15000bytes", "0.000000015TB"] {
        assert_eq!(text.parse(), Ok(Bytes(15_000)), "{text}");
    }
    for text in [
        "90s",
        "1.5min",
        "0.025h",
        "90sec",
        "90000msec",
        "90000000\u{b5}s",
    ] {
        assert_eq!(text.parse(), Ok(Nanos::from_secs(90)), "{text}");
    }
}

#[test]
fn ambiguous_units_are_refused_with_suggestions() {
    let ends = |error: String, end: &str| assert!(error.ends_with(end), "{error}");
    for (text, end) in [
        (
            "10mbps",
            "use one of Gbit/s, Mbit/s, kbit/s, bit/s; did you mean 10Mbit/s or 80Mbit/s?",
        ),
        ("10Mb", "; did you mean 10Mbit/s?"),
        ("1.5Gb", "; did you mean 1.5Gbit/s?"),
        ("12MB/s", "; did you mean 96Mbit/s?"),
        // No text of ours for a fraction of bytes, nor for what is too much.
        ("1.5MB/s", "bit/s"),
        ("18446744073709551615MB/s", "bit/s"),
        (
            "10",
            "\"10\" has no unit: use one of Gbit/s, Mbit/s, kbit/s, bit/s",
        ),
    ] {
        ends(text.parse::<Rate>().unwrap_err().to_string(), end);
    }
    ends(
        "64K".parse::<Bytes>().unwrap_err().to_string(),
        "; did you mean 64KB or 64KiB?",
    );
    ends(
        "5m".parse::<Nanos>().unwrap_err().to_string(),
        "; did you mean 5min or 5ms?",
    );
}

#[test]
fn transmission_times_are_rounded_up_to_nanoseconds() {
    // 84 bytes, preamble and gap included, are the smallest step of a 10 Gbit/s
    // wire: 67.2 ns (Silo, 4.3.1).
    assert_eq!(Rate(10_000_000_000).time_for(Bytes(84)), Nanos(68));
    assert_eq!(
        Rate(1_000_000_000).time_for(Bytes(37_500)),
        Nanos::from_micros(300)
    );
    assert_eq!(
        Rate(1_000_000_000).bytes_in(Nanos::from_micros(300)),
        Bytes(37_500)
    );
    assert_eq!(Rate(0).time_for(Bytes(1)), Nanos::MAX);
}

#[test]
fn serde_uses_the_text() {
    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct Config {
        rate: Rate,
    }
    let config: Config = toml::from_str("rate = \"10Mbit/s\"").unwrap();
    assert_eq!(config.rate, Rate::from_mbit(10));
    assert_eq!(toml::to_string(&config).unwrap(), "rate = \"10Mbit/s\"\n");
    let error = toml::from_str::<Config>("rate = \"10Mb\"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown unit \"Mb\""), "{error}");
    assert!(error.contains("; did you mean 10Mbit/s?"), "{error}");
}

proptest! {
    #[test]
    fn a_printed_value_parses_to_the_same_value(value: u64) {
        prop_assert_eq!(Nanos(value).to_string().parse(), Ok(Nanos(value)));
        prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
        prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
    }

    #[test]
    fn any_text_is_read_or_refused(text: String) {
        let _ = text.parse::<Nanos>();
        let _ = text.parse::<Bytes>();
    }

    #[test]
    fn time_and_bytes_are_inverse(rate in 1u64..1_000_000_000_000, bytes in 0u64..1 << 40) {
        let (rate, bytes) = (Rate(rate), Bytes(bytes));
        let time = rate.time_for(bytes);
        if time != Nanos::MAX {
            prop_assert!(rate.bytes_in(time) >= bytes);
            if time > Nanos::ZERO {
                prop_assert!(rate.bytes_in(time - Nanos(1)) < bytes || bytes == Bytes::ZERO);
            }
        }
    }
}

#[test]
fn differences_are_exact_and_saturate_where_they_say_so() {
    assert_eq!(Bytes(5) - Bytes(3), Bytes(2));
    for (rate, less, left) in [(7, 5, 2), (5, 7, 0)] {
        assert_eq!(Rate(rate).saturating_sub(Rate(less)), Rate(left));
    }
    assert_eq!(Nanos::from_millis(1_500).as_secs_f64().to_string(), "1.5");
}
