//! Findings of the doctor, one per check, as a line or as JSON.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Good,
    /// The agent does its main job, but something optional is unavailable.
    Lacking,
    /// The agent cannot measure, or cannot name what it measures.
    Broken,
}

impl Level {
    /// Exit code 0, 1 or 2, as documented in the command's help.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        self as u8
    }

    fn mark(self) -> char {
        match self {
            Self::Good => '✓',
            Self::Lacking => '!',
            Self::Broken => '✗',
        }
    }
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the check.
    pub check: Cow<'static, str>,
    /// Severity.
    pub level: Level,
    /// The observation.
    pub found: String,
    /// The remedy; absent if there is nothing to do, or if `found` ends with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// The check found no problem.
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check: check.into(), level: Level::Good, found: found.into(), remedy: None }
    }

    /// The check found that something optional is unavailable.
    pub fn lacking(check: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Lacking, ..Self::good(check, found) }
    }

    /// The check found a problem that must be fixed.
    pub fn broken(check: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Broken, ..Self::good(check, found) }
    }

    /// The finding with its remedy.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// All findings, with the worst level.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DoctorReport {
    /// The worst level.
    pub worst: Level,
    /// The outcome of each check.
    pub findings: Vec<Finding>,
}

impl DoctorReport {
    /// The report of these findings.
    #[must_use]
    pub fn new(findings: Vec<Finding>) -> Self {
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Good);
        Self { worst, findings }
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for Finding { check, level, found, remedy } in &self.findings {
            writeln!(out, "{} {check:<width$}  {found}", level.mark())?;
            if let Some(remedy) = remedy {
                writeln!(out, "  {:<width$}  → {remedy}", "")?;
            }
        }
        let counted = |level, one: &str, many: &str| match self.count(level) {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let broken = counted(Level::Broken, "problem must be fixed", "problems must be fixed");
        let lacking = counted(
            Level::Lacking,
            "optional feature is unavailable",
            "optional features are unavailable",
        );
        let summary: Vec<String> = broken.into_iter().chain(lacking).collect();
        let summary =
            if summary.is_empty() { "all checks passed".to_owned() } else { summary.join("; ") };
        writeln!(out, "\n{summary}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let good = || Finding::good("a", "x");
        let lacking = || Finding::lacking("b", "y").remedy("z");
        let worst = |findings: Vec<Finding>| DoctorReport::new(findings).worst.exit_code();
        assert_eq!(worst(vec![]), 0);
        assert_eq!(worst(vec![good()]), 0);
        assert_eq!(worst(vec![lacking(), good()]), 1);
        assert_eq!(worst(vec![good(), Finding::broken("c", ""), lacking()]), 2);
    }

    #[test]
    fn a_remedy_stands_below_its_finding() {
        let text = DoctorReport::new(vec![
            Finding::good("kernel", "6.1"),
            Finding::lacking("psi", "off").remedy("boot"),
        ]);
        let lines =
            "✓ kernel  6.1\n! psi     off\n          → boot\n\n1 optional feature is unavailable\n";
        assert_eq!(text.to_string(), lines);
    }
}
