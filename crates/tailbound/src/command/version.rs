//! Version and commit of the build. This file uses no other module, so that the test of builds with
//! a commit compiles it alone.

/// Returns the commit of the build, if the build knew it: `make` passes it (`scripts/commit`), and
/// cargo alone does not.
pub(crate) fn commit() -> Option<&'static str> {
    option_env!("TAILBOUND_COMMIT").filter(|commit| !commit.is_empty())
}

/// Returns the version: `0.1.0`, or `0.1.0 (1f2e3d4c5b6a)` with the commit.
pub(crate) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match commit() {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}
