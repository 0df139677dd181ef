//! Two concurrent schedulers that reserve the same places, and are killed with the service: no
//! place is granted twice, and no reservation stays. The same over etcd, whose leaders are killed.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../control/tests/support/etcd.rs"]
mod etcd;
#[path = "place_races/replicas.rs"]
mod replicas;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "place_faults/services.rs"]
mod services;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "place/support.rs"]
mod support;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;
use support::{Service, run, tailbound, until};
use tailbound_api::{Reservation, Tenant};

/// A process that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Scheduler(usize),
    Service,
    Nobody,
}

fn reserve(place: &Place, pod: &str) -> Child {
    let mut command = tailbound();
    command
        .args([
            "place",
            "reserve",
            "acme/pods",
            "--on",
            "a-1",
            "--ttl",
            "1s",
        ])
        .args(["--file", "request.toml", "--machine", pod])
        .args(["--patience", "20s", "--output", "json"])
        .env("TAILBOUND_URL", &place.service.url);
    command
        .current_dir(place.directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

fn round(number: usize, random: &mut Pcg64Mcg, place: &mut Place) -> Victim {
    let victim = match number % 4 {
        0 => Victim::Scheduler(0),
        1 => Victim::Scheduler(1),
        2 => Victim::Service,
        _ => Victim::Nobody,
    };
    // In turn for one pod, and for the last place of the host.
    let pods = [0, 1].map(|which| match number / 4 % 2 {
        0 => format!("pod-{number}"),
        _ => format!("pod-{number}-{which}"),
    });
    let mut schedulers = pods.map(|pod| reserve(place, &pod));
    sleep(Duration::from_millis(random.random_range(0..60)));
    match victim {
        Victim::Scheduler(which) => schedulers[which].kill().unwrap(),
        Victim::Service => place.restart(),
        Victim::Nobody => {}
    }
    let mut granted = 0;
    for scheduler in schedulers {
        let output = scheduler.wait_with_output().unwrap();
        let Ok(made) = serde_json::from_slice::<Reservation>(&output.stdout) else {
            continue;
        };
        let confirmed = place.service.place(&format!("confirm {}", made.id));
        granted += usize::from(confirmed.code == Some(0));
    }
    assert!(granted <= 1, "round {number}, {victim:?}: granted twice");
    place.confirmed += granted;
    victim
}

/// A service on a fixed port over one store.
struct Place {
    directory: tempfile::TempDir,
    listen: String,
    service: Service,
    confirmed: usize,
}

impl Place {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::open(directory.path());
        let listen = service
            .url
            .trim_start_matches("http://")
            .trim_end_matches('/');
        Self {
            listen: listen.to_owned(),
            directory,
            service,
            confirmed: 0,
        }
    }

    /// Kills the service, and starts another one with its store.
    fn restart(&mut self) {
        self.service.kill();
        self.service = Service::start(self.directory.path(), &self.listen, "--insecure-loopback");
    }

    fn tenants(&self) -> Vec<Tenant> {
        let list = self.service.place("list --output json").json();
        serde_json::from_value(list["items"].clone()).unwrap()
    }

    /// Waits until all reservations have ended, and compares the machines with the answers.
    fn settle(&mut self) {
        until("reservations end", || {
            let open = self.service.place("reservations").done();
            open.contains("no open reservations")
        });
        let vms = |tenant: &Tenant| tenant.request.vms as usize;
        let machines: usize = self.tenants().iter().map(vms).sum();
        // A confirmation may have been kept although its answer was lost with the service.
        assert_eq!(
            machines,
            self.confirmed + 3,
            "machines without a scheduler, or lost machines"
        );
        for tenant in self.tenants().iter().filter(|tenant| tenant.name == "pods") {
            let delete = format!("delete {}", tenant.id.0);
            self.service.place(&delete).done();
        }
        self.confirmed = 0;
    }
}

fn races(rounds: usize) {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut place = Place::start();
    std::fs::write(place.directory.path().join("request.toml"), "vms = 1\n").unwrap();
    // Of the 4 places of the host, one is free.
    let others = "create others --owner acme --vms 3 --on a-1:3";
    place.service.place(others).done();
    for number in 0..rounds {
        round(number, &mut random, &mut place);
        place.settle();
    }
    place.service.kill();
    let audit = "place audit --store sqlite:place.db";
    run(place.directory.path(), audit).done();
}

#[test]
fn killed_schedulers_and_services_leave_no_place_granted_twice() {
    races(4);
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_kills_leave_no_place_granted_twice_and_no_reservation() {
    races(134);
}

/// Number of kills of the leader: `TAILBOUND_LEADER_KILLS`, or `usual`.
fn leader_kills(usual: usize) -> usize {
    std::env::var("TAILBOUND_LEADER_KILLS").map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn killed_leaders_over_etcd_leave_no_place_granted_twice() {
    replicas::run(leader_kills(5));
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_killed_etcd_leaders_grant_no_slot_twice() {
    replicas::run(leader_kills(100));
}
