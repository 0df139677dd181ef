//! Queries about links and namespaces (`rtnetlink(7)`).

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

const HEADER: usize = 16;
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const GET_NAMESPACE: u16 = 90;
const NEW_NAMESPACE: u16 = 88;
const REQUEST: u16 = 1;
/// `NLM_F_DUMP`: the answer has all objects, in several messages.
const DUMP: u16 = 0x300;
/// `NLM_F_DUMP_INTR`: an object changed meanwhile, so the answer may be wrong.
const INTERRUPTED: u16 = 0x10;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Largest number of attempts of a dump while interfaces change.
const MAX_DUMPS: u32 = 4;

/// rtnetlink of the network namespace in which it was opened.
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok(Self(socket))
    }

    /// Sends a request with `body` behind the header, and returns the part of the answer behind its
    /// header.
    fn ask(&self, kind: u16, answer: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let len = (HEADER + body.len()) as u32;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(len.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        // The number of the request, and its sender.
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let mut buffer = vec![0; 64 << 10];
        let (got, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        buffer.truncate(got);
        let is_answer = buffer.get(4..6) == Some(&answer.to_ne_bytes()[..]);
        if !is_answer {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(buffer.split_off(HEADER))
    }

    /// Returns the bodies of all messages of the kind `answer` in the answer to a dump request.
    pub(crate) fn dump(&self, kind: u16, answer: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..MAX_DUMPS {
            if let Some(all) = self.dump_once(kind, answer, body)? {
                return Ok(all);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Returns `None` if an object changed during the dump.
    fn dump_once(&self, kind: u16, answer: u16, body: &[u8]) -> io::Result<Option<Vec<Vec<u8>>>> {
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | DUMP).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let mut all = Vec::new();
        let mut is_whole = true;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (got, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            for Message { kind, flags, body } in Messages(&buffer[..got]) {
                is_whole &= flags & INTERRUPTED == 0;
                match kind {
                    DONE => return Ok(is_whole.then_some(all)),
                    ERROR => return Err(error(body)),
                    kind if kind == answer => all.push(body.to_vec()),
                    _ => {}
                }
            }
        }
    }

    /// Changes an object, with more `flags` for how, and waits until the kernel has done so.
    pub(crate) fn change(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        const ACKNOWLEDGE: u16 = 4;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let mut buffer = vec![0; 16 << 10];
        let (got, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        for Message { kind, body, .. } in Messages(&buffer[..got]) {
            if kind == ERROR {
                let number = body.first_chunk().map(|it| i32::from_ne_bytes(*it));
                return if number == Some(0) {
                    Ok(())
                } else {
                    Err(error(body))
                };
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Returns the attributes of the link of this index ([`Attributes`]).
    pub(crate) fn link(&self, index: u32) -> io::Result<Vec<u8>> {
        // `struct ifinfomsg`: family, nothing, type, index, flags, mask.
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut answer = self.ask(GET_LINK, NEW_LINK, &body)?;
        Ok(answer.split_off(body.len().min(answer.len())))
    }

    /// Returns the number that this namespace has for the namespace of the file.
    pub(crate) fn number(&self, netns: &Path) -> io::Result<i32> {
        const FD: u16 = 3;
        const NUMBER: u16 = 1;
        let file = File::open(netns)?;
        // `struct rtgenmsg`, and an attribute.
        let mut body = vec![0; 4];
        body.extend(8_u16.to_ne_bytes());
        body.extend(FD.to_ne_bytes());
        body.extend(file.as_raw_fd().to_ne_bytes());
        let answer = self.ask(GET_NAMESPACE, NEW_NAMESPACE, &body)?;
        let attributes = Attributes(answer.get(4..).unwrap_or_default());
        let number = attributes.filter(|(kind, _)| *kind == NUMBER);
        let number =
            number.filter_map(|(_, value)| Some(i32::from_ne_bytes(*value.first_chunk()?)));
        number.last().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns the error in the body of a message of the kind `NLMSG_ERROR`.
fn error(body: &[u8]) -> io::Error {
    let number = body
        .first_chunk()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(number.wrapping_neg())
}

/// One message of an answer with several.
struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

/// The messages in the bytes of one answer.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = u32::from_ne_bytes(*self.0.first_chunk()?) as usize;
        let body = self.0.get(HEADER..len)?;
        let half = |at: usize| Some(u16::from_ne_bytes(*self.0.get(at..)?.first_chunk()?));
        let (kind, flags) = (half(4)?, half(6)?);
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, flags, body })
    }
}

/// The attributes of a message: the kind of each, and its value.
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let head: &[u8; 4] = self.0.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        // Two bits say how its value is written.
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_are_read_beyond_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let values = Attributes(&bytes).map(|(_, value)| 4 + value.len());
            prop_assert!(values.sum::<usize>() <= bytes.len());
            let bodies = Messages(&bytes).map(|message| HEADER + message.body.len());
            prop_assert!(bodies.sum::<usize>() <= bytes.len());
        }
    }
}
