use super::*;
use crate::control::IndexedGuarantees;
use std::sync::Arc;
use tailbound_dataplane::QueueConfig;
use tailbound_units::{Nanos, Rate};

const CONFIG: &str = r#"
[uplink]
port = { kind = "pcap", write = "uplink.pcap" }
pacer = { link = "1Gbit/s" }
[[guest]]
name = "A"
mac = "02:00:00:00:00:01"
ip = ["10.77.0.1"]
vm = "t/a/0"
port = { kind = "pcap", write = "a.pcap" }
limit = { out = { kind = "bucket", rate = "10Mbit/s", depth = "50KB", memory = "1MiB" }, in = { rate = "20Mbit/s" } }
[[guest]]
name = "B"
mac = "02:00:00:00:00:02"
ip = ["10.77.0.2"]
vm = "t/a/1"
port = { kind = "pcap", write = "b.pcap" }
[[guest]]
name = "C"
mac = "02:00:00:00:00:03"
ip = ["10.77.0.3"]
port = { kind = "pcap", write = "c.pcap" }
limit = { out = { kind = "smooth-window", rate = "4Mbit/s", interval = "10ms", dmin = "2ms", width = "1ms" } }
"#;

fn guarantees(config: &str) -> Guarantees {
    let config = Config::parse(config).expect("no mistake");
    let all = Guarantees::default().reconfigured(&config);
    all.expect("nothing was heard yet")
}

/// The service's guarantees and limits of VMs of `t/a`.
fn said(vms: &[(u32, &str)]) -> Arc<IndexedGuarantees> {
    let vms = vms.iter().map(|(number, more)| {
        format!(r#"{{"vm":"t/a/{number}","tenant":1,"tenant_vms":2{more}}}"#)
    });
    let vms: Vec<_> = vms.collect();
    let all = format!(
        r#"{{"host":"h","state":"open","revision":7,"vms":[{}]}}"#,
        vms.join(",")
    );
    let all: tailbound_api::HostGuarantees =
        serde_json::from_str(&all).expect("the service's own form");
    Arc::new(all.into())
}

fn rates(all: &Guarantees) -> Vec<(Option<u64>, Option<u64>)> {
    let mbit = |rate: Rate| rate.0 / 1_000_000;
    let limits = all.limits();
    let rates = limits.map(|it| {
        let out = it.out.map(|out| mbit(out.rate()));
        (out, it.pipeline.limit.map(|limit| mbit(limit.rate)))
    });
    rates.collect()
}

#[test]
fn a_limit_by_the_service_overrides_the_file_per_direction() {
    let mut all = guarantees(CONFIG);
    let file = [(Some(10), Some(20)), (None, None), (Some(4), None)];
    assert_eq!(rates(&all), file);
    all.update(said(&[
        (0, r#","limit":{"out":{"rate":"30Mbit/s"}}"#),
        (1, r#","limit":{"in":{"rate":"5Mbit/s"}}"#),
    ]));
    let both = [(Some(30), Some(20)), (None, Some(5)), (Some(4), None)];
    assert_eq!(rates(&all), both);
    // Whoever gets a limit in waits fairly before its port.
    let limits: Vec<_> = all.limits().collect();
    assert!(matches!(limits[1].pipeline.queue, QueueConfig::FqCodel(_)));
    assert!(!matches!(limits[2].pipeline.queue, QueueConfig::FqCodel(_)));
    // It knows them, and limits nothing; then it does not know them.
    for nothing in [said(&[(0, ""), (1, "")]), said(&[])] {
        all.update(nothing);
        assert_eq!(rates(&all), file);
    }
}

#[test]
fn limit_keys_that_the_service_omits_come_from_the_file_if_they_fit() {
    let mut all = guarantees(CONFIG);
    all.update(said(&[(0, r#","limit":{"out":{"rate":"30Mbit/s"}}"#)]));
    let first = |all: &Guarantees| all.limits_at(0).expect("it is there").out;
    let Some(ShaperConfig::Bucket(bucket)) = first(&all) else {
        panic!("a bucket");
    };
    assert_eq!(bucket.depth, Some(Bytes(50_000)));
    assert_eq!(bucket.memory, Some(Bytes(1 << 20)));
    // Another kind has its own.
    let smooth = r#","limit":{"out":{"kind":"smooth-window","rate":"30Mbit/s"}}"#;
    all.update(said(&[(0, smooth)]));
    let expected = WindowConfig::new(Rate::from_mbit(30));
    assert_eq!(first(&all), Some(ShaperConfig::SmoothWindow(expected)));
    // An interval of 10 ms holds no frame at one rate; at the other it does.
    let text = CONFIG.replace("vm = \"t/a/1\"\n", "");
    let text = text.replace("name = \"C\"", "name = \"C\"\nvm = \"t/a/1\"");
    let text = text.replace("rate = \"4Mbit/s\"", "rate = \"40Mbit/s\"");
    let mut all = guarantees(&text);
    for (mbit, interval) in [(1, Nanos::from_secs(1)), (50, Nanos::from_millis(10))] {
        let limit =
            format!(r#","limit":{{"out":{{"kind":"smooth-window","rate":"{mbit}Mbit/s"}}}}"#);
        all.update(said(&[(1, &limit)]));
        let out = all.limits_at(2).expect("it is there").out;
        let Some(ShaperConfig::SmoothWindow(window)) = out else {
            panic!("a window");
        };
        assert_eq!(window.rate, Rate::from_mbit(mbit));
        assert_eq!(window.interval, interval);
        assert_eq!(ShaperConfig::SmoothWindow(window).check(), Ok(()));
    }
}

/// A bucket by the service holds the burst that the service guarantees; a limit of the file
/// alone is what contradicts.
#[test]
fn a_limit_by_the_service_holds_the_burst_it_guarantees() {
    let mut all = guarantees(CONFIG);
    let promise = r#","guarantee":{"bandwidth":"30Mbit/s","burst":"300KB"}"#;
    let limited =
        format!(r#"{promise},"limit":{{"out":{{"rate":"40Mbit/s"}},"in":{{"rate":"40Mbit/s"}}}}"#);
    all.update(said(&[(0, &limited)]));
    assert!(all.wanted_at(0).is_some());
    assert!(all.refused_at(0, None).is_none());
    let Some(ShaperConfig::Bucket(bucket)) = all.limits_at(0).expect("it is there").out else {
        panic!("a bucket");
    };
    assert_eq!(bucket.limit().depth(), Bytes(300_000));
    all.update(said(&[(0, promise)]));
    assert!(all.wanted_at(0).is_none());
    let refused = all.refused_at(0, None).expect("it is told");
    assert_eq!(
        refused.why,
        "the limit out of 10Mbit/s is below the guaranteed 30Mbit/s"
    );
}
