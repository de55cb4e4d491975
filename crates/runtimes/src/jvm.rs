//! A JVM: its version from the files beside it, its flags from the command line and the variables
//! that it reads.

use std::collections::BTreeMap;
use std::path::Path;

use crate::process::Process;
use crate::version;

/// Flags that affect CPU and heap: (name of the setting, text before the value). `-Xmx` is short
/// for `-XX:MaxHeapSize=`. A file of arguments (java(1)) may contain any of them, but is not read.
const FLAGS: [(&str, &str); 7] = [
    ("ActiveProcessorCount", "-XX:ActiveProcessorCount="),
    ("MaxRAMPercentage", "-XX:MaxRAMPercentage="),
    ("MaxRAMFraction", "-XX:MaxRAMFraction="),
    ("Xmx", "-Xmx"),
    // The launcher's old name of it (java.c, `ParseArguments`).
    ("Xmx", "-mx"),
    ("Xmx", "-XX:MaxHeapSize="),
    ("@file", "@"),
];

/// A switch that hides the container's limits from the JVM: (name, on, off).
const SWITCH: (&str, &str, &str) =
    ("UseContainerSupport", "-XX:+UseContainerSupport", "-XX:-UseContainerSupport");

/// Names of the settings.
pub(crate) const SETTINGS: [&str; 6] = [
    "ActiveProcessorCount",
    "MaxRAMPercentage",
    "MaxRAMFraction",
    "UseContainerSupport",
    "Xmx",
    "@file",
];

/// Variables with flags that are parsed before or after the command line; the last of equal flags
/// wins (arguments.cpp, `parse_vm_init_args`).
pub(crate) const BEFORE: [&str; 2] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"];
pub(crate) const BEHIND: &str = "_JAVA_OPTIONS";

/// Launcher options whose value is the next word.
const WITH_VALUE: [&str; 10] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--enable-native-access",
    "--limit-modules",
    "--source",
];

/// Adds the flags among these words to `settings`.
pub(crate) fn flags<'a>(
    words: impl Iterator<Item = &'a str>,
    settings: &mut BTreeMap<String, String>,
) {
    for word in words {
        for (name, prefix) in FLAGS {
            if let Some(value) = word.strip_prefix(prefix) {
                settings.insert(name.to_owned(), value.to_owned());
            }
        }
        let (name, on, off) = SWITCH;
        if word == on || word == off {
            settings.insert(name.to_owned(), (word == on).to_string());
        }
    }
}

/// The words before the program (`Main`, `-jar a.jar`, `-m a/b`): the words after it are the
/// program's own.
pub(crate) fn options(arguments: &[String]) -> impl Iterator<Item = &str> {
    let mut words = arguments.iter().map(String::as_str);
    std::iter::from_fn(move || {
        let word = words.next().filter(|word| word.starts_with(['-', '@']))?;
        if WITH_VALUE.contains(&word) {
            words.next();
        }
        Some(word)
    })
}

/// `JAVA_VERSION` in the file `release` of the runtime directory that contains `file`: `bin/java`,
/// `lib/server/libjvm.so`, and before Java 9 `jre/bin/java`, `jre/lib/amd64/server/libjvm.so`.
pub(crate) fn version(process: &Process, file: &Path) -> Option<String> {
    let homes = file.ancestors().skip(2).take(4);
    homes.filter_map(|home| process.read(&home.join("release"))).find_map(|text| of_release(&text))
}

pub(crate) fn of_release(text: &[u8]) -> Option<String> {
    let line =
        text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"JAVA_VERSION="))?;
    version::plausible(line.trim_ascii().strip_prefix(b"\"")?.strip_suffix(b"\"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_programs_own_arguments_are_no_flags() {
        for line in
            ["-Xmx1g -jar a.jar -Xmx9g", "-cp -Xmx8g -Xmx1g Main -Xmx9g", "-Xmx1g -m a/b -Xmx9g"]
        {
            let mut settings = BTreeMap::new();
            flags(options(&words(line)), &mut settings);
            assert_eq!(settings, [("Xmx".to_owned(), "1g".to_owned())].into(), "{line}");
        }
    }

    #[test]
    fn old_names_and_switches_are_known() {
        let of = |line: &str| {
            let mut settings = BTreeMap::new();
            flags(options(&words(line)), &mut settings);
            settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of("-mx512m Main"), ["Xmx=512m"]);
        assert_eq!(of("-XX:-UseContainerSupport Main"), ["UseContainerSupport=false"]);
        let both = "-XX:-UseContainerSupport -XX:+UseContainerSupport Main";
        assert_eq!(of(both), ["UseContainerSupport=true"], "the last one wins");
        assert!(of("-XX:-UseContainerSupportX Main").is_empty());
    }

    #[test]
    fn the_version_is_read_from_the_release_file() {
        assert_eq!(
            of_release(b"IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"17.0.15\"\n").as_deref(),
            Some("17.0.15")
        );
        for text in [&b""[..], b"JAVA_VERSION=17", b"JAVA_VERSION=\"\"", b"XJAVA_VERSION=\"17\""] {
            assert_eq!(of_release(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
