//! Exit codes and the format of errors, common to all commands.
//!
//! `docs/reference/exit-codes.md` is the table for users.

use crate::journal::{self, Priority, with_priority};
use std::fmt::{Display, Write as _};
use std::io::{Write as _, stderr};
use std::process::ExitCode;

/// Result of a command, the better result first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// The answer is yes, or the action is complete.
    Holds,
    /// The answer is no: a check or a bound does not hold, a request is refused.
    DoesNotHold,
    /// There is no answer: the command could not run, or its measurement cannot be judged.
    CouldNotRun,
    /// The arguments are wrong; no action was started (`EX_USAGE`).
    WrongArguments,
    /// The output could not be written; the answer is lost with it (`EX_IOERR`).
    OutputLost,
    /// This signal ended the command before there was an answer.
    #[cfg(any(feature = "lab", feature = "sim"))]
    Signal(u8),
}

impl Exit {
    /// Returns [`Exit::Holds`] if `holds`, else [`Exit::DoesNotHold`].
    pub(crate) const fn holds(holds: bool) -> Self {
        if holds {
            Self::Holds
        } else {
            Self::DoesNotHold
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::DoesNotHold => 1,
            Self::CouldNotRun => 2,
            Self::WrongArguments => 64,
            Self::OutputLost => 74,
            // The exit code of shells for a process that a signal killed.
            #[cfg(any(feature = "lab", feature = "sim"))]
            Self::Signal(number) => 128 + (number & 0x7f),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(any(feature = "lab", feature = "sim"))]
impl From<tailbound_report::Verdict> for Exit {
    fn from(verdict: tailbound_report::Verdict) -> Self {
        match verdict {
            tailbound_report::Verdict::Pass => Self::Holds,
            tailbound_report::Verdict::Fail => Self::DoesNotHold,
            tailbound_report::Verdict::Noisy | tailbound_report::Verdict::NotTested => {
                Self::CouldNotRun
            }
        }
    }
}

/// The protocol of node-problem-detector's plugins: no problem, a problem, unknown.
#[cfg(feature = "probe")]
impl From<tailbound_probe::NodeVerdict> for Exit {
    fn from(outcome: tailbound_probe::NodeVerdict) -> Self {
        match outcome {
            tailbound_probe::NodeVerdict::Good => Self::Holds,
            tailbound_probe::NodeVerdict::Bad => Self::DoesNotHold,
            tailbound_probe::NodeVerdict::Unsure | tailbound_probe::NodeVerdict::Inconclusive => {
                Self::CouldNotRun
            }
        }
    }
}

/// Reason for which a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// Returns the failure of a command that could not run. `message` has the problem, its place,
    /// and the remedy.
    pub(crate) fn new(message: impl Display) -> Self {
        Self::with(Exit::CouldNotRun, message)
    }

    /// Returns the failure for arguments that are wrong, or cannot be combined.
    pub(crate) fn wrong_arguments(message: impl Display) -> Self {
        Self::with(Exit::WrongArguments, message)
    }

    /// Returns the failure for output that was not completely written.
    pub(crate) fn output_lost(error: &std::io::Error) -> Self {
        let text = error.to_string();
        // The number of an error (` (os error 28)`) helps no reader of a sentence.
        let cause = text.split(" (os error").next().unwrap_or(&text);
        Self::with(
            Exit::OutputLost,
            format!("cannot write the output: {cause}"),
        )
    }

    /// Returns a failure with the exit code `exit`.
    pub(crate) fn with(exit: Exit, message: impl Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
        }
    }

    /// Returns the message.
    #[cfg(feature = "host")]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Appends a hint to the message.
    #[cfg(feature = "place")]
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.message += "; ";
        self.message += hint;
        self
    }

    /// Prints the message, and returns the exit code.
    pub(crate) fn report(self) -> Exit {
        print_error(&self.message);
        self.exit
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// Prints an error, or a warning, to standard error, with its priority for the journal. The format
/// is that of the GNU Coding Standards (4.4): `FILE:LINE:COLUMN: message` if it is about a place in
/// a file, `tailbound: message` otherwise.
pub(crate) fn print_error(message: &str) {
    // A closed terminal is no reason for another error.
    let _ = stderr().write_all(printed(message, journal::reads_stderr()).as_bytes());
}

fn printed(message: &str, is_journal: bool) -> String {
    let text = form(message);
    if !is_journal {
        return text;
    }
    let priority = if message.starts_with("warning: ") {
        Priority::Warning
    } else {
        Priority::Error
    };
    with_priority(&text, priority)
}

fn form(message: &str) -> String {
    let prefix = if is_located(message) {
        ""
    } else {
        "tailbound: "
    };
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(text, "{prefix}{}", message.trim_end());
    text
}

/// Returns true if a message begins with `FILE:LINE:COLUMN: `.
fn is_located(message: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some((place, _)) = message.split_once(": ") else {
        return false;
    };
    let mut parts = place.rsplitn(3, ':');
    let (column, line, file) = (parts.next(), parts.next(), parts.next());
    column.is_some_and(is_number)
        && line.is_some_and(is_number)
        && file.is_some_and(|file| !file.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_end_of_several_is_the_greatest() {
        let ends = [Exit::DoesNotHold, Exit::CouldNotRun, Exit::Holds];
        assert_eq!(ends.into_iter().max(), Some(Exit::CouldNotRun));
        let codes = [
            Exit::Holds,
            Exit::DoesNotHold,
            Exit::CouldNotRun,
            Exit::WrongArguments,
            Exit::OutputLost,
        ];
        assert_eq!(codes.map(Exit::code), [0, 1, 2, 64, 74]);
    }

    #[test]
    fn each_mistake_has_its_priority_in_the_journal() {
        for (message, text) in [
            (
                "h.toml:1:1: one\nh.toml:2:1: two",
                "<3>h.toml:1:1: one\n<3>h.toml:2:1: two\n",
            ),
            ("warning: late", "<4>tailbound: warning: late\n"),
        ] {
            assert_eq!(printed(message, true), text);
        }
        assert_eq!(printed("late", false), "tailbound: late\n");
    }

    #[test]
    fn an_error_names_the_program_or_the_place_in_a_file() {
        for (message, printed) in [
            ("no interface \"x\"", "tailbound: no interface \"x\"\n"),
            (
                "mine.toml: no such file",
                "tailbound: mine.toml: no such file\n",
            ),
            ("a:b.toml:3:14: unknown key", "a:b.toml:3:14: unknown key\n"),
            ("10.0.0.1:80: refused", "tailbound: 10.0.0.1:80: refused\n"),
            (":1:2: no file", "tailbound: :1:2: no file\n"),
            (
                "a.toml:1:1: one\na.toml:2:1: two\n",
                "a.toml:1:1: one\na.toml:2:1: two\n",
            ),
        ] {
            assert_eq!(form(message), printed);
        }
    }
}
