//! The text protocol of memcached: storing values and requesting them.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

/// The longest time between the start of a server and its listening.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to a server that may have just been started.
pub(super) fn connect(server: SocketAddrV4) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect_timeout(&server.into(), START_TIMEOUT) {
            Ok(stream) => {
                super::control_congestion(&stream)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && begun.elapsed() < START_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                let message = format!("memcached at {server}: {error}");
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
}

/// Stores values of these keys and sizes.
pub(super) fn store(mut stream: TcpStream, values: &[(String, u64)]) -> io::Result<()> {
    for (key, size) in values {
        write!(stream, "set {key} 0 0 {size}\r\n")?;
        io::copy(&mut io::Read::take(io::repeat(b'x'), *size), &mut stream)?;
        stream.write_all(b"\r\n")?;
    }
    // A reply is one short line.
    let most = 512 * values.len() as u64;
    let replies = BufReader::new(io::Read::take(&stream, most)).lines();
    let mut stored = 0;
    for reply in replies.take(values.len()) {
        let reply = reply?;
        if reply != "STORED" {
            let message = format!("memcached does not store a value: {reply}");
            return Err(io::Error::other(message));
        }
        stored += 1;
    }
    if stored < values.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Returns the request for a value.
pub(super) fn request(key: &str) -> Vec<u8> {
    format!("get {key}\r\n").into_bytes()
}

/// Returns the length of the answer to that request.
pub(super) fn answer_length(key: &str, size: u64) -> u64 {
    let around = format!("VALUE {key} 0 {size}\r\n\r\nEND\r\n");
    around.len() as u64 + size
}
