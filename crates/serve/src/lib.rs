//! A small HTTP/1.1 server for metrics and pages: it answers GET and HEAD, closes each connection after
//! its answer, and bounds all that a client can use.
//!
//! The server has threads of its own, so that no client delays a measurement or a packet: at most
//! [`Limits::connections`]. A connection without a valid request is closed for a new one. A head has a
//! limit on its length and one on the time from its first byte to the last.
//!
//! Use it for a few readers on a trusted path. It has no TLS, no request bodies, no keep-alive and no
//! HTTP/2: the placement service has a server of its own.

mod request;

pub use request::{MIN_TOKEN_BYTES, Request, Token};
use request::{Refusal, admit};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of bytes in one read.
const READ: usize = 2_048;
/// The pause behind a connection that could not be accepted, such as without a free descriptor.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The pause before a connection is closed for a new one, so that a client that opens one after
/// another takes little CPU time. Others wait in the listener's queue meanwhile.
const EVICTION_INTERVAL: Duration = Duration::from_millis(10);

/// The time within which the thread of a closed connection ends.
const MAX_THREAD_END: Duration = Duration::from_secs(1);

/// The bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// The time in which a head comes.
    pub head_time: Duration,
    /// The time in which an answer is taken.
    pub answer_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16,
            head_bytes: 8_192,
            head_time: Duration::from_secs(5),
            answer_time: Duration::from_secs(10),
        }
    }
}

/// The content of an answer.
#[derive(Debug, Clone)]
pub struct Content {
    /// The media type.
    pub kind: Cow<'static, str>,
    /// The Content-Encoding; `None` for plain bytes.
    pub encoding: Option<&'static str>,
    /// The Content-Security-Policy.
    pub policy: String,
    /// The body.
    pub body: Arc<[u8]>,
}

/// The reason why a path has no content now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// There is no such path (404).
    Path,
    /// The content does not exist yet, or its source does not answer (503).
    Source,
    /// The content could not be written (500).
    Failure,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The content.
    Content(Content),
    /// No content, for this reason, with a text for people.
    None(Lack, Cow<'static, str>),
}

impl Content {
    /// A text for people.
    pub fn text(text: &str) -> Self {
        Self {
            kind: Cow::Borrowed(TEXT),
            encoding: None,
            policy: NO_ACTIVE_CONTENT.to_owned(),
            body: text.as_bytes().into(),
        }
    }
}

/// The readers that are admitted.
#[derive(Debug, Clone)]
pub enum Access {
    /// Readers that show the token, under an address or `localhost` as the host.
    Token(Token),
    /// All readers that reach the address.
    Open,
}

/// The pages that are served.
pub trait Site: Send + Sync + 'static {
    /// The answer to a request.
    fn answer(&self, request: &Request) -> Answer;
}

/// A server, until it is dropped. Then it refuses connections, and its threads end by themselves
/// within their limits: a drop never waits for a client.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// The listening socket, as one that can be shut down.
    socket: TcpStream,
}

impl Server {
    /// Serves a site to the admitted readers, until the server is dropped.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(
        listener: TcpListener,
        access: Access,
        limits: Limits,
        site: impl Site,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let socket = TcpStream::from(OwnedFd::from(listener.try_clone()?));
        let serving = Serving {
            access,
            limits,
            site: Box::new(site),
            connections: Mutex::default(),
            left: Condvar::new(),
        };
        let serving = Arc::new(serving);
        let is_over = Arc::clone(&stop);
        thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || serve(&listener, &serving, &is_over))?;
        Ok(Self {
            address,
            stop,
            socket,
        })
    }

    /// The address that is listened at.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Linux ends a waiting accept(2) with an error, and the address is free at once.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The connections that are open, the oldest first.
#[derive(Debug, Default)]
struct Connections {
    next: u64,
    open: usize,
    /// Connections without a valid request yet, with a handle to close them.
    strangers: VecDeque<(u64, Arc<TcpStream>)>,
}

struct Serving {
    access: Access,
    limits: Limits,
    site: Box<dyn Site>,
    connections: Mutex<Connections>,
    /// A connection has left.
    left: Condvar,
}

fn serve(listener: &TcpListener, serving: &Arc<Serving>, stop: &AtomicBool) {
    for stream in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            thread::sleep(RETRY_INTERVAL);
            continue;
        };
        let stream = Arc::new(stream);
        if serving.is_full() {
            thread::sleep(EVICTION_INTERVAL);
        }
        let Some(number) = serving.enter(&stream) else {
            continue;
        };
        let own = Arc::clone(serving);
        let spawned = thread::Builder::new()
            .name("http-client".to_owned())
            .spawn(move || {
                own.converse(&stream, number);
                own.leave(number);
            });
        if spawned.is_err() {
            serving.leave(number);
        }
    }
}

impl Serving {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.connections().open >= self.limits.connections
    }

    /// Admits a connection, if need be in place of a stranger's, which is closed; `None` if there is no room.
    fn enter(&self, stream: &Arc<TcpStream>) -> Option<u64> {
        let mut connections = self.connections();
        if connections.open >= self.limits.connections {
            let (_, oldest) = connections.strangers.pop_front()?;
            let _ = oldest.shutdown(Shutdown::Both);
            // Its thread ends soon after that.
            let is_full = |it: &mut Connections| it.open >= self.limits.connections;
            let waited = self
                .left
                .wait_timeout_while(connections, MAX_THREAD_END, is_full);
            let (freed, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return None;
            }
            connections = freed;
        }
        connections.open += 1;
        connections.next += 1;
        let number = connections.next;
        connections
            .strangers
            .push_back((number, Arc::clone(stream)));
        Some(number)
    }

    /// Notes that a connection has sent a valid request.
    fn know(&self, number: u64) {
        self.connections().strangers.retain(|(it, _)| *it != number);
    }

    fn leave(&self, number: u64) {
        let mut connections = self.connections();
        connections.open = connections.open.saturating_sub(1);
        connections.strangers.retain(|(it, _)| *it != number);
        self.left.notify_all();
    }

    fn converse(&self, stream: &TcpStream, number: u64) {
        // A client that goes away needs no error.
        let Ok(read) = self.read(stream) else {
            return;
        };
        if !read.as_ref().is_err_and(Refusal::is_of_stranger) {
            self.know(number);
        }
        let is_head = read.as_ref().is_ok_and(Request::is_head);
        let answered = read.and_then(|request| match self.site.answer(&request) {
            Answer::Content(content) => Ok(content),
            Answer::None(lack, text) => Err(Refusal::Lack(lack, text)),
        });
        let bytes = response(&answered, is_head);
        if self.write(stream, &bytes).is_ok() {
            finish(stream);
        }
    }

    /// Reads a request; an error of the system means that nothing can be answered.
    fn read(&self, mut stream: &TcpStream) -> io::Result<Result<Request, Refusal>> {
        let end = Instant::now() + self.limits.head_time;
        let mut head = Vec::with_capacity(READ);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Err(Refusal::Slow));
            }
            stream.set_read_timeout(Some(left))?;
            let mut part = [0; READ];
            let count = match stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if is_time(&error) => continue,
                Err(error) => return Err(error),
            };
            head.extend_from_slice(&part[..count]);
            match admit(&head, &self.access) {
                Ok(None) if head.len() >= self.limits.head_bytes => {
                    return Ok(Err(Refusal::Long));
                }
                Ok(None) => {}
                Ok(Some(request)) => return Ok(Ok(request)),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
    }

    fn write(&self, mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        let end = Instant::now() + self.limits.answer_time;
        while !bytes.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_write_timeout(Some(left))?;
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_time(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns true if a call may be tried again.
fn is_time(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Reads the rest that a client sends, at most 16 KiB: a connection that is closed before that is reset, and the client may lose the answer.
fn finish(mut stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(RETRY_INTERVAL));
    let mut part = [0; READ];
    for _ in 0..8 {
        if !stream.read(&mut part).is_ok_and(|count| count > 0) {
            return;
        }
    }
}

/// The policy of an answer without active content.
pub const NO_ACTIVE_CONTENT: &str = "default-src 'none'; frame-ancestors 'none'";
/// The media type of texts for people.
const TEXT: &str = "text/plain; charset=utf-8";

fn response(answered: &Result<Content, Refusal>, is_head: bool) -> Vec<u8> {
    let (status, kind, policy, body) = match answered {
        Ok(content) => (
            "200 OK",
            &*content.kind,
            content.policy.as_str(),
            &*content.body,
        ),
        Err(refusal) => (
            refusal.status(),
            TEXT,
            NO_ACTIVE_CONTENT,
            refusal.text().as_bytes(),
        ),
    };
    let more = match answered {
        Err(Refusal::Token) => "WWW-Authenticate: Bearer\r\n",
        Err(Refusal::Method) => "Allow: GET, HEAD\r\n",
        Err(Refusal::Lack(Lack::Source, _)) => "Retry-After: 1\r\n",
        _ => "",
    };
    let encoding = answered.as_ref().ok().and_then(|content| content.encoding);
    let encoding = encoding.map_or_else(String::new, |it| format!("Content-Encoding: {it}\r\n"));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: {policy}\r\n{encoding}{more}\r\n",
        body.len()
    );
    let mut bytes = head.into_bytes();
    if !is_head {
        bytes.extend_from_slice(body);
    }
    bytes
}

#[cfg(test)]
mod tests;
