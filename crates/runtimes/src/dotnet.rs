//! .NET: the version of the runtime that was loaded.

use std::path::Path;

use crate::process::Process;
use crate::version::{after, leading};

const FRAMEWORK: &str = "Microsoft.NETCore.App";

/// From where `libcoreclr.so` lies: `…/shared/Microsoft.NETCore.App/8.0.11/libcoreclr.so`; of a program that brings its
/// own, beside it, from `PROGRAM.runtimeconfig.json`.
pub(crate) fn version(process: &Process, library: &Path) -> Option<String> {
    let directory = library.parent()?;
    if directory.parent()?.file_name()? == FRAMEWORK {
        return leading(directory.file_name()?.as_encoded_bytes());
    }
    let mut name = process.exe_path().file_name()?.to_owned();
    name.push(".runtimeconfig.json");
    of_config(&process.read(&directory.join(name))?)
}

/// The framework's version: the text behind the first `"version"` behind its name.
fn of_config(text: &[u8]) -> Option<String> {
    let value = after(after(text, FRAMEWORK.as_bytes())?, b"\"version\"")?;
    leading(after(value, b"\"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_brings_its_runtime_names_the_version() {
        // As `dotnet publish --self-contained` of .NET 8 writes it.
        let text = r#"{"runtimeOptions": {"tfm": "net8.0", "includedFrameworks": [
            {"name": "Microsoft.NETCore.App", "version": "8.0.11"}]}}"#;
        assert_eq!(of_config(text.as_bytes()).as_deref(), Some("8.0.11"));
        assert_eq!(of_config(br#"{"runtimeOptions": {}}"#), None);
    }
}
