//! The shell scripts that run in the guest.

use std::ffi::OsStr;
use std::path::Path;

/// The guest's first process.
pub(super) const INIT: &str = include_str!("init.sh");

/// A shell script that replaces itself with the program.
pub(super) fn command_script(
    program: &Path,
    args: &[impl AsRef<OsStr>],
    env: &[(String, String)],
) -> String {
    let exports = env.iter().map(|(name, value)| format!("export {name}={}\n", quote(value)));
    let words = std::iter::once(program.as_os_str()).chain(args.iter().map(AsRef::as_ref));
    let command: Vec<_> = words.map(|word| quote(&word.to_string_lossy())).collect();
    format!("{}exec {}\n", exports.collect::<String>(), command.join(" "))
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn words_and_variables_survive_the_shell() {
        let args = ["-c", "printf '%s|' \"$GREETING\" \"$@\"", "sh", "it's", "a  b", "$HOME", ""];
        let env = [("GREETING".to_owned(), "don't \"panic\"".to_owned())];
        let script = command_script(Path::new("sh"), &args, &env);
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "don't \"panic\"|it's|a  b|$HOME||");
    }
}
