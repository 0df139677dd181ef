//! A connection that can lose answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Passes connections on to another address, until the process ends.
pub(crate) struct Proxy {
    address: SocketAddr,
    /// Number of accepted connections.
    accepted: Arc<AtomicUsize>,
    /// Answers to the connections before this one are lost.
    lost: Arc<AtomicUsize>,
    /// New connections are closed without an answer.
    closed: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
            lost: Arc::default(),
            closed: Arc::default(),
        };
        let (to, accepted, lost, closed) = (
            to.to_owned(),
            Arc::clone(&proxy.accepted),
            Arc::clone(&proxy.lost),
            Arc::clone(&proxy.closed),
        );
        thread::spawn(move || {
            for here in listener.incoming() {
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                if closed.load(Ordering::SeqCst) {
                    continue;
                }
                let (here, there) = (here.unwrap(), TcpStream::connect(&to).unwrap());
                let (back, forth) = (there.try_clone().unwrap(), here.try_clone().unwrap());
                thread::spawn(move || pass(here, there, || false));
                let lost = Arc::clone(&lost);
                thread::spawn(move || pass(back, forth, || number < lost.load(Ordering::SeqCst)));
            }
        });
        proxy
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes nothing on until [`Self::open`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.swallow_answers();
    }

    /// Passes new connections on again.
    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Loses all further answers on the connections there are now; questions
    /// still get through, and new connections are as before.
    pub(crate) fn swallow_answers(&self) {
        let accepted = self.accepted.load(Ordering::SeqCst);
        self.lost.store(accepted, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, lost: impl Fn() -> bool) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !lost() && to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}
