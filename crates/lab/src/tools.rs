//! Load from installed programs: their arguments, and parsers of their output.

use crate::experiment::Iperf;
use crate::topology::Guest;
use tailbound_units::Nanos;

/// The first port of an experiment's servers. Each guest has its own addresses, so loads differ by
/// their ports only.
pub(crate) const FIRST_PORT: u16 = 7_000;

/// Splits a command line without quoted spaces into its arguments.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns the command of `iperf3` as a receiver of datagrams, which reports their jitter ten times
/// a second; the program first.
pub(crate) fn iperf3_server(port: u16) -> Vec<String> {
    words(&format!("iperf3 -s -1 -p {port} -i 0.1 -J"))
}

/// Returns the command of `iperf3` as a sender of datagrams at a constant rate, the program first.
/// It starts immediately and counts after the warm-up, in whole seconds.
pub(crate) fn iperf3_client(
    to: &Guest,
    port: u16,
    iperf: &Iperf,
    warmup: Nanos,
    duration: Nanos,
) -> Vec<String> {
    let seconds = |time: Nanos| time.as_nanos().div_ceil(1_000_000_000);
    words(&format!(
        "iperf3 -u -b {} -l {} -c {} -p {port} -O {} -t {} -J --get-server-output",
        iperf.rate.as_bit_s(),
        iperf.payload.as_u64(),
        to.ip,
        seconds(warmup),
        seconds(duration).max(1),
    ))
}

/// Parses the mean jitter, in milliseconds, from the receiver's reports in `iperf3 -u -J
/// --get-server-output`. Its final report is the jitter of the last 16 datagrams only.
pub(crate) fn iperf3_jitter(json: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(json).ok()?;
    let intervals = report
        .pointer("/server_output_json/intervals")?
        .as_array()?;
    let sums = intervals.iter().filter_map(|interval| interval.get("sum"));
    let counted =
        sums.filter(|sum| sum.get("omitted").and_then(serde_json::Value::as_bool) == Some(false));
    let jitters: Vec<f64> = counted
        .filter_map(|sum| sum.get("jitter_ms")?.as_f64())
        .collect();
    let mean = jitters.iter().sum::<f64>() / jitters.len() as f64;
    mean.is_finite().then_some(mean)
}

/// Returns the command of memcached with room for the largest values, the program first. memcached
/// listens on all addresses of its guest.
pub(crate) fn memcached(port: u16) -> Vec<String> {
    words(&format!(
        "memcached -p {port} -U 0 -t 1 -u root -m 512 -I 128m"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_mean_jitter_that_iperf3_saw_after_the_warm_up_is_read() {
        let json = r#"{"end": {"sum": {"jitter_ms": 9}}, "server_output_json": {"intervals": [
            {"sum": {"jitter_ms": 7, "omitted": true}},
            {"sum": {"jitter_ms": 0.25, "omitted": false}},
            {"sum": {"jitter_ms": 0.75, "omitted": false}}]}}"#;
        assert_eq!(iperf3_jitter(json), Some(0.5));
        assert_eq!(iperf3_jitter("{}"), None);
        let none_counted = r#"{"server_output_json": {"intervals": []}}"#;
        assert_eq!(iperf3_jitter(none_counted), None);
    }

    proptest! {
        #[test]
        fn any_output_is_read_without_panic(text: String) {
            let _ = iperf3_jitter(&text);
        }
    }
}
