//! A machine that goes to another host while the service and the hosts' daemons are killed:
//! both hosts keep a place for it until it is there, and one of them afterwards.

use super::machine::{Build, Machine};
use super::support::{sandboxed, until};
use super::{Place, Process, metric};
use serde_json::Value;
use std::path::PathBuf;

impl Place {
    /// Writes the configuration of a host that the machine `acme/web/0` is a guest of, whether
    /// it is there or not, and `acme/web/1` another.
    fn configure_machine(&self, host: u8) {
        self.write(
            &format!("host-{host}.toml"),
            &format!(
                "metrics = \"127.0.0.1:947{host}\"\n\
                 [uplink]\nport = {{ kind = \"pcap\", write = \"up-{host}.pcap\" }}\n\
                 pacer = {{ link = \"10Gbit/s\" }}\n\
                 [[guest]]\nname = \"m\"\nmac = \"02:00:00:00:00:01\"\n\
                 anti_spoofing = false\nvm = \"acme/web/0\"\n\
                 port = {{ kind = \"vhost-user\", socket = \"{}\" }}\n\
                 [[guest]]\nname = \"n\"\nmac = \"02:00:00:00:00:02\"\n\
                 anti_spoofing = false\nvm = \"acme/web/1\"\n\
                 port = {{ kind = \"pcap\", write = \"n-{host}.pcap\" }}\n",
                self.card(host).display()
            ),
        );
    }

    fn card(&self, host: u8) -> PathBuf {
        self.path(&format!("card-{host}"))
    }

    /// The machine as it starts, or comes to be, on a host.
    fn machine_on(&self, host: u8) -> Machine {
        Machine::start(&self.card(host), Build::default())
    }

    /// The host that the first machine has its place on, and the one that it is on its way to.
    fn whereabouts(&self) -> (String, Option<String>) {
        let tenant = self.json("get acme/web");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let runs = tenant["runs"].as_array().cloned().unwrap_or_default();
        let first = runs.iter().find(|run| run["first"] == 0);
        let host = first.and_then(|run| text(&run["host"]));
        (host.unwrap_or_default(), text(&tenant["moving"]["to"]))
    }

    fn is_at(&self, host: &str, to: Option<&str>) -> bool {
        self.whereabouts() == (host.to_owned(), to.map(str::to_owned))
    }

    /// Returns the reservations of each host: slots, and its link in both directions.
    fn reserved(&self) -> [(Value, Vec<Value>); 2] {
        ["a-1", "a-2"].map(|host| {
            let mut host = self.json(&format!("host {host}"));
            let ports = host["ports"].as_array().cloned().unwrap_or_default();
            let reserved = ports.iter().map(|port| port["reserved_bit_s"].clone());
            (host["used"].take(), reserved.collect())
        })
    }

    /// The slots taken on each host.
    fn used(&self) -> [Value; 2] {
        self.reserved().map(|(used, _)| used)
    }

    fn must(&self, request: &str) {
        let (code, told) = self.ask(request);
        assert_eq!(code, Some(0), "{request}: {told}");
    }

    /// Kills the service amid a request, and starts another.
    fn kill_amid(&self, service: Process, request: &str) -> Process {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| self.ask(&format!("{request} --patience 200ms")));
            drop(service);
            asking.join().expect("it asked");
        });
        self.serve_again()
    }

    fn serve_again(&self) -> Process {
        let service = self.serve();
        until("its return", || !self.whereabouts().0.is_empty());
        service
    }
}

#[test]
fn no_reservation_leaks_when_processes_die_during_a_move() {
    let name = "moves::no_reservation_leaks_when_processes_die_during_a_move";
    sandboxed(name, || {
        let place = Place::new();
        place.configure_machine(1);
        place.configure_machine(2);
        let mut service = place.serve();
        let (mut first, mut second) = (place.host(1), place.host(2));
        until("what the hosts say", || {
            ["a-1", "a-2"].iter().all(|host| place.follows(host))
        });
        let nothing = place.reserved();
        place.must("create web --owner acme --vms 2 --bandwidth 100Mbit/s --burst 15KB");
        assert!(place.is_at("a-1", None), "{:?}", place.whereabouts());
        let here = place.reserved();
        assert_eq!(place.used(), [2, 0].map(Value::from));
        let machine = place.machine_on(1);

        // The service, as it is asked: it began that or did not, and does so once.
        let go = "move acme/web/0 --to a-2";
        service = place.kill_amid(service, go);
        place.must(go);
        let both = place.reserved();
        assert_eq!(place.used(), [2, 1].map(Value::from));
        assert_ne!(both[1].1, nothing[1].1, "a part of its link");
        // The service, amid the move; and each host's daemon, which knows afterwards what it
        // keeps a place for.
        drop(service);
        drop((first, second));
        service = place.serve_again();
        (first, second) = (place.host(1), place.host(2));
        until("the hosts", || {
            let away = "tailbound_guest_away{guest=\"m\"}";
            [1, 2].iter().all(|host| metric(*host, away) == Some(1.0))
        });
        assert!(place.is_at("a-1", Some("a-2")));
        assert_eq!(place.reserved(), both);
        // It comes as nobody serves.
        drop(service);
        drop(machine);
        let machine = place.machine_on(2);
        service = place.serve_again();
        until("its host's word", || place.is_at("a-2", None));
        assert_eq!(place.used(), [1, 1].map(Value::from));

        // On its way back its new host dies, and it stays.
        let there = place.reserved();
        let back = "move acme/web/0 --to a-1";
        place.must(back);
        assert_eq!(place.reserved(), both);
        drop(first);
        service = place.kill_amid(service, "move acme/web/0 --cancel");
        // Where it was heard before it died there is no move any more.
        let (_, told) = place.ask("move acme/web/0 --cancel");
        assert!(place.is_at("a-2", None), "{told}");
        assert_eq!(place.reserved(), there);

        // The host that it leaves dies, and all that is left of it there is its place.
        first = place.host(1);
        place.must(back);
        drop((second, machine));
        let _machine = place.machine_on(1);
        until("its new host's word", || place.is_at("a-1", None));
        assert_eq!(place.reserved(), here);
        place.must("delete acme/web");
        assert_eq!(place.reserved(), nothing);
        drop((first, service));
    });
}
