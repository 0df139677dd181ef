//! The interval between two updates in arguments.

use tailbound_units::Nanos;

/// The shortest interval.
const MIN_INTERVAL: Nanos = Nanos::from_millis(100);

/// Parses an interval of up to `longest`.
pub(super) fn interval(text: &str, longest: Nanos) -> Result<Nanos, String> {
    let interval: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if (MIN_INTERVAL..=longest).contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("use {MIN_INTERVAL} to {longest}"))
    }
}
