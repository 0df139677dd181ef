//! The first processes of a VM. [`super`] is the side outside of it.
//!
//! The first process mounts the file systems that programs need, loads the modules of the VM's
//! devices and sets up its links. It reports its clock to the lab, and starts the second process
//! under the lab's clock (a time namespace), so that times of all guests are comparable. The second
//! process executes one order at each port, and the VM ends with it.

use super::{MODULES, Message, ORDERS, Order, PROVEN};
use crate::build::batch;
use crate::guest::{command as task_command, now};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tailbound_sys::process::Spawn;

/// Time limit for the kernel to make a device file.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of the checks for the file, and for the lab's connection to a port.
const POLL: Duration = Duration::from_millis(10);

/// Boots the VM, and ends it after an error or after its orders.
///
/// # Errors
/// The VM cannot be powered off.
pub fn boot() -> io::Result<()> {
    if let Err(error) = prepare().and_then(|()| settle()) {
        eprintln!("the machine: {error}");
    }
    power_off()
}

/// Shows that the VM runs, and ends it.
///
/// # Errors
/// The VM cannot be powered off.
pub fn prove() -> io::Result<()> {
    println!("{PROVEN}");
    power_off()
}

/// Executes an order at each port, under the clock of the process that started this one.
///
/// # Errors
/// A thread cannot be started.
pub fn serve() -> io::Result<()> {
    let port = |number| {
        let name = format!("port {number}");
        thread::Builder::new().name(name).spawn(move || {
            if let Err(error) = do_order(number) {
                eprintln!("the machine, order {number}: {error}");
            }
        })
    };
    let ports = (1..=ORDERS).map(port).collect::<io::Result<Vec<_>>>()?;
    for port in ports {
        let _ = port.join();
    }
    Ok(())
}

fn power_off() -> io::Result<()> {
    rustix::fs::sync();
    // On success this call does not return.
    Ok(reboot(RebootCommand::PowerOff)?)
}

fn prepare() -> io::Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, place, kind, MountFlags::empty(), None)?;
    }
    for module in fs::read_to_string(MODULES)?.lines() {
        finit_module(File::open(module)?, c"", 0).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{module}: {error}"))
        })?;
    }
    Ok(())
}

/// Executes the lab's first requests, and starts the process that executes the orders.
fn settle() -> io::Result<()> {
    let mut lab = Port::open(0)?;
    loop {
        match Message::read(&mut lab)? {
            Some(Message::Links(links)) => {
                batch("ip", None, &links).map_err(io::Error::other)?;
            }
            Some(Message::Ask) => Message::Clock(now()).write(&mut lab)?,
            Some(Message::Ahead(ahead)) => {
                tailbound_sys::clock::advance_children(ahead)?;
                let program = std::env::current_exe()?;
                let second = Spawn::new(program).args(["lab", "machine", "serve"]);
                let mut second = second.start()?;
                Message::Up.write(&mut lab)?;
                while second.try_wait()?.is_none() {
                    thread::sleep(Duration::from_millis(200));
                }
                return Ok(());
            }
            Some(other) => return Err(io::Error::other(format!("the lab sent {other:?}"))),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The VM's side of a channel. It ends after the lab has connected and disconnected.
struct Port {
    file: File,
    /// True after the first byte.
    is_met: bool,
}

impl Port {
    fn open(number: usize) -> io::Result<Self> {
        let path = PathBuf::from(format!("/dev/vport0p{}", number + 1));
        let end = Instant::now() + DEVICE_TIMEOUT;
        loop {
            match File::options().read(true).write(true).open(&path) {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        is_met: false,
                    });
                }
                Err(error) if Instant::now() > end => {
                    let message = format!("{}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), message));
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }
}

impl Read for Port {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer)? {
                0 if !self.is_met => thread::sleep(POLL),
                length => {
                    self.is_met = true;
                    return Ok(length);
                }
            }
        }
    }
}

impl Write for Port {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.file.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// File for all output of an order.
type Answers = Arc<Mutex<File>>;

fn answer(answers: &Answers, message: &Message) -> io::Result<()> {
    let mut file = answers.lock().unwrap_or_else(PoisonError::into_inner);
    message.write(&mut *file)
}

fn do_order(number: usize) -> io::Result<()> {
    let mut port = Port::open(number)?;
    let Some(Message::Run(order)) = Message::read(&mut port)? else {
        return Err(io::Error::other("the lab gave no order"));
    };
    let answers: Answers = Arc::new(Mutex::new(port.file.try_clone()?));
    let (mut command, outcome) = match command(order, number) {
        Ok(command) => command,
        Err(error) => return refuse(&answers, &error),
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return refuse(&answers, &error),
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let of_stdout = Arc::clone(&answers);
    let output = thread::spawn(move || {
        let mut outcome = outcome;
        pass_on(stdout, |bytes| {
            answer(&of_stdout, &Message::Output(bytes))?;
            // The program has printed a line when it has written its outcome.
            if let Some(outcome_bytes) = outcome.as_ref().and_then(|path| fs::read(path).ok()) {
                answer(&of_stdout, &Message::Outcome(outcome_bytes))?;
                outcome = None;
            }
            Ok(())
        })
    });
    let of_stderr = Arc::clone(&answers);
    let errors =
        thread::spawn(move || pass_on(stderr, |bytes| answer(&of_stderr, &Message::Errors(bytes))));
    let stdin = child.stdin.take();
    thread::spawn(move || take_input(port, stdin));
    let status = child.wait()?;
    for stream in [output, errors] {
        if let Ok(passed) = stream.join() {
            passed?;
        }
    }
    answer(&answers, &Message::Exit(status.code()))
}

/// Returns the command for an order, and the path of its outcome.
fn command(order: Order, number: usize) -> io::Result<(Command, Option<PathBuf>)> {
    match order {
        Order::Task(mut task) => {
            let path = PathBuf::from(format!("/task{number}.json"));
            task.outcome = PathBuf::from(format!("/outcome{number}.json"));
            fs::write(&path, serde_json::to_vec(&task)?)?;
            let mut command = Command::new(std::env::current_exe()?);
            command.args(task_command(&path));
            Ok((command, Some(task.outcome)))
        }
        Order::Program(words) => {
            let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let mut command = Command::new(program);
            command.args(arguments);
            Ok((command, None))
        }
    }
}

fn refuse(answers: &Answers, error: &io::Error) -> io::Result<()> {
    answer(answers, &Message::Errors(format!("{error}\n").into_bytes()))?;
    answer(answers, &Message::Exit(Some(127)))
}

/// Forwards a stream until its end.
fn pass_on(
    stream: Option<impl Read>,
    mut take: impl FnMut(Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let Some(mut stream) = stream else {
        return Ok(());
    };
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => take(buffer[..length].to_vec())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Forwards input to a process.
fn take_input(mut port: Port, mut stdin: Option<ChildStdin>) {
    while let Ok(Some(message)) = Message::read(&mut port) {
        let (Message::Input(bytes), Some(to)) = (message, &mut stdin) else {
            return;
        };
        if to.write_all(&bytes).is_err() {
            stdin = None;
        }
    }
}
