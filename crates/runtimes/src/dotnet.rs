//! .NET: version of the loaded runtime.

use std::path::Path;

use crate::process::Process;
use crate::version::{after, leading};

const FRAMEWORK: &str = "Microsoft.NETCore.App";

/// Version from the path of `libcoreclr.so`: `…/shared/Microsoft.NETCore.App/8.0.11/libcoreclr.so`.
/// For a self-contained program, from `PROGRAM.runtimeconfig.json` beside the library.
pub(crate) fn version(process: &Process, library: &Path) -> Option<String> {
    let directory = library.parent()?;
    if directory.parent()?.file_name()? == FRAMEWORK {
        return leading(directory.file_name()?.as_encoded_bytes());
    }
    let mut name = process.exe_path().file_name()?.to_owned();
    name.push(".runtimeconfig.json");
    of_config(&process.read(&directory.join(name))?)
}

/// The framework's version: the value of the first `"version"` after its name.
fn of_config(text: &[u8]) -> Option<String> {
    let value = after(after(text, FRAMEWORK.as_bytes())?, b"\"version\"")?;
    leading(after(value, b"\"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_brings_its_runtime_names_the_version() {
        // Output of `dotnet publish --self-contained` of .NET 8.
        let text = r#"{"runtimeOptions": {"tfm": "net8.0", "includedFrameworks": [
            {"name": "Microsoft.NETCore.App", "version": "8.0.11"}]}}"#;
        assert_eq!(of_config(text.as_bytes()).as_deref(), Some("8.0.11"));
        assert_eq!(of_config(br#"{"runtimeOptions": {}}"#), None);
    }
}
