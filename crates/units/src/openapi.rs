//! Schemas of quantities: texts with a unit.

use crate::{Bytes, Nanos, Rate};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A whole number of at most 9 digits and a unit: all that is
/// sensible, and less than what is read.
macro_rules! schema {
    ($name:ident, $units:literal, $example:literal) => {
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .pattern(Some(concat!("^[0-9]{1,9}(", $units, ")$")))
                    .examples([$example])
                    .into()
            }
        }
        impl ToSchema for $name {}
    };
}

schema!(Bytes, "B|KB|KiB|MB|MiB|GB|GiB", "100KB");
schema!(Nanos, "ns|us|ms|s", "1ms");
schema!(Rate, "bit/s|kbit/s|Mbit/s|Gbit/s", "1Gbit/s");
