//! A request's head, and the rules about who is answered. Pure.

use crate::{Access, Lack};
use httparse::{EMPTY_HEADER, Status};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;

/// Header lines of a request, at most.
const MAX_HEADERS: usize = 64;
/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;

/// The shortest token that can be chosen, in bytes.
pub const MIN_TOKEN_BYTES: usize = 32;

/// The secret that a request must show.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A random token.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes.map(|byte| format!("{byte:02x}")).concat()))
    }

    /// A chosen token; `None` if it is shorter than [`MIN_TOKEN_BYTES`] or has a byte that a header of
    /// HTTP may not have (RFC 6750, 2.1).
    pub fn chosen(text: &str) -> Option<Self> {
        let is_in_place = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_usable = text.len() >= MIN_TOKEN_BYTES && text.bytes().all(is_in_place);
        is_usable.then(|| Self(text.to_owned()))
    }

    /// The token as a URL has it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends on the length alone, which is no secret.
    fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The bytes are no request of HTTP/1.
    Malformed,
    /// The head did not come in time.
    Slow,
    /// The head is too long.
    Long,
    /// Its `Host` is a name that an attacker's DNS may have pointed here.
    Host,
    /// The request shows no token, or a wrong one.
    Token,
    /// Its method is neither GET nor HEAD.
    Method,
    /// The site has no content for it.
    Lack(Lack, Cow<'static, str>),
}

impl Refusal {
    pub(super) const fn status(&self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::Slow => "408 Request Timeout",
            Self::Long => "431 Request Header Fields Too Large",
            Self::Host => "421 Misdirected Request",
            Self::Token => "401 Unauthorized",
            Self::Method => "405 Method Not Allowed",
            Self::Lack(Lack::Path, _) => "404 Not Found",
            Self::Lack(Lack::Source, _) => "503 Service Unavailable",
            Self::Lack(Lack::Failure, _) => "500 Internal Server Error",
        }
    }

    /// Returns true if the request was not admitted.
    pub(super) const fn is_of_stranger(&self) -> bool {
        !matches!(self, Self::Method | Self::Lack(..))
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Malformed => "this is no request of HTTP/1.1\n",
            Self::Slow => "the request did not come in time\n",
            Self::Long => "the head of the request is too long\n",
            Self::Host => "use an IP address or localhost as the host\n",
            Self::Token => {
                "show the token that tailbound printed: as ?token=TOKEN, or as Authorization: \
                 Bearer TOKEN\n"
            }
            Self::Method => "only GET and HEAD\n",
            Self::Lack(_, text) => text,
        }
    }
}

/// An admitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    path: String,
    is_head: bool,
    accept: String,
    accept_encoding: String,
}

impl Request {
    /// Returns a GET request of a path without headers, for tests of sites.
    pub fn get(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            is_head: false,
            accept: String::new(),
            accept_encoding: String::new(),
        }
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns true if the answer has no body.
    pub const fn is_head(&self) -> bool {
        self.is_head
    }

    /// The Accept header; empty without one.
    pub fn accept(&self) -> &str {
        &self.accept
    }

    /// The Accept-Encoding header; empty without one.
    pub fn accept_encoding(&self) -> &str {
        &self.accept_encoding
    }
}

/// Reads a request's head and checks that it may be answered; `None` if its end is still to come.
pub(super) fn admit(head: &[u8], access: &Access) -> Result<Option<Request>, Refusal> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::Long),
        Err(_) => return Err(Refusal::Malformed),
    }
    let target = request.path.ok_or(Refusal::Malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if let Access::Token(token) = access {
        shows(request.headers, query, token)?;
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::Method),
    };
    let all = |name: &str| {
        let named = request.headers.iter();
        let named = named.filter(|header| header.name.eq_ignore_ascii_case(name));
        let texts = named.filter_map(|header| std::str::from_utf8(header.value).ok());
        texts.collect::<Vec<_>>().join(",")
    };
    Ok(Some(Request {
        path: path.to_owned(),
        is_head,
        accept: all("accept"),
        accept_encoding: all("accept-encoding"),
    }))
}

/// Checks that a request names a safe host and shows the token.
fn shows(headers: &[httparse::Header<'_>], query: &str, token: &Token) -> Result<(), Refusal> {
    let host = only(headers, "host")?.ok_or(Refusal::Malformed)?;
    if !is_safe_host(host) {
        return Err(Refusal::Host);
    }
    let bearer = only(headers, "authorization")?;
    let bearer = bearer.and_then(|it| it.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let bearer = bearer.map(|(_, shown)| shown.trim());
    let asked = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="));
    let shown = bearer.or(asked).ok_or(Refusal::Token)?;
    if token.is(shown) {
        Ok(())
    } else {
        Err(Refusal::Token)
    }
}

/// The value of a header that may be there once.
fn only<'h>(headers: &[httparse::Header<'h>], name: &str) -> Result<Option<&'h str>, Refusal> {
    let mut named = headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name));
    let first = named.next();
    if named.next().is_some() {
        return Err(Refusal::Malformed);
    }
    let text = first.map(|header| std::str::from_utf8(header.value));
    text.transpose().map_err(|_| Refusal::Malformed)
}

/// Returns true if a `Host` is an IP address or `localhost`, with any port: a page of another site can
/// reach this server under that site's name only.
fn is_safe_host(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.ends_with(':') => name,
        _ => host,
    };
    let inner = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.map_or_else(
        || name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::Ipv4Addr>().is_ok(),
        |inner| inner.parse::<IpAddr>().is_ok_and(|it| it.is_ipv6()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(head: &str) -> Result<Option<Request>, Refusal> {
        let token = Token("0123456789abcdef0123456789abcdef".to_owned());
        admit(head.as_bytes(), &Access::Token(token))
    }

    const SHOWN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_is_shown_in_the_url_or_in_a_header() {
        for (line, path) in [
            (format!("GET /?token={SHOWN} HTTP/1.1\r\n"), "/"),
            (
                format!("GET /api/watch?x=1&token={SHOWN} HTTP/1.1\r\n"),
                "/api/watch",
            ),
            (
                format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {SHOWN}\r\n"),
                "/metrics",
            ),
            (
                format!("GET /metrics HTTP/1.0\r\nauthorization: bearer {SHOWN}\r\n"),
                "/metrics",
            ),
        ] {
            let request = ask(&format!("{line}Host: localhost:9466\r\n\r\n"));
            assert_eq!(request, Ok(Some(Request::get(path))), "{line}");
        }
        let wrong = SHOWN.replace('f', "e");
        for line in [
            "GET / HTTP/1.1\r\n".to_owned(),
            format!("GET /?token={wrong} HTTP/1.1\r\n"),
            format!("GET /?token={SHOWN}0 HTTP/1.1\r\n"),
            format!("GET /?token={} HTTP/1.1\r\n", &SHOWN[1..]),
            "GET /?token= HTTP/1.1\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\nAuthorization: Basic {SHOWN}\r\n"),
            // The header decides: a wrong one is not helped by the URL.
            format!("GET /?token={SHOWN} HTTP/1.1\r\nAuthorization: Bearer x\r\n"),
            // Strangers do not learn which methods and paths there are.
            "POST /nothing HTTP/1.1\r\n".to_owned(),
        ] {
            let request = ask(&format!("{line}Host: localhost\r\n\r\n"));
            assert_eq!(request, Err(Refusal::Token), "{line}");
        }
    }

    #[test]
    fn a_host_is_an_address_or_localhost() {
        let host = |host: &str| {
            ask(&format!(
                "HEAD /?token={SHOWN} HTTP/1.1\r\nHost: {host}\r\n\r\n"
            ))
        };
        for safe in [
            "127.0.0.1",
            "127.0.0.1:9466",
            "[::1]:9466",
            "[::1]",
            "LocalHost:1",
            "192.0.2.1:80",
        ] {
            assert_eq!(host(safe).map(|it| it.unwrap().is_head), Ok(true), "{safe}");
        }
        for unsafe_host in [
            "evil.example",
            "evil.example:9466",
            "127.0.0.1.evil.example",
            "localhost.evil.example:9466",
            "localhost@evil.example",
            "127.0.0.1:x",
            "[127.0.0.1]",
            "::1",
            "",
            "[evil]:9466",
        ] {
            assert_eq!(host(unsafe_host), Err(Refusal::Host), "{unsafe_host}");
        }
    }

    #[test]
    fn a_head_is_one_request_with_one_host() {
        let rest = format!("Authorization: Bearer {SHOWN}\r\n\r\n");
        for (head, refusal) in [
            (format!("GET / HTTP/1.1\r\n{rest}"), Refusal::Malformed),
            (
                format!("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n{rest}"),
                Refusal::Malformed,
            ),
            (format!("\x16\x03\x01\r\n{rest}"), Refusal::Malformed),
            (
                format!("GET / HTTP/3.0\r\nHost: localhost\r\n{rest}"),
                Refusal::Malformed,
            ),
            (
                format!("DELETE / HTTP/1.1\r\nHost: localhost\r\n{rest}"),
                Refusal::Method,
            ),
            (
                format!(
                    "GET / HTTP/1.1\r\nHost: localhost\r\n{}{rest}",
                    "a: b\r\n".repeat(70)
                ),
                Refusal::Long,
            ),
        ] {
            assert_eq!(ask(&head), Err(refusal), "{head}");
        }
        assert_eq!(ask("GET / HTTP/1.1\r\nHost: local"), Ok(None));
        assert_eq!(ask(""), Ok(None));
    }

    #[test]
    fn an_open_server_needs_neither_a_token_nor_a_host() {
        let head = "GET /metrics HTTP/1.0\r\nAccept: text/plain\r\nAccept-Encoding: gzip\r\n\r\n";
        let request = admit(head.as_bytes(), &Access::Open).unwrap().unwrap();
        assert_eq!((request.path(), request.is_head()), ("/metrics", false));
        assert_eq!(
            (request.accept(), request.accept_encoding()),
            ("text/plain", "gzip")
        );
        let head = "PUT /metrics HTTP/1.1\r\n\r\n";
        let refused = admit(head.as_bytes(), &Access::Open);
        assert_eq!(refused, Err(Refusal::Method));
    }

    #[test]
    fn tokens_are_random_and_not_in_logs() {
        let [one, other] = [(); 2].map(|()| Token::random().unwrap());
        assert_eq!(one.text().len(), 2 * TOKEN_BYTES);
        assert_ne!(one.text(), other.text());
        assert_eq!(format!("{one:?}"), "Token");
    }
}
