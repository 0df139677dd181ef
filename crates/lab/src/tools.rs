//! Load from installed programs: their arguments, and parsers of their output.

use crate::experiment::Iperf;
use crate::guest::{CONGESTION_CONTROL, Sample};
use crate::topology::Guest;
use tailbound_units::Nanos;

/// The first port of an experiment's servers. Each guest has its own addresses, so loads differ by
/// their ports only.
pub(crate) const FIRST_PORT: u16 = 7_000;

/// Splits a command line without quoted spaces into its arguments.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns the command of `iperf3` as a receiver, the program first.
pub(crate) fn iperf3_server(port: u16) -> Vec<String> {
    words(&format!("iperf3 -s -1 -p {port}"))
}

/// Returns the arguments of `iperf3` as a sender. It starts immediately and counts after the
/// warm-up, in whole seconds.
pub(crate) fn iperf3_client(to: &Guest, port: u16, warmup: Nanos, duration: Nanos) -> Vec<String> {
    let time = iperf3_time(warmup, duration);
    words(&format!(
        "-c {} -p {port} {time} -C {CONGESTION_CONTROL} -J",
        to.ip
    ))
}

fn iperf3_time(warmup: Nanos, duration: Nanos) -> String {
    let seconds = |time: Nanos| time.as_nanos().div_ceil(1_000_000_000);
    format!("-O {} -t {}", seconds(warmup), seconds(duration).max(1))
}

/// Returns the command of `iperf3` as a receiver of datagrams, which reports their jitter ten times
/// a second.
pub(crate) fn iperf3_datagram_server(port: u16) -> Vec<String> {
    words(&format!("iperf3 -s -1 -p {port} -i 0.1 -J"))
}

/// Returns the arguments of the sender of datagrams at a constant rate.
pub(crate) fn iperf3_datagrams(
    to: &Guest,
    port: u16,
    iperf: &Iperf,
    warmup: Nanos,
    duration: Nanos,
) -> Vec<String> {
    let time = iperf3_time(warmup, duration);
    words(&format!(
        "-u -b {} -l {} -c {} -p {port} {time} -J --get-server-output",
        iperf.rate.as_bit_s(),
        iperf.payload.as_u64(),
        to.ip
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

/// Parses the received rate in bit/s from the output of `iperf3 -J`.
pub(crate) fn iperf3_rate(json: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(json).ok()?;
    report
        .pointer("/end/sum_received/bits_per_second")?
        .as_f64()
        .filter(|rate| rate.is_finite())
}

/// Returns the command of memcached with room for the largest values, the program first. memcached
/// listens on all addresses of its guest.
pub(crate) fn memcached(port: u16) -> Vec<String> {
    words(&format!(
        "memcached -p {port} -U 0 -t 1 -u root -m 512 -I 128m"
    ))
}

/// Returns the arguments of `ping` with time stamps.
pub(crate) fn ping(to: &Guest, every: Nanos, count: u64) -> Vec<String> {
    let every = every.as_secs_f64();
    words(&format!("-n -D -i {every} -c {count} -W 2 {}", to.ip))
}

/// Parses the output of `ping -D` into samples. Its time stamps are of the wall clock, which was
/// `ahead` of the monotonic one.
pub(crate) fn ping_samples(output: &str, ahead: Nanos) -> Vec<Sample> {
    let line = |line: &str| {
        let (stamp, rest) = line.strip_prefix('[')?.split_once(']')?;
        let (seconds, micros) = stamp.split_once('.')?;
        if micros.len() != 6 {
            return None;
        }
        let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
        let at = seconds
            .checked_mul(1_000_000_000)?
            .checked_add(micros * 1000)?;
        let (_, rest) = rest.split_once("icmp_seq=")?;
        let (sequence, rest) = rest.split_once(' ')?;
        let (_, rest) = rest.split_once("time=")?;
        let (time, _) = rest.split_once(" ms")?;
        let time: f64 = time.parse().ok().filter(|t| (0.0..1e9).contains(t))?;
        let end = Nanos(at).since(ahead);
        Some(Sample {
            arrival: sequence.parse().ok()?,
            start: end.saturating_sub(Nanos((time * 1e6) as u64)),
            end,
        })
    };
    output.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_ping_is_a_sample() {
        let output = "PING 10.77.5.8 (10.77.5.8) 56(84) bytes of data.\n\
            [100.000500] 64 bytes from 10.77.5.8: icmp_seq=3 ttl=64 time=0.250 ms\n";
        let sample = Sample {
            arrival: 3,
            start: Nanos(90_000_250_000),
            end: Nanos(90_000_500_000),
        };
        assert_eq!(ping_samples(output, Nanos::from_secs(10)), [sample]);
    }

    #[test]
    fn the_rate_that_iperf3_received_is_read() {
        let json = r#"{"end": {"sum_received": {"bits_per_second": 9.5e7}}}"#;
        assert_eq!(iperf3_rate(json), Some(9.5e7));
        assert_eq!(iperf3_rate("{}"), None);
    }

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
        fn any_output_is_read_without_panic(text: String, number: u64) {
            let _ = ping_samples(&text, Nanos::ZERO);
            let _ = (iperf3_rate(&text), iperf3_jitter(&text));
            let line = format!("[{number}.{:06}] icmp_seq={number} time={number} ms", number % 1_000_000);
            let _ = ping_samples(&line, Nanos(number));
        }
    }
}
