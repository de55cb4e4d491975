//! CPUs that pods have exclusively, by the kubelet or by pinning.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use api::Pin;
use kernel_text::{CpuSet, MAX_CPUS};
use kubepods::{ExclusiveCpus, PodIndex, PodName};
use state_dir::PinningCheckpoint;

/// Exclusive CPUs of the kubelet's static CPU manager, and the pins in the checkpoint. An agent with
/// `--pinning=off` leaves the pins of an earlier one in place.
#[derive(Debug)]
pub struct Exclusive {
    of_kubelet: Arc<ExclusiveCpus>,
    pins: BTreeMap<String, Pin>,
}

impl Exclusive {
    /// Reads the pins. A checkpoint that cannot be read has none; pinning itself reports it.
    #[must_use]
    pub fn read(of_kubelet: Arc<ExclusiveCpus>, state_dir: &Path, proc_root: &Path) -> Self {
        let checkpoint = PinningCheckpoint::of_this_boot(state_dir, proc_root).ok().flatten();
        let pins = checkpoint.map(|checkpoint| checkpoint.pins).unwrap_or_default();
        Self { of_kubelet, pins }
    }

    /// The exclusive CPUs. Those of a pinned pod that `pods` does not contain are free again.
    #[must_use]
    pub fn cpus(&self, pods: &PodIndex) -> CpuSet {
        let of_kubelet = self.of_kubelet.all().into_iter().filter(|&cpu| cpu < MAX_CPUS);
        let pinned = self.pins.iter().filter(|(uid, _)| pods.pod(uid).is_some());
        let pinned = pinned.filter_map(|(_, pin)| pin.cpus.parse::<CpuSet>().ok());
        pinned.fold(of_kubelet.collect(), |all: CpuSet, of_pod| all.union(&of_pod))
    }

    /// Namespace and name of the pods with exclusive CPUs.
    #[must_use]
    pub fn pods(&self) -> HashSet<PodName> {
        let name = |namespace: &str, pod: &str| (namespace.into(), pod.into());
        let of_kubelet = self.of_kubelet.holders().map(|(namespace, pod)| name(namespace, pod));
        of_kubelet.chain(self.pins.values().map(|pin| name(&pin.namespace, &pin.pod))).collect()
    }
}

#[cfg(test)]
mod tests {
    use kubepods::model::Pod;

    use super::*;

    fn pin(pod: &str, cpus: &str) -> Pin {
        Pin {
            namespace: "n".to_owned(),
            pod: pod.to_owned(),
            cpu_qos: "LSE".to_owned(),
            bind_policy: String::new(),
            cpus: cpus.to_owned(),
            since: 0,
        }
    }

    fn name(pod: &str) -> PodName {
        ("n".into(), pod.into())
    }

    #[test]
    fn cpus_are_those_of_the_kubelet_and_of_pins_whose_pods_exist() {
        let of_kubelet = ExclusiveCpus {
            // No kernel has a CPU with the last id.
            pods: [(name("static"), vec![7, 8, u32::MAX])].into(),
            ..ExclusiveCpus::default()
        };
        let pins = [("a", "2-3"), ("b", "6"), ("c", "unreadable"), ("ended", "0-1")];
        let pins = pins.map(|(uid, cpus)| (uid.to_owned(), pin(uid, cpus))).into();
        let exclusive = Exclusive { of_kubelet: Arc::new(of_kubelet), pins };
        let pod = |uid: &str| Arc::new(Pod { uid: uid.into(), ..Pod::default() });
        let pods = ["a", "b", "c"].map(pod).to_vec();
        let pods = PodIndex::build(&PodIndex::default(), pods, []);
        assert_eq!(exclusive.cpus(&pods).to_string(), "2-3,6-8");
        let names = ["static", "a", "b", "c", "ended"].map(name);
        assert_eq!(exclusive.pods(), HashSet::from(names));
    }

    #[test]
    fn pins_are_those_of_the_checkpoint_of_this_boot() {
        let (state, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let read = || Exclusive::read(Arc::default(), state.path(), proc.path()).pods();
        assert!(read().is_empty(), "no checkpoint");
        let pins = [("a".to_owned(), pin("cart", "2-3"))].into();
        let checkpoint = PinningCheckpoint { pins, ..PinningCheckpoint::default() };
        checkpoint.write(state.path(), Path::new("/m")).unwrap();
        assert_eq!(read(), HashSet::from([name("cart")]));
        let boot_id = proc.path().join("sys/kernel/random/boot_id");
        std::fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
        std::fs::write(boot_id, "another\n").unwrap();
        assert!(read().is_empty(), "another boot");
    }
}
