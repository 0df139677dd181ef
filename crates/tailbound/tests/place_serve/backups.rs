//! Backups of a running service, and what a damaged store still has.

use super::{dir, refused, start};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tailbound_api::TopologyState;
use tailbound_control::backup;
use tailbound_placement::Policy;

/// Runs `tailbound place` with these arguments, and returns its exit code and what it said.
fn place(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tailbound"))
        .arg("place")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_backup_of_a_running_service_becomes_another_store() {
    let dir = dir();
    let service = start(
        dir.path(),
        &["--insecure-loopback", "--topology", "tree.toml"],
    );
    let url = format!("--url=http://{}", service.address);
    let create = ["create", "web", "--owner", "acme", "--vms", "3", &url];
    assert_eq!(place(dir.path(), &create).0, Some(0));
    let (code, said) = place(dir.path(), &["backup", "place.jsonl", &url]);
    assert_eq!(
        (code, said.starts_with("WRITTEN  1 tenant, 3 machines")),
        (Some(0), true),
        "{said}"
    );
    let mode = std::fs::metadata(dir.path().join("place.jsonl")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o600);
    // It is used on; what comes later is not in the backup.
    let later = ["create", "later", "--owner", "acme", "--vms", "1", &url];
    assert_eq!(place(dir.path(), &later).0, Some(0));
    assert_eq!(service.end().status.code(), Some(0));

    let import = ["import", "place.jsonl", "--store", "sqlite:new.db"];
    let (code, said) = place(dir.path(), &import);
    assert_eq!(
        (code, said.starts_with("IMPORTED  1 tenant, 3 machines")),
        (Some(0), true),
        "{said}"
    );
    let (code, said) = place(dir.path(), &import);
    assert_eq!(
        (code, said.contains("new.db exists")),
        (Some(2), true),
        "{said}"
    );
    let again = start(
        dir.path(),
        &["--insecure-loopback", "--store", "sqlite:new.db"],
    );
    let url = format!("--url=http://{}", again.address);
    let (_, said) = place(dir.path(), &["get", "acme/web", "--output", "json", &url]);
    assert!(said.contains("\"vms\": 3"), "{said}");
    assert_eq!(place(dir.path(), &["get", "acme/later", &url]).0, Some(2));
    // A number that a host may have heard is not given again.
    let (_, said) = place(
        dir.path(),
        &["create", "next", "--owner", "acme", "--vms", "1", &url],
    );
    let id = said.split_once("id 100000").map(|(_, rest)| &rest[..1]);
    assert_eq!(id, Some("2"), "{said}");
    assert_eq!(again.end().status.code(), Some(0));

    // A changed backup is refused, and so is a guarantee that does not hold.
    let text = std::fs::read_to_string(dir.path().join("place.jsonl")).unwrap();
    std::fs::write(dir.path().join("cut.jsonl"), &text[..text.len() / 2]).unwrap();
    for (file, code, why) in [
        ("cut.jsonl", 2, "it was cut off"),
        ("tree.toml", 2, "it is no backup of tailbound's"),
        ("absent", 2, "No such file"),
    ] {
        let (found, said) = place(dir.path(), &["import", file, "--store", "sqlite:other.db"]);
        assert_eq!((found, said.contains(why)), (Some(code), true), "{said}");
        assert!(!dir.path().join("other.db").exists());
    }
}

#[test]
fn a_backup_of_tenants_by_other_rules_is_imported_where_that_is_asked_for() {
    let dir = dir();
    let serve = ["--insecure-loopback", "--topology", "tree.toml"];
    let service = start(
        dir.path(),
        &[&serve[..], &["--policy", "locality"]].concat(),
    );
    let url = format!("--url=http://{}", service.address);
    let create = ["create", "web", "--owner", "acme", "--vms", "8"];
    let promise = ["--bandwidth", "1Gbit/s", "--burst", "200KB", &url];
    let (code, said) = place(dir.path(), &[&create[..], &promise].concat());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        place(dir.path(), &["backup", "place.jsonl", &url]).0,
        Some(0)
    );
    assert_eq!(service.end().status.code(), Some(0));

    let path = dir.path().join("place.jsonl");
    let mut snapshot = backup::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut topology = TopologyState::clone(&snapshot.topology.unwrap());
    topology.policy = Policy::Silo;
    snapshot.topology = Some(Arc::new(topology));
    std::fs::write(&path, backup::write(&snapshot)).unwrap();

    let import = ["import", "place.jsonl", "--store", "sqlite:new.db"];
    let (code, said) = place(dir.path(), &import);
    let is_told = said.contains("port \"a-1 up\"") && said.contains("--over takes");
    assert_eq!((code, is_told), (Some(1), true), "{said}");
    assert!(!dir.path().join("new.db").exists());
    let (code, said) = place(dir.path(), &[&import[..], &["--over"]].concat());
    let is_told = said.contains("OVER  tenant acme/web is kept as it is");
    assert_eq!((code, is_told), (Some(0), true), "{said}");
    let again = start(
        dir.path(),
        &["--insecure-loopback", "--store", "sqlite:new.db"],
    );
    let url = format!("--url=http://{}", again.address);
    assert_eq!(place(dir.path(), &["get", "acme/web", &url]).0, Some(0));
    assert_eq!(again.end().status.code(), Some(0));
}

/// One bit of the log of a killed service: the service does not start, and all admissions but the
/// lost ones go on in a store of what is left.
#[test]
fn a_store_that_lost_admissions_is_refused_and_salvaged() {
    let dir = dir();
    let serve = ["--insecure-loopback", "--topology", "tree.toml"];
    let mut service = start(dir.path(), &serve);
    let url = format!("--url=http://{}", service.address);
    for number in 0..6 {
        let name = format!("web-{number}");
        let create = ["create", &name, "--owner", "acme", "--vms", "1", &url];
        assert_eq!(place(dir.path(), &create).0, Some(0));
    }
    service.child.kill().unwrap();
    service.child.wait().unwrap();

    let log = dir.path().join("tailbound-place.db-wal");
    let mut content = std::fs::read(&log).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&log, content).unwrap();
    let store = "sqlite:tailbound-place.db";
    refused(
        dir.path(),
        &serve,
        "tailbound-place.db-head has commit 7: at least",
    );
    let (code, said) = place(dir.path(), &["audit", "--store", store]);
    assert_eq!((code, said.contains("lost")), (Some(2), true), "{said}");

    let (code, said) = place(dir.path(), &["salvage", "left.jsonl", "--store", store]);
    let is_told = said.starts_with("SALVAGED  ") && said.contains("LOST  it ends with commit");
    assert_eq!((code, is_told), (Some(1), true), "{said}");
    let import = ["import", "left.jsonl", "--store", "sqlite:new.db"];
    let (code, said) = place(dir.path(), &import);
    assert_eq!(code, Some(0), "{said}");
    let again = start(
        dir.path(),
        &["--insecure-loopback", "--store", "sqlite:new.db"],
    );
    let url = format!("--url=http://{}", again.address);
    assert_eq!(place(dir.path(), &["get", "acme/web-0", &url]).0, Some(0));
    assert_eq!(place(dir.path(), &["get", "acme/web-5", &url]).0, Some(2));
    assert_eq!(again.end().status.code(), Some(0));
}
