//! The text protocol of memcached, as much of it as asking for one value takes.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpStream};

/// Stores a value of `size` bytes.
pub(super) fn store(server: SocketAddrV4, size: u64) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    write!(stream, "set v 0 0 {size}\r\n")?;
    io::copy(&mut io::Read::take(io::repeat(b'x'), size), &mut stream)?;
    stream.write_all(b"\r\n")?;
    let mut reply = String::new();
    // A reply is one short line.
    BufReader::new(io::Read::take(&stream, 512)).read_line(&mut reply)?;
    if reply == "STORED\r\n" {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "memcached at {server} does not store {size} bytes: {}",
        reply.trim_end()
    )))
}

/// The request for it.
pub(super) const REQUEST: &[u8] = b"get v\r\n";

/// How long the answer to that is.
pub(super) fn answer_length(size: u64) -> u64 {
    format!("VALUE v 0 {size}\r\n").len() as u64 + size + "\r\nEND\r\n".len() as u64
}
