//! Calls about issued tokens.

use super::exchange::{Call, Target};
use super::{Answer, Client, PAGE};
use crate::{IssuedToken, NewToken, Page, Token};
use ureq::http::Method;

/// Issues a token, and returns it with its secret.
///
/// # Errors
/// Among others the problem [`Code::Exists`](crate::Code::Exists): the name is taken, also by an
/// earlier attempt whose answer was lost. Then its secret is lost, too.
pub fn issue_token(client: &Client, new: &NewToken) -> Answer<IssuedToken> {
    let target = Target::new(&["tokens"]);
    client.exchange.change(Method::POST, target, Some(new))
}

/// Returns a page of issued tokens in the order of their names, beginning behind `after`.
pub fn tokens(client: &Client, after: Option<&str>) -> Answer<Page<Token>> {
    let target = Target::new(&["tokens"])
        .query("limit", Some(PAGE))
        .query("after", after);
    client.exchange.read(target)
}

/// Revokes an issued token.
pub fn revoke_token(client: &Client, name: &str) -> Answer<()> {
    let call = Call::change(Method::DELETE, Target::new(&["tokens", name]), None);
    client.exchange.send(&call).map(|_| ())
}
