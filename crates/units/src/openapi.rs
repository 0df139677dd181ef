//! Schemas of quantities: texts with a unit.

use crate::{Bursts, Bytes, Nanos, Rate};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The form that every reader accepts and every writer prints: at most as many digits as always fit
/// in 64 bits, and as many after the point as are always whole.
macro_rules! schema {
    ($name:ident, $pattern:expr, $example:literal) => {
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .pattern(Some($pattern))
                    .examples([$example])
                    .into()
            }
        }
        impl ToSchema for $name {}
    };
}

schema!(
    Bytes,
    concat!(
        "^([0-9]{1,19}B",
        "|[0-9]{1,16}([.][0-9]{1,3})?KB",
        "|[0-9]{1,13}([.][0-9]{1,6})?MB",
        "|[0-9]{1,10}([.][0-9]{1,9})?GB",
        // Eighths: what of three digits is whole.
        "|[0-9]{1,15}([.](5|[27]5|(12|37|62|87)5))?KiB",
        "|[0-9]{1,12}([.](5|[27]5|(12|37|62|87)5))?MiB",
        "|[0-9]{1,9}([.](5|[27]5|(12|37|62|87)5))?GiB)$"
    ),
    "100KB"
);
schema!(
    Nanos,
    concat!(
        "^([0-9]{1,19}ns",
        "|[0-9]{1,16}([.][0-9]{1,3})?us",
        "|[0-9]{1,13}([.][0-9]{1,6})?ms",
        "|[0-9]{1,10}([.][0-9]{1,9})?s)$"
    ),
    "1ms"
);
schema!(
    Rate,
    concat!(
        "^([0-9]{1,19}bit/s",
        "|[0-9]{1,16}([.][0-9]{1,3})?kbit/s",
        "|[0-9]{1,13}([.][0-9]{1,6})?Mbit/s",
        "|[0-9]{1,10}([.][0-9]{1,9})?Gbit/s)$"
    ),
    "1Gbit/s"
);

impl PartialSchema for Bursts {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(1_000_000));
        let word = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some([Self::PerReceiver.to_string()]));
        let either = OneOfBuilder::new().item(number).item(word);
        either.examples([1]).into()
    }
}
impl ToSchema for Bursts {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::string::string_regex;

    /// Texts of the type's schema.
    fn texts<T: PartialSchema>() -> impl Strategy<Value = String> {
        let RefOr::T(Schema::Object(object)) = T::schema() else {
            panic!("it is a text");
        };
        let pattern = object.pattern.expect("it has a pattern");
        // They are whole anyway, and the generator knows no anchors.
        string_regex(pattern.trim_matches(['^', '$'])).expect("a pattern it knows")
    }

    proptest! {
        #[test]
        fn every_text_of_the_schema_is_read(
            bytes in texts::<Bytes>(),
            nanos in texts::<Nanos>(),
            rate in texts::<Rate>(),
        ) {
            prop_assert!(bytes.parse::<Bytes>().is_ok(), "{bytes}");
            prop_assert!(nanos.parse::<Nanos>().is_ok(), "{nanos}");
            prop_assert!(rate.parse::<Rate>().is_ok(), "{rate}");
        }
    }
}
