//! Random numbers of the system.

use super::SettingsError;

/// Returns `N` unpredictable bytes.
///
/// # Errors
/// [`SettingsError::Randomness`]: the system has none, as in a container whose
/// filter forbids `getrandom` (2).
pub fn random<const N: usize>() -> Result<[u8; N], SettingsError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| SettingsError::Randomness(error.to_string()))?;
    Ok(bytes)
}
