//! The kernel's description of its types (BTF), as far as a set of operations needs it: identifiers of functions
//! and structs, and members of structs. Aya keeps members to itself.

use crate::bpf_program::LoadError;

/// Kinds of types.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const TAG: u32 = 17;
const ENUM64: u32 = 19;

/// A struct of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Struct {
    pub(super) id: u32,
    /// In bytes.
    pub(super) size: u32,
    members: Vec<Member>,
}

/// A member of a struct; no field of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    name: String,
    /// Its place among the members.
    pub(super) index: u32,
    /// In bytes.
    pub(super) offset: usize,
}

impl Struct {
    /// Returns a member.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn member(&self, name: &str) -> Result<&Member, LoadError> {
        let found = self.members.iter().find(|member| member.name == name);
        found.ok_or_else(|| LoadError::Refused(format!("the kernel's struct has no member {name}")))
    }
}

/// A description, as `/sys/kernel/btf/vmlinux` has it.
pub(super) struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

/// A type: its first three words, and what follows them.
struct Type<'a> {
    id: u32,
    name: u32,
    info: u32,
    size: u32,
    rest: &'a [u8],
}

impl Type<'_> {
    const fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }
}

impl<'a> Types<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// The bytes are no description of types.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        const MAGIC: u16 = 0xeb9f;
        let read = || {
            let magic = bytes.first_chunk().map(|it| u16::from_ne_bytes(*it))?;
            let body = bytes.get(word(bytes, 4)? as usize..)?;
            let part = |at: usize| {
                let start = word(bytes, at)? as usize;
                body.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
            };
            (magic == MAGIC).then_some(())?;
            Some(Self {
                types: part(8)?,
                strings: part(16)?,
            })
        };
        read().ok_or_else(|| LoadError::NoBtf("it cannot be read".to_owned()))
    }

    fn all(&self) -> impl Iterator<Item = Type<'a>> {
        let mut left = self.types;
        (1..).map_while(move |id| {
            let head = [0, 4, 8].map(|at| word(left, at));
            let [Some(name), Some(info), Some(size)] = head else {
                return None;
            };
            let number = info as usize & 0xffff;
            let length = match info >> 24 & 0x1f {
                INT | VARIABLE | TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | SECTION | ENUM64 => 12 * number,
                ENUM | PROTOTYPE => 8 * number,
                _ => 0,
            };
            let (rest, after) = left.get(12..)?.split_at_checked(length)?;
            left = after;
            Some(Type {
                id,
                name,
                info,
                size,
                rest,
            })
        })
    }

    fn text(&self, at: u32) -> &'a str {
        let text = self.strings.get(at as usize..).unwrap_or_default();
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }

    fn find(&self, kind: u32, name: &str) -> Option<Type<'a>> {
        self.all()
            .find(|it| it.kind() == kind && self.text(it.name) == name)
    }

    /// Returns the identifier of a function; `None` if the kernel has none of this name.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        Some(self.find(FUNCTION, name)?.id)
    }

    /// Returns a struct; `None` if the kernel has none of this name.
    pub(super) fn structure(&self, name: &str) -> Option<Struct> {
        const BITS: u32 = 0xff_ffff;
        let found = self.find(STRUCT, name)?;
        let members = found.rest.chunks_exact(12).zip(0..);
        let members = members.filter_map(|(member, index)| {
            Some(Member {
                name: self.text(word(member, 0)?).to_owned(),
                index,
                offset: ((word(member, 8)? & BITS) / 8) as usize,
            })
        });
        Some(Struct {
            id: found.id,
            size: found.size,
            members: members.collect(),
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A description of `int`, a struct of two members, and a function.
    fn example() -> Vec<u8> {
        let strings = b"\0int\0pair\0first\0second\0act\0";
        let words: [&[u32]; 3] = [
            &[1, INT << 24, 4, 32],
            &[5, STRUCT << 24 | 2, 8, 10, 1, 0, 16, 1, 32],
            &[23, FUNCTION << 24, 1],
        ];
        let types: Vec<u8> = words
            .concat()
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let (types_length, strings_length) = (types.len() as u32, strings.len() as u32);
        for word in [24, 0, types_length, types_length, strings_length] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn structs_and_functions_are_found_by_name() {
        let bytes = example();
        let types = Types::read(&bytes).expect("types");
        assert_eq!(types.function("act"), Some(3));
        assert_eq!(types.function("pair"), None);
        let pair = types.structure("pair").expect("a struct");
        assert_eq!((pair.id, pair.size), (2, 8));
        let second = pair.member("second").expect("a member");
        assert_eq!((second.index, second.offset), (1, 4));
        assert!(pair.member("third").is_err());
    }

    proptest! {
        #[test]
        fn cut_and_changed_bytes_never_panic(at in 0_usize..200, value: u8, length in 0_usize..200) {
            let mut bytes = example();
            let end = bytes.len();
            bytes[at % end] = value;
            bytes.truncate(length);
            if let Ok(types) = Types::read(&bytes) {
                let _ = types.function("act");
                let _ = types.structure("pair");
            }
        }
    }
}
