//! A page in a headless Chromium that is watched for errors.

use crate::devtools::{Browser, Connection, Event, PAGE_TIMEOUT};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tailbound_sys::probe::required::{Part, skipped};

/// The keys that tests press: name, and the number that Windows gave each.
const KEYS: [(&str, u32); 6] = [
    ("Tab", 9),
    ("Enter", 13),
    ("Escape", 27),
    ("PageUp", 33),
    ("ArrowRight", 39),
    ("Delete", 46),
];

/// Event of a page that was loaded.
const LOADED: &str = "Page.loadEventFired";
/// The error of an expression that was evaluated while the page navigated.
const NAVIGATED: &str = "Inspected target navigated or closed";

/// Errors and requests of a page, beside the tested content.
#[derive(Debug, Default)]
struct PageLog {
    /// Errors of scripts, of the policy, of anything but answers of the service.
    errors: Vec<String>,
    /// Answers that the browser's log calls errors.
    refusals: Vec<String>,
    requests: Vec<String>,
}

/// An open page.
pub(crate) struct Page {
    tab: RefCell<Connection>,
    origin: String,
    _browser: Arc<Browser>,
}

impl Page {
    /// Opens `origin` on a screen of 1280 x 900. Prints a line and returns None if Chromium is not
    /// installed.
    pub(crate) fn open(origin: &str) -> Option<Self> {
        Self::open_at(origin, "")
    }

    /// As [`Self::open`], at a path of `origin`.
    pub(crate) fn open_at(origin: &str, path: &str) -> Option<Self> {
        let Some(browser) = Browser::shared() else {
            skipped(Part::Chromium, "it is not in PATH");
            return None;
        };
        let mut tab = browser.open();
        for domain in ["Log", "Runtime", "Network", "Page"] {
            tab.call(&format!("{domain}.enable"), &json!({}));
        }
        let page = Self {
            tab: RefCell::new(tab),
            origin: origin.to_owned(),
            _browser: browser,
        };
        page.screen(1280, 900);
        page.load(
            "Page.navigate",
            &json!({ "url": format!("{origin}{path}") }),
        );
        Some(page)
    }

    fn call(&self, method: &str, params: &Value) -> Value {
        self.tab.borrow_mut().call(method, params)
    }

    /// Calls what loads a page, and waits until it is loaded.
    fn load(&self, method: &str, params: &Value) {
        let mut tab = self.tab.borrow_mut();
        tab.forget(LOADED);
        tab.call(method, params);
        tab.wait_for(LOADED);
    }

    /// Makes the screen so large.
    pub(crate) fn screen(&self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Light or dark.
    pub(crate) fn scheme(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Writes what is seen as PNG.
    pub(crate) fn picture(&self, file: &Path) {
        let answer = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = BASE64_STANDARD.decode(answer["data"].as_str().unwrap());
        std::fs::write(file, data.unwrap()).unwrap();
    }

    /// Returns the value of a JavaScript expression, or the result of its promise.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let value = self.try_eval(expression);
        value.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// As [`Self::eval`]; an error if the page navigates meanwhile.
    fn try_eval(&self, expression: &str) -> Result<Value, Value> {
        let params = json!({
            "expression": format!("({expression})"), "awaitPromise": true, "returnByValue": true,
        });
        let mut answer = self
            .tab
            .borrow_mut()
            .try_call("Runtime.evaluate", &params)?;
        let failed = &answer["exceptionDetails"];
        assert!(failed.is_null(), "{expression}: {failed}");
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true, and returns its value.
    pub(crate) fn until(&self, expression: &str) -> Value {
        let end = Instant::now() + PAGE_TIMEOUT;
        loop {
            // A click may have loaded another page, which is then asked.
            let value = match self.try_eval(expression) {
                Err(error) if error["message"] == NAVIGATED => Value::Null,
                answer => answer.unwrap_or_else(|error| panic!("{expression}: {error}")),
            };
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

    /// Clicks with the mouse on the middle of an element, once it is there, nothing covers it, and it has
    /// not moved for 30 ms: a part of the page that is drawn meanwhile moves it from under the mouse.
    pub(crate) fn click(&self, selector: &str) {
        let middle = self.until(&format!(
            "(() => {{
                const element = document.querySelector({selector:?});
                if (!element) return null;
                element.scrollIntoView({{ block: 'center', inline: 'center' }});
                const box = element.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                const stays = element.middleBefore === `${{x}} ${{y}}`;
                element.middleBefore = `${{x}} ${{y}}`;
                return stays && element.contains(document.elementFromPoint(x, y)) ? {{ x, y }} : null;
            }})()"
        ));
        let at = |axis: &str| middle[axis].as_f64().unwrap();
        let (x, y) = (at("x"), at("y"));
        for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({
                "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Types into a field in place of what is there.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        self.until(&format!("document.querySelector({selector:?}) !== null"));
        self.eval(&format!("document.querySelector({selector:?}).select()"));
        self.eval(&format!("document.querySelector({selector:?}).focus()"));
        if text.is_empty() {
            self.press("Delete");
        } else {
            for letter in text.chars() {
                self.key(&json!({ "key": letter.to_string(), "text": letter.to_string() }));
            }
        }
    }

    /// Presses a key.
    pub(crate) fn press(&self, key: &str) {
        let known = KEYS.iter().find(|known| known.0 == key);
        let (_, number) = known.unwrap_or_else(|| panic!("there is no number for {key}"));
        let mut event = json!({ "key": key, "code": key, "windowsVirtualKeyCode": number });
        if key == "Enter" {
            event["text"] = "\r".into();
        }
        self.key(&event);
    }

    fn key(&self, event: &Value) {
        let mut event = event.clone();
        for kind in ["keyDown", "keyUp"] {
            event["type"] = kind.into();
            self.call("Input.dispatchKeyEvent", &event);
            if let Some(event) = event.as_object_mut() {
                event.remove("text");
            }
        }
    }

    /// Loads the page again, at another place of the map.
    pub(crate) fn reload_at(&self, node: &str) {
        self.eval(&format!("(location.hash = 'node={node}')"));
        self.load("Page.reload", &json!({}));
    }

    /// Asserts that no script failed, that the page's policy blocked nothing, and that no request
    /// went to another origin. `refusals` are the statuses, other than success, that the service
    /// may have answered.
    pub(crate) fn is_clean(&self, refusals: &[u16]) {
        let mut seen = PageLog::default();
        for event in self.tab.borrow_mut().events() {
            seen.note(event);
        }
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
        if !std::thread::panicking() {
            self.call("Page.close", &json!({}));
        }
    }
}

impl PageLog {
    fn note(&mut self, event: &Event) {
        let params = &event.params;
        match event.method.as_str() {
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap();
                self.requests.push(url.to_owned());
            }
            "Runtime.exceptionThrown" => self.errors.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" => self.errors.push(params["args"].to_string()),
            "Log.entryAdded" => {
                let entry = &params["entry"];
                let text = entry["text"].as_str().unwrap().to_owned();
                match (entry["level"].as_str(), entry["source"].as_str()) {
                    (Some("error"), Some("network")) => self.refusals.push(text),
                    (Some("error" | "warning"), _) => self.errors.push(text),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}
