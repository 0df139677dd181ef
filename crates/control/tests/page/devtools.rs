//! As much of the protocol of Chrome's developer tools as tests of a page need: messages
//! are JSON over a WebSocket (<https://chromedevtools.github.io/devtools-protocol/>).

use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Time limit for any step of a page, also on a busy computer.
pub(crate) const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Names under which Chromium and its kin are installed.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// All tests of this process share one; it ends with the last of them.
static BROWSER: Mutex<Weak<Browser>> = Mutex::new(Weak::new());

/// A headless Chromium; it ends when dropped.
pub(crate) struct Browser {
    child: Child,
    port: u16,
    /// Path of the browser's own endpoint.
    path: String,
    _files: TempDir,
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path);
    let mut files = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.find(|file| file.is_file())
}

impl Browser {
    /// Returns the running browser, or starts one. Returns None if Chromium is not installed.
    pub(crate) fn shared() -> Option<Arc<Self>> {
        let mut shared = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(browser) = shared.upgrade() {
            return Some(browser);
        }
        let browser = Arc::new(Self::start(installed()?));
        *shared = Arc::downgrade(&browser);
        Some(browser)
    }

    fn start(program: PathBuf) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command
            .args(["--headless", "--remote-debugging-port=0"])
            // Chromium's sandbox does not start as root, and this opens nothing but
            // the page that is tested.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--no-proxy-server"])
            .arg("--disable-background-networking")
            .arg(format!("--user-data-dir={}", files.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("Chromium does not start");
        let end = Instant::now() + PAGE_TIMEOUT;
        loop {
            let file = files.path().join("DevToolsActivePort");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Some((port, path)) = text.trim().split_once('\n') {
                return Self {
                    child,
                    port: port.parse().unwrap(),
                    path: path.to_owned(),
                    _files: files,
                };
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "Chromium ended by itself: {ended:?}");
            assert!(Instant::now() < end, "Chromium does not start to listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Opens an empty page that shares neither cookies nor storage with another.
    pub(crate) fn open(&self) -> Connection {
        let mut browser = Connection::new(self.port, &self.path);
        let context = browser.call("Target.createBrowserContext", &json!({}));
        let target = browser.call(
            "Target.createTarget",
            &json!({ "url": "about:blank", "browserContextId": context["browserContextId"] }),
        );
        let page = target["targetId"].as_str().unwrap();
        Connection::new(self.port, &format!("/devtools/page/{page}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the browser or to one page of it.
pub(crate) struct Connection {
    socket: WebSocket<TcpStream>,
    last: u64,
    /// Events that the test has not taken yet.
    events: Vec<Event>,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Event {
    /// Such as `Network.requestWillBeSent`.
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl Connection {
    fn new(port: u16, path: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PAGE_TIMEOUT)).unwrap();
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, stream).unwrap();
        Self {
            socket,
            last: 0,
            events: Vec::new(),
        }
    }

    /// Calls a method that succeeds, and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.try_call(method, params);
        answer.unwrap_or_else(|error| panic!("{method} {params}: {error}"))
    }

    /// Calls a method, and waits for its result or its error.
    pub(crate) fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.last += 1;
        let call = json!({ "id": self.last, "method": method, "params": params });
        self.socket.send(Message::text(call.to_string())).unwrap();
        loop {
            let mut message = self.read(method);
            if message["id"] == self.last {
                let error = message["error"].take();
                let result = message["result"].take();
                return if error.is_null() {
                    Ok(result)
                } else {
                    Err(error)
                };
            }
            self.keep(message);
        }
    }

    /// Waits until something has happened, unless it has since [`Self::forget`].
    pub(crate) fn wait_for(&mut self, method: &str) {
        while !self.events.iter().any(|event| event.method == method) {
            let message = self.read(method);
            self.keep(message);
        }
    }

    /// Forgets that something has happened.
    pub(crate) fn forget(&mut self, method: &str) {
        self.events.retain(|event| event.method != method);
    }

    /// All that has happened so far.
    pub(crate) fn events(&mut self) -> &[Event] {
        // What happened before an answer arrives before it.
        self.call("Runtime.evaluate", &json!({ "expression": "0" }));
        &self.events
    }

    fn read(&mut self, wanted: &str) -> Value {
        loop {
            let message = self.socket.read();
            let message = message.unwrap_or_else(|error| panic!("waiting for {wanted}: {error}"));
            if let Message::Text(text) = message {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    fn keep(&mut self, mut message: Value) {
        if let Some(method) = message["method"].as_str() {
            self.events.push(Event {
                method: method.to_owned(),
                params: message["params"].take(),
            });
        }
    }
}
