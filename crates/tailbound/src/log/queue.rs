//! Lines of a log that a thread of its own writes: the reader of standard error decides how long a
//! write takes, and the packet loop logs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Largest number of queued lines. Further lines are dropped, and counted.
const MAX_LINES: usize = 4096;

/// Time for which the end of a process waits for its last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

enum Message {
    Lines(Vec<u8>),
    /// Request that is answered when all earlier lines are written.
    Flush(Sender<()>),
}

/// Queue of lines to write.
#[derive(Clone)]
pub(super) struct Queue {
    messages: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// Starts a thread that writes to `out`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, received) = sync_channel(MAX_LINES);
        let lost = Arc::default();
        let queue = Self {
            messages,
            lost: Arc::clone(&lost),
        };
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write(out, &received, &lost))?;
        Ok(queue)
    }

    /// Adds lines. Never waits: lines are dropped if the queue is full.
    pub(super) fn push(&self, lines: &[u8]) {
        let message = Message::Lines(lines.to_vec());
        if self.messages.try_send(message).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all added lines are written, for at most half a second.
    pub(super) fn flush(&self) {
        let (done, written) = channel();
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn write(mut out: impl Write, messages: &Receiver<Message>, lost: &AtomicU64) {
    for message in messages {
        match message {
            Message::Lines(lines) => {
                // There is no place to report an error.
                let _ = out.write_all(&lines);
            }
            Message::Flush(done) => {
                let _ = done.send(());
            }
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(
                out,
                "<4>{count} lines were lost, as the log was not taken fast enough"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, pipe};
    use std::time::Instant;

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_no_time() {
        let (reader, writer) = pipe().expect("a pipe");
        let queue = Queue::start(writer).expect("a thread");
        let begin = Instant::now();
        let line = [b'x'; 99];
        for number in 0..3 * MAX_LINES {
            queue.push(format!("{number} {}\n", String::from_utf8_lossy(&line)).as_bytes());
        }
        queue.flush();
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "it waits for its reader"
        );
        drop(queue);
        // All missing lines are reported as dropped.
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        let (mut there, mut lost) = (0, 0);
        for line in lines {
            match line.strip_prefix("<4>") {
                Some(told) => {
                    let count = told.split(' ').next().and_then(|count| count.parse().ok());
                    lost += count.unwrap_or(0);
                }
                None => there += 1,
            }
        }
        assert!(there >= MAX_LINES, "{there}");
        assert_eq!(there + lost, 3 * MAX_LINES);
    }

    #[test]
    fn flush_writes_all_queued_lines() {
        let (mut reader, writer) = pipe().expect("a pipe");
        let queue = Queue::start(writer).expect("a thread");
        queue.push(b"one\n");
        queue.push(b"two\n");
        queue.flush();
        let mut bytes = [0; 8];
        io::Read::read_exact(&mut reader, &mut bytes).expect("it is there");
        assert_eq!(&bytes, b"one\ntwo\n");
    }
}
