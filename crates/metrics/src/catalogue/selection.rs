//! Selection of the families of a page: a preset, with families switched on or off one by one.

use std::error::Error;
use std::fmt;

use super::{CatalogueTable, Descriptor, Form, Preset, families};

/// Family of one of the catalogue's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FamilyId {
    pub(crate) table: CatalogueTable,
    pub(crate) index: usize,
}

/// A name that belongs to no metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMetric {
    /// The name as given.
    pub name: String,
    /// Metric with the most similar name.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for UnknownMetric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no metric {:?}", self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(formatter, "; did you mean {nearest}?"))
    }
}

impl Error for UnknownMetric {}

/// Form of every family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    forms: [Box<[Form]>; CatalogueTable::ALL.len()],
}

impl Selection {
    /// Selects the families of a preset.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let of = |table| families(table).map(|descriptor| descriptor.form(preset)).collect();
        Self { forms: CatalogueTable::ALL.map(of) }
    }

    /// Switches a family on, with all its series, or off. The prefix `cpuwarden_` may be left out.
    ///
    /// # Errors
    /// No metric has this name.
    pub fn switch(&mut self, name: &str, on: bool) -> Result<(), UnknownMetric> {
        let family = find(name)
            .ok_or_else(|| UnknownMetric { name: name.to_owned(), nearest: nearest(name) })?;
        self.set(family, if on { Form::Whole } else { Form::Absent });
        Ok(())
    }

    pub(crate) fn form(&self, family: FamilyId) -> Form {
        self.forms[family.table as usize][family.index]
    }

    pub(crate) fn set(&mut self, family: FamilyId, form: Form) {
        self.forms[family.table as usize][family.index] = form;
    }

    /// Forms of a table's families, in its order.
    pub(crate) fn of(&self, table: CatalogueTable) -> &[Form] {
        &self.forms[table as usize]
    }

    /// Takes over all forms of another selection, without an allocation.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        for (own, forms) in self.forms.iter_mut().zip(&other.forms) {
            own.copy_from_slice(forms);
        }
    }
}

fn all_ids() -> impl Iterator<Item = (FamilyId, &'static Descriptor)> {
    let of = |table| {
        families(table).enumerate().map(move |(index, family)| (FamilyId { table, index }, family))
    };
    CatalogueTable::ALL.into_iter().flat_map(of)
}

fn find(name: &str) -> Option<FamilyId> {
    let is_it = |own: &str| own == name || own.strip_prefix("cpuwarden_") == Some(name);
    all_ids().find(|(_, descriptor)| is_it(descriptor.name)).map(|(id, _)| id)
}

/// The metric whose name shares the most characters with this one at both ends, if that is half of
/// it.
fn nearest(name: &str) -> Option<&'static str> {
    let shared = |own: &str| {
        let own = if name.starts_with("cpuwarden_") {
            own
        } else {
            own.strip_prefix("cpuwarden_").unwrap_or(own)
        };
        let front = own.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let back = own.bytes().rev().zip(name.bytes().rev()).take_while(|(a, b)| a == b).count();
        (front + back).min(own.len())
    };
    let best = all_ids().map(|(_, descriptor)| descriptor.name).max_by_key(|own| shared(own))?;
    (2 * shared(best) >= name.len().max(8)).then_some(best)
}

/// One step of making a page smaller: this family gets this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) family: FamilyId,
    pub(crate) to: Form,
}

/// Steps from a selection to a page without rows, in the order in which the series cap takes them:
/// what the smaller presets lack goes first, and within a preset the last family of the reference.
/// Families of the node and the agent stay.
pub(crate) fn steps(selection: &Selection) -> Vec<Step> {
    let (mut selection, mut steps) = (selection.clone(), Vec::new());
    for preset in Preset::ALL.into_iter().rev() {
        for table in CatalogueTable::OF_ROWS.into_iter().rev() {
            for (index, descriptor) in
                families(table).enumerate().collect::<Vec<_>>().into_iter().rev()
            {
                let family = FamilyId { table, index };
                let to = preset.below().map_or(Form::Absent, |below| descriptor.form(below));
                if to < selection.form(family) {
                    selection.set(family, to);
                    steps.push(Step { family, to });
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_switched_with_or_without_the_common_prefix() {
        let mut selection = Selection::preset(Preset::Lean);
        for name in
            ["cpuwarden_container_threads", "container_runnable_threads", "process_open_fds"]
        {
            selection.switch(name, true).unwrap();
            assert_eq!(selection.form(find(name).unwrap()), Form::Whole, "{name}");
            selection.switch(name, false).unwrap();
            assert_eq!(selection.form(find(name).unwrap()), Form::Absent, "{name}");
        }
    }

    #[test]
    fn an_unknown_family_is_named_with_the_nearest_one() {
        let mut selection = Selection::preset(Preset::Lean);
        let error = selection.switch("container_thread", true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no metric \"container_thread\"; did you mean cpuwarden_container_threads?"
        );
        assert_eq!(
            selection.switch("memory", true).unwrap_err().to_string(),
            "no metric \"memory\""
        );
    }

    #[test]
    fn the_cap_goes_through_the_presets_and_ends_with_usage() {
        let steps = steps(&Selection::preset(Preset::Full));
        let mut selection = Selection::preset(Preset::Full);
        let mut passed = Vec::new();
        for step in &steps {
            selection.set(step.family, step.to);
            passed.push(selection.clone());
        }
        for preset in [Preset::Standard, Preset::Lean] {
            let of_preset = Selection::preset(preset);
            let rows = |selection: &Selection| {
                CatalogueTable::OF_ROWS.map(|table| selection.of(table).to_vec())
            };
            assert!(
                passed.iter().any(|selection| rows(selection) == rows(&of_preset)),
                "{preset:?}"
            );
        }
        let usage = find("cpuwarden_container_cpu_usage_seconds_total").unwrap();
        assert_eq!(steps.last(), Some(&Step { family: usage, to: Form::Absent }));
    }
}
