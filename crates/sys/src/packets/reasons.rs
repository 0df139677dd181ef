//! The names of the kernel's reasons for drops, which each version numbers anew: from its BTF
//! (`Documentation/bpf/btf.rst`).

use std::collections::BTreeMap;

const ENUM: &str = "skb_drop_reason";
const PREFIX: &str = "SKB_DROP_REASON_";
const HEADER: usize = 24;
const MAGIC: u16 = 0xeb9f;

/// Kinds of types that have something behind their first three words.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const ENUM64: u32 = 19;
    pub(super) const LAST: u32 = ENUM64;
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Returns the names of reasons by their numbers, in lower case and without their prefix; `None` if
/// the kernel has no reasons (before Linux 5.17), or the bytes are no BTF of this machine.
pub(super) fn names(btf: &[u8]) -> Option<BTreeMap<u32, String>> {
    if btf.get(..2)? != MAGIC.to_ne_bytes() || word(btf, 4)? as usize != HEADER {
        return None;
    }
    let section = |at| {
        let (from, length) = (word(btf, at)? as usize, word(btf, at + 4)? as usize);
        let from = HEADER.checked_add(from)?;
        btf.get(from..from.checked_add(length)?)
    };
    let (types, strings) = (section(8)?, section(16)?);
    let name = |offset: u32| {
        let text = strings.get(offset as usize..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    };
    let mut at = 0;
    while at < types.len() {
        let (called, info) = (word(types, at)?, word(types, at + 4)?);
        let (kind, members) = (info >> 24 & 31, (info & 0xffff) as usize);
        let rest = at + 12;
        if kind == kind::ENUM && name(called)? == ENUM {
            let member = |index| {
                let at = rest + 8 * index;
                let name = name(word(types, at)?)?;
                let name = name.strip_prefix(PREFIX).unwrap_or(name);
                Some((word(types, at + 4)?, name.to_ascii_lowercase()))
            };
            return (0..members).map(member).collect();
        }
        at = rest
            + match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * members,
                kind::ENUM | kind::FUNC_PROTO => 8 * members,
                kind if kind > kind::LAST => return None,
                _ => 0,
            };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two types: an integer, and the enum with one reason.
    fn btf() -> Vec<u8> {
        let strings = b"\0skb_drop_reason\0SKB_DROP_REASON_QDISC_DROP\0int\0";
        let types: [u32; 9] = [
            45,
            kind::INT << 24,
            4,
            32,
            1,
            kind::ENUM << 24 | 1,
            4,
            17,
            7,
        ];
        let length = types.len() as u32 * 4;
        let mut bytes = Vec::from(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        for word in [HEADER as u32, 0, length, length, strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_reason_has_the_kernels_name() {
        let names = names(&btf()).unwrap();
        assert_eq!(names, BTreeMap::from([(7, "qdisc_drop".to_owned())]));
    }

    #[test]
    fn bytes_that_end_early_have_no_names() {
        let bytes = btf();
        for end in 0..bytes.len() - 5 {
            assert_eq!(names(&bytes[..end]), None, "{end}");
        }
    }
}
