//! State file with the last answer of the placement service. A daemon that starts while the service
//! is unreachable continues with the guarantees of the daemon before it.

use crate::durable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

const SCHEMA: u32 = 2;

/// An answer of the placement service that can be stored.
pub(crate) trait StoredAnswer: Serialize + DeserializeOwned {
    /// Checks that the answer is about `host` and complete. Returns the reason if it is not.
    fn check(&self, host: &str) -> Result<(), String>;
}

/// The last answer of the placement service cannot be stored.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: {source}; this file stores the last guarantees of the placement service; select \
        another file with --control-state",
    path = path.display()
)]
pub struct StateError {
    path: PathBuf,
    source: io::Error,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<T> {
    schema: u32,
    said: T,
}

/// The state file of one kind of answer. Only its owner may read it.
#[derive(Debug)]
pub(crate) struct StateFile<T> {
    path: PathBuf,
    kept: PhantomData<T>,
}

impl<T: StoredAnswer> StateFile<T> {
    /// Opens the file at `path`, which need not exist yet. Its directory is made if it is missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError {
            path: path.to_owned(),
            source,
        };
        durable::make_room(path).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            kept: PhantomData,
        })
    }

    /// Returns the stored answer for `host`; None if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is about another host.
    pub(crate) fn read(&self, host: &str) -> Result<Option<T>, String> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let document: Document<T> =
            serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if document.schema != SCHEMA {
            return Err(format!("schema {}, not {SCHEMA}", document.schema));
        }
        document.said.check(host)?;
        Ok(Some(document.said))
    }

    /// Replaces the stored answer. The new content is on disk when this returns; after an error the
    /// file is unchanged.
    pub(crate) fn write(&self, answer: &T) -> Result<(), StateError> {
        self.replace(answer).map_err(|source| StateError {
            path: self.path.clone(),
            source,
        })
    }

    fn replace(&self, answer: &T) -> io::Result<()> {
        let text = serde_json::to_vec(&Document {
            schema: SCHEMA,
            said: answer,
        })?;
        durable::replace(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailbound_api::{HostGuarantees, HostState};

    type StateFile = super::StateFile<HostGuarantees>;

    fn guarantees(revision: u64) -> HostGuarantees {
        let line = format!(
            r#"{{"host":"h","state":"drained","revision":{revision},"vms":[
                {{"vm":"acme/web/0","tenant":1,"tenant_vms":2,"guarantee":{{"bandwidth":"1Gbit/s"}}}},
                {{"vm":"acme/web/1","tenant":1,"tenant_vms":2}}]}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn the_state_file_returns_the_last_state_to_its_own_host() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("not/there/yet.json");
        let state = StateFile::open(&path).unwrap();
        assert_eq!(state.read("h"), Ok(None));
        for revision in [1, 2] {
            state.write(&guarantees(revision)).unwrap();
        }
        let read = StateFile::open(&path).unwrap().read("h").unwrap().unwrap();
        assert_eq!(read, guarantees(2));
        assert_eq!(read.state, HostState::Drained);
        let error = state.read("other").unwrap_err();
        assert_eq!(error, "it is about \"h\", not \"other\"");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = StateFile::open(&file.join("below"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("--control-state"), "{error}");
    }

    #[test]
    fn a_machine_that_is_there_twice_or_has_no_name_is_refused() {
        for (from, to, what) in [
            (
                "acme/web/1",
                "acme/web/0",
                "the machine acme/web/0 is there twice",
            ),
            ("acme/web/1", "web", "\"web\" is no machine's name"),
            ("\"schema\":2", "\"schema\":1", "schema 1, not 2"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.json");
            let state = StateFile::open(&path).unwrap();
            state.write(&guarantees(1)).unwrap();
            let text = fs::read_to_string(&path).unwrap().replace(from, to);
            fs::write(&path, text).unwrap();
            let error = state.read("h").unwrap_err();
            assert!(error.starts_with(what), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_file_that_was_cut_or_overwritten_is_never_taken_for_whole(
            place in 0_usize..400, byte in any::<u8>(), cut in any::<bool>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.json");
            let state = StateFile::open(&path).unwrap();
            state.write(&guarantees(1)).unwrap();
            let mut text = fs::read(&path).unwrap();
            let place = place % text.len();
            if cut { text.truncate(place) } else { text[place] = byte }
            fs::write(&path, &text).unwrap();
            match state.read("h") {
                Ok(Some(read)) => prop_assert!(!cut && read.check("h").is_ok()),
                Ok(None) => prop_assert!(false, "there is a file"),
                Err(_) => {}
            }
        }
    }
}
