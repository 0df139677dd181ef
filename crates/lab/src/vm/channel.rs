//! Messages between the lab and a VM, over one of its virtio-serial ports: each has a byte for its
//! kind, the length of its content, and the content.

use crate::guest::Task;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use tailbound_units::Nanos;

/// The longest content, in bytes: the outcome of a task with a million samples.
const MAX_CONTENT_BYTES: u32 = 64 << 20;
/// Length of kind and length.
const HEAD: usize = 5;

/// An order to a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// One of the lab's own tasks. The VM chooses the path of its outcome.
    Task(Box<Task>),
    /// A program of its tree, with arguments.
    Program(Vec<String>),
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    /// From the lab: commands for `ip -batch`, before all other messages.
    Links(String),
    /// From the lab: a request for the VM's clock.
    Ask,
    /// To the lab: the VM's clock.
    Clock(Nanos),
    /// From the lab: the lead of the lab's clock. The VM's processes read that clock from then on.
    Ahead(Nanos),
    /// To the lab: all other ports accept orders, one on each.
    Up,
    /// From the lab: the order.
    Run(Order),
    /// From the lab: standard input.
    Input(Vec<u8>),
    /// To the lab: standard output.
    Output(Vec<u8>),
    /// To the lab: standard error.
    Errors(Vec<u8>),
    /// To the lab: the outcome of a task.
    Outcome(Vec<u8>),
    /// To the lab: the exit code of the program; `None` if a signal ended it.
    Exit(Option<i32>),
}

impl Message {
    /// Writes the whole message.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, content) = self.parts()?;
        let length = u32::try_from(content.len()).ok();
        let length = length.filter(|length| *length <= MAX_CONTENT_BYTES);
        let length = length.ok_or_else(|| invalid("a message that is too long"))?;
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.push(kind);
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// Reads the next message; `None` if the other side has ended.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD];
        match from.read(&mut head[..1])? {
            0 => return Ok(None),
            _ => from.read_exact(&mut head[1..])?,
        }
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length);
        if length > MAX_CONTENT_BYTES {
            return Err(invalid("a message that is too long"));
        }
        let mut content = Vec::new();
        from.take(length.into()).read_to_end(&mut content)?;
        if content.len() < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Self::parse(kind, content).map(Some)
    }

    fn parts(&self) -> io::Result<(u8, Vec<u8>)> {
        Ok(match self {
            Self::Links(batch) => (0, batch.clone().into_bytes()),
            Self::Ask => (1, Vec::new()),
            Self::Clock(time) => (2, time.0.to_be_bytes().into()),
            Self::Ahead(time) => (3, time.0.to_be_bytes().into()),
            Self::Up => (4, Vec::new()),
            Self::Run(order) => (5, serde_json::to_vec(order)?),
            Self::Input(bytes) => (6, bytes.clone()),
            Self::Output(bytes) => (7, bytes.clone()),
            Self::Errors(bytes) => (8, bytes.clone()),
            Self::Outcome(bytes) => (9, bytes.clone()),
            Self::Exit(code) => (10, serde_json::to_vec(code)?),
        })
    }

    fn parse(kind: u8, content: Vec<u8>) -> io::Result<Self> {
        let time = || {
            let bytes = content.as_slice().try_into();
            let bytes = bytes.map_err(|_| invalid("a time that is none"))?;
            Ok::<_, io::Error>(Nanos(u64::from_be_bytes(bytes)))
        };
        Ok(match kind {
            0 => Self::Links(String::from_utf8_lossy(&content).into_owned()),
            1 => Self::Ask,
            2 => Self::Clock(time()?),
            3 => Self::Ahead(time()?),
            4 => Self::Up,
            5 => Self::Run(serde_json::from_slice(&content)?),
            6 => Self::Input(content),
            7 => Self::Output(content),
            8 => Self::Errors(content),
            9 => Self::Outcome(content),
            10 => Self::Exit(serde_json::from_slice(&content)?),
            _ => return Err(invalid("a message of no kind that is known")),
        })
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let messages = [
            Message::Links("link set lo up\n".into()),
            Message::Ask,
            Message::Clock(Nanos(7)),
            Message::Ahead(Nanos(u64::MAX)),
            Message::Up,
            Message::Run(Order::Program(vec!["ping".into(), "-c1".into()])),
            Message::Input(b"1\n".into()),
            Message::Output(Vec::new()),
            Message::Errors(vec![0; 100_000]),
            Message::Outcome(b"{}".into()),
            Message::Exit(Some(3)),
            Message::Exit(None),
        ];
        let mut bytes = Vec::new();
        for message in &messages {
            message.write(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        for message in messages {
            assert_eq!(Message::read(&mut rest).unwrap(), Some(message));
        }
        assert_eq!(Message::read(&mut rest).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic_or_excess_memory(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = Message::read(&mut bytes.as_slice());
        }
    }
}
