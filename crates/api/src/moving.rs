//! Machines on their way from one host to another.

use serde::{Deserialize, Serialize};

/// A machine on its way to another host. Until it is there, both hosts have a place for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Moving {
    /// The machine's number.
    pub vm: u32,
    /// The host that it goes to. It is where the tenant's runs say until then.
    pub to: String,
}

/// What is to be done about the move of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveVm {
    /// The machine's number.
    #[cfg_attr(feature = "openapi", schema(maximum = 4_294_967_295_u64))]
    pub vm: u32,
    /// What is to be done.
    pub step: MoveStep,
}

/// A step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MoveStep {
    /// Reserve a place on this host, and keep the one that it has.
    Begin {
        /// The host that it is to go to.
        to: String,
    },
    /// It is there: give its former place back.
    Done,
    /// It stays: give the new place back.
    Cancel,
}

/// Which end of its way a host is for a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MoveEnd {
    /// It is to come here: the host says when it is here.
    Arrives,
    /// It is to leave.
    Leaves,
}

/// What is derived would allow other keys beside `begin` and beside its host.
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
