//! A minimal collector for tests: it records requests and sends configured answers.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// A request: its path and its body.
pub(crate) type Request = (String, Value);

/// Answers each request with the next of these statuses, and with 200 behind them. Returns its
/// address, and what it is sent.
pub(crate) fn collector(statuses: &'static [u16]) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let status = statuses.get(number).copied().unwrap_or(200);
            let request = answer(stream.expect("a connection"), status);
            if seen.send(request).is_err() {
                return;
            }
        }
    });
    (format!("http://{address}"), requests)
}

/// Reads a request and answers it.
fn answer(mut stream: TcpStream, status: u16) -> Request {
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor"));
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        if line.trim().is_empty() {
            break;
        }
        head.push(line);
    }
    let value = |name: &str| {
        let mut fields = head.iter().filter_map(|line| line.split_once(':'));
        let field = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
        field.map_or("", |(_, value)| value).trim()
    };
    assert!(
        value("content-type").starts_with("application/json"),
        "{head:?}"
    );
    let mut body = vec![0; value("content-length").parse().expect("a length")];
    lines.read_exact(&mut body).expect("the body");
    let path = head[0].split(' ').nth(1).expect("a path").to_owned();
    let answer =
        format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    stream.write_all(answer.as_bytes()).expect("written");
    (path, serde_json::from_slice(&body).expect("JSON"))
}
