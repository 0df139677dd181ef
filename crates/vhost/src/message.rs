//! Encoding of the VMM's requests and their answers (QEMU's `docs/interop/vhost-user.rst`, *Message
//! format*).

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use vhost::vhost_user::message::{
    MAX_ATTACHED_FD_ENTRIES as MOST_FILES, MAX_MSG_SIZE as MOST_BODY, VhostUserHeaderFlag,
    VhostUserU64,
};
use vm_memory::ByteValued;

/// Bytes of a header: a code, flags, and the body's length.
const HEADER: usize = 12;
/// The protocol's version, and the flags of a header.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = VhostUserHeaderFlag::VERSION.bits();
const REPLY: u32 = VhostUserHeaderFlag::REPLY.bits();
const NEED_REPLY: u32 = VhostUserHeaderFlag::NEED_REPLY.bits();

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    /// The other end has closed it.
    #[error("the machine monitor has left")]
    Left,
    #[error("a message of version {0}: 1 is wanted")]
    Version(u32),
    #[error("a request of {0} bytes: {MOST_BODY} are the most")]
    Long(u32),
    #[error("a request with more than {MOST_FILES} descriptors")]
    Files,
    #[error("the machine monitor does not read its answers")]
    Unread,
    #[error("cannot read or write the socket: {0}")]
    System(#[from] io::Error),
}

/// A request's body has the wrong length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request {code} has a body of {len} bytes, which it cannot have")]
pub(crate) struct LengthError {
    code: u32,
    len: usize,
}

/// A request of a VMM.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) code: u32,
    /// The VMM requests an acknowledgement.
    pub(crate) needs_reply: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) files: Vec<File>,
}

impl Request {
    /// Returns the body as a message.
    pub(crate) fn message<T: ByteValued + Default>(&self) -> Result<T, LengthError> {
        message(&self.body).ok_or_else(|| self.wrong_length())
    }

    /// Returns the body as a number.
    pub(crate) fn number(&self) -> Result<u64, LengthError> {
        Ok(self.message::<VhostUserU64>()?.value)
    }

    pub(crate) fn wrong_length(&self) -> LengthError {
        LengthError {
            code: self.code,
            len: self.body.len(),
        }
    }
}

/// Returns a message of these bytes, or `None` if it has another length.
pub(crate) fn message<T: ByteValued + Default>(bytes: &[u8]) -> Option<T> {
    let mut message = T::default();
    let place = message.as_mut_slice();
    (place.len() == bytes.len()).then(|| place.copy_from_slice(bytes))?;
    Some(message)
}

/// Non-blocking reader of requests, which keeps an incomplete request until the rest arrives.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
    files: Vec<File>,
}

impl Reader {
    /// Returns whether a part of a request was received.
    pub(crate) const fn is_amid(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Returns the next request; `None` while it is incomplete.
    pub(crate) fn read(&mut self, stream: &UnixStream) -> Result<Option<Request>, MessageError> {
        loop {
            let wanted = match self.header()? {
                None => HEADER,
                Some((_, _, len)) => HEADER + len,
            };
            if self.bytes.len() == wanted
                && let Some((code, flags, _)) = self.header()?
            {
                let body = self.bytes.split_off(HEADER);
                self.bytes.clear();
                return Ok(Some(Request {
                    code,
                    needs_reply: flags & NEED_REPLY != 0,
                    body,
                    files: std::mem::take(&mut self.files),
                }));
            }
            if !self.receive(stream, wanted)? {
                return Ok(None);
            }
        }
    }

    /// Returns the code, the flags and the body's length after the header was received.
    fn header(&self) -> Result<Option<(u32, u32, usize)>, MessageError> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let word = |at: usize| {
            header[at..]
                .first_chunk()
                .copied()
                .map_or(0, u32::from_le_bytes)
        };
        let (code, flags, len) = (word(0), word(4), word(8));
        if flags & (VERSION_MASK | REPLY) != VERSION {
            return Err(MessageError::Version(flags & VERSION_MASK));
        }
        if len as usize > MOST_BODY {
            return Err(MessageError::Long(len));
        }
        Ok(Some((code, flags, len as usize)))
    }

    /// Receives until `wanted` bytes are there; returns whether any arrived.
    fn receive(&mut self, stream: &UnixStream, wanted: usize) -> Result<bool, MessageError> {
        let mut bytes = [0; HEADER + MOST_BODY];
        let mut parts = [IoSliceMut::new(&mut bytes[..wanted - self.bytes.len()])];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(stream, &mut parts, &mut control, flags) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNRESET) => return Err(MessageError::Left),
            Err(error) => return Err(MessageError::System(error.into())),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                self.files.extend(some.map(File::from));
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.files.len() > MOST_FILES {
            return Err(MessageError::Files);
        }
        if got.bytes == 0 {
            return Err(MessageError::Left);
        }
        self.bytes.extend_from_slice(&bytes[..got.bytes]);
        Ok(true)
    }
}

/// Answers a request, without waiting for a VMM that reads no answers.
pub(crate) fn reply(stream: &UnixStream, code: u32, body: &[u8]) -> Result<(), MessageError> {
    let header = [code, VERSION | REPLY, body.len() as u32].map(u32::to_le_bytes);
    let whole = [header.as_flattened(), body].concat();
    match send(stream, &whole, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) if sent == whole.len() => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(MessageError::Unread),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(MessageError::Left),
        Err(error) => Err(MessageError::System(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use vhost::vhost_user::message::VhostUserLog;

    #[test]
    fn a_request_is_there_when_its_last_byte_is() {
        let (mut monitor, back_end) = UnixStream::pair().unwrap();
        let mut reader = Reader::default();
        let message = [2, VERSION | NEED_REPLY, 8].map(u32::to_le_bytes);
        let message = [message.as_flattened(), &7u64.to_le_bytes()].concat();
        for (at, byte) in message.iter().enumerate() {
            assert!(reader.read(&back_end).unwrap().is_none());
            assert_eq!(reader.is_amid(), at > 0);
            monitor.write_all(&[*byte]).unwrap();
        }
        let request = reader.read(&back_end).unwrap().unwrap();
        assert_eq!((request.code, request.needs_reply), (2, true));
        assert_eq!(request.number(), Ok(7));
        let longer = request.message::<VhostUserLog>();
        assert_eq!(longer.err(), Some(request.wrong_length()));
        assert!(!reader.is_amid());
        drop(monitor);
        assert!(matches!(reader.read(&back_end), Err(MessageError::Left)));
    }

    #[test]
    fn a_monitor_that_reads_no_answers_is_not_waited_for() {
        let (_monitor, back_end) = UnixStream::pair().unwrap();
        let mut answers = (0..1_000_000).map(|_| reply(&back_end, 1, &[0; 8]));
        let error = answers.find_map(Result::err);
        assert!(matches!(error, Some(MessageError::Unread)), "{error:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_parse_to_requests_or_an_error(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), 0u8..20, any::<u8>()], 0..600),
        ) {
            let (mut monitor, back_end) = UnixStream::pair().unwrap();
            monitor.write_all(&bytes).unwrap();
            drop(monitor);
            let mut reader = Reader::default();
            let mut seen = 0;
            while let Ok(Some(request)) = reader.read(&back_end) {
                seen += HEADER + request.body.len();
            }
            prop_assert!(seen <= bytes.len());
        }
    }
}
