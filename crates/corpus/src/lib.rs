//! Properties of parsers for untrusted input, over a corpus of inputs and their mutations.
//!
//! A parser's corpus is the directory `tests/corpus/PARSER` of its crate. Each file in it is always
//! run; then mutations of the files and arbitrary bytes are (`PROPTEST_CASES` sets how many, in
//! units of four). An input for which the property does not hold is reduced and written into the
//! corpus, so that it is run from then on: commit it with the fix.

mod mutation;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use mutation::{Material, inputs};

/// Cases for each of proptest's own.
const CASES: u32 = 4;

/// Bytes of an input that a failure shows.
const SHOWN: usize = 256;

/// Asserts a property for the corpus of a parser, and for mutations of it. `property` panics where
/// it does not hold; `tokens` are texts that mean something to the parser, and are put into inputs.
///
/// # Panics
/// If the property does not hold, or there is no corpus.
pub fn run(manifest_dir: &str, parser: &str, tokens: &[&[u8]], property: impl Fn(&[u8])) {
    let directory = Path::new(manifest_dir).join("tests/corpus").join(parser);
    let files = read(&directory);
    for (path, bytes) in &files {
        if catch_unwind(AssertUnwindSafe(|| property(bytes))).is_err() {
            panic!("{parser}: the property does not hold for {}", path.display());
        }
    }
    let files = files.into_iter().map(|(_, bytes)| bytes).collect();
    let material = Material { files, tokens: tokens.iter().map(|token| token.to_vec()).collect() };
    let config = Config { failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    let cases = config.cases.saturating_mul(CASES);
    let mut runner = TestRunner::new(Config { cases, ..config });
    let outcome = runner.run(&inputs(Arc::new(material)), |bytes| {
        property(&bytes);
        Ok::<_, TestCaseError>(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("{parser}: {why}"),
        Err(TestError::Fail(why, bytes)) => {
            let kept = keep(&directory, &bytes);
            let shown = &bytes[..bytes.len().min(SHOWN)];
            panic!("{parser}: {why}\n{} bytes: {}\n{kept}", bytes.len(), shown.escape_ascii());
        }
    }
}

/// The result of `parse`, which may have at most `limit` bytes allocated at any moment.
///
/// # Panics
/// If it has more.
pub fn within<T>(limit: usize, parse: impl FnOnce() -> T) -> T {
    let mut result = None;
    let allocated = allocation_counter::measure(|| result = Some(parse())).bytes_max;
    assert!(
        allocated <= limit as u64,
        "{allocated} bytes were allocated at once, more than {limit}"
    );
    result.expect("measured code runs once")
}

/// The files of a corpus, in the order of their names.
fn read(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: an empty corpus", directory.display());
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Writes an input into the corpus and prints its path.
fn keep(directory: &Path, bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = directory.join(format!("found-{hash:016x}"));
    match fs::write(&path, bytes) {
        Ok(()) => format!("kept as {}: commit it with the fix", path.display()),
        Err(error) => format!("{}: {error}; add the input to the corpus by hand", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("tests/corpus/parser");
        fs::create_dir_all(&directory).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(directory.join(name), bytes).unwrap());
        root
    }

    fn fails(root: &Path, property: impl Fn(&[u8])) -> String {
        let run = || run(root.to_str().unwrap(), "parser", &[b"token"], property);
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the property holds");
        panic.downcast_ref::<String>().expect("a text").clone()
    }

    #[test]
    fn every_file_is_run_and_a_failing_one_is_named() {
        let root = corpus(&[("a", b"one"), ("b", b"two")]);
        let seen = std::cell::RefCell::new(Vec::new());
        run(root.path().to_str().unwrap(), "parser", &[], |bytes| {
            seen.borrow_mut().push(bytes.to_vec());
        });
        assert_eq!(&seen.borrow()[..2], [b"one".to_vec(), b"two".to_vec()]);
        let why = fails(root.path(), |bytes| assert_ne!(bytes, b"two"));
        assert!(why.ends_with("tests/corpus/parser/b"), "{why}");
    }

    #[test]
    fn mutations_find_what_a_property_misses_and_keep_it_reduced() {
        let root = corpus(&[("a", b"usage_usec 1234567\nuser_usec 1\n")]);
        let why =
            fails(root.path(), |bytes| assert!(!bytes.windows(5).any(|five| five == b"token")));
        assert!(why.contains("kept as"), "{why}");
        let kept = read(&root.path().join("tests/corpus/parser"))
            .into_iter()
            .find(|(path, _)| path.file_name().unwrap().to_str().unwrap().starts_with("found-"));
        let (_, bytes) = kept.unwrap();
        assert!(bytes.windows(5).any(|five| five == b"token"));
        assert!(
            fails(root.path(), |bytes| assert!(!bytes.windows(5).any(|five| five == b"token")))
                .contains("found-")
        );
    }

    #[test]
    fn inputs_are_cut_spliced_and_changed_in_single_bits() {
        let root = corpus(&[("a", &[0; 64]), ("b", &[0xff; 64])]);
        let (cut, spliced, flipped) =
            (std::cell::Cell::new(false), std::cell::Cell::new(false), std::cell::Cell::new(false));
        run(root.path().to_str().unwrap(), "parser", &[], |bytes| {
            let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
            cut.set(cut.get() || (bytes.len() < 64 && ones == 0 && !bytes.is_empty()));
            flipped.set(flipped.get() || (bytes.len() == 64 && ones == 1));
            let joined = bytes.windows(2).any(|two| two == [0, 0xff]);
            spliced.set(spliced.get() || (joined && ones > 64));
        });
        assert!(cut.get() && spliced.get() && flipped.get(), "{cut:?} {spliced:?} {flipped:?}");
    }

    #[test]
    fn memory_beyond_the_limit_is_a_failure() {
        assert_eq!(within(1000, || vec![1u8; 1000].len()), 1000);
        assert!(catch_unwind(|| within(999, || vec![1u8; 1000].len())).is_err());
    }

    #[test]
    fn no_corpus_is_a_failure() {
        assert!(fails(corpus(&[]).path(), |_| {}).contains("an empty corpus"));
        assert!(fails(Path::new("/nonexistent"), |_| {}).contains("/nonexistent"));
    }
}
