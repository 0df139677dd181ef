use crate::config::Config;
use tailbound_document::Mistake;
use tailbound_switch::{BudgetConfig, GuardConfig};
use tailbound_units::{Bytes, Rate};

const GUARDED: &str = r#"
[[guest]]
name = "A1"
mac = "02:00:00:00:00:01"
ip = ["10.77.0.0/24", "fd77::1"]
slaac = ["fd78::/64"]
chosen_addresses = 8
dhcp_server = true
groups = { rate = "50Mbit/s", burst = "1MB" }
unknown = { rate = "1Mbit/s" }
guard = { vrrp = true, redirects = true }
port = { kind = "tap", interface = "tap-a1" }

[[guest]]
name = "A2"
mac = "02:00:00:00:00:02"
ip = ["10.78.0.1"]
slaac = ["fd78::/64"]
port = { kind = "tap", interface = "tap-a2" }
"#;

#[test]
fn the_permissions_of_a_guest_are_parsed() {
    let config = Config::parse(GUARDED).expect("it is right");
    let [first, second] = &config.guests[..] else {
        panic!("two guests");
    };
    assert_eq!(first.ip[0].to_string(), "10.77.0.0/24");
    assert_eq!((first.chosen_addresses, second.chosen_addresses), (8, 16));
    assert!(first.dhcp_server && !second.dhcp_server);
    assert!(first.guard.vrrp && first.guard.redirects && !first.guard.ospf);
    assert_eq!(second.guard, GuardConfig::default());
    assert_eq!(first.groups.rate, Rate::from_mbit(50));
    assert_eq!(first.groups.burst, Bytes(1_000_000));
    assert_eq!(first.unknown.burst, Bytes(1_250_000));
    assert_eq!(second.groups, BudgetConfig::default());
}

#[test]
fn each_rule_is_named_at_the_key_that_breaks_it() {
    let all = "anti_spoofing = false\nslaac = [\"fd78::/64\"]\nport";
    for (from, to, place, expected) in [
        (
            "10.78.0.1",
            "10.77.0.9",
            "17:7",
            "10.77.0.9 overlaps 10.77.0.0/24, which is A1's",
        ),
        (
            "10.78.0.1",
            "fd77::1",
            "17:7",
            "fd77::1, which is A1's; use different addresses for each guest",
        ),
        (
            "10.77.0.0/24",
            "10.77.0.1/24",
            "5:6",
            "write \"10.77.0.0/24\"",
        ),
        ("10.77.0.0/24", "0.0.0.0/0", "5:7", "use a longer prefix"),
        ("fd77::1", "ff02::/16", "5:23", "use a longer prefix"),
        ("fd78::/64", "fd78::/63", "6:10", "IPv6 prefix of 64 bits"),
        ("fd78::/64", "10.0.0.0/24", "6:10", "IPv6 prefix of 64 bits"),
        (
            "chosen_addresses = 8",
            "chosen_addresses = 0",
            "7:20",
            "use 1 to 256",
        ),
        (
            "chosen_addresses = 8",
            "chosen_addresses = 257",
            "7:20",
            "use 1 to 256",
        ),
        ("\"50Mbit/s\"", "\"0bit/s\"", "9:19", "once and for all"),
        ("\"1MB\"", "\"1537B\"", "9:39", "below one full frame"),
        (
            "dhcp_server = true",
            "dhcp_server = true\nanti_spoofing = false",
            "6:9",
            "anyway",
        ),
        (
            "guard = { vrrp = true,",
            "anti_spoofing = false\nguard = { vrrp = true,",
            "12:18",
            "anyway",
        ),
        ("redirects = true", "rediects = true", "11:24", "redirects"),
        ("slaac = [\"fd78::/64\"]\nport", all, "19:9", "anyway"),
    ] {
        assert!(GUARDED.contains(from), "{from}");
        let wrong = Config::parse(&GUARDED.replacen(from, to, 1)).expect_err(to);
        let wrong: Vec<_> = wrong.iter().map(Mistake::to_string).collect();
        let found = wrong
            .iter()
            .any(|one| one.starts_with(place) && one.contains(expected));
        assert!(found, "{to}: {wrong:?}");
    }
}

#[test]
fn group_traffic_from_outside_has_its_own_budget() {
    let with = |groups: &str| {
        let port = "port = { kind = \"af-packet\", interface = \"eth0\" }";
        Config::parse(&format!("[uplink]\n{port}\n{groups}\n{GUARDED}"))
    };
    let uplink = with("").expect("it is right").uplink.expect("an uplink");
    assert_eq!(uplink.groups.rate, Rate::from_mbit(100));
    assert_eq!(uplink.groups.burst, Bytes(12_500_000));
    let narrow = with("groups = { rate = \"1Mbit/s\", burst = \"2KB\" }");
    let uplink = narrow.expect("it is right").uplink.expect("an uplink");
    assert_eq!(uplink.groups.burst, Bytes(2000));
    let wrong = with("groups = { burst = \"1B\" }").expect_err("it is too little");
    assert!(
        wrong[0].to_string().contains("below one full frame"),
        "{wrong:?}"
    );
}
