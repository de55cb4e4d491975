//! Provider of the data that the view shows.

use api::{Frame, Points};
use console::Moment;

/// Provider of frames: the process itself, an agent, or a recording.
pub trait Source {
    /// Returns the updates since the last call, oldest first. Must not block: the view calls it
    /// several times per second.
    fn updates(&mut self) -> Vec<Update>;

    /// Moves a recording, or a live view to the past of its node. Sources without a past ignore it.
    fn control(&mut self, _control: Control) {}
}

/// Position in a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Position {
    /// Time shown, milliseconds since the epoch.
    pub at_ms: u64,
    /// Start of the recording.
    pub start_ms: u64,
    /// End of the recording.
    pub end_ms: u64,
    /// Speed of the playback, 1 for the original speed; 0 in the past of a live node, which stands
    /// still.
    pub speed: f64,
    /// Whether the playback stands still.
    pub is_paused: bool,
}

/// A change of the data.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The next second.
    Frame(Box<Frame>),
    /// The seconds before the first frame.
    History(Points),
    /// A position in a recording: replaces all data by these frames, oldest first.
    Seek(Vec<Frame>),
    /// A position in the past of a live node: replaces all data by the seconds up to this frame.
    Past(Points, Box<Frame>),
    /// The end of such a position: live data follow.
    Live,
    /// Findings of all containers; replaces those before.
    Advice(Vec<Advice>),
    /// State of the connection, such as the reason why no frames arrive; empty if they do.
    Status(String),
    /// Lines above the tables; replaces those before.
    Notes(Vec<String>),
    /// Position in the recording, for the headline.
    Position(Position),
}

/// Command to a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Control {
    /// Moves by this number of seconds; negative is back.
    Step(i64),
    /// Moves to a time.
    At(Moment),
    /// Moves to the start.
    Start,
    /// Moves to the end.
    End,
    /// Doubles the speed.
    Faster,
    /// Halves the speed.
    Slower,
    /// Stops or continues the playback.
    Pause(bool),
}

impl Control {
    /// The time, milliseconds since the epoch, to which this moves a live view: the latest second
    /// or a later time is the end of a stay in the past. `None` if it does not move.
    #[must_use]
    pub fn target(self, from_ms: u64, latest_ms: u64) -> Option<u64> {
        Some(match self {
            Self::Step(seconds) => from_ms.saturating_add_signed(seconds.saturating_mul(1000)),
            Self::At(moment) => moment.before(latest_ms),
            Self::Start => 0,
            Self::End | Self::Pause(false) => latest_ms,
            Self::Faster | Self::Slower | Self::Pause(true) => return None,
        })
    }
}

/// Findings of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The findings, most severe first.
    pub changes: Vec<Change>,
    /// The advice that still lacks history, and when it will be available; empty if none does.
    pub pending: String,
}

/// One finding, with the change that it proposes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Whether it costs latency or endangers the container now.
    pub is_warning: bool,
    /// Name of the finding, such as `throttled-by-own-quota`.
    pub finding: String,
    /// The change, such as `resources.limits.cpu: 640m`, or the reason why there is none.
    pub change: String,
}
