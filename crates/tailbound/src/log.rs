//! The log of long-running commands, on standard error.

mod queue;

use crate::journal::{self, Priority, with_priority};
use queue::Queue;
use std::fmt;
use std::io::{self, Stderr, Write};
use std::sync::OnceLock;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts the log to standard error with the levels of `TAILBOUND_LOG`: a level, or levels of
/// modules (`info,tailbound_host=debug`). `paints`: in colours.
pub(crate) fn start(paints: bool) {
    let wanted = std::env::var("TAILBOUND_LOG")
        .ok()
        .filter(|text| !text.is_empty());
    let wanted = wanted.and_then(|text| text.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Out)
        .with_ansi(paints)
        .fmt_fields(DefaultFields::new())
        .event_format(Lines {
            is_journal: journal::reads_stderr(),
        });
    tracing_subscriber::registry()
        .with(lines)
        .with(wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO)))
        .init();
}

/// Queue of lines that a thread writes, once [`queue()`] was called.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Writes lines by a thread from now on: for a process whose threads must not wait for the reader
/// of standard error. Dropping the result waits for the last lines; later ones may be lost with the
/// process.
#[cfg(feature = "host")]
pub(crate) fn queue() -> Flush {
    match Queue::start(io::stderr()) {
        Ok(queue) => drop(QUEUE.set(queue)),
        Err(error) => tracing::warn!(%error, "the packet loop waits for the reader of its log"),
    }
    Flush(())
}

/// Waits for the last lines when it is dropped.
#[cfg(feature = "host")]
#[must_use = "lines are waited for when it is dropped"]
pub(crate) struct Flush(());

#[cfg(feature = "host")]
impl Drop for Flush {
    fn drop(&mut self) {
        if let Some(queue) = QUEUE.get() {
            queue.flush();
        }
    }
}

/// The writer of lines.
struct Out;

impl<'w> MakeWriter<'w> for Out {
    type Writer = Lane;
    fn make_writer(&'w self) -> Lane {
        QUEUE
            .get()
            .map_or_else(|| Lane::Direct(io::stderr()), Lane::Queued)
    }
}

/// Destination of one message's lines.
enum Lane {
    Direct(Stderr),
    Queued(&'static Queue),
}

impl Write for Lane {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(stderr) => stderr.write(bytes),
            Self::Queued(queue) => {
                queue.push(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes one line of the log for each line of a message, each with its time and level; for the
/// journal with its priority instead of both.
struct Lines {
    is_journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: tracing::Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        let level = *event.metadata().level();
        if self.is_journal {
            return writer.write_str(&with_priority(&message, priority(level)));
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let head = if writer.has_ansi_escapes() {
            let colour = colour(level);
            format!("\x1b[2m{time}\x1b[0m \x1b[{colour}m{level:>5}\x1b[0m")
        } else {
            format!("{time} {level:>5}")
        };
        let mut lines = message.lines();
        lines.try_for_each(|line| writeln!(writer, "{head} {line}"))
    }
}

const fn priority(level: tracing::Level) -> Priority {
    match level {
        tracing::Level::ERROR => Priority::Error,
        tracing::Level::WARN => Priority::Warning,
        tracing::Level::INFO => Priority::Info,
        tracing::Level::DEBUG | tracing::Level::TRACE => Priority::Debug,
    }
}

/// Returns the colour of a level, as a number of ECMA-48.
const fn colour(level: tracing::Level) -> u8 {
    match level {
        tracing::Level::ERROR => 31,
        tracing::Level::WARN => 33,
        tracing::Level::INFO => 32,
        tracing::Level::DEBUG => 34,
        tracing::Level::TRACE => 35,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Buffer {
        type Writer = Self;
        fn make_writer(&'w self) -> Self {
            self.clone()
        }
    }

    /// Returns the lines of a refusal with two errors and of a message.
    fn logged(is_journal: bool) -> Vec<String> {
        let buffer = Buffer::default();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(buffer.clone())
            .with_ansi(false)
            .event_format(Lines { is_journal });
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let error = "h.toml:1:1: one\nh.toml:2:1: two";
            tracing::error!(%error, "refused");
            tracing::info!(ports = 3, "ready");
        });
        let bytes = buffer.0.lock().expect("no panic").clone();
        let text = String::from_utf8(bytes).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_journal_gets_priorities_and_no_time() {
        let expected = [
            "<3>refused error=h.toml:1:1: one",
            "<3>h.toml:2:1: two",
            "<6>ready ports=3",
        ];
        assert_eq!(logged(true), expected);
    }

    #[test]
    fn elsewhere_each_line_has_a_time_and_a_level() {
        let lines = logged(false);
        let after_time: Vec<_> = lines
            .iter()
            .map(|line| line.split_once("Z ").expect("a time").1)
            .collect();
        let expected = [
            "ERROR refused error=h.toml:1:1: one",
            "ERROR h.toml:2:1: two",
            " INFO ready ports=3",
        ];
        assert_eq!(after_time, expected);
    }
}
