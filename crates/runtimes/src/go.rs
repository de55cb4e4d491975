//! Go's build information: the section `.go.buildinfo` of an ELF binary, which `strip` keeps.

use cgroupfs::bounded;

use crate::version::plausible;

/// Build information of a Go binary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BuildInfo {
    /// Version, such as `go1.25.1`; `None` in the format before Go 1.18, which contains pointers.
    pub(crate) version: Option<String>,
    /// Path of the main module or package.
    pub(crate) module: Option<String>,
    /// Whether go.uber.org/automaxprocs is a dependency.
    pub(crate) automaxprocs: bool,
    /// Whether github.com/KimMachineGun/automemlimit is a dependency: it sets GOMEMLIMIT to 90 % of
    /// the container's limit.
    pub(crate) automemlimit: bool,
    /// `DefaultGODEBUG` of the build: features disabled because go.mod has an older version.
    pub(crate) godebug: String,
}

/// Maximum size of build information that is read, bytes; large programs have some 30 KB of
/// modules.
pub(crate) const MAX_BYTES: usize = 128 << 10;
/// GODEBUG settings that make Go ignore a container's limit, or its changes.
const GODEBUG: [&str; 2] = ["containermaxprocs", "updatemaxprocs"];
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Offset of the version's length, in the format with inline strings (debug/buildinfo).
const INLINE: usize = 32;

/// Parses the content of `.go.buildinfo`; `None` if it is invalid.
pub(crate) fn parse(bytes: &[u8]) -> Option<BuildInfo> {
    let bytes = bytes.strip_prefix(MAGIC).map(|_| bytes)?;
    if bytes.get(15)? & 2 == 0 {
        return Some(BuildInfo::default());
    }
    let (version, rest) = string(bytes.get(INLINE..)?)?;
    // `go1.25.1 X:nocoverageredesign`, and `devel go1.26-0123abc Sat Nov 21 …`.
    let version = version
        .split(|&byte| byte == b' ')
        .find(|word| word.starts_with(b"go"))
        .and_then(plausible);
    // The modules are between two marks of 16 bytes.
    let modules = string(rest)
        .and_then(|(text, _)| text.get(16..text.len().checked_sub(16)?))
        .unwrap_or_default();
    let modules = String::from_utf8_lossy(modules);
    let after = |prefix: &str| {
        modules.lines().find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
    };
    let mut module = after("mod\t")
        .and_then(|line| line.split('\t').next().map(str::to_owned))
        .or(after("path\t"));
    if let Some(module) = &mut module {
        bounded::truncate(module, bounded::MODULE_BYTES);
    }
    let depends = |module: &str| {
        let dependencies = modules.lines().filter_map(|line| line.strip_prefix("dep\t"));
        dependencies.filter_map(|line| line.split('\t').next()).any(|path| path == module)
    };
    let automaxprocs = depends("go.uber.org/automaxprocs");
    let automemlimit = depends("github.com/KimMachineGun/automemlimit");
    let godebug = after("build\tDefaultGODEBUG=").unwrap_or_default();
    let godebug = kept_godebug(&godebug);
    Some(BuildInfo { version, module, automaxprocs, automemlimit, godebug })
}

/// The settings of a GODEBUG that affect the number of threads: with an old go.mod a build lists
/// dozens of others.
pub(crate) fn kept_godebug(text: &str) -> String {
    let bears = |pair: &&str| {
        pair.split_once('=').is_some_and(|(name, value)| GODEBUG.contains(&name) && value.len() < 8)
    };
    text.split(',').filter(bears).collect::<Vec<_>>().join(",")
}

/// Splits off a string preceded by its length as a varint.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (at, &byte) in bytes.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return bytes[at + 1..].split_at_checked(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `go build` 1.22, with shortened modules.
    fn section_text(version: &str, modules: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([8, 2]);
        bytes.resize(INLINE, 0);
        bytes.push(u8::try_from(version.len()).unwrap());
        bytes.extend(version.bytes());
        let length = modules.len() + 32;
        bytes.extend([
            u8::try_from(length & 0x7f).unwrap() | 0x80,
            u8::try_from(length >> 7).unwrap(),
        ]);
        bytes.extend([b'<'; 16]);
        bytes.extend(modules.bytes());
        bytes.extend([b'>'; 16]);
        bytes
    }

    const MODULES: &str = "path\texample.org/shop/cmd\nmod\texample.org/shop\t(devel)\t\n\
                           dep\tgo.uber.org/automaxprocs\tv1.6.0\th1:x\nbuild\tDefaultGODEBUG=containermaxprocs=0\n";

    #[test]
    fn version_module_and_dependencies_are_read() {
        let info = parse(&section_text("go1.25.1", MODULES)).unwrap();
        assert_eq!(
            (info.version.as_deref(), info.module.as_deref()),
            (Some("go1.25.1"), Some("example.org/shop"))
        );
        assert!(info.automaxprocs && info.godebug == "containermaxprocs=0", "{info:?}");
        assert!(!info.automemlimit);
        let memory = "dep\tgithub.com/KimMachineGun/automemlimit\tv0.7.0\th1:x\n";
        let info = parse(&section_text("go1.25.1", memory)).unwrap();
        assert!(info.automemlimit && !info.automaxprocs, "{info:?}");
    }

    #[test]
    fn truncated_or_foreign_build_info_gives_none_without_a_panic() {
        let whole = section_text("go1.25.1", MODULES);
        for length in 0..41 {
            assert_eq!(parse(&whole[..length]), None, "{length} bytes");
        }
        assert!((41..whole.len()).all(|length| parse(&whole[..length]).unwrap().module.is_none()));
        assert_eq!(parse(b"\xff Ho buildinf:\x08\x02"), None);
    }

    #[test]
    fn before_go_1_18_there_is_no_version() {
        let mut old = section_text("", "");
        old[15] = 0;
        assert_eq!(parse(&old), Some(BuildInfo::default()));
    }
}
