//! The rows of a grid in a directory.

use super::file::write_whole;
use super::{GridError, Row, Scenario};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// File in the directory that describes the grid.
const MANIFEST: &str = "grid.json";
/// Subdirectory of the rows.
const ROWS: &str = "rows";

/// Description of a grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file format.
    pub schema: u32,
    /// The scenario's name.
    pub name: String,
    /// Purpose of the grid, in one line.
    pub title: String,
    /// KIND/NAME of its experiment.
    pub experiment: String,
    /// Varied keys.
    pub keys: Vec<String>,
    /// Figures of the charts over the first key.
    pub show: Vec<String>,
    /// The points.
    pub points: Vec<PlannedPoint>,
}

/// A point of the grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPoint {
    /// The values of the keys.
    pub settings: Vec<String>,
    /// The repetition.
    pub repetition: u32,
    /// Its seed.
    pub seed: u64,
    /// Hash of the inputs of its result.
    pub key: String,
}

impl Manifest {
    /// Returns the description of a scenario's grid.
    pub fn new(scenario: &Scenario) -> Self {
        let points = scenario.points.iter().map(|point| PlannedPoint {
            settings: point.settings.clone(),
            repetition: point.repetition,
            seed: point.seed,
            key: point.key.clone(),
        });
        Self {
            schema: 1,
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            experiment: scenario.experiment.clone(),
            keys: scenario.keys.clone(),
            show: scenario.show.clone(),
            points: points.collect(),
        }
    }
}

/// A directory of rows.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    manifest: Manifest,
}

impl Store {
    /// Opens the store of a grid, and creates it if it does not exist.
    ///
    /// # Errors
    /// The directory has rows of another grid, or cannot be written to.
    pub fn create(directory: &Path, manifest: Manifest) -> Result<Self, GridError> {
        let rows = directory.join(ROWS);
        fs::create_dir_all(&rows).map_err(GridError::file(&rows))?;
        let store = Self {
            directory: directory.to_owned(),
            manifest,
        };
        let path = directory.join(MANIFEST);
        match fs::read(&path) {
            Ok(there) => match serde_json::from_slice::<Manifest>(&there) {
                Ok(there) if there == store.manifest => {}
                _ => {
                    return Err(GridError::Other {
                        path: directory.to_owned(),
                    });
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                write_whole(&path, &json(&store.manifest))?;
            }
            Err(error) => return Err(GridError::file(path)(error)),
        }
        Ok(store)
    }

    /// Opens the store in a directory.
    ///
    /// # Errors
    /// The directory has no store.
    pub fn open(directory: &Path) -> Result<Self, GridError> {
        let no_grid = || GridError::NoGrid {
            path: directory.to_owned(),
        };
        let text = fs::read(directory.join(MANIFEST)).map_err(|_| no_grid())?;
        let manifest = serde_json::from_slice(&text).map_err(|_| no_grid())?;
        Ok(Self {
            directory: directory.to_owned(),
            manifest,
        })
    }

    /// Returns the description of the grid.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the file of a point's row.
    pub fn path(&self, point: usize) -> PathBuf {
        self.directory.join(ROWS).join(format!("{point:06}.row"))
    }

    /// Reads the row of a point, if it exists.
    ///
    /// # Errors
    /// The content differs from its checksum, is of another point, or cannot be read.
    pub fn read(&self, point: usize) -> Result<Option<Row>, GridError> {
        let path = self.path(point);
        let Some(row) = Row::read(&path)? else {
            return Ok(None);
        };
        if row.point != point || row.key != self.manifest.points[point].key {
            let why = format!("it is the row of another point, {}", row.point);
            return Err(GridError::Corrupt { path, why });
        }
        Ok(Some(row))
    }

    /// Writes a row, atomically and durably.
    ///
    /// # Errors
    /// The row cannot be written.
    pub fn write(&self, row: &Row) -> Result<(), GridError> {
        row.write(&self.path(row.point))
    }

    /// Returns all rows.
    ///
    /// # Errors
    /// A row is missing, or differs from its checksum.
    pub fn all(&self) -> Result<Vec<Row>, GridError> {
        let all = self.manifest.points.len();
        let mut rows = Vec::with_capacity(all);
        let mut missing = Vec::new();
        for point in 0..all {
            match self.read(point)? {
                Some(row) => rows.push(row),
                None => missing.push(point),
            }
        }
        match missing.first() {
            None => Ok(rows),
            Some(&first) => Err(GridError::Missing {
                missing: missing.len(),
                all,
                first,
            }),
        }
    }

    /// Adds the rows of another store of the same grid.
    ///
    /// # Errors
    /// The other store is of another grid, or one of its rows differs from its checksum or from the
    /// row here.
    pub fn take(&self, other: &Self) -> Result<(), GridError> {
        if other.manifest != self.manifest {
            return Err(GridError::Other {
                path: other.directory.clone(),
            });
        }
        for point in 0..self.manifest.points.len() {
            let Some(theirs) = other.read(point)? else {
                continue;
            };
            match self.read(point)? {
                None => self.write(&theirs)?,
                // Compared as text, because figures may be NaN.
                Some(ours) if ours.to_text() == theirs.to_text() => {}
                Some(_) => {
                    let (one, other) = (self.path(point), other.path(point));
                    return Err(GridError::Differ { one, other });
                }
            }
        }
        Ok(())
    }
}

fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    text.expect("plain values always serialize") + "\n"
}
