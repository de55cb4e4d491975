//! Where log lines go: standard error, filtered and formatted as configured.

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::exit::Failure;
use crate::stderr::Stderr;

/// Installs the process-wide subscriber.
///
/// # Errors
/// A filter that cannot be parsed.
pub(crate) fn install(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::config(format!("--log: {filter:?} is no filter such as info or pods=debug: {error}"))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Stderr).with_ansi(false);
    // A second installation, as in tests of one process, keeps the first.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
