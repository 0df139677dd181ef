//! CPU that the agents of hosts offer, and the service reserves.

use super::support::{sandboxed, until};
use super::{Place, Process};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// A tenth of a CPU a machine, with periods that even a machine of tests keeps that is stolen from.
const WEB: &str = "create web --owner acme --vms 2 --domains host:2 --bandwidth 100Mbit/s \
    --burst 15KB --burst-rate 1Gbit/s --delay 2ms --cpu-reservation 400ms/4s/4s \
    --message 30KB:1ms:2ms";

impl Place {
    /// Lets the agent of a host offer a part of a CPU, and have the process `pid` for the guest `g`.
    fn offer(&self, host: u8, cpus: &str, pid: u32) {
        let name = format!("host-{host}.toml");
        let config = fs::read_to_string(self.path(&name)).expect("it is there");
        let config = config.split("[vcpu]").next().unwrap_or_default();
        let state = self.path(&format!("vcpu-{host}.json"));
        self.write(
            &name,
            &format!(
                "{config}[vcpu]\nstate = \"{}\"\nevery = \"100ms\"\nbeside_others = true\n\
                 [vcpu.offer]\ncpus = {cpus}\nlargest = 0.2\nthreads = 8\n\
                 [[vcpu.guest]]\npid = {pid}\nlabel = \"g\"\nlevel = \"normal\"\n",
                state.display()
            ),
        );
    }

    fn offered(&self, host: &str) -> Value {
        self.json(&format!("host {host}"))["said"]["cpu"]["reservable"].take()
    }

    fn reserved_cpu(&self) -> [Value; 2] {
        ["a-1", "a-2"].map(|host| self.json(&format!("host {host}"))["reserved_cpu"]["cpu"].take())
    }
}

#[test]
fn reserved_cpu_is_admitted_from_offers_and_survives_restarts() {
    let name = "reserved::reserved_cpu_is_admitted_from_offers_and_survives_restarts";
    sandboxed(name, || {
        let place = Place::new();
        let sleep = || Command::new("sleep").arg("600").spawn();
        let guest = Process(sleep().expect("it is there"));
        place.offer(1, "0.15", guest.0.id());
        let service = place.serve();
        let (_first, second) = (place.host(1), place.host(2));
        until("what the hosts say", || {
            place.follows("a-2") && place.offered("a-1") == 150
        });
        let (code, told) = place.ask(WEB);
        assert_eq!(code, Some(1), "{told}");
        let why = "1 would; of the nearest host, a-2: it keeps no reservation of CPU";
        assert!(told.contains(why), "{told}");

        drop(second);
        place.offer(2, "0.15", 1 << 30);
        let _second = place.host(2);
        until("the other offer", || place.offered("a-2") == 150);
        let (code, told) = place.ask(WEB);
        assert_eq!(code, Some(0), "{told}");
        // The guest there has no reservation, and the machine is promised one.
        assert!(told.starts_with("DEGRADED"), "{told}");
        let why = "acme/web/0: 0 of the 1 vCPUs of g have 400ms/4s/4s, which is guaranteed for 1";
        assert!(told.contains(why), "{told}");
        assert_eq!(place.reserved_cpu(), [100, 100].map(Value::from));
        let (_, told) = place.ask("host a-1");
        let reserved = "0.100 of 0.150 of a CPU reserved, for 1 vCPU of 8";
        assert!(told.contains(reserved), "{told}");
        drop(guest);
        until("that it is off", || place.state("web") == "admitted");
        let (_, told) = place.ask("bound web 0 1");
        assert!(told.contains("a message of 30KB takes at most"), "{told}");
        for part in [
            "CPU of 0 on a-1: 1.000 ms of work",
            "15KB at the burst rate",
            "15KB more at",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let (code, told) = place.ask(&WEB.replace("web", "more"));
        assert_eq!(code, Some(1), "{told}");
        let why = "its machines would have 0.200 of a CPU reserved in all, and it keeps 0.150";
        assert!(told.contains(why), "{told}");

        // A service that was killed knows it.
        drop(service);
        let _service = place.serve();
        until("its return", || place.state("web") == "admitted");
        assert_eq!(place.reserved_cpu(), [100, 100].map(Value::from));
        assert_eq!(place.ask(&WEB.replace("web", "more")).0, Some(1));
        assert_eq!(place.ask("delete web").0, Some(0));
        assert_eq!(place.reserved_cpu(), [0, 0].map(Value::from));
        let (code, told) = place.ask(&WEB.replace("web", "more"));
        assert_eq!(code, Some(0), "{told}");
    });
}
