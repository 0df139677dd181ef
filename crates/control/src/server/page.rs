//! The page: its files, which are part of the program, and the policy that limits them in a
//! browser.

use super::App;
use super::problem::ApiError;
use axum::extract::Path;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;

/// The Content-Security-Policy: nothing from elsewhere, nothing inline, and no frame around the
/// page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($name:literal: $kind:expr),+ $(,)?) => {
        /// The files by name, with type and content.
        const FILES: &[(&str, &str, &str)] = &[
            $(($name, $kind, include_str!(concat!("../../page/", $name)))),+
        ];
    };
}

files! {
    "index.html": HTML,
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "api.js": SCRIPT,
    "app.js": SCRIPT,
    "chart.js": SCRIPT,
    "dom.js": SCRIPT,
    "map.js": SCRIPT,
    "place.js": SCRIPT,
    "request.js": SCRIPT,
    "tenants.js": SCRIPT,
    "reservations.js": SCRIPT,
    "treemap.js": SCRIPT,
    "units.js": SCRIPT,
}

/// Returns the routes of the page. They are not part of the API and not in its document.
pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .route("/", get(|| async { file("index.html") }))
        .route(
            "/page/{file}",
            get(|Path(name): Path<String>| async move { file(&name) }),
        )
}

fn file(name: &str) -> Result<Response, ApiError> {
    let (_, kind, text) = FILES
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| ApiError::not_found(format!("the page has no file {name:?}")))?;
    let headers = [
        (CONTENT_TYPE, *kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
    ];
    Ok((headers, *text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served_and_nothing_is_from_elsewhere() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        there.sort();
        let mut served: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        served.sort_unstable();
        assert_eq!(served, there);
        for (name, _, text) in FILES {
            // The only address is the name of SVG.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for outside in ["http:", "https:", "//cdn", "innerHTML", "eval("] {
                assert!(!text.contains(outside), "{name} has {outside}");
            }
        }
    }

    #[test]
    fn every_import_is_a_file_of_the_page() {
        for (name, _, text) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let from = line.split('"').nth(1).unwrap();
                let known = from
                    .strip_prefix("./")
                    .and_then(|from| FILES.iter().find(|(known, ..)| *known == from));
                assert!(known.is_some(), "{name} imports {from}");
            }
        }
    }
}
