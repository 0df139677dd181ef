//! What is built: its version, and the commit that it is of. Nothing else is used here, so that the
//! test of builds that know their commit compiles this file alone.

/// The commit that this was built of, where the build knew it: `make` says it (`scripts/commit`), and
/// cargo alone does not.
pub(crate) fn commit() -> Option<&'static str> {
    option_env!("TAILBOUND_COMMIT").filter(|commit| !commit.is_empty())
}

/// `0.1.0`, or `0.1.0 (1f2e3d4c5b6a)` with the commit.
pub(crate) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match commit() {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}
