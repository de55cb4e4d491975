//! Images of a cluster: pause, a workload, and the agent. Each is made here and imported into the
//! node's containerd.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ClusterError, Options, write};
use crate::image::{self, Build, Content, ImageCommand, Platform, Source};
use crate::{process, workspace};

/// Tag of the images of the test.
const TAG: &str = "test";
const PAUSE: &str = include_str!("guest/pause.c");

/// The given program of the agent, or builds the agent's static program, with the development
/// profile's checks and some optimization: the node is emulated.
pub(super) fn agent(options: &Options) -> Result<PathBuf, ClusterError> {
    if let Some(program) = &options.agent {
        return Ok(program.clone());
    }
    let source = Source::checkout()?;
    let target_dir = workspace::target_dir().join("cluster");
    let build =
        Build { source: &source, target_dir: &target_dir, profile: "cluster", feature: None };
    Ok(build.program(Platform::Amd64)?)
}

/// Writes an archive per image into `directory`: `pause.tar`, `workload.tar` and `cpuwarden.tar`.
pub(super) fn write_all(options: &Options, directory: &Path) -> Result<(), ClusterError> {
    let source = Source::checkout()?;
    let pause = compile_pause(directory)?;
    let busybox = PathBuf::from("/bin/busybox");
    for (name, tag, program, guest_path) in [
        ("pause", TAG, &pause, "pause"),
        ("workload", TAG, &busybox, "bin/busybox"),
        ("cpuwarden", image::VERSION, &agent(options)?, "cpuwarden"),
    ] {
        let bytes = std::fs::read(program).map_err(ClusterError::io(program))?;
        let content = Content {
            platform: Platform::Amd64,
            files: vec![(guest_path.to_owned(), 0o755, bytes)],
        };
        let entry =
            ImageCommand { entrypoint: vec![format!("/{guest_path}")], command: Vec::new() };
        let entry = if name == "cpuwarden" { ImageCommand::default() } else { entry };
        let archive = image::pack(&source, tag, &entry, &[content])?;
        write(&directory.join(format!("{name}.tar")), archive.bytes)?;
    }
    Ok(())
}

fn compile_pause(directory: &Path) -> Result<PathBuf, ClusterError> {
    let (code, program) = (directory.join("pause.c"), directory.join("pause"));
    write(&code, PAUSE)?;
    process::output_of(
        Command::new("cc").args(["-static", "-Os", "-s", "-o"]).arg(&program).arg(&code),
    )?;
    Ok(program)
}
