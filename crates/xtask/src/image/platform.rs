//! Platforms of the image, and the static program for each.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ImageError;
use super::source::Source;
use crate::process::{self, CommandError};

/// A platform of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// linux/amd64.
    Amd64,
    /// linux/arm64.
    Arm64,
}

/// All platforms, in the order of the image's index.
pub const PLATFORMS: [Platform; 2] = [Platform::Amd64, Platform::Arm64];

impl Platform {
    /// Architecture as the OCI image specification names it (Go's `GOARCH`).
    #[must_use]
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust target.
    #[must_use]
    pub fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Rust target in names of environment variables.
    fn variable(self) -> String {
        self.target().replace('-', "_")
    }

    /// C compiler, which also links: Debian's `gcc-x86-64-linux-gnu` and `gcc-aarch64-linux-gnu`.
    fn compiler(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture())
    }
}

/// Makes a cargo command compile for a platform; installs Rust's target if it is missing.
///
/// # Errors
/// The target cannot be installed.
pub(crate) fn cross_compile(cargo: &mut Command, platform: Platform) -> Result<(), CommandError> {
    let (target, compiler, variable) =
        (platform.target(), platform.compiler(), platform.variable());
    process::run(Command::new("rustup").args(["--quiet", "target", "add", target]))?;
    cargo.args(["--target", target]);
    cargo.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), compiler);
    cargo.env(format!("CC_{variable}"), compiler);
    Ok(())
}

/// Cargo profile, source and folder of a build.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// Sources; their path does not appear in the program.
    pub source: &'a Source,
    /// Cargo's target directory.
    pub target_dir: &'a Path,
    /// `dist`, or `dev` for tests.
    pub profile: &'a str,
    /// Cargo feature beyond the image's, which has none.
    pub feature: Option<&'a str>,
}

impl Build<'_> {
    /// Builds the static program of a platform. Returns its path.
    ///
    /// # Errors
    /// The target or the compiler is missing, or the program does not compile.
    pub fn program(&self, platform: Platform) -> Result<PathBuf, ImageError> {
        let target = platform.target();
        process::run(&mut self.cargo(platform)?)?;
        let folder = if self.profile == "dev" { "debug" } else { self.profile };
        Ok(self.target_dir.join(target).join(folder).join("cpuwarden"))
    }

    fn cargo(&self, platform: Platform) -> Result<Command, CommandError> {
        let variable = platform.variable();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.source.root);
        cargo.args(["build", "--locked", "--package", "cpuwarden", "--no-default-features"]);
        cargo.args(self.feature.map(|feature| format!("--features={feature}")));
        cross_compile(&mut cargo, platform)?;
        cargo.args(["--profile", self.profile, "--target-dir"]).arg(self.target_dir);
        // Symbols are stripped in every profile: debug information holds paths.
        cargo.env(format!("CARGO_PROFILE_{}_DEBUG", self.profile.to_uppercase()), "none");
        cargo.env(format!("CARGO_PROFILE_{}_STRIP", self.profile.to_uppercase()), "symbols");
        cargo.env("CARGO_INCREMENTAL", "0");
        let prefixes = self.prefixes();
        let map = |flag: &str| {
            prefixes.iter().map(|(from, to)| format!("{flag}{from}={to}")).collect::<Vec<_>>()
        };
        cargo.env(format!("CFLAGS_{variable}"), map("-ffile-prefix-map=").join(" "));
        // Packed relocations: a few kilobytes instead of half a megabyte of the program. A linker
        // without them ignores the flag.
        let linked = ["-Ctarget-feature=+crt-static", "-Clink-arg=-Wl,-z,pack-relative-relocs"];
        let flags = [linked.map(str::to_owned).to_vec(), map("--remap-path-prefix=")].concat();
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        cargo.env("CPUWARDEN_REVISION", &self.source.revision);
        cargo.env("SOURCE_DATE_EPOCH", self.source.epoch.to_string());
        Ok(cargo)
    }

    /// Prefixes of local paths with their replacements in the program. The last match applies.
    fn prefixes(&self) -> Vec<(String, &'static str)> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cargo_home =
            std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        [
            (cargo_home.as_path(), "/cargo"),
            (&self.source.root, "/src"),
            (self.target_dir, "/target"),
        ]
        .map(|(path, name)| (path.display().to_string(), name))
        .into()
    }
}
