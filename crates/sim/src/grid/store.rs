//! The rows of a grid in a directory.

use super::file::write_whole;
use super::{GridError, Row, Scenario};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What a directory has rows of.
const MANIFEST: &str = "grid.json";
/// Where they are in it.
const ROWS: &str = "rows";

/// What a grid consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the shape of these files.
    pub schema: u32,
    /// The scenario's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// KIND/NAME of its experiment.
    pub experiment: String,
    /// The keys that are varied.
    pub keys: Vec<String>,
    /// Figures to be drawn over the first of them.
    pub show: Vec<String>,
    /// The points.
    pub points: Vec<Planned>,
}

/// A point that is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The values of the keys.
    pub settings: Vec<String>,
    /// Which of the repetitions.
    pub repetition: u32,
    /// Its seed.
    pub seed: u64,
    /// What its result follows from.
    pub key: String,
}

impl Manifest {
    /// That of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let points = scenario.points.iter().map(|point| Planned {
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
    /// The store of a grid, which is made where it is not there.
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

    /// The store in a directory.
    ///
    /// # Errors
    /// There is none.
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

    /// What it has rows of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of a point's row.
    pub fn path(&self, point: usize) -> PathBuf {
        self.directory.join(ROWS).join(format!("{point:06}.row"))
    }

    /// The row of a point, if it is there.
    ///
    /// # Errors
    /// It is not what was written, or of another point, or cannot be read.
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

    /// Keeps a row: from then on it is there, whatever happens to this process or machine.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, row: &Row) -> Result<(), GridError> {
        row.write(&self.path(row.point))
    }

    /// All rows.
    ///
    /// # Errors
    /// One is missing, or not what was written.
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

    /// Takes the rows of another store of the same grid in.
    ///
    /// # Errors
    /// The other one is of another grid, one of its rows is not what was written, or differs from
    /// the one that is here.
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
                // As text: a figure that could not be computed equals nothing.
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
