//! A fabric's classes and their marks in a frame's headers.

use crate::{Class, Fabric};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The marks by which a switch recognises a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Differentiated services code point of the IP header (RFC 2474): 0 to 63.
    #[cfg_attr(feature = "openapi", schema(maximum = 63))]
    pub dscp: u8,
    /// Priority code point of the VLAN tag (IEEE 802.1Q, 6.9): 0 to 7.
    #[cfg_attr(feature = "openapi", schema(maximum = 7))]
    pub pcp: u8,
}

impl Mark {
    /// The mark of a DSCP, and of the PCP that is its upper three bits.
    const fn of_dscp(dscp: u8) -> Self {
        Self {
            dscp,
            pcp: dscp >> 3,
        }
    }

    /// Expedited Forwarding (RFC 3246), for the class of highest priority.
    pub const FIRST: Self = Self::of_dscp(46);
    /// AF21, low-latency data (RFC 4594, 4.7), for small flows below the guaranteed class.
    pub const SECOND: Self = Self::of_dscp(18);
    /// The default class (RFC 2474).
    pub const LAST: Self = Self::of_dscp(0);
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DSCP {}, PCP {}", self.dscp, self.pcp)
    }
}

/// The order of a fabric's classes, and the mark of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "ClassesSpec", into = "ClassesSpec")]
pub struct Classes {
    fabric: Fabric,
    /// By [`Class`]. A class that the fabric does not have has the lowest class's mark.
    marks: [Mark; Class::ALL.len()],
    /// Marks of further guaranteed classes, by which received frames are known; the lowest class's
    /// mark for none. No file has them: the topology's delay classes are known by the placement
    /// service.
    urgent: [Mark; 2],
}

/// Priority classes, before they are validated. A missing mark is the default of its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Classes))]
#[serde(deny_unknown_fields)]
pub struct ClassesSpec {
    /// Class that switches serve first.
    pub fabric: Fabric,
    /// Mark of guaranteed traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<Mark>,
    /// Mark of small flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small: Option<Mark>,
    /// Mark of all other traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest: Option<Mark>,
}

/// Error of invalid marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClassesError {
    /// The fabric does not have the class.
    #[error("a fabric of {fabric} has no class `{class}`; leave its mark out")]
    NoClass {
        /// The fabric.
        fabric: Fabric,
        /// The class.
        class: Class,
    },
    /// The mark does not fit its field.
    #[error("the mark of `{class}` is {mark}; a DSCP is 0 to 63 and a PCP 0 to 7")]
    Range {
        /// The class.
        class: Class,
        /// Its mark.
        mark: Mark,
    },
    /// Two classes have an equal DSCP or PCP.
    #[error(
        "`{one}` is {of_one} and `{other}` is {of_other}; use a different DSCP and PCP for each \
            class"
    )]
    Duplicate {
        /// The class of higher priority.
        one: Class,
        /// Its mark.
        of_one: Mark,
        /// The other class.
        other: Class,
        /// The mark of the other class.
        of_other: Mark,
    },
}

impl Classes {
    /// Returns the classes of a fabric with default marks: Expedited Forwarding (RFC 3246) for
    /// the first class, 0 for the lowest, AF21 for a class between them.
    pub const fn of(fabric: Fabric) -> Self {
        let marks = match fabric {
            Fabric::GuaranteesFirst => [Mark::FIRST, Mark::LAST, Mark::LAST],
            Fabric::SmallFlowsFirst => [Mark::LAST, Mark::FIRST, Mark::LAST],
            Fabric::ThreeClasses => [Mark::FIRST, Mark::SECOND, Mark::LAST],
        };
        Self {
            fabric,
            marks,
            urgent: [Mark::LAST; 2],
        }
    }

    /// Returns the classes with the marks of up to two further guaranteed classes. Only
    /// [`Classes::class_by_mark`] knows them; frames get their marks from their guests' guarantees.
    #[must_use]
    pub fn with_urgent(mut self, marks: impl IntoIterator<Item = Mark>) -> Self {
        self.urgent = [self.mark(Class::Lowest); 2];
        for (urgent, mark) in self.urgent.iter_mut().zip(marks) {
            *urgent = mark;
        }
        self
    }

    /// Returns the order of the classes.
    pub const fn fabric(self) -> Fabric {
        self.fabric
    }

    /// Returns the mark of a class, or that of the lowest if the fabric does not have the class.
    #[inline]
    pub const fn mark(self, class: Class) -> Mark {
        self.marks[class as usize]
    }

    /// Returns the class whose mark satisfies `is`, or the lowest class.
    #[inline]
    pub fn class_by_mark(self, is: impl Fn(Mark) -> bool) -> Class {
        let lowest = self.mark(Class::Lowest);
        let above = [Class::Guaranteed, Class::Small].into_iter();
        let above = above.map(|class| (class, self.mark(class)));
        let urgent = self.urgent.map(|mark| (Class::Guaranteed, mark));
        let mut above = above.chain(urgent);
        let found = above.find(|(_, mark)| *mark != lowest && is(*mark));
        found.map_or(Class::Lowest, |(class, _)| class)
    }

    /// Returns the fabric and its marks as one number other than 0: the fabric's position in
    /// [`Fabric::ALL`], from 1 on, in the first byte, and DSCP and PCP of each class in the last six.
    pub fn code(self) -> u64 {
        let places = Fabric::ALL.iter().zip(1_u64..);
        let mut place = places.filter(|(fabric, _)| **fabric == self.fabric);
        let place = place.next().map_or(0, |(_, place)| place);
        let marks = Class::ALL.iter().fold(0, |code, class| {
            let Mark { dscp, pcp } = self.mark(*class);
            code << 16 | u64::from(dscp) << 8 | u64::from(pcp)
        });
        place << 56 | marks
    }

    /// Returns the classes of a number from [`Classes::code`]; `None` for other numbers.
    pub fn from_code(code: u64) -> Option<Self> {
        let place = usize::try_from(code >> 56).ok()?.checked_sub(1)?;
        let mut classes = Self::of(*Fabric::ALL.get(place)?);
        for (class, at) in Class::ALL.into_iter().zip([32, 16, 0]) {
            let [.., dscp, pcp] = (code >> at).to_be_bytes();
            classes.marks[class as usize] = Mark { dscp, pcp };
        }
        let classes = classes.with_urgent([]);
        classes.check().ok()?;
        (classes.code() == code).then_some(classes)
    }

    fn check(self) -> Result<(), ClassesError> {
        let classes = Class::ALL.into_iter();
        let classes: Vec<_> = classes.filter(|class| self.fabric.has(*class)).collect();
        for (index, &one) in classes.iter().enumerate() {
            let mark = self.mark(one);
            if mark.dscp > 63 || mark.pcp > 7 {
                return Err(ClassesError::Range { class: one, mark });
            }
            for &other in &classes[index + 1..] {
                let second = self.mark(other);
                if mark.dscp == second.dscp || mark.pcp == second.pcp {
                    return Err(ClassesError::Duplicate {
                        one,
                        of_one: mark,
                        other,
                        of_other: second,
                    });
                }
            }
        }
        Ok(())
    }
}

impl Default for Classes {
    /// Guarantees first, with the default marks.
    fn default() -> Self {
        Self::of(Fabric::default())
    }
}

impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fabric)?;
        let mut before = " (";
        for class in Class::ALL {
            if self.fabric.has(class) {
                write!(f, "{before}{class}: {}", self.mark(class))?;
                before = "; ";
            }
        }
        f.write_str(")")
    }
}

impl TryFrom<ClassesSpec> for Classes {
    type Error = ClassesError;

    fn try_from(spec: ClassesSpec) -> Result<Self, ClassesError> {
        let mut classes = Self::of(spec.fabric);
        let given = [spec.guaranteed, spec.small, spec.lowest];
        for (class, mark) in Class::ALL.into_iter().zip(given) {
            let Some(mark) = mark else { continue };
            if !spec.fabric.has(class) {
                return Err(ClassesError::NoClass {
                    fabric: spec.fabric,
                    class,
                });
            }
            classes.marks[class as usize] = mark;
        }
        // Traffic without a class of its own uses the lowest.
        for class in Class::ALL {
            if !spec.fabric.has(class) {
                classes.marks[class as usize] = classes.mark(Class::Lowest);
            }
        }
        classes = classes.with_urgent([]);
        classes.check()?;
        Ok(classes)
    }
}

impl From<Classes> for ClassesSpec {
    fn from(classes: Classes) -> Self {
        let mark = |class| {
            let has = classes.fabric.has(class);
            has.then(|| classes.mark(class))
        };
        Self {
            fabric: classes.fabric,
            guaranteed: mark(Class::Guaranteed),
            small: mark(Class::Small),
            lowest: mark(Class::Lowest),
        }
    }
}

#[cfg(feature = "openapi")]
mod openapi {
    use super::{Classes, ClassesSpec};
    use std::borrow::Cow;
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::Schema;
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for Classes {
        fn schema() -> RefOr<Schema> {
            ClassesSpec::schema()
        }
    }

    impl ToSchema for Classes {
        fn name() -> Cow<'static, str> {
            ClassesSpec::name()
        }

        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            ClassesSpec::schemas(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Classes, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn defaults_equal_a_file_with_only_the_fabric() {
        for fabric in Fabric::ALL {
            let classes = Classes::of(fabric);
            assert_eq!(read(&format!("fabric = \"{fabric}\"")), Ok(classes));
            let text = toml::to_string(&classes).expect("it can be written");
            assert_eq!(read(&text), Ok(classes), "{text}");
        }
    }

    #[test]
    fn a_mark_is_known_again_and_others_are_the_lowest_class() {
        let classes = read(
            "fabric = \"three-classes\"\nsmall = { dscp = 10, pcp = 3 }\n\
             lowest = { dscp = 8, pcp = 1 }",
        )
        .expect("no rule is broken");
        for class in Class::ALL {
            let mark = classes.mark(class);
            assert_eq!(
                classes.class_by_mark(|other| other.dscp == mark.dscp),
                class
            );
            assert_eq!(classes.class_by_mark(|other| other.pcp == mark.pcp), class);
        }
        assert_eq!(
            classes.class_by_mark(|other| other.dscp == 0),
            Class::Lowest
        );
        let urgent = Mark { dscp: 48, pcp: 6 };
        assert_eq!(
            classes.class_by_mark(|other| other == urgent),
            Class::Lowest
        );
        let more = classes.with_urgent([urgent]);
        assert_eq!(
            more.class_by_mark(|other| other == urgent),
            Class::Guaranteed
        );
        assert_eq!(more.class_by_mark(|other| other.dscp == 8), Class::Lowest);
        let two = Classes::of(Fabric::GuaranteesFirst);
        assert_eq!(two.class_by_mark(|other| other.dscp == 0), Class::Lowest);
    }

    #[test]
    fn a_classes_code_identifies_one_fabric_and_its_marks() {
        let other = read("fabric = \"three-classes\"\nsmall = { dscp = 10, pcp = 3 }");
        let all = Fabric::ALL.map(Classes::of).into_iter().chain(other);
        let codes: Vec<_> = all.clone().map(Classes::code).collect();
        for (classes, code) in all.zip(&codes) {
            assert_eq!(Classes::from_code(*code), Some(classes));
            assert_eq!(codes.iter().filter(|other| *other == code).count(), 1);
        }
        for code in [0, u64::MAX, codes[0] | 1 << 48, codes[0] + (1 << 60)] {
            assert_eq!(Classes::from_code(code), None, "{code:x}");
        }
    }

    #[test]
    fn marks_that_break_a_rule_are_refused() {
        for (text, wrong) in [
            (
                "fabric = \"guarantees-first\"\nsmall = { dscp = 1, pcp = 1 }",
                "no class `small`",
            ),
            (
                "fabric = \"three-classes\"\nsmall = { dscp = 64, pcp = 1 }",
                "0 to 63",
            ),
            (
                "fabric = \"three-classes\"\nsmall = { dscp = 9, pcp = 8 }",
                "0 to 7",
            ),
            (
                "fabric = \"three-classes\"\nsmall = { dscp = 46, pcp = 1 }",
                "use a different DSCP and PCP",
            ),
            (
                "fabric = \"three-classes\"\nsmall = { dscp = 9, pcp = 0 }",
                "use a different DSCP and PCP",
            ),
            ("fabric = \"four-classes\"", "unknown variant"),
            (
                "guaranteed = { dscp = 46, pcp = 5 }",
                "missing field `fabric`",
            ),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(wrong), "{refused}");
        }
    }
}
