//! Text form of bounds: three decimals, rounded up, so the text is a bound as well.
//!
//! ```
//! use tailbound_units::rounded_up;
//!
//! assert_eq!(rounded_up::time(1_000_001), "1.001 ms");
//! assert_eq!(rounded_up::size(422_553), "422.553 KB");
//! ```

/// Returns nanoseconds as text, never below the value.
pub fn time(nanos: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    rounded_up(nanos, &units, "ns")
}

/// Returns bytes as text, never below the value.
pub fn size(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)];
    rounded_up(bytes, &units, "B")
}

/// Returns a number with three decimals, never below the value: the printed value is a bound as
/// well.
fn rounded_up(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let Some((name, scale)) = units.iter().find(|(_, scale)| value >= *scale) else {
        return format!("{value} {smallest}");
    };
    let thousandths = (u128::from(value) * 1_000).div_ceil(u128::from(*scale));
    format!("{}.{:03} {name}", thousandths / 1_000, thousandths % 1_000)
}

#[cfg(test)]
mod tests {
    use super::{size, time};

    #[test]
    fn printed_bounds_are_rounded_up() {
        assert_eq!(time(49_479_166_667), "49.480 s");
        assert_eq!(time(1_000_000), "1.000 ms");
        assert_eq!(time(999), "999 ns");
        assert_eq!(size(422_553), "422.553 KB");
        assert_eq!(size(1_000_001), "1.001 MB");
        assert_eq!(size(0), "0 B");
        assert_eq!(time(u64::MAX), "18446744073.710 s");
    }
}
