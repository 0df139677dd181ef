//! A ledger for the targets of the placement service.

use tailbound_control::ledger::{Call, Command, Ledger};
use tailbound_placement::{Policy, Spec};
use tailbound_units::Nanos;

/// Two racks of two hosts with four places each, and a tenant.
pub fn ledger() -> Ledger {
    let group = |name: &str| {
        format!(
            "[[group]]\nname = \"{name}\"\nuplink = {{ rate = \"40Gbit/s\", buffer = \"500KB\" }}\n"
        )
    };
    let host = |name: &str, group: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\ngroup = \"{group}\"\ncount = 2\nslots = 4\n\
             uplink = {{ rate = \"10Gbit/s\", buffer = \"300KB\" }}\n"
        )
    };
    let tree = format!(
        "frame = \"1538B\"\n{}{}{}{}",
        group("one"),
        group("two"),
        host("a", "one"),
        host("b", "two")
    );
    let spec = Spec::from_toml(&tree).expect("it is written above");
    let (mut ledger, _) = Ledger::new(spec, Policy::Silo).expect("it is written above");
    let web = r#"{"name": "web", "owner": "acme", "vms": 3,
        "guarantee": {"bandwidth": "100Mbit/s", "burst": "15KB", "delay": "1ms"}}"#;
    let web = serde_json::from_str(web).expect("it is written above");
    decide(&mut ledger, Command::Create(web));
    assert_eq!(ledger.snapshot().tenants.len(), 1);
    ledger
}

/// Decides a command of an operator. A refused one changes nothing, and an accepted one can be undone
/// to the bit, read from its changes by another replica, and read from a store.
pub fn decide(ledger: &mut Ledger, command: Command) {
    let before = ledger.snapshot();
    let mut follower = ledger.clone();
    let Ok(decision) = ledger.decide(&Call::of_service(command), Nanos(1)) else {
        assert!(
            ledger.snapshot() == before,
            "a refused command changed something"
        );
        return;
    };
    let after = ledger.snapshot();
    follower.apply(&decision.changes).expect("the changes fit");
    assert!(
        follower.snapshot() == after,
        "another replica has another state"
    );
    let loaded = Ledger::load(after.clone()).expect("a ledger's content can be read");
    assert!(loaded.snapshot() == after, "a store has another state");
    ledger.undo(decision.undo).expect("it is the last one");
    assert!(ledger.snapshot() == before, "it was not undone");
    ledger
        .apply(&decision.changes)
        .expect("the changes fit again");
}
