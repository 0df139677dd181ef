//! The BPF qdisc of an uplink. This computer's kernel may have none; `make edge-guest` has one with it.

use super::*;

const BPF: UplinkRules = UplinkRules {
    mark: 0,
    queue: UplinkQueue::Bpf,
};

impl Net {
    /// Attaches the port as an uplink with the BPF qdisc; `None`, with nothing changed, without one.
    fn queue(&self, edge: &mut Edge) -> Option<()> {
        let before = self.state();
        match self.host(|| edge.attach_uplink(INDEX, &BPF)) {
            Ok(attachment) => {
                assert_eq!(attachment.queue, Queue::Bpf);
                Some(())
            }
            Err(error) => {
                let lacks = "this kernel has no bpf_struct_ops_Qdisc_ops";
                let is_known = ["this kernel has no bpf_", lacks];
                let error = error.to_string();
                assert!(is_known.iter().any(|it| error.contains(it)), "{error}");
                assert!(supports_bpf_queue().is_err());
                assert_eq!(self.state(), before);
                assert!(self.host(|| edge.attachments()).expect("a map").is_empty());
                None
            }
        }
    }

    /// Returns how many of `number` datagrams of the host reach the guest.
    fn arrivals(&self, number: usize) -> usize {
        let receiver = netns::within(&self.path("g"), || {
            UdpSocket::bind((OWN, 7)).expect("an address")
        });
        let receiver = receiver.expect("a namespace");
        let wait = Some(Duration::from_millis(300));
        receiver.set_read_timeout(wait).expect("a timeout");
        self.host(|| {
            let sender = UdpSocket::bind((HOST, 0)).expect("an address");
            for _ in 0..number {
                sender.send_to(b"x", (OWN, 7)).expect("a route");
            }
        });
        let all = (0..number).filter(|_| receiver.recv(&mut [0; 8]).is_ok());
        all.count()
    }
}

#[test]
fn a_bpf_qdisc_sends_all_frames_and_leaves_no_trace() {
    let Some(net) = Net::new() else { return };
    let before = net.state();
    let Some(mut edge) = net.open() else { return };
    if net.queue(&mut edge).is_none() {
        return;
    }
    assert!(
        net.state().contains("qdisc tb77 7b1d: dev port root"),
        "{}",
        net.state()
    );
    assert_eq!(net.arrivals(100), 100);
    // A device that goes down empties its queue.
    for way in ["down", "up"] {
        assert!(run(&format!("ip -n {}h link set port {way}", net.name)));
    }
    assert_eq!(net.arrivals(100), 100);
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert_eq!(net.state(), before);
    // The name is free again.
    assert!(net.queue(&mut edge).is_some());
    assert_eq!(net.arrivals(10), 10);
    net.host(|| edge.remove()).expect("no obstacle");
    assert_eq!(net.state(), before);
    assert!(!net.bpffs.pin().exists());
}

#[test]
fn a_bpf_qdisc_goes_on_without_its_loader() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    if net.queue(&mut edge).is_none() {
        return;
    }
    // All descriptors are closed, as by a signal.
    drop(edge);
    assert_eq!(net.arrivals(100), 100);
    let mut edge = net.open().expect("what is pinned");
    assert!(net.host(|| edge.is_attached(INDEX)).expect("a map"));
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert!(!net.state().contains("tb77"), "{}", net.state());
}

#[test]
fn an_uplink_keeps_its_kind_of_qdisc_and_that_of_its_administrator() {
    let Some(net) = Net::new() else { return };
    let Some(mut edge) = net.open() else { return };
    if net.queue(&mut edge).is_none() {
        return;
    }
    let name = format!("{}h", net.name);
    let plain = UplinkRules::default();
    let refused = net.host(|| edge.attach_uplink(INDEX, &plain));
    let error = refused.expect_err("the other kind").to_string();
    assert!(error.contains("the other kind of qdisc"), "{error}");
    let second = format!("ip -n {name} link add other index 78 type dummy");
    assert!(run(&second), "{second}");
    let refused = net.host(|| edge.attach_uplink(78, &plain));
    let error = refused.expect_err("two kinds").to_string();
    assert!(error.contains("all uplinks have the same"), "{error}");
    assert!(run(&format!(
        "tc -n {name} qdisc add dev other root pfifo limit 7"
    )));
    let state = net.state();
    let refused = net.host(|| edge.attach_uplink(78, &BPF));
    assert!(matches!(refused, Err(EdgeError::Qdisc { ifindex: 78, .. })));
    assert_eq!(net.state(), state);
}

#[test]
fn an_attachment_of_a_bpf_qdisc_that_was_interrupted_is_undone() {
    let Some(net) = Net::new() else { return };
    let before = net.state();
    let Some(mut edge) = net.open() else { return };
    if net.queue(&mut edge).is_none() {
        return;
    }
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    let attachment = Attachment {
        ifindex: INDEX,
        is_uplink: true,
        way: Way::Tcx,
        adds_clsact: false,
        queue: Queue::Bpf,
    };
    edge.note(attachment).expect("a map");
    edge.pins.register_queue(INDEX).expect("a set of programs");
    drop(edge);
    let mut edge = net.open().expect("what is pinned");
    assert!(net.queue(&mut edge).is_some());
    assert_eq!(net.arrivals(10), 10);
    net.host(|| edge.detach(INDEX)).expect("no obstacle");
    assert_eq!(net.state(), before);
}
