//! A TOML file with the location of each value.

use crate::words::semicolon;
use crate::{Location, Mistake, Problem, Step};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// A file with valid TOML syntax.
#[derive(Debug)]
pub struct Document<'t> {
    pub(crate) text: &'t str,
    /// The byte at which each line begins.
    lines: Vec<usize>,
    pub(crate) root: Spanned<DeValue<'t>>,
    /// Keys at the top of the file that another reader reads.
    pub(crate) elsewhere: &'static [&'static str],
}

impl<'t> Document<'t> {
    /// Reads `text` as TOML.
    ///
    /// # Errors
    /// Every mistake in its syntax, in the order of their location; at least one.
    pub fn parse(text: &'t str) -> Result<Self, Vec<Mistake>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        let document = Self {
            text,
            lines: Location::lines(text),
            root,
            elsewhere: &[],
        };
        if errors.is_empty() {
            return Ok(document);
        }
        let mut mistakes: Vec<_> = errors
            .iter()
            .map(|error| {
                let place = error.span().unwrap_or_default();
                let what = match (error.message(), text.get(place.clone())) {
                    ("duplicate key", Some(key)) => {
                        format!("the key `{key}` is set for the second time; leave one of the two")
                    }
                    (message, _) => semicolon(message),
                };
                document.mistake(place, format!("not TOML: {what}"))
            })
            .collect();
        mistakes.sort_by_key(|mistake| mistake.location);
        Err(mistakes)
    }

    /// Returns the entries at the top of the file, each read by itself, so that a mistake in one
    /// does not hide those in the others.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_, 't>> {
        let table = self.root.get_ref().as_table();
        table.into_iter().flatten().map(|(key, value)| Entry {
            document: self,
            key: key.get_ref(),
            key_span: key.span(),
            value,
        })
    }

    /// Returns the same file with only these keys at its top.
    #[must_use]
    pub fn only(&self, keys: &[&str]) -> Self {
        self.filtered(&[], |key| keys.contains(&key))
    }

    /// Returns the same file without these keys, which another reader reads, at its top.
    #[must_use]
    pub fn without(&self, keys: &'static [&'static str]) -> Self {
        self.filtered(keys, |key| !keys.contains(&key))
    }

    /// Returns whether a key is at the top of the file.
    pub fn has(&self, key: &str) -> bool {
        self.root.get_ref().get(key).is_some()
    }

    fn filtered(&self, elsewhere: &'static [&'static str], keep: impl Fn(&str) -> bool) -> Self {
        let mut root = self.root.clone();
        if let DeValue::Table(table) = root.as_mut() {
            let keys = table.keys().map(|key| key.get_ref().to_string());
            let dropped: Vec<String> = keys.filter(|key| !keep(key)).collect();
            for key in dropped {
                table.remove(key.as_str());
            }
        }
        Self {
            text: self.text,
            lines: self.lines.clone(),
            root,
            elsewhere,
        }
    }

    /// Returns the span of the value at `path`; of the table or list around it if the value is
    /// missing.
    pub fn find(&self, path: &[Step]) -> Range<usize> {
        let mut value = &self.root;
        for step in path {
            match below(value, step) {
                Some(next) => value = next,
                None => break,
            }
        }
        value.span()
    }

    /// Returns a mistake at the bytes `span` of the text.
    pub fn mistake(&self, span: Range<usize>, message: impl Into<String>) -> Mistake {
        Mistake {
            location: Location::within(self.text, &self.lines, span.start),
            message: message.into(),
        }
    }

    /// Returns each problem with its location, in the order of the locations.
    pub fn locate(&self, problems: impl IntoIterator<Item = Problem>) -> Vec<Mistake> {
        let mut mistakes: Vec<_> = problems
            .into_iter()
            .map(|problem| self.mistake(self.find(&problem.path), problem.message))
            .collect();
        mistakes.sort_by_key(|mistake| mistake.location);
        mistakes
    }
}

/// Returns the value one step below another, if it is there.
fn below<'v, 't>(value: &'v Spanned<DeValue<'t>>, step: &Step) -> Option<&'v Spanned<DeValue<'t>>> {
    match step {
        Step::Key(key) => value.get_ref().get(*key),
        Step::Name(name) => value.get_ref().get(name.as_str()),
        Step::Index(index) => value.get_ref().get(*index),
    }
}

/// A key at the top of a file, and its value.
#[derive(Debug)]
pub struct Entry<'d, 't> {
    document: &'d Document<'t>,
    key: &'d str,
    key_span: Range<usize>,
    value: &'d Spanned<DeValue<'t>>,
}

impl Entry<'_, '_> {
    /// Returns the key.
    pub fn key(&self) -> &str {
        self.key
    }

    /// Reads the value; adds the reason to `mistakes` if it does not fit.
    pub fn read<T: DeserializeOwned>(&self, mistakes: &mut Vec<Mistake>) -> Option<T> {
        self.document.section(self.value, mistakes)
    }

    /// Reads each table of a list by itself, and returns the fitting ones with their index.
    /// `[[key]]` is the syntax of such a list.
    pub fn read_list<T: DeserializeOwned>(&self, mistakes: &mut Vec<Mistake>) -> Vec<(usize, T)> {
        let key = self.key;
        let Some(list) = self.value.get_ref().as_array() else {
            mistakes.push(self.wrong_key(format!(
                "`{key}` is not a list; write `[[{key}]]` before each {key}"
            )));
            return Vec::new();
        };
        let items = list.iter().enumerate();
        items
            .filter_map(|(index, item)| Some((index, self.document.section(item, mistakes)?)))
            .collect()
    }

    /// Reads the value at `path` below the entry's value by itself, so that mistakes beside it do
    /// not hide its contradictions. `None` if the value is missing or has a mistake, which
    /// [`Entry::read`] reports.
    pub fn read_at<T: DeserializeOwned>(&self, path: &[Step]) -> Option<T> {
        let value = path.iter().try_fold(self.value, below)?;
        T::deserialize(ValueDeserializer::from(value.clone())).ok()
    }

    /// Returns the number of values in the list; 0 if the value is no list.
    pub fn items(&self) -> usize {
        self.value.get_ref().as_array().map_or(0, |list| list.len())
    }

    /// Returns a mistake at the key.
    pub fn wrong_key(&self, message: impl Into<String>) -> Mistake {
        self.document.mistake(self.key_span.clone(), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct File {
        name: String,
        size: u8,
        #[serde(default)]
        item: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Item {
        weight: u8,
    }

    fn mistakes(document: &Document<'_>) -> Vec<String> {
        let mistakes = document.whole::<File>().unwrap_err();
        mistakes.iter().map(ToString::to_string).collect()
    }

    const WRONG: &str = "name = 1\nsize = 300\ncolour = 2\n[[item]]\nweight = -1\n\
                         [[item]]\nweight = 1\n[[item]]\nweigth = 1\n";

    #[test]
    fn a_mistake_in_one_section_hides_none_in_the_others() {
        let document = Document::parse(WRONG).unwrap();
        assert_eq!(
            mistakes(&document),
            [
                "1:8: invalid type: integer `1`; expected a text in quotes",
                "2:8: invalid value: integer `300`; expected a whole number from 0 to 255",
                "3:1: unknown key `colour`; known here: name, size, item",
                "5:10: invalid value: integer `-1`; expected a whole number from 0 to 255",
                "9:1: unknown key `weigth`; did you mean `weight`?",
            ]
        );
    }

    #[test]
    fn an_invalid_address_is_quoted_with_a_valid_example() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only read")]
        struct Addresses {
            metrics: std::net::SocketAddr,
            ip: Vec<std::net::IpAddr>,
        }
        let text = "metrics = \"127.0.0.1\"\nip = [\"10.0.0\"]\n";
        let document = Document::parse(text).unwrap();
        let told = document.whole::<Addresses>().unwrap_err();
        let told: Vec<_> = told.iter().map(ToString::to_string).collect();
        let expected = [
            "1:11: \"127.0.0.1\" is no address and port; write for example \"127.0.0.1:9464\"",
            "2:7: \"10.0.0\" is no IP address; write for example \"10.0.0.1\"",
        ];
        assert_eq!(told, expected);
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Guest {
        mac: std::net::Ipv4Addr,
        ip: Vec<std::net::IpAddr>,
        #[serde(default)]
        size: u8,
        port: Port,
        pair: [u8; 2],
        #[serde(default)]
        even: Vec<Even>,
    }

    #[derive(Debug)]
    struct Even;

    impl<'de> Deserialize<'de> for Even {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            let wrong = || serde::de::Error::custom(format!("{text:?} is odd"));
            (text.len() % 2 == 0).then_some(Self).ok_or_else(wrong)
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    enum Port {
        Tap { interface: String },
    }

    #[test]
    fn a_mistake_in_a_section_hides_none_of_the_same_section() {
        let text = "[[guest]]\nmca = 1\nip = [\"10.0.0.300\", \"10.0.0.1\", \"x\"]\nsize = -1\n\
                    port = { kind = \"tpa\", interface = \"t\" }\npair = [1, 300]\neven = [\"ab\", \"c\", \"def\"]\n\
                    [guest.limit]\nin.rate = 1\n[[guest]]\nmac = \"zz\"\n";
        let document = Document::parse(text).unwrap();
        let mut mistakes = Vec::new();
        let entry = document.entries().next().unwrap();
        assert!(entry.read_list::<Guest>(&mut mistakes).is_empty());
        mistakes.sort_by_key(|mistake| mistake.location);
        let told: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        let expected = [
            "2:1: unknown key `mca`; did you mean `mac`? known here: mac, ip, size, port, pair, even",
            "3:7: \"10.0.0.300\" is no IP address; write for example \"10.0.0.1\"",
            "3:33: \"x\" is no IP address; write for example \"10.0.0.1\"",
            "4:8: invalid value: integer `-1`; expected a whole number from 0 to 255",
            "5:17: unknown kind `tpa`; did you mean `tap`? known here: tap",
            "6:12: invalid value: integer `300`; expected a whole number from 0 to 255",
            "7:15: \"c\" is odd",
            "7:20: \"def\" is odd",
            "8:8: unknown key `limit`; known here: mac, ip, size, port, pair, even",
            "11:7: \"zz\" is no IPv4 address; write for example \"10.0.0.1\"",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_value_is_read_despite_mistakes_beside_it() {
        let document = Document::parse(WRONG).unwrap();
        let item = document.entries().find(|entry| entry.key() == "item");
        let item = item.unwrap();
        let weight = |index| {
            let path = [Step::Index(index), Step::Key("weight")];
            item.read_at::<i64>(&path)
        };
        assert_eq!([0, 1, 2, 3].map(weight), [Some(-1), Some(1), None, None]);
        assert!(item.read_at::<Item>(&[Step::Index(1)]).is_some());
        assert!(item.read_at::<Item>(&[Step::Index(0)]).is_none());
        assert!(
            item.read_at::<u8>(&[Step::Index(0), Step::Key("weight")])
                .is_none()
        );
    }

    #[test]
    fn mistakes_without_end_end() {
        use std::fmt::Write as _;
        let mut text = "[wide]\n".to_owned();
        for key in 0..10_000 {
            let _ = writeln!(text, "key{key} = 1");
        }
        let document = Document::parse(&text).unwrap();
        let told = document.whole::<File>().unwrap_err();
        assert_eq!(told.len(), 2, "{told:?}");
        let mut told = Vec::new();
        let entry = document.entries().next().unwrap();
        assert!(entry.read::<Item>(&mut told).is_none());
        assert!((20..100).contains(&told.len()), "{}", told.len());
    }

    #[test]
    fn a_missing_key_is_reported_unless_its_value_was_wrong() {
        let document = Document::parse("name = 1\nsize = 1").unwrap();
        let told = mistakes(&document);
        assert!(
            told.len() == 1 && told[0].starts_with("1:8: invalid type"),
            "{told:?}"
        );
        let missing = "1:1: the key `name` is missing; add `name = ...` here";
        assert_eq!(mistakes(&Document::parse("size = 1").unwrap()), [missing]);
    }

    #[test]
    fn keys_that_are_read_elsewhere_are_no_mistake_and_still_known() {
        let document = Document::parse("titel = 1\nname = \"x\"\nsize = 1\ncheck = 1").unwrap();
        let own = document.without(&["title", "check"]);
        assert_eq!(
            mistakes(&own),
            ["1:1: unknown key `titel`; did you mean `title`?"]
        );
        assert!(own.has("name") && !own.has("check"));
        let name = document
            .only(&["name"])
            .whole::<std::collections::BTreeMap<String, String>>();
        assert_eq!(name.unwrap().len(), 1);
    }
}
