//! `memory.stat`, `memory.max`, `memory.limit_in_bytes`, `memory.numa_stat`.

use crate::flat::digits;
use crate::{ParseError, Result, flat_keyed, parse_u64};

/// v1 prints "no limit" as the largest page-aligned `long`; any value from here on means no limit.
const V1_UNLIMITED_BYTES: u64 = 0x7fff_ffff_ffff_0000;

/// Parses `memory.max` (v2) or `memory.limit_in_bytes` (v1): bytes, `None` if unlimited.
///
/// # Errors
/// Fails for anything but `max` or a number.
pub fn limit_bytes(text: &[u8]) -> Result<Option<u64>> {
    match text.trim_ascii() {
        b"max" => Ok(None),
        number => {
            Ok(Some(parse_u64("memory.max", number)?).filter(|&bytes| bytes < V1_UNLIMITED_BYTES))
        }
    }
}

/// Parts of a `memory.stat`, bytes, descendants included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// Anonymous memory.
    pub anonymous: Option<u64>,
    /// Shared memory (tmpfs included): counted as page cache, but never dropped like it.
    pub shared: Option<u64>,
    /// Inactive page cache.
    pub inactive_file: Option<u64>,
}

impl MemoryStat {
    /// Parses v2's `memory.stat`.
    ///
    /// # Errors
    /// Fails for a line that is not `KEY NUMBER`.
    pub fn parse_v2(text: &[u8]) -> Result<Self> {
        Self::parse(text, [b"anon", b"shmem", b"inactive_file"])
    }

    /// Parses v1's `memory.stat`, whose sums over descendants begin with `total_`. `rss` is
    /// anonymous memory there.
    ///
    /// # Errors
    /// Fails for a line that is not `KEY NUMBER`.
    pub fn parse_v1(text: &[u8]) -> Result<Self> {
        Self::parse(text, [b"total_rss", b"total_shmem", b"total_inactive_file"])
    }

    fn parse(text: &[u8], [anonymous, shared, inactive]: [&[u8]; 3]) -> Result<Self> {
        let mut stat = Self::default();
        flat_keyed("memory.stat", text, |key, value| match key {
            _ if key == anonymous => stat.anonymous = Some(value),
            _ if key == shared => stat.shared = Some(value),
            _ if key == inactive => stat.inactive_file = Some(value),
            _ => {}
        })?;
        Ok(stat)
    }

    /// Memory that stays in use when the page cache is dropped: anonymous and shared.
    #[must_use]
    pub fn without_page_cache(self) -> Option<u64> {
        Some(self.anonymous?.saturating_add(self.shared.unwrap_or(0)))
    }
}

/// Memory of a cgroup by NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaStat {
    /// (node, bytes), in the kernel's order.
    pub nodes: Vec<(u32, u64)>,
}

impl NumaStat {
    /// Reads into `self` the sum of `anon` and `file`, which v2 prints in bytes as
    /// `anon N0=… N1=…`; other lines are a further breakdown of the same pages.
    ///
    /// # Errors
    /// Fails for a token of these lines that is not `N<node>=<bytes>`.
    pub fn read_v2(&mut self, text: &[u8]) -> Result<()> {
        self.nodes.clear();
        for line in text.split(|&byte| byte == b'\n') {
            if let Some(rest) = line.strip_prefix(b"anon ").or_else(|| line.strip_prefix(b"file "))
            {
                self.add(rest, 1)?;
            }
        }
        Ok(())
    }

    /// Reads into `self` the line `hierarchical_total=… N0=…` of v1, which counts pages of
    /// `page_bytes` bytes.
    ///
    /// # Errors
    /// Fails for a token of that line that is not `N<node>=<pages>`.
    pub fn read_v1(&mut self, text: &[u8], page_bytes: u64) -> Result<()> {
        self.nodes.clear();
        for line in text.split(|&byte| byte == b'\n') {
            if line.starts_with(b"hierarchical_total=") {
                let rest = line
                    .iter()
                    .position(|&byte| byte == b' ')
                    .map_or(&b""[..], |at| &line[at + 1..]);
                self.add(rest, page_bytes)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, tokens: &[u8], unit_bytes: u64) -> Result<()> {
        for token in tokens.split(|&byte| byte == b' ').filter(|token| !token.is_empty()) {
            let (node, count) = node_token(token)
                .ok_or_else(|| ParseError::unexpected("memory.numa_stat", token))?;
            let bytes = count.saturating_mul(unit_bytes);
            match self.nodes.iter_mut().find(|(known, _)| *known == node) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => self.nodes.push((node, bytes)),
            }
        }
        Ok(())
    }
}

fn node_token(token: &[u8]) -> Option<(u32, u64)> {
    let rest = token.strip_prefix(b"N")?;
    let equals = rest.iter().position(|&byte| byte == b'=')?;
    Some((u32::try_from(digits(&rest[..equals])?).ok()?, digits(&rest[equals + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_none_on_both_versions() {
        assert_eq!(limit_bytes(b"max\n"), Ok(None));
        assert_eq!(limit_bytes(b"9223372036854771712\n"), Ok(None));
        assert_eq!(limit_bytes(b"104857600\n"), Ok(Some(104_857_600)));
        assert!(limit_bytes(b"lots").is_err());
    }

    #[test]
    fn parts_of_memory_are_found_or_absent() {
        let v2 = MemoryStat::parse_v2(b"anon 1\nfile 9\nshmem 2\ninactive_file 4096\n").unwrap();
        assert_eq!((v2.without_page_cache(), v2.inactive_file), (Some(3), Some(4096)));
        let v1 = b"rss 1\ninactive_file 1\ntotal_rss 5\ntotal_shmem 6\ntotal_inactive_file 2\n";
        let v1 = MemoryStat::parse_v1(v1).unwrap();
        assert_eq!((v1.without_page_cache(), v1.inactive_file), (Some(11), Some(2)));
        assert_eq!(MemoryStat::parse_v2(b""), Ok(MemoryStat::default()));
    }

    #[test]
    fn numa_bytes_are_summed_by_node() {
        let mut stat = NumaStat::default();
        stat.read_v2(b"anon N0=100 N1=20\nfile N0=5 N1=6\nkernel_stack N0=9 N1=9\n").unwrap();
        assert_eq!(stat.nodes, [(0, 105), (1, 26)]);
        // uname -r 6.18, cgroup v1: pages.
        stat.read_v1(b"total=3 N0=3\nhierarchical_total=5 N0=4 N1=1\n", 4096).unwrap();
        assert_eq!(stat.nodes, [(0, 16_384), (1, 4096)]);
        assert!(stat.read_v2(b"anon N0=x\n").is_err());
    }
}
