//! Inputs from a corpus: single bits, cuts, splices, repetitions, numbers at the edges of their
//! types.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Bytes of the longest input.
const MOST: usize = 128 << 10;
/// Mutations of one input.
const MUTATIONS: usize = 6;

/// Texts that break parsers of numbers and of lines.
const TOKENS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"+1",
    b"00",
    b"1e999",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"4294967296",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b",",
    b"-",
    b"=",
    b"max",
    b"\xff",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
];

/// Values that break arithmetic, as they stand in binary formats.
const WORDS: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Parts that inputs are made of.
#[derive(Debug)]
pub(crate) struct Material {
    pub(crate) files: Vec<Vec<u8>>,
    pub(crate) tokens: Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
enum Mutation {
    Flip { at: Index, bit: u8 },
    Set { at: Index, byte: u8 },
    Word { at: Index, word: Index, width: usize },
    Cut { at: Index },
    Remove { from: Index, length: Index },
    Repeat { from: Index, length: Index, times: usize },
    Splice { at: Index, file: Index, from: Index },
    Insert { at: Index, token: Index },
}

/// Mostly mutated files; some arbitrary bytes.
pub(crate) fn inputs(material: Arc<Material>) -> impl Strategy<Value = Vec<u8>> {
    let mutated =
        (any::<Index>(), vec(mutation(), 0..=MUTATIONS)).prop_map(move |(file, mutations)| {
            let mut bytes = file.get(&material.files).clone();
            for mutation in &mutations {
                mutation.apply(&mut bytes, &material);
                bytes.truncate(MOST);
            }
            bytes
        });
    prop_oneof![15 => mutated, 1 => vec(any::<u8>(), 0..512)]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<Index>;
    prop_oneof![
        (index(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set { at, byte }),
        (index(), index(), prop_oneof![Just(2), Just(4), Just(8)])
            .prop_map(|(at, word, width)| Mutation::Word { at, word, width }),
        index().prop_map(|at| Mutation::Cut { at }),
        (index(), index()).prop_map(|(from, length)| Mutation::Remove { from, length }),
        (index(), index(), 1..40usize).prop_map(|(from, length, times)| Mutation::Repeat {
            from,
            length,
            times
        }),
        (index(), index(), index()).prop_map(|(at, file, from)| Mutation::Splice {
            at,
            file,
            from
        }),
        (index(), index()).prop_map(|(at, token)| Mutation::Insert { at, token }),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>, material: &Material) {
        let place = |index: &Index, length: usize| index.index(length + 1);
        match self {
            Self::Flip { at, bit } if !bytes.is_empty() => *at.get_mut(bytes) ^= 1 << bit,
            Self::Set { at, byte } if !bytes.is_empty() => *at.get_mut(bytes) = *byte,
            Self::Flip { .. } | Self::Set { .. } => {}
            Self::Word { at, word, width } => {
                // In binary formats, numbers stand at multiples of their length.
                let at = place(at, bytes.len()) / width * width;
                let word = word.get(WORDS).to_le_bytes();
                bytes.iter_mut().skip(at).zip(&word[..*width]).for_each(|(byte, new)| *byte = *new);
            }
            Self::Cut { at } => bytes.truncate(place(at, bytes.len())),
            Self::Remove { from, length } => {
                let from = place(from, bytes.len());
                bytes.drain(from..from + place(length, bytes.len() - from));
            }
            Self::Repeat { from, length, times } => {
                let from = place(from, bytes.len());
                let end = from + place(length, (bytes.len() - from).min(MOST / 64));
                let repeated = bytes[from..end].repeat(*times);
                bytes.splice(end..end, repeated);
            }
            Self::Splice { at, file, from } => {
                let other = file.get(&material.files);
                bytes.truncate(place(at, bytes.len()));
                bytes.extend_from_slice(&other[place(from, other.len())..]);
            }
            Self::Insert { at, token } => {
                let own = &material.tokens;
                let token = match token.index(own.len() + TOKENS.len()) {
                    number if number < own.len() => &own[number][..],
                    number => TOKENS[number - own.len()],
                };
                let at = place(at, bytes.len());
                bytes.splice(at..at, token.iter().copied());
            }
        }
    }
}
