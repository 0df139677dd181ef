//! Threads and processes that are given a class, or claim one.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tailbound_agent::{Class, Desired};
use tailbound_sys::root::Root;
use tailbound_sys::thread::{Scheduling, Tasks, ThreadId, scheduling, set_scheduling};

/// A thread that sleeps until it is dropped.
pub(crate) struct Sleeper {
    pub(crate) id: ThreadId,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub(crate) fn start() -> Self {
        let (tell, hear) = channel();
        let (end, wait): (Sender<()>, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(tid.cast_unsigned()).unwrap();
            let _ = wait.recv();
        });
        Self {
            id: tailbound_agent::thread(hear.recv().unwrap()).unwrap(),
            end: Some(end),
            thread: Some(thread),
        }
    }
    pub(crate) fn stop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
    pub(crate) fn scheduling(&self) -> Scheduling {
        scheduling(self.id.tid).unwrap()
    }
    pub(crate) fn desired(&self, class: Class) -> Desired {
        Desired::new(self.id, class)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program that computes until it is dropped.
pub(crate) struct Computing(pub(crate) Child);

impl Computing {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Self(command.spawn().unwrap())
    }

    /// Returns true if it runs within ten seconds, as a thread with a share of the CPU does.
    pub(crate) fn goes_on(&self) -> bool {
        let tasks = Tasks::open(&Root::default(), self.0.id()).unwrap();
        let run = || tasks.schedstat(self.0.id()).unwrap().unwrap().run;
        let (begun, before) = (Instant::now(), run());
        while begun.elapsed() < Duration::from_secs(10) {
            if run() > before {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        // One that the kernel forgot could not be killed.
        let _ = set_scheduling(self.0.id(), &Scheduling::PLAIN);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that claims to be the guest of this name.
pub(crate) struct Claimer(pub(crate) Child);

impl Claimer {
    pub(crate) fn start(name: &str, user: u32) -> Self {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("sh");
        command.arg0("qemu-system-x86_64");
        command.args(["-c", "read line", "-name", name]);
        if user != rustix::process::geteuid().as_raw() {
            command.uid(user);
        }
        let process = command.stdin(Stdio::piped()).spawn().unwrap();
        Self(process)
    }
}

impl Drop for Claimer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
