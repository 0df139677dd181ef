//! The page: one file without a resource from anywhere, and the policy that sees to that.

use tailbound_serve::Content;

/// The page, with `NONCE` in place of the word that its own script and style show.
const HTML: &str = include_str!("page.html");
/// Random bytes of that word.
const NONCE_BYTES: usize = 16;

/// The page and its policy; `None` if the system has no randomness.
pub(crate) fn content() -> Option<Content> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).ok()?;
    let nonce = bytes.map(|byte| format!("{byte:02x}")).concat();
    Some(Content {
        kind: "text/html; charset=utf-8".into(),
        encoding: None,
        policy: format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        body: HTML.replace("NONCE", &nonce).into_bytes().into(),
    })
}
