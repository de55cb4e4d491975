//! The version of the format, and its numbers of variable length: seven bits per byte, the lowest
//! first.

/// Version of the format that this program writes. A reader must reject later ones.
pub const VERSION: u32 = 1;

/// Extension of segment files.
pub(crate) const EXTENSION: &str = "cpuwarden";

/// Appends a number.
pub(crate) fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        // Truncated on purpose: the lowest seven bits.
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Maps small numbers of either sign to small numbers.
pub(crate) fn zigzag(number: i32) -> u64 {
    u64::from(((number << 1) ^ (number >> 31)).cast_unsigned())
}

/// Bytes that are read from the front. Each method returns `None` if they encode no value.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits.leading_zeros() < shift {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number that is used as an index or a length.
    pub(crate) fn size(&mut self) -> Option<usize> {
        self.number().and_then(|number| usize::try_from(number).ok())
    }

    /// The inverse of [`zigzag`].
    pub(crate) fn signed(&mut self) -> Option<i32> {
        let number = u32::try_from(self.number()?).ok()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_of_any_size_are_read_back(number: u64, signed in -70_000_i32..70_000) {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            put(zigzag(signed), &mut bytes);
            let mut input = Input(&bytes);
            prop_assert_eq!(input.number(), Some(number));
            prop_assert_eq!(input.signed(), Some(signed));
            prop_assert!(input.0.is_empty());
        }
    }

    #[test]
    fn incomplete_and_overlong_numbers_are_rejected() {
        assert_eq!(Input(&[0x80]).number(), None);
        assert_eq!(Input(&[0xff; 11]).number(), None);
        let mut above = vec![0xff; 9];
        above.push(2);
        assert_eq!(Input(&above).number(), None);
        assert_eq!(Input(&[1, 2]).bytes(3), None);
    }
}
