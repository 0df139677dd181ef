//! Ports that wake the loop for nothing.

use super::*;

/// The interval of kicks: 500,000 a second.
const KICK_EVERY: Nanos = Nanos::from_micros(2);

impl Bench {
    /// A's descriptor is ready all the time for a second: the loop is woken whenever it waits for
    /// it. Returns how often that was.
    fn kick_for_a_second(&mut self) -> u64 {
        let until = self.now + Nanos::from_secs(1);
        let mut wakes = 0;
        while self.now < until {
            if self.is_read(A) || self.is_full(A) {
                wakes += 1;
                self.switch.handle_readable(PortIndex(A));
                self.switch.handle_writable(PortIndex(A));
            }
            self.run(self.now + KICK_EVERY);
        }
        wakes
    }
}

#[test]
fn a_guest_that_kicks_for_nothing_wakes_the_loop_2000_times_a_second() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.settle();
    let wakes = bench.kick_for_a_second();
    assert!((1900..2100).contains(&wakes), "{wakes}");
}

#[test]
fn a_guest_without_room_that_kicks_for_nothing_wakes_the_loop_no_more_often() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.wires[A].borrow_mut().room = Some(0);
    bench.send(B, &datagram(MAC_A, MAC_B, (B4, A4), 0));
    bench.settle();
    assert!(bench.is_full(A));
    let wakes = bench.kick_for_a_second();
    assert!((1900..2100).contains(&wakes), "{wakes}");
    // It has the frame once it has room.
    bench.wires[A].borrow_mut().room = None;
    bench.kick_for_a_second();
    assert_eq!(bench.sent(A).len(), 1);
}

#[test]
fn the_frames_of_a_guest_that_kicks_for_nothing_wait_for_its_rest_at_most() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.settle();
    bench.kick_for_a_second();
    bench.wires[A]
        .borrow_mut()
        .to_port
        .push_back((a_to_b(7), None));
    let until = bench.now + Nanos::from_micros(501);
    bench.run(until);
    bench.switch.handle_readable(PortIndex(A));
    bench.settle();
    assert_eq!(bench.sent(B), [a_to_b(7)]);
}

/// Two kicks for each frame, one of which comes when the frame was taken already.
#[test]
fn a_guest_with_a_late_kick_for_each_frame_never_rests() {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.settle();
    for n in 0..20_000 {
        bench.send(A, &a_to_b(n));
        bench.run(bench.now + KICK_EVERY);
        bench.switch.handle_readable(PortIndex(A));
        bench.run(bench.now + KICK_EVERY);
        assert!(bench.is_read(A), "after {n} frames");
    }
    assert_eq!(bench.sent(B).len(), 20_000);
}
