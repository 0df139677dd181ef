//! Sources of expectations, and known misses.

use crate::Figure;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Source of an expectation. In TOML the text alone, or a table with the paper's figure, too:
/// `{ text = "table 3", paper = "29.64ms" }`.
#[derive(Debug, Clone)]
pub struct Citation {
    /// Paper and section, or the reason of the expectation.
    pub text: String,
    /// Figure of the paper.
    pub paper: Option<PaperFigure>,
}

/// Figure of a paper, in the unit of the judged figure.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "a figure, or the lowest and the highest: [10, 20]"
)]
pub enum PaperFigure {
    /// One figure.
    One(Figure),
    /// The lowest and the highest figure.
    Range([Figure; 2]),
}

impl PaperFigure {
    /// Returns the lowest and the highest figure.
    pub(crate) const fn range(self) -> [f64; 2] {
        match self {
            Self::One(figure) => [figure.0, figure.0],
            Self::Range([low, high]) => [low.0, high.0],
        }
    }
}

/// Known miss.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Miss {
    /// Lowest and highest known figure; others fail.
    pub known: [Figure; 2],
    /// Cause of the miss.
    pub cause: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    text: String,
    paper: PaperFigure,
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Citation;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, or { text = \"table 3\", paper = 1.35 }")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Citation, E> {
        Ok(Citation {
            text: text.to_owned(),
            paper: None,
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Citation, A::Error> {
        let Table { text, paper } = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Citation {
            text,
            paper: Some(paper),
        })
    }
}

impl<'de> Deserialize<'de> for Citation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable)
    }
}
