//! Names of stores on the command line.

use std::path::PathBuf;
use std::str::FromStr;
use tailbound_control::store::etcd::Location;

/// Location of the ledger.
#[derive(Debug, Clone)]
pub(super) enum StoreUrl {
    /// A file of this service alone.
    Sqlite(PathBuf),
    /// An etcd cluster, shared with other replicas.
    Etcd(Location),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("sqlite", "")) => Err("the file is missing: sqlite:FILE".to_owned()),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("etcd" | "etcds", _)) => text
                .parse()
                .map(Self::Etcd)
                .map_err(|error| format!("{error}")),
            _ => Err("it is neither sqlite:FILE nor etcd://HOST:PORT/PREFIX".to_owned()),
        }
    }
}
