//! Rings that are enabled before features are chosen: QEMU does so
//! (`vhost_net_start` restores what is enabled before it sets features), and `vhost` ends the
//! connection of whoever does. So this request alone is read here.

use crate::handler::Handler;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use vhost::vhost_user::{Error, VhostUserBackendReqHandlerMut};

/// `VHOST_USER_SET_VRING_ENABLE`.
const CODE: u32 = 18;
/// Version 1 of the protocol, an answer, and that one is wanted.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

const HEADER: usize = 12;
const BODY: usize = 8;

/// Carries out the next request where it enables or disables a ring; returns whether it
/// did. Waits for the first byte of one.
///
/// # Errors
/// The request is wrong, or the connection is.
pub(crate) fn handle(mut stream: &UnixStream, handler: &Mutex<Handler>) -> Result<bool, Error> {
    let mut header = [0; HEADER];
    let seen = loop {
        match recv(stream, &mut header[..], RecvFlags::PEEK) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.map_err(|error| Error::SocketBroken(error.into()))?.0,
        }
    };
    let word = |at: usize| {
        let bytes = header[at..].first_chunk().copied();
        bytes.map_or(0, u32::from_le_bytes)
    };
    let (code, flags, len) = (word(0), word(4), word(8));
    // Half a header, and all that is wrong, is what `vhost` deals with.
    if seen < HEADER || code != CODE || flags & !NEED_REPLY != VERSION || len as usize != BODY {
        return Ok(false);
    }
    let mut message = [0; HEADER + BODY];
    stream
        .read_exact(&mut message)
        .map_err(Error::SocketBroken)?;
    let half = |at: usize| {
        let bytes = message[at..].first_chunk().copied();
        bytes.map_or(0, u32::from_le_bytes)
    };
    let mut handler = handler.lock().unwrap_or_else(PoisonError::into_inner);
    let done = match half(HEADER + 4) {
        is_on @ 0..=1 => handler.set_vring_enable(half(HEADER), is_on == 1),
        _ => Err(Error::InvalidParam),
    };
    if flags & NEED_REPLY != 0 && handler.acknowledges() {
        let mut reply = [CODE, VERSION | REPLY, BODY as u32]
            .map(u32::to_le_bytes)
            .concat();
        reply.extend(u64::from(done.is_err()).to_le_bytes());
        stream.write_all(&reply).map_err(Error::SocketBroken)?;
    }
    done.map(|()| true)
}
