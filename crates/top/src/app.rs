//! State of the view: the data, the current view, and the selection.

use std::collections::{HashMap, HashSet, VecDeque};

use api::{ContainerFrame, Frame, PodName, Rates};

use crate::columns::Column;
use crate::history::{History, Key, key};
use crate::look::Look;
use crate::rows::{self, Harm, HarmSort, Sort};
use crate::source::{Advice, Position, Update};

/// Maximum number of updates kept during a pause; older ones are dropped.
const KEPT_IN_PAUSE: usize = 600;

/// The current view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// Pods that wait, by cause.
    #[default]
    Victims,
    /// Pods that others wait for.
    Aggressors,
    /// One container of a pod.
    Detail(Key),
    /// The CPUs.
    Topology,
}

/// Pods to which the victims are limited.
#[derive(Debug)]
pub(crate) struct Only {
    /// Description of the chosen pods, shown as the filter.
    pub(crate) label: String,
    pub(crate) pods: HashSet<PodName>,
}

/// The state of the view.
#[derive(Debug)]
pub struct App {
    pub(crate) look: Look,
    /// Lines above the tables, such as those of the demo.
    pub(crate) notes: Vec<String>,
    pub(crate) history: History,
    /// The latest frame; `None` before the first.
    pub(crate) frame: Option<Frame>,
    /// Containers in the history that are not in the latest frame, without rates.
    ended: Vec<ContainerFrame>,
    pub(crate) advice: HashMap<Key, Advice>,
    pub(crate) status: String,
    pub(crate) position: Option<Position>,
    pub(crate) view: View,
    /// The table from which the current view was opened.
    pub(crate) table: View,
    pub(crate) help: bool,
    pub(crate) sort: Sort,
    pub(crate) harm_sort: HarmSort,
    pub(crate) is_ascending: bool,
    /// Columns in the last drawn table of victims, for the keys that sort.
    pub(crate) columns: Vec<Column>,
    /// Columns that have had a value: a column that comes and goes would move the others.
    pub(crate) filled: HashSet<Column>,
    /// Pods whose containers are the victims; `None` for all.
    pub(crate) only: Option<Only>,
    /// Filters of the victims and of the aggressors.
    pub(crate) filters: [String; 2],
    pub(crate) is_typing: bool,
    /// The time that is being typed.
    pub(crate) typed_time: Option<String>,
    pub(crate) is_paused: bool,
    pub(crate) is_done: bool,
    /// Whether the user has asked to stop the process, as Ctrl-Z does in a shell.
    pub(crate) is_suspending: bool,
    /// Selected row of each table; none means the first.
    pub(crate) victim: Option<Key>,
    pub(crate) aggressor: Option<PodName>,
    /// First line shown of a view that is longer than the screen.
    pub(crate) scroll: usize,
    /// Number of lines of such a view below the screen.
    pub(crate) below: usize,
    /// Number of rows in the last drawn table, for the keys that turn pages.
    pub(crate) page: usize,
    waiting: VecDeque<Update>,
}

impl App {
    /// A view without data.
    #[must_use]
    pub fn new(look: Look) -> Self {
        Self {
            look,
            notes: Vec::new(),
            history: History::default(),
            frame: None,
            ended: Vec::new(),
            advice: HashMap::new(),
            status: String::new(),
            position: None,
            view: View::Victims,
            table: View::Victims,
            help: false,
            sort: Sort::Lost,
            harm_sort: HarmSort::Now,
            is_ascending: false,
            columns: Vec::new(),
            filled: HashSet::new(),
            only: None,
            filters: Default::default(),
            is_typing: false,
            typed_time: None,
            is_paused: false,
            is_done: false,
            is_suspending: false,
            victim: None,
            aggressor: None,
            scroll: 0,
            below: 0,
            page: 1,
            waiting: VecDeque::new(),
        }
    }

    /// Shows these lines above the tables.
    #[must_use]
    pub fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Shows only these pods as victims, until the key that clears the filter; `label` is the
    /// filter shown.
    #[must_use]
    pub fn with_pods(mut self, label: String, pods: impl IntoIterator<Item = PodName>) -> Self {
        self.only = Some(Only { label, pods: pods.into_iter().collect() });
        self
    }

    /// Filter of the current table.
    pub(crate) fn filter(&self) -> &str {
        &self.filters[usize::from(self.view == View::Aggressors)]
    }

    pub(crate) fn filter_mut(&mut self) -> &mut String {
        &mut self.filters[usize::from(self.view == View::Aggressors)]
    }

    /// Whether the user has asked to leave.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes an update. During a pause, live data wait; a position in a recording is shown at once.
    pub fn apply(&mut self, update: Update) {
        let is_live = matches!(update, Update::Frame(_) | Update::History(_));
        if self.is_paused && is_live && self.position.is_none() {
            if self.waiting.len() == KEPT_IN_PAUSE {
                self.waiting.pop_front();
            }
            self.waiting.push_back(update);
        } else {
            self.show(update);
        }
    }

    fn show(&mut self, update: Update) {
        match update {
            Update::Frame(frame) => {
                self.history.push(&frame);
                self.note_filled(&frame);
                let before = self.frame.replace(*frame);
                let ended = std::mem::take(&mut self.ended);
                self.note_ended(|| before.iter().flat_map(|frame| &frame.containers).chain(&ended));
                self.status.clear();
            }
            Update::History(points) => self.history.fill(&points),
            Update::Seek(frames) => {
                self.history = History::default();
                self.filled.clear();
                for frame in &frames {
                    self.history.push(frame);
                    self.note_filled(frame);
                }
                self.frame = frames.last().cloned();
                self.note_ended(|| frames.iter().rev().flat_map(|frame| &frame.containers));
            }
            Update::Past(points, frame) => {
                self.history = History::default();
                self.history.fill(&points);
                self.history.push(&frame);
                let before = self.frame.replace(*frame);
                self.note_ended(|| before.iter().flat_map(|frame| &frame.containers));
                self.status.clear();
            }
            Update::Live => {
                self.history = History::default();
                self.position = None;
                self.is_paused = false;
                self.waiting.clear();
                self.status.clear();
            }
            Update::Advice(advice) => {
                let key =
                    |one: &Advice| (one.namespace.clone(), one.pod.clone(), one.container.clone());
                self.advice = advice.into_iter().map(|one| (key(&one), one)).collect();
            }
            Update::Status(status) => self.status = status,
            Update::Notes(notes) => self.notes = notes,
            Update::Position(position) => {
                self.is_paused = position.is_paused;
                self.position = Some(position);
            }
        }
    }

    fn note_filled(&mut self, frame: &Frame) {
        self.filled.extend(Column::ALL.iter().filter(|column| column.is_filled(frame)));
    }

    /// Finds the containers that have ended. Their facts, such as the limit, are those of their
    /// first row in `known`. One without a namespace is left out: its pod may since have got a
    /// name.
    fn note_ended<'a, I: Iterator<Item = &'a ContainerFrame>>(&mut self, known: impl Fn() -> I) {
        let rows = self.frame.iter().flat_map(|frame| &frame.containers);
        let running: HashSet<Key> = rows.map(key).collect();
        let is_named = |(namespace, ..): &&Key| !namespace.is_empty();
        let ended = self.history.keys().filter(is_named).filter(|one| !running.contains(*one));
        let ended = ended.map(|(namespace, pod, container)| {
            let is_it = |row: &&ContainerFrame| {
                row.pod == *pod && row.container == *container && row.namespace == *namespace
            };
            let last = known().find(is_it).cloned().unwrap_or_else(|| ContainerFrame {
                namespace: namespace.clone(),
                pod: pod.clone(),
                container: container.clone(),
                ..ContainerFrame::default()
            });
            ContainerFrame { rates: Rates::default(), ..last }
        });
        self.ended = ended.collect();
        self.ended.sort_by_key(key);
    }

    /// The containers of the latest frame, and then those that ended in the last five minutes.
    fn containers(&self) -> impl Iterator<Item = &ContainerFrame> {
        self.frame.iter().flat_map(|frame| &frame.containers).chain(&self.ended)
    }

    /// Whether a row of this state is that of a container that has ended.
    pub(crate) fn has_ended(&self, row: &ContainerFrame) -> bool {
        self.ended.iter().any(|one| std::ptr::eq(one, row))
    }

    /// Ends or begins a pause of live data.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        if !is_paused {
            std::mem::take(&mut self.waiting).into_iter().for_each(|update| self.show(update));
        }
    }

    /// Whether the causes of waits are known.
    pub(crate) fn is_traced(&self) -> bool {
        let mode = self.frame.as_ref().map_or("", |frame| frame.node.trace.mode.as_str());
        ["continuous", "bursts"].contains(&mode)
    }

    /// Rows of the table of victims.
    pub(crate) fn victims(&self) -> Vec<&ContainerFrame> {
        let [filter, _] = &self.filters;
        let is_one = |row: &&ContainerFrame| {
            self.only.as_ref().is_none_or(|only| only.pods.contains(&row.pod_name()))
        };
        let all = self.containers().filter(is_one);
        let empty = Frame::default();
        let frame = self.frame.as_ref().unwrap_or(&empty);
        rows::victims(all, frame, &self.history, filter, self.sort, self.is_ascending)
    }

    /// Rows of the table of aggressors.
    pub(crate) fn aggressors(&self) -> Vec<Harm> {
        let Some(frame) = &self.frame else { return Vec::new() };
        let [_, filter] = &self.filters;
        let mut rows = rows::aggressors(frame, &self.history, filter, self.harm_sort);
        if self.is_ascending {
            rows.reverse();
        }
        rows
    }

    /// Position of the selected row of the current table, and the number of its rows.
    pub(crate) fn selection(&self) -> (usize, usize) {
        let (at, count) = match self.view {
            View::Aggressors => {
                let rows = self.aggressors();
                let wanted = self.aggressor.as_ref();
                (rows.iter().position(|row| Some(&row.aggressor) == wanted), rows.len())
            }
            _ => {
                let rows = self.victims();
                let wanted = self.victim.as_ref();
                (rows.iter().position(|row| Some(&key(row)) == wanted), rows.len())
            }
        };
        (at.unwrap_or(0), count)
    }

    /// Selects a row of the current table. A selection of the first row stays at the top when the
    /// order changes.
    pub(crate) fn select(&mut self, at: usize) {
        if self.view == View::Aggressors {
            let row = self.aggressors().into_iter().nth(at);
            self.aggressor = row.filter(|_| at > 0).map(|row| row.aggressor);
        } else {
            let row = self.victims().get(at).map(|row| key(row));
            self.victim = row.filter(|_| at > 0);
        }
    }

    /// Containers of the pod that is open.
    pub(crate) fn containers_of(&self, shown: &Key) -> Vec<&ContainerFrame> {
        let is_of_pod = |row: &&ContainerFrame| row.namespace == shown.0 && row.pod == shown.1;
        self.containers().filter(is_of_pod).collect()
    }

    /// Opens the pod of the selected row. A row without containers, such as `system`, does not
    /// open.
    pub(crate) fn open(&mut self) {
        let (at, _) = self.selection();
        let found = match self.view {
            View::Victims => self.victims().get(at).map(|row| key(row)),
            View::Aggressors => self.aggressors().get(at).and_then(|row| {
                let name = &row.aggressor;
                self.containers().find(|row| row.pod_name() == *name).map(key)
            }),
            _ => None,
        };
        if let Some(found) = found {
            self.table = std::mem::replace(&mut self.view, View::Detail(found));
            self.scroll = 0;
        }
    }
}
