use super::*;
use std::io::ErrorKind;

/// A site with one page.
#[derive(Debug)]
struct One(Arc<[u8]>);

impl Site for One {
    fn answer(&self, request: &Request) -> Answer {
        match request.path() {
            "/" => Answer::Content(Content {
                body: Arc::clone(&self.0),
                ..Content::text("")
            }),
            "/early" => Answer::None(Lack::Source, "not yet\n".into()),
            _ => Answer::None(Lack::Path, "no such path\n".into()),
        }
    }
}

/// A server of a body, and its token.
fn start(limits: Limits, body: &[u8]) -> (Server, Token) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = Token::random().unwrap();
    let server = Server::start(
        listener,
        Access::Token(token.clone()),
        limits,
        One(body.into()),
    );
    (server.unwrap(), token)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    stream
}

/// All that comes until the connection is closed.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8(bytes).unwrap()
}

/// The status of an answer, and the answer.
fn ask(server: &Server, head: &str) -> (String, String) {
    let mut stream = connect(server);
    stream.write_all(head.as_bytes()).unwrap();
    let answer = rest(stream);
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, answer)
}

fn get(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
}

#[test]
fn only_the_token_opens_it_and_only_under_a_name_that_is_no_name() {
    let (server, token) = start(Limits::default(), b"the guests");
    let (status, answer) = ask(&server, &get("/", token.text()));
    assert_eq!(status, "200");
    assert!(answer.ends_with("\r\n\r\nthe guests"), "{answer}");
    for header in [
        "Content-Length: 10\r\n",
        "Connection: close\r\n",
        "Cache-Control: no-store\r\n",
        "X-Content-Type-Options: nosniff\r\n",
        "Referrer-Policy: no-referrer\r\n",
        "Content-Security-Policy: default-src 'none'; ",
    ] {
        assert!(answer.contains(header), "{header}: {answer}");
    }
    let own = get("/", token.text());
    for (head, expected) in [
        (get("/", Token::random().unwrap().text()), "401"),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            "401",
        ),
        (own.replace("Host: localhost", "Host: evil.example"), "421"),
        (own.replace("Host: localhost\r\n", ""), "400"),
        (own.replace("GET", "POST"), "405"),
        (own.replace("GET /", "GET /other"), "404"),
        (own.replace("GET /", "GET /early"), "503"),
    ] {
        let (status, answer) = ask(&server, &head);
        assert_eq!(status, expected, "{head}");
        assert!(!answer.contains("the guests"), "{head}: {answer}");
    }
    let (status, answer) = ask(&server, &own.replace("GET", "HEAD"));
    assert_eq!(status, "200");
    assert!(
        answer.contains("Content-Length: 10\r\n") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
}

#[test]
fn a_silent_or_slow_client_is_closed_and_a_long_head_is_refused() {
    let limits = Limits {
        head_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let (server, token) = start(limits, b"the guests");
    assert!(rest(connect(&server)).starts_with("HTTP/1.1 408 "));
    // Bytes that keep coming do not make the time longer.
    let mut slow = connect(&server);
    let begin = Instant::now();
    let pace = Duration::from_millis(20);
    while slow.write_all(b"G").is_ok() && begin.elapsed() < Duration::from_secs(20) {
        thread::sleep(pace);
    }
    assert!(begin.elapsed() < Duration::from_secs(20));
    let long = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nA: {}",
        "a".repeat(9_000)
    );
    assert_eq!(ask(&server, &long).0, "431");
    assert_eq!(ask(&server, &get("/", token.text())).0, "200");
}

#[test]
fn strangers_that_stay_make_room_for_the_reader() {
    let limits = Limits {
        connections: 4,
        head_time: Duration::from_mins(10),
        ..Limits::default()
    };
    let (server, token) = start(limits, b"the guests");
    let strangers: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    assert_eq!(ask(&server, &get("/", token.text())).0, "200");
    let mut strangers = strangers.into_iter();
    // The oldest was closed for the others.
    assert_eq!(rest(strangers.next().unwrap()), "");
    // The newest is open: it can still show the token.
    let mut last = strangers.next_back().unwrap();
    last.write_all(get("/", token.text()).as_bytes()).unwrap();
    assert!(rest(last).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_reader_that_takes_no_answer_is_closed_in_time() {
    let limits = Limits {
        connections: 1,
        answer_time: Duration::from_millis(300),
        ..Limits::default()
    };
    // More than the buffers of two sockets have room for.
    let (server, token) = start(limits, &vec![b'x'; 64 << 20]);
    let mut reader = connect(&server);
    reader.write_all(get("/", token.text()).as_bytes()).unwrap();
    // It is known from its first byte on, so that it is not closed for another.
    reader.read_exact(&mut [0]).unwrap();
    let other = ask_or_nothing(&server, &get("/other", token.text()));
    assert_eq!(other, "");
    let end = Instant::now() + Duration::from_secs(30);
    while !ask_or_nothing(&server, &get("/other", token.text())).starts_with("HTTP/1.1 404 ") {
        assert!(Instant::now() < end, "the reader holds the only connection");
        thread::sleep(Duration::from_millis(20));
    }
    drop(reader);
}

/// The answer, or nothing if the connection is closed.
fn ask_or_nothing(server: &Server, head: &str) -> String {
    let mut stream = connect(server);
    if stream.write_all(head.as_bytes()).is_err() {
        return String::new();
    }
    rest(stream)
}

#[test]
fn a_server_that_is_dropped_listens_no_more() {
    let (server, token) = start(Limits::default(), b"the guests");
    let address = server.address();
    assert_eq!(ask(&server, &get("/", token.text())).0, "200");
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_drop_waits_for_no_client_and_frees_the_address() {
    let limits = Limits {
        connections: 4,
        head_time: Duration::from_mins(10),
        ..Limits::default()
    };
    let (server, _) = start(limits, b"the guests");
    let address = server.address();
    // More than the server serves, so that some wait to be accepted.
    let strangers: Vec<_> = (0..200).map(|_| connect(&server)).collect();
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_millis(500));
    TcpListener::bind(address).unwrap();
    drop(strangers);
}

#[test]
fn a_chosen_token_is_long_and_fits_a_header() {
    let hex = "0123456789abcdef0123456789abcdef";
    assert_eq!(Token::chosen(hex).unwrap().text(), hex);
    assert!(Token::chosen(&hex[1..]).is_none());
    for byte in [" ", "&", "\n", "é"] {
        assert!(Token::chosen(&format!("{hex}{byte}")).is_none(), "{byte:?}");
    }
}
