//! Moves of machines between hosts.

use serde::{Deserialize, Serialize};

/// A machine that moves to another host. Until it arrives, both hosts reserve a place for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Moving {
    /// The machine's number.
    pub vm: u32,
    /// The new host. Until the arrival, the present host is in the tenant's runs.
    pub to: String,
}

/// A request to begin, finish or cancel the move of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveVm {
    /// The machine's number.
    #[cfg_attr(feature = "openapi", schema(maximum = 4_294_967_295_u64))]
    pub vm: u32,
    /// The step.
    pub step: MoveStep,
}

/// A step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MoveStep {
    /// Reserves a place on the new host, and keeps the present one.
    Begin {
        /// The new host.
        to: String,
    },
    /// Finishes the move: frees the former place.
    Done,
    /// Cancels the move: frees the new place.
    Cancel,
}

/// The role of a host in the move of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MoveEnd {
    /// The machine moves to this host, which reports its arrival.
    Arrives,
    /// The machine leaves this host.
    Leaves,
}

/// The derived schema would allow other keys beside `begin` and its host.
#[cfg(feature = "openapi")]
mod openapi {
    use super::MoveStep;
    use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type};
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for MoveStep {
        fn schema() -> RefOr<Schema> {
            let text = || ObjectBuilder::new().schema_type(Type::String);
            let only = |key: &str, value: ObjectBuilder| {
                ObjectBuilder::new()
                    .property(key, value)
                    .required(key)
                    .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            };
            OneOfBuilder::new()
                .item(only("begin", only("to", text())))
                .item(text().enum_values(Some(["done"])))
                .item(text().enum_values(Some(["cancel"])))
                .into()
        }
    }

    impl ToSchema for MoveStep {}
}
