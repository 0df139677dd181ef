//! Output of all commands: the format of tables, JSON documents, and colours.

use serde::Serialize;
use std::ffi::OsStr;
#[cfg(any(feature = "lab", feature = "sim"))]
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _, stderr, stdout};
use std::sync::OnceLock;
#[cfg(any(feature = "lab", feature = "sim"))]
use tailbound_report::Bars;
use tailbound_report::Paint;

/// The form of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// Text for people
    #[default]
    Text,
    /// One JSON document with a schema version
    Json,
}

/// Use of colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is dumb
    #[default]
    Auto,
    /// Always, also in files and pipes
    Always,
    /// Never
    Never,
}

/// Value of `--color`.
static COLOR: OnceLock<Color> = OnceLock::new();

impl Color {
    /// Sets the colours of all later output.
    pub(crate) fn choose(self) {
        // The command line is parsed once.
        let _ = COLOR.set(self);
    }

    fn chosen() -> Self {
        COLOR.get().copied().unwrap_or_default()
    }

    /// Returns true if text for this stream is coloured (<https://no-color.org>).
    fn paints(self, is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
        match self {
            Self::Auto => is_terminal && no_color.is_none_or(OsStr::is_empty) && !is_dumb(term),
            Self::Always => true,
            Self::Never => false,
        }
    }

    fn here(is_terminal: bool) -> bool {
        let variable = |name| std::env::var_os(name);
        let (no_color, term) = (variable("NO_COLOR"), variable("TERM"));
        Self::chosen().paints(is_terminal, no_color.as_deref(), term.as_deref())
    }
}

/// Returns true if a terminal of this name supports no control sequences.
fn is_dumb(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| term == "dumb")
}

/// Returns the colours of standard output.
pub(super) fn paint() -> Paint {
    Paint(Color::here(stdout().is_terminal()))
}

/// Returns the characters of bars that the locale of standard output has.
#[cfg(any(feature = "lab", feature = "sim"))]
pub(super) fn bars() -> Bars {
    bars_of(["LC_ALL", "LC_CTYPE", "LANG"].map(std::env::var_os))
}

/// Evaluates the first of these variables that is set and not empty.
#[cfg(any(feature = "lab", feature = "sim"))]
fn bars_of(variables: [Option<OsString>; 3]) -> Bars {
    let mut set = variables.into_iter().flatten();
    let locale = set.find(|it| !it.is_empty()).unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    if locale.ends_with("utf-8") || locale.ends_with("utf8") {
        Bars::Blocks
    } else {
        Bars::Ascii
    }
}

/// Returns true if the log, on standard error, is coloured.
#[cfg(any(feature = "host", feature = "place"))]
pub(crate) fn paints_log() -> bool {
    Color::here(stderr().is_terminal())
}

/// Returns true if standard error is a terminal on which a line can be overwritten.
#[cfg(any(feature = "lab", feature = "sim", feature = "probe", feature = "place"))]
pub(super) fn shows_progress() -> bool {
    stderr().is_terminal() && !is_dumb(std::env::var_os("TERM").as_deref())
}

/// Replaces the line on standard error by `text`, if it can be overwritten.
#[cfg(any(feature = "lab", feature = "sim", feature = "probe", feature = "place"))]
pub(super) fn progress(shown: bool, text: &str) {
    if shown {
        // A closed terminal is no reason to stop.
        let _ = write!(stderr(), "\r\x1b[K{text}");
    }
}

/// Prints a line of progress on standard error.
#[cfg(feature = "lab")]
pub(super) fn print_progress(line: &str) {
    // A closed reader is no reason to stop.
    let _ = writeln!(stderr(), "{line}");
}

/// Common header of all JSON documents.
#[derive(Serialize)]
struct WithHeader<'d, T> {
    /// Version of this kind's format: an added field does not change it.
    schema: u32,
    kind: &'static str,
    /// Version of tailbound.
    version: &'static str,
    #[serde(flatten)]
    document: &'d T,
}

impl<'d, T> WithHeader<'d, T> {
    const fn new(kind: &'static str, schema: u32, document: &'d T) -> Self {
        Self {
            schema,
            kind,
            version: env!("CARGO_PKG_VERSION"),
            document,
        }
    }
}

const SERIALIZES: &str = "documents are objects, of values that serialize";

/// Returns a document of this kind, a struct or a map, as indented JSON with a final newline.
pub(super) fn json(kind: &'static str, schema: u32, document: &impl Serialize) -> String {
    indented(&WithHeader::new(kind, schema, document))
}

/// Returns the document as one line, for programs that read many of them.
#[cfg(any(feature = "look", feature = "probe", feature = "place"))]
pub(super) fn compact(kind: &'static str, schema: u32, document: &impl Serialize) -> String {
    let headed = WithHeader::new(kind, schema, document);
    let mut text = serde_json::to_string(&headed).expect(SERIALIZES);
    text.push('\n');
    text
}

/// Returns a document without the header, because another standard or file defines one.
pub(super) fn indented(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).expect(SERIALIZES);
    text.push('\n');
    text
}

/// Prints a document of this kind as one line of JSON, and flushes it.
#[cfg(any(feature = "probe", feature = "place"))]
pub(super) fn line(kind: &'static str, schema: u32, document: &impl Serialize) {
    print(&compact(kind, schema, document));
}

/// Keys of times that are texts in documents which are also files and requests.
#[cfg(any(feature = "host", feature = "place"))]
const TIMES: &[&str] = &[
    "at_bandwidth",
    "at_burst_rate",
    "blackout",
    "capacity",
    "charged",
    "deadline",
    "delay",
    "demand",
    "expires_in",
    "interrupts",
    "lateness",
    "next",
    "now",
    "overrun",
    "period",
    "promised",
    "receive",
    "runtime",
    "send",
    "slice",
    "steal",
    "total",
    "ttl",
];

/// Returns `document` with nanoseconds as integers beside each time that is a text: `delay_ns`
/// beside `delay`.
#[cfg(any(feature = "host", feature = "place"))]
pub(super) fn timed(document: &impl Serialize) -> serde_json::Value {
    let mut value = serde_json::to_value(document).expect(SERIALIZES);
    time(&mut value);
    value
}

#[cfg(any(feature = "host", feature = "place"))]
fn time(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::Array(items) => items.iter_mut().for_each(time),
        Value::Object(fields) => {
            fields.values_mut().for_each(time);
            for key in TIMES {
                let text = fields.get(*key).and_then(Value::as_str);
                let time = text.and_then(|text| text.parse::<tailbound_units::Nanos>().ok());
                if let Some(time) = time {
                    fields.insert(format!("{key}_ns"), time.as_nanos().into());
                }
            }
        }
        _ => {}
    }
}

/// The first error of standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints `text` to standard output and flushes it. All of a command's output passes here, so that
/// [`lost`] knows whether any is missing.
pub(crate) fn print(text: &str) {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written {
        // Only the first error names the cause; those that follow are its consequences.
        let _ = LOST.set(error);
    }
}

/// Returns the error that made output incomplete, if any. A closed pipe (`| head`) is none: its
/// reader has read enough.
pub(crate) fn lost() -> Option<&'static io::Error> {
    let is_failure = |error: &&io::Error| error.kind() != io::ErrorKind::BrokenPipe;
    LOST.get().filter(is_failure)
}

/// Returns true if standard output accepted all output so far. A command that prints until it is
/// ended exits if it did not: later output would be lost, too.
#[cfg(feature = "place")]
pub(super) fn is_open() -> bool {
    LOST.get().is_none()
}

/// Returns the text of the requested help or version.
pub(crate) fn help(error: &clap::Error) -> String {
    let text = error.render();
    if paint().0 {
        text.ansi().to_string()
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "lab", feature = "sim"))]
    #[test]
    fn bars_are_blocks_in_a_locale_of_utf_8() {
        let os = |text: &str| Some(OsString::from(text));
        for (variables, bars) in [
            ([None, None, os("en_US.UTF-8")], Bars::Blocks),
            ([None, os("C.utf8"), os("C")], Bars::Blocks),
            ([os("C"), None, os("en_US.UTF-8")], Bars::Ascii),
            ([os(""), None, os("en_US.UTF-8")], Bars::Blocks),
            ([None, None, None], Bars::Ascii),
        ] {
            assert_eq!(bars_of(variables.clone()), bars, "{variables:?}");
        }
    }

    #[test]
    fn colours_are_used_on_capable_terminals_or_on_request() {
        let os = |text: Option<&'static str>| text.map(OsStr::new);
        for (color, is_terminal, no_color, term, paints) in [
            (Color::Auto, true, None, Some("xterm"), true),
            (Color::Auto, true, Some(""), None, true),
            (Color::Auto, false, None, Some("xterm"), false),
            (Color::Auto, true, Some("1"), Some("xterm"), false),
            (Color::Auto, true, None, Some("dumb"), false),
            (Color::Always, false, Some("1"), Some("dumb"), true),
            (Color::Never, true, None, Some("xterm"), false),
        ] {
            assert_eq!(
                color.paints(is_terminal, os(no_color), os(term)),
                paints,
                "{color:?} {is_terminal} {no_color:?} {term:?}"
            );
        }
    }
}
