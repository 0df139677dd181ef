//! Connections, limited by file descriptors. A new connection beyond the limit closes the oldest
//! one without a known token.

use super::App;
use axum_server::accept::Accept;
use std::collections::{BTreeMap, HashMap};
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// All connections that are open.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    /// Number of open connections that were not shut.
    open: usize,
    /// The number of the next one.
    next: u64,
    /// Open connections that have not shown a known token, the oldest first.
    strangers: BTreeMap<u64, Arc<Door>>,
    numbers: HashMap<SocketAddr, u64>,
}

/// Switch that closes a connection.
#[derive(Debug, Default)]
struct Door {
    is_shut: AtomicBool,
    /// Waker of the task that reads and writes the connection.
    user: Mutex<Option<Waker>>,
}

impl Door {
    fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
        if let Some(user) = lock(&self.user).take() {
            user.wake();
        }
    }

    /// Returns an error once it was shut; until then its user is woken when it is.
    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        let mut user = lock(&self.user);
        if self.is_shut.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !user
            .as_ref()
            .is_some_and(|it| it.will_wake(context.waker()))
        {
            *user = Some(context.waker().clone());
        }
        Ok(())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            table: Mutex::default(),
        }
    }

    /// Returns how many are open.
    pub(super) fn open(&self) -> usize {
        lock(&self.table).open
    }

    /// Admits a connection. Returns how many connections were shut to make room, this one included.
    fn enter(self: &Arc<Self>, peer: SocketAddr) -> (Place, usize) {
        let door = Arc::new(Door::default());
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        table.open += 1;
        table.strangers.insert(number, Arc::clone(&door));
        table.numbers.insert(peer, number);
        let mut evictions = 0;
        while table.open > self.most {
            let Some((_, oldest)) = table.strangers.pop_first() else {
                break;
            };
            oldest.shut();
            table.open -= 1;
            evictions += 1;
        }
        let place = Place {
            connections: Arc::clone(self),
            peer,
            number,
            door,
        };
        (place, evictions)
    }

    /// Records that the peer has shown a known token.
    pub(super) fn know(&self, peer: SocketAddr) {
        let mut table = lock(&self.table);
        if let Some(number) = table.numbers.get(&peer).copied() {
            table.strangers.remove(&number);
        }
    }
}

/// The place of a connection among all, as long as it is open.
#[derive(Debug)]
struct Place {
    connections: Arc<Connections>,
    peer: SocketAddr,
    number: u64,
    door: Arc<Door>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = lock(&self.connections.table);
        if !self.door.is_shut.load(Ordering::Acquire) {
            table.open -= 1;
        }
        table.strangers.remove(&self.number);
        // Its address may be another one's by now.
        if table.numbers.get(&self.peer) == Some(&self.number) {
            table.numbers.remove(&self.peer);
        }
    }
}

/// Counts and admits connections before TLS.
#[derive(Clone)]
pub(super) struct Entrance(pub(super) Arc<App>);

impl<S> Accept<TcpStream, S> for Entrance {
    type Stream = AdmittedConnection;
    type Service = S;
    type Future = Ready<io::Result<(AdmittedConnection, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let enter = || {
            stream.set_nodelay(true)?;
            let (place, evictions) = self.0.connections.enter(stream.peer_addr()?);
            if evictions > 0 {
                self.0.metrics.turned_away(evictions);
            }
            Ok(place)
        };
        ready(enter().map(|place| (AdmittedConnection { stream, place }, service)))
    }
}

/// A connection with its place.
#[derive(Debug)]
pub(super) struct AdmittedConnection {
    stream: TcpStream,
    place: Place,
}

impl AsyncRead for AdmittedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.place.door.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AdmittedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.place.door.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.place.door.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn is_shut(place: &Place) -> bool {
        place.door.is_shut.load(Ordering::Acquire)
    }

    #[test]
    fn the_oldest_unauthenticated_connection_is_evicted_first() {
        let all = Arc::new(Connections::new(3));
        let enter = |port| all.enter(peer(port)).0;
        let first = enter(1);
        all.know(peer(1));
        let (second, third) = (enter(2), enter(3));
        assert_eq!((all.open(), is_shut(&second)), (3, false));
        let (fourth, gone) = all.enter(peer(4));
        assert_eq!((all.open(), gone), (3, 1));
        assert!(is_shut(&second) && !is_shut(&first) && !is_shut(&third));
        // Gone for good, it makes no room twice.
        drop(second);
        assert_eq!(all.open(), 3);
        all.know(peer(3));
        all.know(peer(4));
        let (fifth, gone) = all.enter(peer(5));
        assert_eq!((gone, is_shut(&fifth)), (1, true), "all others are known");
        drop((first, third, fourth, fifth));
        let table = lock(&all.table);
        assert_eq!(
            (table.open, table.strangers.len(), table.numbers.len()),
            (0, 0, 0)
        );
    }
}
