//! Documents about machines that their callers named: their places, and changes of these.

use crate::scheduling::MachineRequest;
use serde::{Deserialize, Serialize};
use tailbound_placement::TenantId;

/// The host and the tenant of a named machine, as its caller sets them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MachinePut {
    /// The tenant's name. A tenant that does not exist is created with the machine. The default is
    /// the tenant of the machine's place on the host, otherwise that of its other place, each time
    /// of a reserved one before a confirmed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub tenant: Option<String>,
    /// The owner. An operator or a host must set it; with a tenant's token the default is the
    /// token's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    )]
    pub owner: Option<String>,
    /// The machine's host.
    pub host: String,
    /// The machine's request; required for a tenant that does not exist yet. For another tenant it
    /// must be that of its machines, unless the machine is on the host already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<MachineRequest>,
}

/// The state of a named machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MachineState {
    /// An open reservation has the place.
    Reserved,
    /// The machine is part of its tenant.
    Confirmed,
}

/// A named machine: its confirmed place, otherwise its reserved one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Machine {
    /// The caller's name of the machine.
    pub name: String,
    /// The tenant's owner.
    pub owner: String,
    /// The tenant's number.
    pub tenant: TenantId,
    /// The tenant's name.
    pub tenant_name: String,
    /// The machine's full name, `OWNER/NAME/NUMBER`.
    pub vm: String,
    /// The machine's host.
    pub host: String,
    /// The state.
    pub state: MachineState,
}
