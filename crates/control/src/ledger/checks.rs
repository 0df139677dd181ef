//! Checks of what a caller sends, independent of the data centre.

use super::LedgerError;
use tailbound_api::{VmLimit, is_name};
use tailbound_placement::Request;

/// Checks that a limit can be kept beside what is promised.
pub(super) fn check_limit(limit: &VmLimit, request: &Request) -> Result<(), LedgerError> {
    let checked = limit.check(request.guarantee.as_ref());
    checked.map_err(|rule| LedgerError::Absurd(rule.to_string()))
}

/// Checks the names of a new tenant and of its owner.
pub(super) fn check_names(owner: &str, name: &str) -> Result<(), LedgerError> {
    check_name("owner", owner)?;
    check_name("name", name)?;
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(LedgerError::Absurd(format!(
            "the name {name:?} is a number, which would be taken for an id; put a letter in it"
        )));
    }
    Ok(())
}

/// Checks a name, which becomes part of machines' names and of paths.
fn check_name(kind: &str, name: &str) -> Result<(), LedgerError> {
    if is_name(name) {
        return Ok(());
    }
    Err(LedgerError::Absurd(format!(
        "the {kind} {name:?} is not 1 to 63 of a-z, 0-9 and -, with no - at either end"
    )))
}
