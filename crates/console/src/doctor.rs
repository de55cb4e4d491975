//! The findings of the doctor on standard output.

use std::process::ExitCode;

use anyhow::Context as _;
use api::DoctorReport;

use crate::failure::Failure;
use crate::output;

/// Prints the findings. Returns the exit code of the worst.
///
/// # Errors
/// None that this program causes.
pub fn show_doctor(report: &DoctorReport, json: bool) -> Result<ExitCode, Failure> {
    let text = if json {
        serde_json::to_string_pretty(report).context("cannot print")?
    } else {
        report.to_string()
    };
    output::show(&format!("{}\n", text.trim_end()));
    Ok(ExitCode::from(report.worst.exit_code()))
}
