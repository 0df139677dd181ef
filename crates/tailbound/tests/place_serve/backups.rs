//! Backups of a running service, and what a damaged store still has.

use super::program::Folder;
use super::{NEW, OPEN, Running, dir, refused, start};
use std::sync::Arc;
use tailbound_api::TopologyState;
use tailbound_control::backup;
use tailbound_placement::Policy;

/// Runs a command line of `tailbound place`, and checks its exit code. Returns all that it printed.
#[track_caller]
fn place(dir: &Folder, line: &str, code: i32) -> String {
    let output = dir.run(&format!("place {line}")).ended(code);
    output.out + &output.err
}

fn url(service: &Running) -> String {
    format!("--url=http://{}", service.address)
}

#[test]
fn a_backup_of_a_running_service_becomes_another_store() {
    let dir = dir();
    let service = start(&dir, NEW);
    let at = url(&service);
    place(&dir, &format!("create web --owner acme --vms 3 {at}"), 0);
    let said = place(&dir, &format!("backup place.jsonl {at}"), 0);
    assert!(said.starts_with("WRITTEN  1 tenant, 3 machines"), "{said}");
    let mode = std::fs::metadata(dir.join("place.jsonl")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o600);
    // It is used on; what comes later is not in the backup.
    place(&dir, &format!("create later --owner acme --vms 1 {at}"), 0);
    service.end().done();

    let import = "import place.jsonl --store sqlite:new.db";
    let said = place(&dir, import, 0);
    assert!(said.starts_with("IMPORTED  1 tenant, 3 machines"), "{said}");
    let said = place(&dir, import, 2);
    assert!(said.contains("new.db exists"), "{said}");
    let again = start(&dir, &format!("{OPEN} --store sqlite:new.db"));
    let at = url(&again);
    let said = place(&dir, &format!("get acme/web --output json {at}"), 0);
    assert!(said.contains("\"vms\": 3"), "{said}");
    place(&dir, &format!("get acme/later {at}"), 2);
    // A number that a host may have heard is not given again.
    let said = place(&dir, &format!("create next --owner acme --vms 1 {at}"), 0);
    let id = said.split_once("id 100000").map(|(_, rest)| &rest[..1]);
    assert_eq!(id, Some("2"), "{said}");
    again.end().done();

    // A changed backup is refused, and so is a guarantee that does not hold.
    let text = dir.read("place.jsonl");
    dir.write("cut.jsonl", &text[..text.len() / 2]);
    for (file, code, why) in [
        ("cut.jsonl", 2, "it was cut off"),
        ("tree.toml", 2, "it is no backup of tailbound's"),
        ("absent", 2, "No such file"),
    ] {
        let said = place(
            &dir,
            &format!("import {file} --store sqlite:other.db"),
            code,
        );
        assert!(said.contains(why), "{said}");
        assert!(!dir.join("other.db").exists());
    }
}

#[test]
fn an_import_says_that_revoked_tokens_come_back_and_can_leave_all_out() {
    let dir = dir();
    let service = start(&dir, NEW);
    let at = url(&service);
    let create = "token create ci --role tenant --owner acme --valid-for 1h";
    place(&dir, &format!("{create} {at}"), 0);
    place(&dir, &format!("backup place.jsonl {at}"), 0);
    place(&dir, &format!("token revoke ci {at}"), 0);
    service.end().done();
    let said = place(&dir, "import place.jsonl --store sqlite:with.db", 0);
    assert!(said.contains("1 issued token,"), "{said}");
    assert!(
        said.contains("TOKENS  issued tokens are as they were"),
        "{said}"
    );
    let bare = "import place.jsonl --store sqlite:bare.db --without-tokens";
    let said = place(&dir, bare, 0);
    assert!(!said.contains("token"), "{said}");
}

#[test]
fn a_backup_of_tenants_by_other_rules_is_imported_where_that_is_asked_for() {
    let dir = dir();
    let service = start(&dir, &format!("{NEW} --policy locality"));
    let at = url(&service);
    let create = "create web --owner acme --vms 8 --bandwidth 1Gbit/s --burst 200KB";
    place(&dir, &format!("{create} {at}"), 0);
    place(&dir, &format!("backup place.jsonl {at}"), 0);
    service.end().done();

    let mut snapshot = backup::read(&dir.read("place.jsonl")).unwrap();
    let mut topology = TopologyState::clone(&snapshot.topology.unwrap());
    topology.policy = Policy::Silo;
    snapshot.topology = Some(Arc::new(topology));
    dir.write("place.jsonl", backup::write(&snapshot));

    let import = "import place.jsonl --store sqlite:new.db";
    let said = place(&dir, import, 1);
    let is_told = said.contains("port \"a-1 up\"") && said.contains("--over takes");
    assert!(is_told, "{said}");
    assert!(!dir.join("new.db").exists());
    let said = place(&dir, &format!("{import} --over"), 0);
    assert!(
        said.contains("OVER  tenant acme/web is kept as it is"),
        "{said}"
    );
    let again = start(&dir, &format!("{OPEN} --store sqlite:new.db"));
    place(&dir, &format!("get acme/web {}", url(&again)), 0);
    again.end().done();
}

/// One bit of the log of a killed service: the service does not start, and all admissions but the
/// lost ones go on in a store of what is left.
#[test]
fn a_store_that_lost_admissions_is_refused_and_salvaged() {
    let dir = dir();
    let mut service = start(&dir, NEW);
    let at = url(&service);
    for number in 0..6 {
        place(
            &dir,
            &format!("create web-{number} --owner acme --vms 1 {at}"),
            0,
        );
    }
    service.child.kill().unwrap();
    service.child.wait().unwrap();

    let log = dir.join("tailbound-place.db-wal");
    let mut content = std::fs::read(&log).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&log, content).unwrap();
    let store = "--store sqlite:tailbound-place.db";
    refused(&dir, NEW, "tailbound-place.db-head has commit 7: at least");
    let said = place(&dir, &format!("audit {store}"), 2);
    assert!(said.contains("lost"), "{said}");

    let said = place(&dir, &format!("salvage left.jsonl {store}"), 1);
    let is_told = said.starts_with("SALVAGED  ") && said.contains("LOST  it ends with commit");
    assert!(is_told, "{said}");
    place(&dir, "import left.jsonl --store sqlite:new.db", 0);
    let again = start(&dir, &format!("{OPEN} --store sqlite:new.db"));
    let at = url(&again);
    place(&dir, &format!("get acme/web-0 {at}"), 0);
    place(&dir, &format!("get acme/web-5 {at}"), 2);
    again.end().done();
}

/// The store and its backups are lost, and each host has its last guarantees.
#[test]
fn a_lost_store_is_recovered_from_the_state_files_of_hosts() {
    let dir = dir();
    let service = start(&dir, NEW);
    let at = url(&service);
    place(&dir, &format!("create acme/web --vms 5 {at}"), 0);
    place(&dir, &format!("create globex/db --vms 1 {at}"), 0);
    place(&dir, &format!("drain a-2 {at}"), 0);
    let held = dir.join("held");
    std::fs::create_dir(&held).unwrap();
    let agent = ureq::Agent::new_with_defaults();
    for host in ["a-1", "a-2"] {
        let from = format!("http://{}/v1/hosts/{host}/guarantees", service.address);
        let mut answer = agent.get(from).call().unwrap();
        let said = answer.body_mut().read_to_string().unwrap();
        let state = format!(r#"{{"schema":2,"said":{said}}}"#);
        std::fs::write(held.join(format!("{host}.json")), state).unwrap();
    }
    service.end().done();

    let recover = "recover --from-hosts held --topology tree.toml --store";
    let said = place(&dir, &format!("{recover} sqlite:new.db"), 0);
    assert_eq!(said, "RECOVERED  2 tenants, 6 machines of 2 hosts\n");
    let said = place(&dir, &format!("{recover} sqlite:new.db"), 2);
    assert!(said.contains("new.db exists"), "{said}");
    let said = place(&dir, "audit --store sqlite:new.db", 0);
    assert!(said.starts_with("HOLDS"), "{said}");
    let again = start(&dir, &format!("{OPEN} --store sqlite:new.db"));
    let at = url(&again);
    let said = place(&dir, &format!("get acme/web --output json {at}"), 0);
    assert!(
        said.contains("\"id\": 1,") && said.contains("\"vms\": 5"),
        "{said}"
    );
    let said = place(&dir, &format!("hosts --state drained {at}"), 0);
    assert!(said.contains("a-2") && !said.contains("a-1"), "{said}");
    again.end().done();

    // A host that is not there, and a file that is none.
    std::fs::write(held.join("a-1.json"), "{").unwrap();
    let said = place(&dir, &format!("{recover} sqlite:less.db"), 1);
    assert!(
        said.contains("FOUND  held/a-1.json: this is no state file"),
        "{said}"
    );
    assert!(said.contains("FOUND  1 hosts hold nothing: a-1"), "{said}");
    std::fs::remove_dir_all(&held).unwrap();
    std::fs::create_dir(&held).unwrap();
    let said = place(&dir, &format!("{recover} sqlite:none.db"), 2);
    assert!(
        said.contains("there is no state file of a host in it"),
        "{said}"
    );
}
