//! Configuration of a process beside an agent: it reads the node and changes nothing.

use super::{Config, Options};

impl Config {
    /// The configuration of a view or a recorder, which measures as configured and acts on nothing:
    /// no cgroup, no container, no object of the API server, no port, no recording of its own.
    ///
    /// An option that is not listed here has its default. Options that act are off by default, so a
    /// new option stays off until it is listed.
    pub(crate) fn reading_only(&self) -> Self {
        let given = self.options.clone();
        let options = Options {
            cgroup_root: given.cgroup_root,
            proc_root: given.proc_root,
            sys_root: given.sys_root,
            kubepods: given.kubepods,
            node_name: given.node_name,
            sample_interval: given.sample_interval,
            reconcile_interval: given.reconcile_interval,
            cpu_budget: given.cpu_budget,
            max_open_files: given.max_open_files,
            bpf_counters: given.bpf_counters,
            advice_after: given.advice_after,
            gc: given.gc,
            sched_trace: given.sched_trace,
            sched_trace_hint: given.sched_trace_hint,
            sched_trace_budget: given.sched_trace_budget,
            log: given.log,
            log_format: given.log_format,
            ..Options::default()
        };
        Self { options, record: None, tls: None, injection: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_dir::ActingMode;

    use crate::config::NriMode;

    fn resolve(yaml: &str) -> Config {
        Config::resolve(serde_saphyr::from_str(yaml).unwrap()).unwrap()
    }

    #[test]
    fn the_defaults_do_not_act() {
        let options = Options::default();
        assert_eq!((options.pinning, options.nri), (ActingMode::Off, NriMode::Off));
        assert_eq!((options.best_effort, options.burst), (ActingMode::Off, ActingMode::Off));
        assert!(!options.events && !options.node_condition && options.record.is_none());
    }

    #[test]
    fn only_what_measures_is_left() {
        let acting = "podSource: none\nlisten: 0.0.0.0:1\npinning: enforce\nbestEffort: enforce\nburst: enforce\n\
                      nri: on\ninjectEnv: annotated\nevents: true\nnodeCondition: true\nrecord: /r\nmetricsAuth: true\n\
                      stateDir: /s\ntlsCert: /c\ntlsKey: /k\n";
        let measuring = "podSource: none\nsampleInterval: 2s\nkubepods: k\nnodeName: n\nschedTrace: off\n\
             bpfCounters: off\n";
        let with_both = format!("{acting}{}", measuring.trim_start_matches("podSource: none\n"));
        let config = resolve(&with_both).reading_only();
        assert_eq!(config.options, resolve(measuring).reading_only().options);
        assert!(config.injection.is_none() && config.tls.is_none() && config.record.is_none());
        let options = config.options;
        assert_eq!((options.sample_interval.0.as_secs(), options.kubepods), (2, Some("k".into())));
    }
}
