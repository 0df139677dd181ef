//! A process of the lab that represents a process inside a VM: it forwards standard input and
//! output, and ends with the same exit code.

use super::{Message, Order};
use crate::guest::{Task, leave};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A program or task for a VM.
#[derive(Debug, Clone)]
pub enum GuestCommand {
    /// The task in this file; its outcome is written to the task's path, on this side.
    Task(PathBuf),
    /// A program with its arguments.
    Program(Vec<String>),
}

/// Sends the order over the channel `socket`, and returns the exit code; `None` if a signal ended
/// the process.
///
/// # Errors
/// The VM ends, or a file cannot be read or written.
pub fn relay(socket: &Path, command: GuestCommand) -> io::Result<Option<i32>> {
    let mut stream = UnixStream::connect(socket)?;
    let (order, outcome) = match command {
        GuestCommand::Program(words) => (Order::Program(words), None),
        GuestCommand::Task(path) => {
            let task: Task = serde_json::from_slice(&fs::read(path)?)?;
            let outcome = task.outcome.clone();
            (Order::Task(Box::new(task)), Some(outcome))
        }
    };
    Message::Run(order).write(&mut stream)?;
    let mut input = stream.try_clone()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = io::stdin().lock().read(&mut buffer) {
            if Message::Input(buffer[..length].to_vec())
                .write(&mut input)
                .is_err()
            {
                return;
            }
        }
    });
    let mut stdout = io::stdout().lock();
    loop {
        match Message::read(&mut stream)? {
            Some(Message::Output(bytes)) => {
                stdout.write_all(&bytes)?;
                stdout.flush()?;
            }
            Some(Message::Errors(bytes)) => io::stderr().lock().write_all(&bytes)?,
            Some(Message::Outcome(bytes)) => {
                if let Some(path) = &outcome {
                    leave(path, &bytes)?;
                }
            }
            Some(Message::Exit(code)) => return Ok(code),
            Some(other) => return Err(io::Error::other(format!("a VM sent {other:?}"))),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
