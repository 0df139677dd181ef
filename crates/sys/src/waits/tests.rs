use super::*;
use crate::probe::required::{Part, skipped};
use std::time::Duration;

/// Buckets by powers of two alone: enough to count.
fn tables() -> ([u64; BUCKETS - 1], [u32; CELLS]) {
    let bounds = std::array::from_fn(|index| (1 << index.min(62)) + index as u64);
    let cells = std::array::from_fn(|cell| (cell / 16) as u32);
    (bounds, cells)
}

fn own_tid() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

fn tracer(by_number: bool) -> Option<Tracer> {
    tracer_as(by_number, true)
}

fn tracer_as(by_number: bool, histograms: bool) -> Option<Tracer> {
    if !by_number && open_thread(rustix::thread::gettid()).is_err() {
        skipped(
            Part::BpfWaits,
            "no thread has a descriptor before Linux 6.9",
        );
        return None;
    }
    let (bounds, cells) = tables();
    let settings = Settings {
        threads: 4,
        late: Nanos(1),
        bounds: &bounds,
        cells: &cells,
        times_softirqs: true,
        histograms,
        entries: true,
    };
    match Tracer::load_as(&settings, by_number) {
        Ok(tracer) => Some(tracer),
        Err(error) => {
            skipped(Part::BpfWaits, error);
            None
        }
    }
}

fn sleep_often() {
    for _ in 0..50 {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn count(waits: &Waits) -> u64 {
    waits.counts.iter().map(|count| u64::from(*count)).sum()
}

#[test]
fn a_thread_is_measured_while_it_is_followed_by_a_descriptor() {
    if let Some(tracer) = tracer(false) {
        measures(tracer);
    }
}

#[test]
fn a_thread_is_measured_while_it_is_followed_by_its_number() {
    if let Some(tracer) = tracer(true) {
        measures(tracer);
    }
}

fn measures(mut tracer: Tracer) {
    let tid = own_tid();
    sleep_often();
    tracer.follow(tid, 2).unwrap();
    sleep_often();
    tracer.leave(tid);
    let measured = tracer.read(2).unwrap();
    sleep_often();
    assert_eq!(measured, tracer.read(2).unwrap(), "it went on");
    // A timer that ends before its thread sleeps wakes nobody.
    let woken = count(&measured.woken);
    assert!((40..=50).contains(&woken), "{woken}");
    assert!(measured.woken.longest > 0 && measured.woken.sum >= measured.woken.longest);
    assert_eq!(tracer.read(1).unwrap().woken.sum, 0, "another's place");
    let late: Vec<_> = std::iter::from_fn(|| tracer.next_late()).collect();
    let known = late.len() as u64 + measured.lost;
    assert_eq!(known, woken + count(&measured.preempted));
    for wait in &late {
        assert_eq!(wait.place, 2);
        assert!(wait.until > wait.from);
        let last = wait.runs.last().expect("whoever ran before");
        assert_eq!(last.until, wait.until);
    }
    // A place starts empty.
    tracer.follow(tid, 2).unwrap();
    assert!(count(&tracer.read(2).unwrap().woken) < 2);
}

#[test]
fn each_loaded_tracing_program_reports_its_cost() {
    for (times_softirqs, entries) in [(false, true), (true, false)] {
        let (bounds, cells) = tables();
        let settings = Settings {
            threads: 1,
            late: Nanos(1),
            bounds: &bounds,
            cells: &cells,
            times_softirqs,
            histograms: false,
            entries,
        };
        let tracer = match Tracer::load(&settings) {
            Ok(tracer) => tracer,
            Err(error) => return skipped(Part::BpfWaits, error),
        };
        let cost = tracer.cost().unwrap();
        assert_eq!(
            cost.len() - usize::from(tracer.no_entries.is_none()),
            if times_softirqs { 5 } else { 3 }
        );
    }
}

#[test]
fn waits_that_began_before_the_measurement_are_not_reported() {
    let Some(mut tracer) = tracer_as(false, false) else {
        return;
    };
    let (tell, hear) = std::sync::mpsc::channel();
    let (end, ask) = std::sync::mpsc::channel::<()>();
    let sleeper = std::thread::spawn(move || {
        tell.send(own_tid()).unwrap();
        while ask.recv().is_ok() {}
    });
    let tid = hear.recv().unwrap();
    tracer.follow(tid, 1).unwrap();
    let wake = |tracer: &mut Tracer, times| {
        for _ in 0..times {
            end.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        std::iter::from_fn(|| tracer.next_late()).collect::<Vec<_>>()
    };
    assert!(wake(&mut tracer, 10).len() >= 8);
    tracer.trace_waits(false).unwrap();
    assert_eq!(wake(&mut tracer, 10), []);
    let start = monotonic();
    tracer.trace_waits(true).unwrap();
    let seen = wake(&mut tracer, 10);
    assert!(seen.len() >= 8, "{}", seen.len());
    assert!(seen.iter().all(|wait| wait.from >= start), "{seen:?}");
    // As if it had been attached later.
    tracer.attached_at.set(0, u64::MAX, 0).unwrap();
    assert_eq!(wake(&mut tracer, 10), []);
    drop(end);
    sleeper.join().unwrap();
}

#[test]
fn without_histograms_late_waits_are_reported_and_those_lost_counted() {
    let Some(mut tracer) = tracer_as(false, false) else {
        return;
    };
    tracer.follow(own_tid(), 2).unwrap();
    sleep_often();
    let late = std::iter::from_fn(|| tracer.next_late()).count();
    assert!(late >= 40, "{late}");
    assert_eq!(tracer.lost().unwrap(), 0);
    assert_eq!(count(&tracer.read(2).unwrap().woken), 0);
    // The ring has room for less than two hundred.
    for _ in 0..5 {
        sleep_often();
    }
    tracer.leave(own_tid());
    let lost = tracer.lost().unwrap();
    assert!(lost >= 20, "{lost}");
    assert_eq!(tracer.read(2).unwrap().lost, lost);
}

#[test]
fn the_part_of_a_run_that_soft_interrupts_took_is_reported() {
    let Some(mut tracer) = tracer(true) else {
        return;
    };
    // The loopback interface delivers in a soft interrupt of the sender's.
    let [to, from] = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = to.local_addr().unwrap();
    tracer.follow(own_tid(), 1).unwrap();
    let send = |tracer: &mut Tracer| -> Vec<_> {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            for _ in 0..500 {
                from.send_to(&[0], address).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        std::iter::from_fn(|| tracer.next_interruption()).collect()
    };
    tracer.time_softirqs(false);
    let untimed = send(&mut tracer);
    assert!(untimed.iter().all(|it| it.interrupted == Nanos::ZERO));
    tracer.time_softirqs(true);
    let all = send(&mut tracer);
    assert!(all.len() >= 10, "{}", all.len());
    let times_interrupts = crate::probe::times_interrupts();
    for one in all {
        assert_eq!(one.place, 1);
        let taken = one.interrupted + one.stolen;
        assert!(taken >= MIN_INTERRUPTION);
        assert!(times_interrupts || one.interrupted <= one.until.since(one.from));
    }
}

/// A thread that sleeps, with the name of a vCPU's.
fn impostor(asks: std::sync::mpsc::Receiver<()>) -> (u32, std::thread::JoinHandle<()>) {
    let (says, number) = std::sync::mpsc::channel();
    let named = std::thread::Builder::new().name("CPU 0/KVM".to_owned());
    let run = move || {
        says.send(own_tid()).unwrap();
        // Until it may end.
        let _ = asks.recv();
    };
    let thread = named.spawn(run).unwrap();
    (number.recv().unwrap(), thread)
}

/// Runs a VM in this thread, which is followed in place 1, beside an impostor in place 2; returns
/// for both whether they have entered a guest.
fn entered_while(run: impl FnOnce(), tracer: &mut Tracer) -> [bool; 2] {
    let (end, asks) = std::sync::mpsc::channel();
    let (tid, impostor) = impostor(asks);
    tracer.follow(own_tid(), 1).unwrap();
    tracer.follow(tid, 2).unwrap();
    run();
    drop(end);
    impostor.join().unwrap();
    [1, 2].map(|place| tracer.has_entered(place).unwrap())
}

#[test]
fn a_thread_name_is_no_sign_of_a_guest_entry() {
    for by_number in [false, true] {
        let Some(mut tracer) = tracer(by_number) else {
            return;
        };
        assert_eq!(entered_while(sleep_often, &mut tracer), [false, false]);
        // The reason comes from the kernel, and names the missing part.
        if let Err(why) = tracer.note_entries() {
            assert!(why.contains("kvm_entry"), "{why}");
        }
        assert!(tracer.way().contains("kvm_entry"), "{}", tracer.way());
    }
}

/// Needs a KVM that runs VMs on the CPU itself, as on an emulated CPU with SVM.
#[test]
#[ignore = "in the machine of scripts/bpf-guest, once its module kvm is loaded"]
fn a_thread_that_enters_a_guest_is_known() {
    let mut tracer = tracer(open_thread(rustix::thread::gettid()).is_err()).unwrap();
    tracer.note_entries().unwrap();
    let halt = || crate::probe::kvm::halt().unwrap();
    assert_eq!(entered_while(halt, &mut tracer), [true, false]);
    // A place starts empty.
    tracer.follow(own_tid(), 1).unwrap();
    assert!(!tracer.has_entered(1).unwrap());
}

/// Before the module is loaded, and after.
#[test]
#[ignore = "in the machine of scripts/bpf-guest, which loads kvm when it is told"]
fn a_tracepoint_that_comes_later_is_found() {
    let by_number = open_thread(rustix::thread::gettid()).is_err();
    let mut tracer = tracer(by_number).unwrap();
    let why = tracer.note_entries().unwrap_err();
    assert!(why.contains("the module kvm is not loaded"), "{why}");
    let loads = std::process::Command::new("/load-kvm").status().unwrap();
    assert!(loads.success());
    tracer.note_entries().unwrap();
    let halt = || crate::probe::kvm::halt().unwrap();
    assert_eq!(entered_while(halt, &mut tracer), [true, false]);
}

#[test]
fn exited_threads_and_invalid_slots_cannot_be_followed() {
    let Some(mut tracer) = tracer(false) else {
        return;
    };
    let tid = std::thread::spawn(own_tid).join().unwrap();
    assert!(tracer.follow(tid, 0).is_err());
    assert!(tracer.follow(own_tid(), 4).is_err());
    tracer.leave(tid);
}
