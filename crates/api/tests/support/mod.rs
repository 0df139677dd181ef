//! A server with a script: one step for each connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Handling of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Closed before anything is answered.
    Drop,
    /// These bytes, and closed.
    Raw(Vec<u8>),
    /// These bytes, and nothing more while the test runs.
    Hang(Vec<u8>),
    /// These bytes, one every so often.
    Trickle(Vec<u8>, Duration),
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) asked: Receiver<ReceivedRequest>,
}

impl Server {
    pub(crate) fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for step in steps {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = tell.send(read(&mut stream));
                match step {
                    Step::Drop => {}
                    Step::Raw(bytes) => stream.write_all(&bytes).unwrap(),
                    Step::Hang(bytes) => {
                        stream.write_all(&bytes).unwrap();
                        open.push(stream);
                    }
                    Step::Trickle(bytes, every) => {
                        for byte in bytes {
                            if stream.write_all(&[byte]).is_err() {
                                break;
                            }
                            std::thread::sleep(every);
                        }
                    }
                }
            }
            // Whoever connects now is refused; what hangs goes on hanging.
            drop(listener);
            std::thread::sleep(Duration::from_secs(30));
        });
        Self { url, asked }
    }
}

pub(crate) fn read(stream: &mut impl Read) -> ReceivedRequest {
    let mut text = Vec::new();
    let head = loop {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            break text.len();
        }
        text.push(byte[0]);
        if text.ends_with(b"\r\n\r\n") {
            break text.len();
        }
    };
    let head = String::from_utf8_lossy(&text[..head]).into_owned();
    let mut lines = head.lines().map(str::to_owned);
    let mut asked = ReceivedRequest {
        line: lines.next().unwrap_or_default(),
        headers: lines.collect(),
        body: Vec::new(),
    };
    let length = asked.header("content-length").unwrap_or("0");
    asked.body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut asked.body).unwrap();
    asked
}

/// A whole answer.
pub(crate) fn answer(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Something\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// An answer that goes on until the connection is closed.
pub(crate) fn stream(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n{body}").into_bytes()
}

/// Returns a URL without a listener.
pub(crate) fn url_without_listener() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A connection for each call of `serve`, until the test ends.
pub(crate) fn with_connections(mut serve: impl FnMut(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap());
        }
    });
    port
}
