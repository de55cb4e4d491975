//! Events that a plugin can subscribe to, and the runtimes that know them.

use std::fmt;

use crate::api::{ConfigureRequest, Event};

/// Set of events.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct EventMask(i32);

impl EventMask {
    /// No event.
    pub const NONE: Self = Self(0);

    /// All events of pods and containers, which is all but `ValidateContainerAdjustment`: a runtime
    /// fails the container when the plugin is lost during a validation.
    pub const LIFECYCLE: Self =
        Self(Self::SINCE_0_10.0 & !(1 << (Event::ValidateContainerAdjustment as i32 - 1)));

    /// All events of the API's version 0.10 and later.
    const SINCE_0_10: Self = Self((1 << (Event::Last as i32 - 1)) - 1);

    /// Events that every runtime knows. A runtime rejects a subscription with an unknown event.
    const BEFORE_0_10: Self = Self((1 << Event::RemoveContainer as i32) - 1);

    /// A set of the given events.
    pub fn of(events: &[Event]) -> Self {
        events.iter().fold(Self::NONE, |set, &event| set.with(event))
    }

    /// The set with another event.
    #[must_use]
    pub fn with(self, event: Event) -> Self {
        Self(self.0 | bit(event))
    }

    /// Whether the event is in the set.
    pub fn contains(self, event: Event) -> bool {
        self.0 & bit(event) != 0
    }

    /// Subscription to these events at a runtime, as in the answer to `Configure`.
    ///
    /// An empty subscription means all events. Where the runtime knows none of the set, the
    /// subscription is the event that costs least; it is not passed to the handler.
    /// `oldest` limits it to the events that every runtime knows.
    pub(crate) fn subscription(self, runtime: &Runtime, oldest: bool) -> i32 {
        let is_new = !oldest && runtime.knows_pod_updates();
        let known = if is_new { Self::SINCE_0_10 } else { Self::BEFORE_0_10 };
        match self.0 & known.0 {
            0 => bit(Event::RemovePodSandbox),
            events => events,
        }
    }
}

impl fmt::Debug for EventMask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = (0..Event::Last as i32).filter_map(|number| Event::try_from(number).ok());
        out.debug_set().entries(events.filter(|&event| self.contains(event))).finish()
    }
}

/// The event's bit; 0 for the two values that are not events.
fn bit(event: Event) -> i32 {
    match event {
        Event::Unknown | Event::Last => 0,
        event => 1 << (event as i32 - 1),
    }
}

/// Runtime at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Name, such as `containerd`.
    pub name: String,
    /// Version of the runtime.
    pub version: String,
    /// Version of the API that the runtime reports. Empty before 0.12.
    pub nri_version: String,
    /// Configuration of this plugin in the runtime's drop-in directory. Empty for a plugin that the
    /// runtime did not start.
    pub config: String,
}

impl Runtime {
    pub(crate) fn new(request: ConfigureRequest) -> Self {
        Self {
            name: request.runtime_name,
            version: request.runtime_version,
            nri_version: request.nri_version,
            config: request.config,
        }
    }

    /// Whether the runtime has version 0.10 or later of the API, which added the update of pods and
    /// the validation of adjustments. Before 0.12 the API does not report its version: there the
    /// runtime's version decides.
    fn knows_pod_updates(&self) -> bool {
        // Builds without version information report "(devel)" or "0.0.0-unknown".
        let reported =
            Version::parse(&self.nri_version).filter(|version| version.number() > [0; 3]);
        if let Some(version) = reported {
            return version >= Version::release([0, 10, 0]);
        }
        let first = match self.name.to_ascii_lowercase().as_str() {
            "containerd" => [2, 2, 0],
            "cri-o" => [1, 34, 0],
            _ => return false,
        };
        Version::parse(&self.version).is_some_and(|version| version >= Version::release(first))
    }
}

/// Beginnings of the suffixes of pre-releases.
const PRE_RELEASES: [&str; 6] = ["alpha", "beta", "rc", "pre", "dev", "0."];

/// A semantic version, as far as its order matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    number: [u32; 3],
    /// False for pre-releases, which come before the release.
    released: bool,
}

impl Version {
    const fn release(number: [u32; 3]) -> Self {
        Self { number, released: true }
    }

    fn number(self) -> [u32; 3] {
        self.number
    }

    /// Reads `v1.2.3`, `1.2.3` or `v1.2.3-suffix`. Distributions add suffixes to releases, such as
    /// `-k3s1` or `~ds1`: only the usual words and Go's pseudo-versions (`-0.20251001…`) are
    /// pre-releases.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let mut parts = number.split('.').map(|part| part.parse().ok());
        let mut part = || parts.next().flatten();
        let number = [part()?, part()?, part()?];
        let word = suffix.strip_prefix(['-', '~']).unwrap_or_default();
        Some(Self { number, released: !PRE_RELEASES.iter().any(|start| word.starts_with(start)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(name: &str, version: &str, nri_version: &str) -> Runtime {
        Runtime {
            name: name.into(),
            version: version.into(),
            nri_version: nri_version.into(),
            config: String::new(),
        }
    }

    #[test]
    fn events_have_the_bits_of_the_api() {
        assert_eq!(EventMask::of(&[Event::RunPodSandbox]).0, 1);
        assert_eq!(EventMask::of(&[Event::CreateContainer, Event::UpdateContainer]).0, 0x88);
        assert_eq!(EventMask::of(&[Event::ValidateContainerAdjustment]).0, 1 << 13);
        assert_eq!(EventMask::of(&[Event::Unknown, Event::Last]), EventMask::NONE);
        assert_eq!(EventMask::SINCE_0_10.0, 0x3fff);
        assert_eq!(EventMask::LIFECYCLE.0, 0x1fff);
        let all = EventMask::LIFECYCLE.with(Event::ValidateContainerAdjustment);
        assert_eq!(all, EventMask::SINCE_0_10);
        assert_eq!(EventMask::BEFORE_0_10.0, 0x7ff);
        let events = EventMask::of(&[Event::StopContainer, Event::CreateContainer]);
        assert_eq!(format!("{events:?}"), "{CreateContainer, StopContainer}");
    }

    #[test]
    fn runtimes_are_asked_only_for_events_that_they_know() {
        let subscription = |name, version, nri_version| {
            EventMask::SINCE_0_10.subscription(&runtime(name, version, nri_version), false)
        };
        let new = [
            ("containerd", "v2.2.0", ""),
            ("containerd", "v2.4.2", "v0.12.3"),
            ("containerd", "v2.2.0-k3s1", ""),
            ("containerd", "2.2.0~ds1", ""),
            ("containerd", "2.2.0-1", ""),
            ("containerd", "2.3.1+ds1", "(devel)"),
            ("cri-o", "1.34.0", ""),
            ("another", "v1.0.0", "v0.10.0"),
            ("another", "v1.0.0", "v0.10.1-0.20251001000000-000000000000"),
            ("containerd", "v2.3.0", "0.0.0-unknown"),
        ];
        for (name, version, nri_version) in new {
            assert_eq!(subscription(name, version, nri_version), 0x3fff, "{name} {version}");
        }
        let new = runtime("cri-o", "1.34.0", "");
        assert_eq!(EventMask::SINCE_0_10.subscription(&new, true), 0x7ff);
        let old = [
            ("containerd", "v1.7.27", ""),
            ("containerd", "v2.1.5", ""),
            ("containerd", "v2.2.0-rc.1", ""),
            ("containerd", "v2.2.0-beta.2-117-g1f5ae9a", ""),
            ("containerd", "2.2.0~rc1", ""),
            ("containerd", "unknown", ""),
            ("cri-o", "1.33.9", ""),
            ("another", "v9.0.0", ""),
            ("another", "v9.0.0", "v0.9.1-0.20250219030224-e597e7849f24"),
            ("containerd", "v2.4.2", "v0.10.0-rc.1"),
            ("another", "v9.0.0", "v0.10.0-0.20250901000000-000000000000"),
            ("", "", ""),
        ];
        for (name, version, nri_version) in old {
            assert_eq!(subscription(name, version, nri_version), 0x7ff, "{name} {version}");
        }
    }

    #[test]
    fn a_subscription_is_never_empty_because_that_means_all_events() {
        let old = runtime("containerd", "v1.7.27", "");
        assert_eq!(EventMask::of(&[Event::UpdatePodSandbox]).subscription(&old, false), 1 << 2);
        assert_eq!(EventMask::NONE.subscription(&old, false), 1 << 2);
    }
}
