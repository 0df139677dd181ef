//! The engine under a scheduler that only records its calls.

use super::{Costs, Event, Machine};
use crate::testing::{host, ms};
use crate::{Current, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use tailbound_units::Nanos;

#[derive(Debug, Default)]
struct RecordingScheduler {
    calls: Vec<String>,
    next: Option<VcpuId>,
    until: Option<Nanos>,
    timer: Option<Nanos>,
}

impl Scheduler for RecordingScheduler {
    fn wake(&mut self, _: Nanos, vcpu: VcpuId, cause: Wake, raise: &mut PcpuSet) {
        self.calls.push(format!("wake {} {cause:?}", vcpu.0));
        self.next = Some(vcpu);
        raise.insert(PcpuId(0));
    }
    fn notify(&mut self, _: Nanos, vcpu: VcpuId, _: &mut PcpuSet) {
        self.calls.push(format!("notify {}", vcpu.0));
    }
    fn sleep(&mut self, _: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        self.calls.push(format!("sleep {}", vcpu.0));
        raise.insert(PcpuId(0));
    }
    fn schedule(
        &mut self,
        _: Nanos,
        _: PcpuId,
        current: Option<Current>,
        _: &mut PcpuSet,
    ) -> Slice {
        let gone = current.is_some_and(|current| !current.runnable);
        let who = current.map(|current| (current.vcpu.0, current.runnable, current.yielded));
        self.calls.push(format!("schedule {who:?}"));
        if gone && self.next == current.map(|current| current.vcpu) {
            self.next = None;
        }
        Slice {
            next: self.next,
            until: self.until,
        }
    }
    fn poll_at(&self) -> Option<Nanos> {
        self.timer
    }
    fn timer(&mut self, _: Nanos, _: &mut PcpuSet) {
        self.calls.push("timer".to_owned());
        self.timer = None;
    }
}

fn machine() -> Machine<RecordingScheduler> {
    Machine::new(&host(1, 2), RecordingScheduler::default(), Costs::default())
}

fn step(machine: &mut Machine<RecordingScheduler>, at: f64) -> Vec<Event> {
    let mut events = Vec::new();
    machine.advance(ms(at), &mut events);
    machine.dispatch(&mut events);
    events
}

const A: VcpuId = VcpuId(0);
const PCPU: PcpuId = PcpuId(0);

#[test]
fn a_vcpu_blocks_when_its_work_is_done() {
    let mut machine = machine();
    assert!(machine.wake(A, ms(2.0), Wake::Event));
    assert_eq!(machine.poll_at(), Some(Nanos::ZERO));
    let at = Nanos::ZERO;
    let started = Event::Started {
        vcpu: A,
        pcpu: PCPU,
        at,
    };
    assert_eq!(step(&mut machine, 0.0), [started]);
    assert_eq!(machine.poll_at(), Some(ms(2.0)));
    let at = ms(2.0);
    let done = Event::Done { vcpu: A, at };
    let stopped = Event::Stopped {
        vcpu: A,
        pcpu: PCPU,
        at,
        runnable: false,
    };
    assert_eq!(step(&mut machine, 2.0), [done, stopped]);
    assert_eq!(machine.poll_at(), None);
    assert_eq!(machine.stats(A).run, ms(2.0));
    let calls = [
        "wake 0 Event",
        "schedule None",
        "schedule Some((0, false, false))",
    ];
    assert_eq!(machine.scheduler().calls, calls);
}

#[test]
fn work_added_before_dispatch_continues_without_rescheduling() {
    let mut machine = machine();
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    let mut events = Vec::new();
    machine.advance(ms(2.0), &mut events);
    assert!(!machine.has_work(A));
    assert!(!machine.wake(A, ms(1.0), Wake::Timer));
    machine.dispatch(&mut events);
    assert_eq!(events.len(), 1);
    assert_eq!(machine.poll_at(), Some(ms(3.0)));
    assert_eq!(machine.scheduler().calls.len(), 2);
}

#[test]
fn an_event_for_a_running_vcpu_adds_work_and_notifies() {
    let mut machine = machine();
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    step(&mut machine, 0.5);
    assert!(!machine.wake(A, ms(1.0), Wake::Event));
    assert_eq!(machine.work_left(A), Some(ms(2.5)));
    step(&mut machine, 0.5);
    assert_eq!(machine.poll_at(), Some(ms(3.0)));
    assert_eq!(machine.scheduler().calls.last().expect("told"), "notify 0");
}

#[test]
fn a_pause_keeps_the_work_and_ends_with_a_wake() {
    let mut machine = machine();
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    step(&mut machine, 0.5);
    machine.pause(A);
    step(&mut machine, 0.5);
    assert_eq!((machine.current(PCPU), machine.poll_at()), (None, None));
    step(&mut machine, 7.0);
    machine.unpause(A);
    step(&mut machine, 7.0);
    assert_eq!(machine.poll_at(), Some(ms(8.5)));
    let calls = &machine.scheduler().calls;
    assert!(calls.contains(&"wake 0 Unpause".to_owned()), "{calls:?}");
    // Time that it was paused is no wait for the CPU.
    assert_eq!(machine.stats(A).waited, Nanos::ZERO);
}

#[test]
fn a_paused_vcpu_without_work_does_not_wake_when_the_pause_ends() {
    let mut machine = machine();
    machine.pause(A);
    machine.unpause(A);
    step(&mut machine, 0.0);
    assert!(machine.scheduler().calls.is_empty());
    machine.pause(A);
    machine.wake(A, ms(1.0), Wake::Event);
    assert!(machine.scheduler().calls.is_empty());
    machine.unpause(A);
    assert_eq!(machine.scheduler().calls, ["wake 0 Unpause"]);
}

#[test]
fn timers_of_an_instant_come_before_its_decisions() {
    let mut machine = machine();
    machine.scheduler.until = Some(ms(1.0));
    machine.scheduler.timer = Some(ms(1.0));
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    machine.scheduler.until = None;
    step(&mut machine, 1.0);
    let calls = &machine.scheduler().calls;
    assert_eq!(calls[2..], ["timer", "schedule Some((0, true, false))"]);
}

#[test]
fn a_yield_reschedules_once() {
    let mut machine = machine();
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    machine.yield_now(A);
    step(&mut machine, 0.0);
    step(&mut machine, 2.0);
    let calls = &machine.scheduler().calls;
    assert_eq!(calls[2], "schedule Some((0, true, true))");
    assert_eq!(calls[3], "schedule Some((0, false, false))");
}

#[test]
fn a_context_switch_is_charged_before_the_work_as_far_as_it_ran() {
    let costs = Costs {
        context_switch: ms(0.1),
        ..Costs::default()
    };
    let mut machine = Machine::new(&host(1, 2), RecordingScheduler::default(), costs);
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    assert_eq!(machine.poll_at(), Some(ms(2.1)));
    step(&mut machine, 0.04);
    assert_eq!(machine.stats(A).overhead, ms(0.04));
    machine.wake(VcpuId(1), ms(1.0), Wake::Event);
    step(&mut machine, 0.04);
    assert_eq!(machine.stats(A).overhead, ms(0.04));
    assert_eq!(machine.work_left(A), Some(ms(2.0)));
    assert_eq!(machine.stats(A).preemptions, 1);
}

#[test]
fn other_work_given_during_a_switch_begins_after_it() {
    let costs = Costs {
        context_switch: ms(0.1),
        ..Costs::default()
    };
    let mut machine = Machine::new(&host(1, 2), RecordingScheduler::default(), costs);
    machine.wake(A, ms(2.0), Wake::Event);
    step(&mut machine, 0.0);
    step(&mut machine, 0.04);
    machine.set_work(A, ms(1.0));
    assert_eq!(machine.poll_at(), Some(ms(1.1)));
}

#[test]
fn a_resume_on_an_undisturbed_pcpu_has_no_switch_cost() {
    let costs = Costs {
        context_switch: ms(0.1),
        migration: ms(0.1),
        cache_refill: ms(0.1),
    };
    let mut machine = Machine::new(&host(1, 2), RecordingScheduler::default(), costs);
    machine.wake(A, ms(1.0), Wake::Event);
    step(&mut machine, 0.0);
    step(&mut machine, 1.1);
    machine.wake(A, ms(1.0), Wake::Event);
    step(&mut machine, 1.1);
    assert_eq!(machine.poll_at(), Some(ms(2.1)));
}
