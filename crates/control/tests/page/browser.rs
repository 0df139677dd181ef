//! A headless Chromium, and a page in it that is watched for errors.

use headless_chrome::browser::tab::Tab;
use headless_chrome::browser::tab::point::Point;
use headless_chrome::protocol::cdp::Emulation::{
    MediaFeature, SetDeviceMetricsOverride, SetEmulatedMedia,
};
use headless_chrome::protocol::cdp::Log::{LogEntryLevel, LogEntrySource};
use headless_chrome::protocol::cdp::Network;
use headless_chrome::protocol::cdp::types::Event;
use headless_chrome::{Browser, LaunchOptions};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tailbound_sys::probe::required::{Part, skipped};

/// Names under which Chromium and its kin are installed.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// Longer than anything here takes, even while others compile.
const PATIENCE: Duration = Duration::from_secs(30);

/// All tests of this process share one; it ends with the last of them.
static BROWSER: Mutex<Weak<Browser>> = Mutex::new(Weak::new());

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path);
    let mut files = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.find(|file| file.is_file())
}

fn browser() -> Option<Arc<Browser>> {
    let mut shared = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(browser) = shared.upgrade() {
        return Some(browser);
    }
    let options = LaunchOptions {
        path: Some(installed()?),
        // Chromium's sandbox does not start as root, and this opens nothing but
        // the page that is tested.
        sandbox: false,
        idle_browser_timeout: Duration::from_mins(5),
        args: vec![OsStr::new("--no-proxy-server")],
        ..LaunchOptions::default()
    };
    let browser =
        Arc::new(Browser::new(options).expect("Chromium is installed but does not start"));
    *shared = Arc::downgrade(&browser);
    Some(browser)
}

/// What happened in a page besides what is tested.
#[derive(Debug, Default)]
struct Seen {
    /// Errors of scripts, of the policy, of anything but answers of the service.
    errors: Vec<String>,
    /// Answers that the browser's log calls errors.
    refusals: Vec<String>,
    requests: Vec<String>,
}

/// An open page.
pub(crate) struct Page {
    tab: Arc<Tab>,
    origin: String,
    seen: Arc<Mutex<Seen>>,
    _browser: Arc<Browser>,
}

impl Page {
    /// Opens `origin` on a screen of 1280 x 900; None, and says so, where there
    /// is no Chromium.
    pub(crate) fn open(origin: &str) -> Option<Self> {
        let Some(browser) = browser() else {
            skipped(Part::Chromium, "it is not in PATH");
            return None;
        };
        let context = browser.new_context().unwrap();
        let tab = context.new_tab().unwrap();
        tab.set_default_timeout(PATIENCE);
        let seen = Arc::new(Mutex::new(Seen::default()));
        tab.enable_log().unwrap();
        tab.enable_runtime().unwrap();
        tab.call_method(Network::Enable {
            max_total_buffer_size: None,
            max_resource_buffer_size: None,
            max_post_data_size: None,
            report_direct_socket_traffic: None,
            enable_durable_messages: None,
        })
        .unwrap();
        let watch = Arc::clone(&seen);
        tab.add_event_listener(Arc::new(move |event: &Event| note(&watch, event)))
            .unwrap();
        let page = Self {
            tab,
            origin: origin.to_owned(),
            seen,
            _browser: browser,
        };
        page.screen(1280, 900);
        page.tab.navigate_to(origin).unwrap();
        page.tab.wait_until_navigated().unwrap();
        Some(page)
    }

    /// Makes the screen so large.
    pub(crate) fn screen(&self, width: u32, height: u32) {
        let metrics: SetDeviceMetricsOverride = serde_json::from_value(serde_json::json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        }))
        .unwrap();
        self.tab.call_method(metrics).unwrap();
    }

    /// Light or dark.
    pub(crate) fn scheme(&self, scheme: &str) {
        self.tab
            .call_method(SetEmulatedMedia {
                media: None,
                features: Some(vec![MediaFeature {
                    name: "prefers-color-scheme".to_owned(),
                    value: scheme.to_owned(),
                }]),
            })
            .unwrap();
    }

    /// What an expression of JavaScript is, or comes to be if it is a promise.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let text = format!("(async () => JSON.stringify((await ({expression})) ?? null))()");
        let result = self.tab.evaluate(&text, true);
        let result = result.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let json = result
            .value
            .unwrap_or_else(|| panic!("{expression}: {:?}", result.description));
        serde_json::from_str(json.as_str().unwrap()).unwrap()
    }

    /// Waits until an expression is true, and says what it is.
    pub(crate) fn until(&self, expression: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.eval(expression);
            if !matches!(value, Value::Null | Value::Bool(false)) && value != "" {
                return value;
            }
            assert!(
                Instant::now() < end,
                "waited in vain for {expression}; the page says: {}",
                self.eval("document.body.innerText.slice(0, 3000)")
            );
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// The text of an element, once it is there.
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.until(&format!(
            "document.querySelector({selector:?})?.textContent"
        ));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until an element has this in its text.
    pub(crate) fn says(&self, selector: &str, text: &str) {
        self.until(&format!(
            "document.querySelector({selector:?})?.textContent.includes({text:?})"
        ));
    }

    /// Clicks with the mouse on the middle of an element, once it is there and
    /// nothing covers it.
    pub(crate) fn click(&self, selector: &str) {
        let middle = self.until(&format!(
            "(() => {{
                const element = document.querySelector({selector:?});
                if (!element) return null;
                element.scrollIntoView({{ block: 'center', inline: 'center' }});
                const box = element.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                return element.contains(document.elementFromPoint(x, y)) ? {{ x, y }} : null;
            }})()"
        ));
        let at = |axis: &str| middle[axis].as_f64().unwrap();
        let point = Point {
            x: at("x"),
            y: at("y"),
        };
        self.tab.click_point(point).unwrap();
    }

    /// Types into a field in place of what is there.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        self.until(&format!("document.querySelector({selector:?}) !== null"));
        self.eval(&format!("document.querySelector({selector:?}).select()"));
        self.eval(&format!("document.querySelector({selector:?}).focus()"));
        if text.is_empty() {
            self.press("Delete");
        } else {
            self.tab.type_str(text).unwrap();
        }
    }

    /// Presses a key.
    pub(crate) fn press(&self, key: &str) {
        self.tab.press_key(key).unwrap();
    }

    /// Loads the page again, at another place of the map.
    pub(crate) fn reload_at(&self, node: &str) {
        self.eval(&format!("(location.hash = 'node={node}')"));
        self.tab.reload(false, None).unwrap();
        self.tab.wait_until_navigated().unwrap();
    }

    /// Asserts that no script failed, that nothing was forbidden by the page's
    /// policy, and that nothing was asked of anybody else. `refusals` are the
    /// statuses, other than success, that the service may have answered.
    pub(crate) fn is_clean(&self, refusals: &[u16]) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(seen.errors.is_empty(), "{:#?}", seen.errors);
        for refusal in &seen.refusals {
            let expected = refusals
                .iter()
                .any(|status| refusal.contains(&format!("status of {status}")));
            assert!(expected, "{refusal}");
        }
        assert!(!seen.requests.is_empty(), "the requests were not seen");
        for request in &seen.requests {
            assert!(
                request.starts_with(&format!("{}/", self.origin)),
                "{request}"
            );
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It goes with the browser at the latest.
        let _ = self.tab.close(false);
    }
}

fn note(seen: &Mutex<Seen>, event: &Event) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        Event::NetworkRequestWillBeSent(event) => {
            seen.requests.push(event.params.request.url.clone());
        }
        Event::RuntimeExceptionThrown(event) => {
            let details = &event.params.exception_details;
            seen.errors
                .push(format!("{}: {:?}", details.text, details.exception));
        }
        Event::LogEntryAdded(event) => {
            let entry = &event.params.entry;
            match (&entry.level, &entry.source) {
                (LogEntryLevel::Error, LogEntrySource::Network) => {
                    seen.refusals.push(entry.text.clone());
                }
                (LogEntryLevel::Error | LogEntryLevel::Warning, _) => {
                    seen.errors.push(entry.text.clone());
                }
                _ => {}
            }
        }
        Event::RuntimeConsoleAPICalled(event) => {
            seen.errors.push(format!("{:?}", event.params.args));
        }
        _ => {}
    }
}
