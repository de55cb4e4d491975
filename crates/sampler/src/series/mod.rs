//! Series: totals over all cgroups with the same identity, and their windows.

mod container;
mod pod;
mod table;
mod totals;
mod window;

pub(crate) use container::ContainerSeries;
pub(crate) use pod::PodSeries;
pub(crate) use table::{SeriesId, SeriesTable, Track};
pub(crate) use totals::add;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{CgroupId, Deltas};
    use crate::publish::Publication;
    use crate::reading::Value;
    use snapshot::{CfsTotals, ContainerIdentity};

    fn identity(container: &str) -> ContainerIdentity {
        ContainerIdentity {
            labels: container.into(),
            container: container.into(),
            ..ContainerIdentity::default()
        }
    }

    fn pod(number: u64) -> CgroupId {
        CgroupId::from_u64(number)
    }

    fn deltas(user_ns: u64, periods: u64, throttled_periods: u64) -> Deltas {
        let cfs = CfsTotals { periods, throttled_periods, ..CfsTotals::default() };
        Deltas { user_ns: Value::Read(user_ns), cfs: Value::Read(cfs), ..Deltas::default() }
    }

    fn rows(table: &mut SeriesTable<ContainerSeries>) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        table.publish(&mut rows, Publication { number: 1, written: 0 }, |_| {});
        rows.iter().map(|row| (row.identity.container.clone(), row.user_ns.unwrap())).collect()
    }

    #[test]
    fn a_restart_continues_the_same_series() {
        let mut table = SeriesTable::<ContainerSeries>::default();
        let first = table.attach(identity("app"), pod(1), true);
        table.get_mut(first).add(&deltas(5, 0, 0), false);
        table.detach(first);
        assert!(!table.get_mut(first).row.live);
        let second = table.attach(identity("app"), pod(1), true);
        table.get_mut(second).add(&deltas(7, 0, 0), false);
        assert_eq!(rows(&mut table), [("app".to_owned(), 12)]);
    }

    #[test]
    fn a_name_that_comes_late_takes_the_totals_along() {
        let mut table = SeriesTable::<ContainerSeries>::default();
        let named = table.attach(identity("app"), pod(1), true);
        table.get_mut(named).add(&deltas(5, 0, 0), false);
        let unknown = table.attach(identity("0123"), pod(1), false);
        table.get_mut(unknown).add(&deltas(7, 3, 3), true);
        assert_eq!(rows(&mut table), [("app".to_owned(), 5)]);
        let id = table.rename(unknown, identity("app"), pod(1), true);
        assert_eq!((id, rows(&mut table)), (named, vec![("app".to_owned(), 12)]));
        assert_eq!(table.get_mut(id).row.cfs.unwrap().throttled_periods, 3);
    }

    #[test]
    fn what_grew_under_a_name_stays_there() {
        let mut table = SeriesTable::<ContainerSeries>::default();
        let named = table.attach(identity("app"), pod(1), true);
        table.get_mut(named).add(&deltas(5, 0, 0), false);
        let unknown = table.attach(identity("0123"), pod(1), false);
        table.get_mut(unknown).add(&deltas(7, 0, 0), true);
        table.describe(unknown, identity("0123"), true);
        table.show_provisionally(unknown);
        let named = |millis| ("app".to_owned(), millis);
        let by_id = |millis| ("0123".to_owned(), millis);
        assert_eq!(rows(&mut table), [by_id(7), named(5)]);
        table.get_mut(unknown).add(&deltas(2, 0, 0), true);
        assert_eq!(rows(&mut table), [by_id(9), named(5)]);
        let to = table.rename(unknown, identity("app"), pod(1), true);
        table.get_mut(to).add(&deltas(1, 0, 0), true);
        // A reader has seen the series growing by 2 and by 8: 10, as the kernel counted.
        assert_eq!(rows(&mut table), [by_id(9), named(13)]);
        let now = std::time::Instant::now();
        table.drop_renamed(now);
        table.drop_renamed(now + std::time::Duration::from_secs(119));
        assert_eq!(rows(&mut table).len(), 2, "its last value is scraped");
        table.drop_renamed(now + std::time::Duration::from_secs(120));
        assert_eq!(rows(&mut table), [named(13)]);
    }

    #[test]
    fn a_series_goes_with_its_last_pod() {
        let mut table = SeriesTable::<ContainerSeries>::default();
        let old = table.attach(identity("app"), pod(1), true);
        table.get_mut(old).add(&deltas(5, 0, 0), false);
        table.attach(identity("app"), pod(2), true);
        table.drop_pod(pod(1));
        assert_eq!(rows(&mut table).len(), 1);
        table.drop_pod(pod(2));
        assert_eq!(rows(&mut table).len(), 0);
    }

    #[test]
    fn windows_count_only_with_periods_and_never_history() {
        let mut table = SeriesTable::<ContainerSeries>::default();
        let id = table.attach(identity("app"), pod(1), true);
        let series = table.get_mut(id);
        series.add(&Deltas { first: true, ..deltas(0, 100, 100) }, true);
        series.close_window();
        assert_eq!(series.row.windows.unwrap().counts.iter().sum::<u64>(), 0);
        series.add(&deltas(0, 10, 6), true);
        series.close_window();
        series.close_window();
        let windows = series.row.windows.unwrap();
        assert_eq!(windows.counts, [0, 0, 0, 0, 1, 0]);
        assert!((windows.sum - 0.6).abs() < 1e-9);
    }

    #[test]
    fn only_rows_that_have_changed_since_they_were_written_are_written() {
        let mut table = SeriesTable::<ContainerSeries>::default();
        let [a, b] = ["a", "b"].map(|name| table.attach(identity(name), pod(1), true));
        let mut buffers = [Vec::new(), Vec::new()];
        let mut publish = |table: &mut SeriesTable<ContainerSeries>, number: u64| {
            // Two buffers take turns.
            let rows = &mut buffers[number as usize % 2];
            let publication = Publication { number, written: number.saturating_sub(2) };
            table.publish(rows, publication, |row| row.first_pid = Some(number as u32));
            rows.iter().map(|row| (row.usage_ns.unwrap_or(0), row.first_pid.unwrap())).collect()
        };
        let used = |usage_ns| Deltas { usage_ns: Value::Read(usage_ns), ..Deltas::default() };
        let mut published: Vec<Vec<_>> = Vec::new();
        for number in 1..=6 {
            match number {
                3 => table.get_mut(a).add(&used(7), false),
                6 => table.touch_all(),
                _ => {}
            }
            published.push(publish(&mut table, number));
        }
        assert_eq!(
            published,
            [
                [(0, 1), (0, 1)],
                [(0, 2), (0, 2)],
                [(7, 3), (0, 1)],
                [(7, 4), (0, 2)],
                [(7, 3), (0, 1)],
                [(7, 6), (0, 6)],
            ]
        );
        table.drop_pod(pod(1));
        let c = table.attach(identity("c"), pod(2), true);
        assert!([a, b].contains(&c), "it takes the place of another");
        assert!(table.differs_since(6));
        assert_eq!(publish(&mut table, 7), [(0, 7)]);
    }
}
