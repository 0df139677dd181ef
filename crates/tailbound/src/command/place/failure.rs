//! What did not work, and the exit code that says so.

use crate::command::output;
use std::process::ExitCode;
use tailbound_api::{Code, Problem};
use tailbound_client::ClientError;

/// `REFUSED`: what was asked is well, but promises stand in its way.
pub(super) const REFUSED: u8 = 1;
/// It could not be asked, or makes no sense.
const COULD_NOT: u8 = 2;

/// Why a command did not do what it was to do.
#[derive(Debug)]
pub(super) struct Failure {
    message: String,
    code: u8,
    /// What the service said, for programs.
    document: Option<Problem>,
}

impl Failure {
    /// Something that was given cannot be used.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: COULD_NOT,
            document: None,
        }
    }

    /// The service said no, or nothing.
    pub(super) fn asking(error: ClientError, programs: bool) -> Self {
        let word = match error.code() {
            Some(Code::Refused) => "REFUSED  ",
            Some(Code::Breaks) => "BREAKS  ",
            _ => "",
        };
        let (code, hint) = match error.code() {
            Some(Code::Refused | Code::Breaks) => (REFUSED, ""),
            Some(Code::Unauthenticated) => (
                COULD_NOT,
                "\ngive the file that holds your token: --token-file FILE, or TAILBOUND_TOKEN_FILE",
            ),
            Some(_) => (COULD_NOT, ""),
            None => (COULD_NOT, hint(&error)),
        };
        Self {
            message: format!("{word}{error}{hint}"),
            code,
            document: match error {
                ClientError::Problem(problem) if programs => Some(problem),
                _ => None,
            },
        }
    }

    /// The same, and what helps.
    pub(super) fn hint(mut self, hint: &str) -> Self {
        self.message.push('\n');
        self.message += hint;
        self
    }

    pub(super) fn report(self) -> ExitCode {
        if let Some(document) = &self.document {
            output::print(&output::json(document));
        }
        eprintln!("{}", self.message);
        ExitCode::from(self.code)
    }
}

/// What to do when the service does not answer as it should.
fn hint(error: &ClientError) -> &'static str {
    match error {
        ClientError::Unreachable { .. } => {
            "\nis it running (tailbound place serve), and is the address right (--url, \
             TAILBOUND_URL)?"
        }
        ClientError::Tls { .. } => "\nthe flag is --ca FILE, the environment TAILBOUND_CA",
        ClientError::Unexpected { .. } => "\nis the address right (--url, TAILBOUND_URL)?",
        _ => "",
    }
}
