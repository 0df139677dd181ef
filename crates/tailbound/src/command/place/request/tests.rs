use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    request: RequestArgs,
}

fn parse(flags: &str) -> Request {
    let words = std::iter::once("x").chain(flags.split(' '));
    Line::try_parse_from(words)
        .unwrap()
        .request
        .request()
        .unwrap()
}

#[test]
fn flags_round_trip_through_a_request() {
    for line in [
        "--vms 1",
        "--vms 9 --bandwidth 1Gbit/s",
        "--vms 9 --bandwidth 1Gbit/s --burst 68.359KB --delay 1ms --burst-rate 10Gbit/s",
        "--vms 4 --cpu 1500 --memory 4GiB --domains rack:3",
        "--vms 4 --domains 5:2",
        "--vms 2 --cpu-reservation 1ms/2ms/4ms",
        "--vms 2 --bandwidth 1Gbit/s --domains rack:2 --cpu-reservation 500us/3ms/3ms --vcpus 4 --message 100KB:200us:300us",
        "--vms 2 --bandwidth 1Gbit/s --message 1MB",
        "--vms 9 --bandwidth 1Gbit/s --burst 15KB --burst-rate 10Gbit/s --bursts 3",
    ] {
        assert_eq!(flags(&parse(line)), line);
    }
}

#[test]
fn requests_are_described_in_full() {
    for (line, said) in [
        ("--vms 1", "1 machine, best effort"),
        (
            "--vms 4 --cpu 1500 --memory 4GiB --domains rack:3",
            "4 machines of 1.5 CPUs and 4GiB, best effort, kept apart by rack:3",
        ),
        (
            "--vms 2 --cpu 1000 --bandwidth 1Gbit/s --burst 15KB",
            "2 machines of 1 CPU, each 1Gbit/s, burst 15KB",
        ),
        (
            "--vms 9 --bandwidth 1Gbit/s --burst 15KB --bursts 3 --delay 1ms",
            "9 machines, each 1Gbit/s, burst 15KB, 3 bursts into each host, rack and pod, delay 1ms",
        ),
        (
            "--vms 2 --bandwidth 1Gbit/s --cpu-reservation 1ms/2ms/4ms --vcpus 2 --message 1MB",
            "2 machines, each 1Gbit/s, 1ms/2ms/4ms of CPU for each of 2 vCPUs, messages of 1MB",
        ),
    ] {
        assert_eq!(words(&parse(line)), said);
    }
}

#[test]
fn incomplete_request_flags_are_refused() {
    for line in [
        "--burst 1KB --vms 1",
        "--bandwidth 1Gbit/s",
        "--vms 1 --bursts 1",
        "--vms 9 --bandwidth 1Gbit/s --bursts 0",
        "--vms 1 --domains rack",
        "--vms 1 --cpu-reservation 1ms/4ms",
        "--vms 1 --cpu-reservation 1ms/4ms/x",
        "--vms 1 --vcpus 2",
        "--vms 1 --message 1KB",
        "--vms 1 --bandwidth 1Gbit/s --message 1KB:1ms",
    ] {
        let words = std::iter::once("x").chain(line.split(' '));
        assert!(Line::try_parse_from(words).is_err(), "{line}");
    }
}
