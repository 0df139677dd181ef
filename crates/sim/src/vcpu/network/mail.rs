//! Messages over persistent connections: the receiver is notified of a message once it is complete.

use super::frame::{End, Side};
use super::net::{Net, Notice};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// An event for the user of messages.
#[derive(Debug)]
pub(super) enum News<M> {
    /// A message was received completely.
    Message(End, M),
    /// The event that [`Net::compute`] or [`Net::wake_at`] requested.
    Wake(u32),
}

/// Messages in flight to one end.
struct Inbox<M> {
    /// Bytes that the end itself will send once its connection is open.
    held: u64,
    /// Bytes that were sent, and that were read.
    sent: u64,
    read: u64,
    /// Messages, with the position after their last byte.
    due: VecDeque<(u64, M)>,
}

/// A [`Net`] whose connections carry messages.
pub(super) struct Mail<M> {
    pub(super) net: Net,
    /// Inboxes, by connection.
    inboxes: Vec<[Inbox<M>; 2]>,
    news: VecDeque<News<M>>,
}

impl<M> Mail<M> {
    pub(super) fn new(net: Net) -> Self {
        Self {
            net,
            inboxes: Vec::new(),
            news: VecDeque::new(),
        }
    }

    /// Opens a connection from one station to another. Messages may be sent immediately.
    pub(super) fn open(&mut self, from: usize, to: usize) -> End {
        let inbox = || Inbox {
            held: 0,
            sent: 0,
            read: 0,
            due: VecDeque::new(),
        };
        self.inboxes.push([inbox(), inbox()]);
        self.net.connect(from, to)
    }

    fn inbox(&mut self, end: End) -> &mut Inbox<M> {
        &mut self.inboxes[end.connection as usize][end.side as usize]
    }

    /// Sends a message of `bytes` bytes from an end to the other.
    pub(super) fn send(&mut self, from: End, bytes: u64, message: M) {
        let inbox = self.inbox(from.peer());
        inbox.sent += bytes;
        let behind = inbox.sent;
        inbox.due.push_back((behind, message));
        if self.net.end(from).is_some() {
            self.net.write(from, bytes);
        } else {
            self.inbox(from).held += bytes;
        }
    }

    /// Runs until the next event, to `until` at the latest.
    pub(super) fn poll(&mut self, until: Nanos) -> Option<News<M>> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Some(news);
            }
            let end = match self.net.poll(until)? {
                Notice::Wake(token) => return Some(News::Wake(token)),
                Notice::Ready(end) => end,
            };
            let held = std::mem::take(&mut self.inbox(end).held);
            if held > 0 {
                self.net.write(end, held);
            }
            let bytes = self.net.read(end);
            let inbox = self.inbox(end);
            inbox.read += bytes;
            let mut here = Vec::new();
            while inbox
                .due
                .front()
                .is_some_and(|(behind, _)| *behind <= inbox.read)
            {
                here.extend(inbox.due.pop_front());
            }
            self.news.extend(
                here.into_iter()
                    .map(|(_, message)| News::Message(end, message)),
            );
        }
    }
}

/// Returns true if the end opened the connection.
pub(super) fn is_opener(end: End) -> bool {
    end.side == Side::Opener
}
