//! Page compression with a kept buffer and compressor: no allocation in the steady state.

use std::fmt;

use flate2::{Compress, Compression, FlushCompress, Status};

/// Largest window of zlib.
const WINDOW_BITS: u8 = 15;

/// Compression level. A page of metrics is so repetitive that higher levels save little and cost
/// several times as much.
const LEVEL: u32 = 1;

/// Growth of a full output buffer, bytes.
const STEP: usize = 64 * 1024;

pub(super) struct Gzip {
    compress: Compress,
    output: Vec<u8>,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            compress: Compress::new_gzip(Compression::new(LEVEL), WINDOW_BITS),
            output: Vec::new(),
        }
    }

    /// Compresses `page` as one gzip member (RFC 1952), valid until the next call.
    pub(super) fn compress(&mut self, page: &[u8]) -> &[u8] {
        self.compress.reset();
        self.output.clear();
        loop {
            let consumed = usize::try_from(self.compress.total_in())
                .expect("no more than the page was consumed");
            let status = self
                .compress
                .compress_vec(&page[consumed..], &mut self.output, FlushCompress::Finish)
                .expect("deflate refuses no input");
            if status == Status::StreamEnd {
                return &self.output;
            }
            self.output.reserve(STEP);
        }
    }
}

impl fmt::Debug for Gzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").field("capacity", &self.output.capacity()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn decompressed(member: &[u8]) -> Vec<u8> {
        let mut page = Vec::new();
        flate2::read::GzDecoder::new(member).read_to_end(&mut page).unwrap();
        page
    }

    #[test]
    fn one_compressor_gives_whole_members_again_and_again() {
        let mut gzip = Gzip::new();
        let mut noise = 1_u32;
        let incompressible: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(5 * STEP)
        .collect();
        for page in [&b"a metric 1\n".repeat(50_000)[..], b"", &incompressible, b"short"] {
            assert_eq!(decompressed(gzip.compress(page)), page);
        }
    }

    proptest! {
        #[test]
        fn any_page_comes_back(page: Vec<u8>) {
            prop_assert_eq!(decompressed(Gzip::new().compress(&page)), page);
        }
    }
}
