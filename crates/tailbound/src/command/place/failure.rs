//! Translation of a client's errors into failures of a command.

use crate::exit::{Exit, Failure};
use tailbound_api::Code;
use tailbound_api::client::ClientError;

/// Returns the failure for an error of the service, or for a missing answer.
pub(super) fn failure(error: &ClientError) -> Failure {
    match error.code() {
        Some(Code::Refused) => Failure::with(Exit::DoesNotHold, format!("refused: {error}")),
        Some(Code::Breaks) => {
            Failure::with(Exit::DoesNotHold, format!("would break a promise: {error}"))
        }
        Some(Code::Unauthenticated) => Failure::new(error)
            .hint("pass the file with your token: --token-file FILE, or TAILBOUND_TOKEN_FILE"),
        Some(_) => Failure::new(error),
        None => match error {
            ClientError::Unreachable { .. } => Failure::new(error).hint(
                "is it running (tailbound place serve), and is the address right (--url, \
                 TAILBOUND_URL)?",
            ),
            ClientError::Tls { why, .. } if why.ends_with("that CA's certificate") => {
                Failure::new(error).hint("the flag is --ca FILE, the environment TAILBOUND_CA")
            }
            ClientError::Unexpected { .. } => {
                Failure::new(error).hint("is the address right (--url, TAILBOUND_URL)?")
            }
            _ => Failure::new(error),
        },
    }
}
