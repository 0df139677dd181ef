use super::*;
use crate::testing::{assert_mistakes, parse};
use tailbound_document::testing::assert_refused;

#[test]
fn every_embedded_experiment_is_valid_and_named_after_its_file() {
    for (name, text) in VcpuExperiment::CATALOGUE.embedded {
        assert_eq!(parse::<VcpuExperiment>(text).unwrap().name(), *name);
    }
}

const SMALL: &str = r#"
name = "small"
title = "t"
source = "s"
duration = "1s"

[[scheduler]]
name = "xen-4.2"
credit = { version = "4.2" }

[[guest]]
name = "server"
task = { kind = "server", arrivals = { kind = "poisson", mean = "5ms" }, service = "20us" }
series = "rtt"

[[guest]]
name = "hog"
load = { kind = "endless" }
cpu = "hog_cpu"

[[point]]
name = "together"
x = 1
guests = ["server", "hog"]

[[count]]
name = "late"
series = "rtt"
ranges = [["10ms", "1s"]]

[[chart]]
name = "p99"
title = "t"
x = { label = "hogs" }
y = { label = "99th percentile", unit = "ns" }
of = ["rtt.p99"]
paper = [{ name = "paper", points = [[1, "1ms"]] }]

[[check]]
name = "fast"
of = "rtt.p99"
at = ["together"]
at_most = "1ms"
source = "s"
"#;

#[test]
fn vcpu_mistakes_are_reported_with_their_place_and_a_remedy() {
    assert_refused(
        SMALL,
        parse::<VcpuExperiment>,
        r#"
duration => duraton
    x.toml:5:1: unknown key `duraton`; did you mean `duration`?
"1s"\n => "1 week"\n
    x.toml:5:12: "1 week" has the unknown unit
"1s"\n => "1ms"\n
    x.toml:5:12: duration 1ms: choose 100ms to 1000000s
"4.2" } => "4.5" }
    x.toml:9:22: unknown kind `4.5`; did you mean
credit =  => credit2 = {}\ncredit =
    x.toml:8:8: needs exactly one kind; write
"4.2" } => "4.1", ratelimit = "1ms" }
    x.toml:8:8: there is no ratelimit before Xen 4.2
"4.2" } => "4.2", ratelimit = "1us" }
    x.toml:8:8: ratelimit 1us: choose 0, or 100us
"4.2" } => "4.2", tslice = "0s" }
    x.toml:8:8: tslice 0ns: choose 1ms to 1s
"5ms" => "0s"
    x.toml:22:8: vCPU 0:
service => servise
    unknown key `servise`; did you mean `service`?
cpu =  => pin = [1]\ncpu =
    x.toml:17:8: is pinned to pCPU 1: choose 0 to 0
cpu =  => weight = 0\ncpu =
    x.toml:23:8: a weight is 1 to 65535, not 0
cpu =  => series = "x"\ncpu =
    x.toml:17:8: has a series, but no task that is measured
cpu =  => measure = "rtp"\ncpu =
    x.toml:17:8: is measured as RTP, but sends nothing
"hog"] => "hig"]
    x.toml:24:21: unknown guest `hig`; did you mean `hog`? known here: server, hog
["server", "hog"] => []
    x.toml:24:10: guests: 0 of them: choose 1 to 64
x = 1\n =>
    x.toml:31:8: shows nothing: no variant has a place on the x axis
"10ms", "1s" => "1s", "10ms"
    x.toml:27:8: needs ranges that are not empty
of = ["rtt.p99"] => of = ["rtt.p98"]
    unknown statistic `p98`; did you mean `p9
of = "rtt.p99" => of = "hog"
    unknown value `hog`; did you mean `hog_cpu`?
at = ["together"] => at = ["apart"]
    x.toml:42:7: unknown variant `apart`; known here: together
at = ["together"] => at = []
    x.toml:40:8: judges no variant
at_most = "1ms"\n =>
    x.toml:40:8: needs at_least or at_most, or both
at_most = "1ms" => at_most = nan
    x.toml:43:11: not a number; write one
at_most = "1ms" => at_most = []
    x.toml:43:11: invalid type: sequence; expected a number, or a time
at_most => kind = "ratio"\nat_most
    x.toml:40:8: needs a `from` to compare with
at_most => from = "together"\nat_most
    x.toml:40:8: has a `from`, but its kind compares nothing
of = "rtt.p99"\nat = ["together"] => kind = "distance"\nof = "p99"\nfrom = "papa"
    unknown line of the paper `papa`; did you mean `paper`?
name = "fast" => name = "../fast"
    x.toml:40:8: the name "../fast": use up to 60 letters
name = "hog" => name = "server"
    x.toml:17:8: guest "server" is there twice
"#,
    );
}

#[test]
fn a_population_that_makes_no_sense_is_refused() {
    assert_mistakes::<VcpuExperiment>(
        "bobtail-fig9",
        r#"
nodes = 200 => nodes = 0
    nodes 0: choose 1 to 100000
[1, 4] => [1, 40]
    neighbours 40: choose 1 to 32
[10, 90] => [0, 90]
    share: choose 1 to 99 percent
share = [10, 90]\n =>
    needs burst and share together
"120s" => "1s"
    network_test 1s: choose 10s to
nodes = 200 => nodes = 200\nsamples = 0
    0 samples cannot decide
pcpus = 2 => pcpus = 0
    a host has 1 to 256 pCPUs, not 0
of = "bad_nodes" => of = "bad"
    unknown value `bad`; did you mean `bad_nodes`?
"#,
    );
}

#[test]
fn pairs_and_weeks_that_make_no_sense_are_refused() {
    assert_mistakes::<VcpuExperiment>(
        "bobtail-fig2",
        r#"
nodes = 16 => nodes = 65
    pairs: choose 2 to 64 nodes
"550us" => "20ms"
    wire 20ms: choose 2us to 10ms
"10ms" => "0s"
    pause 0ns: choose 100us to 1s
"#,
    );
    assert_mistakes::<VcpuExperiment>(
        "bobtail-fig3",
        r"
days = 35 => days = 0
    days 0: choose 1 to 366
runs = 2 => runs = 25
    runs 25: choose 1 to 24
[7, 30, 90, 365] => [0, 7, 365]
    lives 0: choose 1 to 36600
[7, 30, 90, 365] => []
    lives
",
    );
}
