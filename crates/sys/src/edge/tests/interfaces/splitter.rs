//! The splitter: the pair of interfaces in which frames wait for their destinations' buckets.

use super::*;

/// The host's end of the guest's veth, as the guest's frames name it.
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn destination(rate: u64) -> Destination {
    Destination {
        station: HOST_MAC,
        bucket: Bucket {
            rate: Rate(rate),
            burst: Bytes(3_000),
        },
    }
}

impl Net {
    fn has_splitter(&self) -> bool {
        let name = format!("{}h", self.name);
        let links = Command::new("ip").args(["-n", &name, "link"]).output();
        let links = links.expect("iproute2").stdout;
        String::from_utf8_lossy(&links).contains("tb-split")
    }

    fn name_host(&self) {
        let name = &self.name;
        let mac = "02:00:00:00:00:01";
        assert!(run(&format!("ip -n {name}h link set port address {mac}")));
    }

    /// Sets destinations; `None` without `fq`: `make edge-guest` has kernels with it.
    fn split(&self, edge: &mut Edge, destinations: &[Destination]) -> Option<()> {
        match self.host(|| edge.set_destinations(INDEX, destinations)) {
            Ok(()) => Some(()),
            Err(error) => {
                assert!(error.to_string().contains("no qdisc fq"), "{error}");
                assert!(!self.has_splitter(), "nothing is left");
                None
            }
        }
    }
}

#[test]
fn frames_to_a_destination_pass_the_splitter_until_the_release() {
    let Some(net) = Net::new() else { return };
    net.name_host();
    let before = net.state();
    let Some(mut edge) = net.open() else { return };
    let attached = net.host(|| edge.attach_guest(INDEX, &rules()));
    attached.expect("an interface");
    if net.split(&mut edge, &[destination(1_000_000)]).is_none() {
        net.host(|| edge.detach(INDEX)).expect("no obstacle");
        assert_eq!(net.state(), before);
        return;
    }
    assert!(net.has_splitter());
    assert!(net.reaches(OWN) && net.reaches(OWN) && !net.reaches(OTHERS));
    let charged = |edge: &Edge| {
        let places = edge
            .maps
            .split
            .lines
            .iter()
            .map(|it| it.expect("a map").1.place);
        let sides = places.map(|it| edge.maps.split.sides.get(&it, 0).expect("a place"));
        sides.map(|it| it.charged()).sum::<u64>()
    };
    // Two datagrams of one byte are two shortest frames.
    let first = charged(&edge);
    assert!((2 * 84..1_000).contains(&first), "{first}");
    // Another rate keeps what was charged, another loader finds it, and the splitter stays.
    assert!(net.split(&mut edge, &[destination(2_000_000)]).is_some());
    drop(edge);
    let mut edge = net.open().expect("what is pinned");
    assert!(charged(&edge) >= first);
    assert!(net.reaches(OWN));
    // New rules of the guest keep its destinations.
    net.host(|| edge.set(INDEX, &rules())).expect("a guest");
    let second = charged(&edge);
    assert!(net.reaches(OWN) && charged(&edge) > second);
    let twice = [destination(1_000_000), destination(2_000_000)];
    let error = net.host(|| edge.set_destinations(INDEX, &twice));
    let error = error.expect_err("one destination twice").to_string();
    assert!(
        error.contains("02:00:00:00:00:01 is there twice"),
        "{error}"
    );
    assert!(net.split(&mut edge, &[]).is_some());
    assert!(!net.has_splitter(), "with the last destination");
    assert!(net.reaches(OWN));
    assert!(net.split(&mut edge, &[destination(1_000_000)]).is_some());
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert!(!net.has_splitter(), "with the last guest");
    assert_eq!(net.state(), before);
    assert_eq!(edge.maps.split.lines.keys().count(), 0);
    net.host(|| edge.remove()).expect("no obstacle");
}

#[test]
fn a_splitter_of_another_owner_or_one_that_has_gone_is_no_obstacle_to_a_release() {
    let Some(net) = Net::new() else { return };
    net.name_host();
    let Some(mut edge) = net.open() else { return };
    let attached = net.host(|| edge.attach_guest(INDEX, &rules()));
    attached.expect("an interface");
    let name = &net.name;
    assert!(run(&format!("ip -n {name}h link add tb-split type bridge")));
    let error = net.host(|| edge.set_destinations(INDEX, &[destination(1_000_000)]));
    let error = error.expect_err("another device").to_string();
    assert!(error.contains("add the interface tb-split"), "{error}");
    assert!(net.has_splitter() && net.reaches(OWN));
    assert!(run(&format!("ip -n {name}h link del tb-split")));
    if net.split(&mut edge, &[destination(1_000_000)]).is_none() {
        return;
    }
    assert!(run(&format!("ip -n {name}h link del tb-split")));
    // Frames to the destination are lost, until the splitter is made anew or the guest is released.
    assert!(net.split(&mut edge, &[destination(1_000_000)]).is_some());
    assert!(net.reaches(OWN));
    assert!(run(&format!("ip -n {name}h link del tb-split")));
    net.host(|| edge.remove()).expect("no obstacle");
    assert!(net.reaches(OTHERS));
}
