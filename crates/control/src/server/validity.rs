//! The end of a certificate's validity (X.509, RFC 5280, 4.1.2.5).

use crate::expiry::Expiry;

/// Tags of DER (X.690).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the end of the validity of a certificate in DER; None if this is no certificate.
pub(super) fn end_of_validity(der: &[u8]) -> Option<Expiry> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        (_, fields) = element(fields, VERSION)?;
    }
    // Serial number, signature algorithm and issuer.
    for _ in 0..3 {
        (_, fields) = element(fields, *fields.first()?)?;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    let (_, end) = element(validity, *validity.first()?)?;
    let tag = *end.first()?;
    let (text, _) = element(end, tag)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Splits the element with this tag off: returns its content, and the bytes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [actual_tag, length, rest @ ..] = bytes else {
        return None;
    };
    if *actual_tag != tag {
        return None;
    }
    let (length, rest) = match usize::from(*length) {
        short @ 0..=0x7f => (short, rest),
        long => {
            let (digits, rest) = rest.split_at_checked(long - 0x80)?;
            if digits.len() > 4 {
                return None;
            }
            let length = digits
                .iter()
                .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        }
    };
    rest.split_at_checked(length)
}

/// Reads a time in UTC: `YYMMDDhhmmssZ`, or the same with four digits of the year.
fn time(tag: u8, text: &str) -> Option<Expiry> {
    let long = match tag {
        // RFC 5280, 4.1.2.5.1: years from 50 on are of the last century.
        UTC_TIME if text.get(..2)? >= "50" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let part = |range: std::ops::Range<usize>| long.get(range);
    Expiry::parse(&format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0..4)?,
        part(4..6)?,
        part(6..8)?,
        part(8..10)?,
        part(10..12)?,
        part(12..14)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 2, 28);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_that_of_the_certificate_in_either_form() {
        for year in [1999, 2027, 2049, 2050, 2400] {
            let end = end_of_validity(&certificate(year)).unwrap();
            assert_eq!(end.to_string(), format!("{year}-02-28T00:00:00Z"));
        }
    }

    proptest! {
        #[test]
        fn other_bytes_never_panic(mut der in Just(certificate(2027)), at in 0_usize..700, byte: u8, cut in 0_usize..700) {
            let length = der.len();
            der[at % length] = byte;
            der.truncate(cut);
            let _ = end_of_validity(&der);
        }
    }
}
