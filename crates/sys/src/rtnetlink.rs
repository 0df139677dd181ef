//! Queries and changes by netlink (`netlink(7)`, `rtnetlink(7)`): messages and their attributes.

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

const HEADER: usize = 16;
/// Kinds of queries of rtnetlink. The kind of an answer is smaller by [`QUERY`].
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const GET_ADDRESS: u16 = 22;
pub(crate) const GET_ROUTE: u16 = 26;
pub(crate) const GET_NEIGHBOUR: u16 = 30;
pub(crate) const GET_QDISC: u16 = 38;
pub(crate) const GET_CLASS: u16 = 42;
pub(crate) const GET_FILTER: u16 = 46;
const GET_NAMESPACE: u16 = 90;
const QUERY: u16 = 2;
/// Kinds of changes.
pub(crate) const NEW_QDISC: u16 = 36;
pub(crate) const DELETE_QDISC: u16 = 37;

/// The lengths of `struct ifinfomsg` and `struct tcmsg`, in bytes.
pub(crate) const LINK_HEAD: usize = 16;
pub(crate) const TC_HEAD: usize = 20;
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

/// A netlink socket of the network namespace in which it was opened.
pub(crate) struct Netlink(OwnedFd);

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Netlink {
    /// Opens rtnetlink.
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_protocol(None)
    }

    pub(crate) fn open_protocol(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        Ok(Self(socket))
    }

    /// Sends a request with `body` behind the header.
    fn send(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        // The number of the request, and its sender.
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Sends a request with `body` behind the header, and returns the part of the answer behind its
    /// header.
    pub(crate) fn ask(&self, kind: u16, answer: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.send(kind, 0, body)?;
        let mut buffer = vec![0; 64 << 10];
        let (got, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        body_of(&buffer[..got], answer).map(<[u8]>::to_vec)
    }

    /// Returns the bodies of all messages in the answer to a query of rtnetlink about all objects.
    pub(crate) fn dump(&self, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..MAX_DUMPS {
            if let Some(all) = self.dump_once(kind, body)? {
                return Ok(all);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Returns `None` if an object changed during the dump.
    fn dump_once(&self, query: u16, body: &[u8]) -> io::Result<Option<Vec<Vec<u8>>>> {
        self.send(query, DUMP, body)?;
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
                    kind if kind == query - QUERY => all.push(body.to_vec()),
                    _ => {}
                }
            }
        }
    }

    /// Changes an object, with more `flags` for how, and waits until the kernel has done so.
    pub(crate) fn change(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        const ACKNOWLEDGE: u16 = 4;
        self.send(kind, ACKNOWLEDGE | flags, body)?;
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
        let mut body = [0; LINK_HEAD];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut answer = self.ask(GET_LINK, GET_LINK - QUERY, &body)?;
        Ok(answer.split_off(body.len().min(answer.len())))
    }

    /// Returns the number that this namespace has for the namespace of the file.
    pub(crate) fn number(&self, netns: &Path) -> io::Result<i32> {
        const FD: u16 = 3;
        const NUMBER: u16 = 1;
        let file = File::open(netns)?;
        // `struct rtgenmsg`, and an attribute.
        let body = [vec![0; 4], attribute(FD, &file.as_raw_fd().to_ne_bytes())].concat();
        let answer = self.ask(GET_NAMESPACE, GET_NAMESPACE - QUERY, &body)?;
        let number = find(answer.get(4..).unwrap_or_default(), NUMBER);
        let number = number.and_then(|value| Some(i32::from_ne_bytes(*value.first_chunk()?)));
        number.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns the body of the first message of an answer, or its error.
fn body_of(answer: &[u8], kind: u16) -> io::Result<&[u8]> {
    match Messages(answer).next() {
        Some(message) if message.kind == kind => Ok(message.body),
        Some(message) if message.kind == ERROR => Err(error(message.body)),
        Some(_) => Err(io::ErrorKind::NotFound.into()),
        None => Err(io::ErrorKind::InvalidData.into()),
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

/// Returns the value of the first attribute of a kind.
pub(crate) fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut found = Attributes(attributes).filter(|(kind, _)| *kind == wanted);
    found.next().map(|(_, value)| value)
}

/// Returns an attribute, padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the number at a position.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns a text that ends with a zero.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

/// Returns a `struct tcmsg` about an interface; 0 is all of them.
pub(crate) fn tc_head(index: u32, handle: u32, parent: u32) -> [u8; TC_HEAD] {
    let mut head = [0; TC_HEAD];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&handle.to_ne_bytes());
    head[12..16].copy_from_slice(&parent.to_ne_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_netlink_error_has_the_errno_of_the_kernel() {
        let mut answer = [36_u32.to_ne_bytes(), u32::from(ERROR).to_ne_bytes()].concat();
        answer.resize(36, 0);
        answer[HEADER..HEADER + 4].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = body_of(&answer, GET_LINK).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn an_attribute_is_found_behind_others(
            before in prop::collection::vec((10_u16..20, prop::collection::vec(any::<u8>(), 0..20)), 0..5),
            value in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes: Vec<u8> =
                before.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
            bytes.extend(attribute(7, &value));
            prop_assert_eq!(find(&bytes, 7), Some(&value[..]));
            prop_assert_eq!(find(&bytes, 8), None);
        }

        #[test]
        fn no_bytes_are_read_beyond_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let values = Attributes(&bytes).map(|(_, value)| 4 + value.len());
            prop_assert!(values.sum::<usize>() <= bytes.len());
            let bodies = Messages(&bytes).map(|message| HEADER + message.body.len());
            prop_assert!(bodies.sum::<usize>() <= bytes.len());
        }
    }
}
