//! Page compression with kept buffers and one compressor: no allocation in the steady state.
//!
//! A page is one gzip member (RFC 1952) of pieces that are compressed independently. Each ends at a
//! byte boundary (an empty block, RFC 1951), so that the next page can contain the same bytes.

use std::fmt;
use std::io::{self, Read as _};

use flate2::read::GzDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress};

/// Compression level. A page of metrics is so repetitive that higher levels save little and cost
/// several times as much.
const LEVEL: u32 = 1;

/// Growth of a full output buffer, bytes.
const STEP: usize = 64 * 1024;

/// Header of a member: deflate, no name, no time, fastest compression, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// The final block of a member, which is empty.
const FINAL_BLOCK: [u8; 2] = [3, 0];

/// Length of a member's checksum and length.
const TRAILER: usize = 8;

pub(super) struct Gzip {
    compress: Compress,
    output: Vec<u8>,
    whole: Deflated,
    member: Vec<u8>,
}

/// A compressed piece of a page.
#[derive(Debug, Default)]
pub(super) struct Deflated {
    bytes: Vec<u8>,
    /// Checksum and length of the text.
    crc: Crc,
}

impl Deflated {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            compress: Compress::new(Compression::new(LEVEL), false),
            output: Vec::new(),
            whole: Deflated::default(),
            member: Vec::new(),
        }
    }

    /// Compresses `page` as one gzip member, valid until the next call.
    pub(super) fn compress(&mut self, page: &[u8]) -> &[u8] {
        let mut whole = std::mem::take(&mut self.whole);
        self.deflate(page, &mut whole);
        self.join([&whole].into_iter());
        self.whole = whole;
        &self.member
    }

    /// Joins pieces to one gzip member, valid until the next call.
    pub(super) fn join<'p>(&mut self, pieces: impl Iterator<Item = &'p Deflated> + Clone) -> &[u8] {
        let (member, mut crc) = (&mut self.member, Crc::new());
        let length: usize = pieces.clone().map(|piece| piece.bytes.len()).sum();
        member.clear();
        member.reserve_exact(HEADER.len() + length + FINAL_BLOCK.len() + TRAILER);
        member.extend_from_slice(&HEADER);
        for piece in pieces {
            member.extend_from_slice(&piece.bytes);
            crc.combine(&piece.crc);
        }
        member.extend_from_slice(&FINAL_BLOCK);
        member.extend_from_slice(&crc.sum().to_le_bytes());
        member.extend_from_slice(&crc.amount().to_le_bytes());
        member
    }

    /// Takes the last member.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.member)
    }

    /// Compresses `text` into `piece`.
    pub(super) fn deflate(&mut self, text: &[u8], piece: &mut Deflated) {
        piece.crc.reset();
        piece.crc.update(text);
        self.compress.reset();
        self.output.clear();
        loop {
            self.output.reserve(STEP);
            let consumed = usize::try_from(self.compress.total_in())
                .expect("no more than the text was consumed");
            self.compress
                .compress_vec(&text[consumed..], &mut self.output, FlushCompress::Sync)
                .expect("deflate refuses no input");
            // The end of the piece may still be missing if the output is full.
            if self.output.len() < self.output.capacity() {
                break;
            }
        }
        piece.bytes.clear();
        piece.bytes.extend_from_slice(&self.output);
    }
}

/// Returns the page of a gzip member.
///
/// # Errors
/// The bytes are not a gzip member.
pub fn decompress(member: &[u8]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    GzDecoder::new(member).read_to_end(&mut page)?;
    Ok(page)
}

impl fmt::Debug for Gzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").field("capacity", &self.output.capacity()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decompressed(member: &[u8]) -> Vec<u8> {
        decompress(member).unwrap()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut noise = 1_u32;
        std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(bytes)
        .collect()
    }

    #[test]
    fn one_compressor_gives_whole_members_again_and_again() {
        let mut gzip = Gzip::new();
        for page in [&b"a metric 1\n".repeat(50_000)[..], b"", &noise(5 * STEP), b"short"] {
            assert_eq!(decompressed(gzip.compress(page)), page);
        }
    }

    #[test]
    fn a_piece_of_any_length_is_complete() {
        let (mut gzip, noise) = (Gzip::new(), noise(2 * STEP));
        let mut piece = Deflated::default();
        // The output is full at one of these lengths.
        for length in STEP - 200..STEP + 10 {
            gzip.deflate(&noise[..length], &mut piece);
            let member = gzip.join([&piece, &piece].into_iter());
            assert_eq!(decompressed(member), noise[..length].repeat(2), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_page_comes_back(page: Vec<u8>) {
            prop_assert_eq!(decompressed(Gzip::new().compress(&page)), page);
        }

        #[test]
        fn pieces_of_different_pages_are_one_page(texts: Vec<Vec<u8>>) {
            let mut gzip = Gzip::new();
            let mut pieces: Vec<_> = texts.iter().map(|_| Deflated::default()).collect();
            for (text, piece) in texts.iter().zip(&mut pieces) {
                gzip.deflate(text, piece);
            }
            pieces.reverse();
            let page = texts.iter().rev().flatten().copied().collect::<Vec<u8>>();
            prop_assert_eq!(decompressed(gzip.join(pieces.iter())), page);
        }
    }
}
