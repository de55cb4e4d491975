use super::*;
use crate::memory::{HEAP_SHARE, MAX_HEAP_SHARE};

const MIB: u64 = 1 << 20;

fn cpu(own: Option<u64>, pod: Option<u64>) -> Limits {
    Limits { cpu_millis: own, pod_cpu_millis: pod, ..Limits::default() }
}

fn of(variable: Variable, limits: Limits) -> Option<String> {
    value(variable, &limits, &Known::default(), HEAP_SHARE)
}

#[test]
fn threads_are_the_whole_cores_of_the_lowest_quota_and_at_least_one() {
    let cases = [
        (None, None, None),
        (Some(500), None, Some("1")),
        (Some(999), None, Some("1")),
        (Some(1000), None, Some("1")),
        (Some(1999), None, Some("1")),
        (Some(2000), None, Some("2")),
        (Some(2500), None, Some("2")),
        (Some(16_000), None, Some("16")),
        (None, Some(3500), Some("3")),
        (Some(4000), Some(2500), Some("2")),
        (Some(2500), Some(4000), Some("2")),
        // A quantity of 0 is no limit.
        (Some(0), None, None),
        (Some(2000), Some(0), Some("2")),
        (Some(u64::MAX), Some(400), Some("1")),
    ];
    for (own, pod, expected) in cases {
        for variable in Variable::ALL {
            let expected = match variable {
                Variable::Gomemlimit | Variable::Gogc => None,
                // Never fewer than without the variable.
                Variable::Libuv => expected.filter(|n| *n == "16").map(str::to_owned),
                Variable::Java => expected.map(|n| format!("-XX:ActiveProcessorCount={n}")),
                _ => expected.map(str::to_owned),
            };
            assert_eq!(of(variable, cpu(own, pod)), expected, "{variable:?} {own:?} {pod:?}");
        }
    }
}

#[test]
fn gomaxprocs_is_left_to_a_go_that_sets_it_right_and_follows_a_resize() {
    let known = Known { go_follows_limit: true, ..Known::default() };
    let cases = [
        // Go 1.25 rounds up: 3 threads under 2.5 cores are throttled.
        (Some(2500), None, Some("2")),
        // Its minimum is 2.
        (Some(1000), None, Some("1")),
        // It does not see the pod's quota.
        (Some(4000), Some(2000), Some("2")),
        (None, Some(2000), Some("2")),
        (Some(2000), None, None),
        (Some(4000), Some(4000), None),
    ];
    for (own, pod, expected) in cases {
        let limits = cpu(own, pod);
        assert_eq!(value(Variable::Gomaxprocs, &limits, &known, HEAP_SHARE).as_deref(), expected);
        let others = value(Variable::Rayon, &limits, &known, HEAP_SHARE);
        assert!(others.is_some(), "only Go follows its limit");
    }
}

#[test]
fn no_more_threads_than_usable_cpus() {
    let cases = [
        (Some(16_000), None, 8, Some("8")),
        (None, Some(16_000), 8, Some("8")),
        (Some(3000), None, 8, Some("3")),
        (Some(500), None, 1, Some("1")),
        (Some(4000), None, 0, Some("1")),
        // Without a limit a runtime uses the same CPUs by itself.
        (None, None, 8, None),
    ];
    for (own, pod, cpus, expected) in cases {
        let limits = Limits { usable_cpus: Some(cpus), ..cpu(own, pod) };
        let value = of(Variable::Gomaxprocs, limits);
        assert_eq!(value.as_deref(), expected, "{own:?} {pod:?} {cpus}");
    }
}

#[test]
fn threads_come_from_the_scaled_request_only_without_a_quota() {
    let known = Known { go_follows_limit: true, ..Known::default() };
    let cases = [
        (None, None, Some(500), Some("1")),
        (None, None, Some(2000), Some("2")),
        (None, None, Some(2001), Some("3")),
        (None, None, Some(64_000), Some("8")),
        (Some(0), None, Some(2000), Some("2")),
        (Some(4000), None, Some(2000), Some("4")),
        (None, Some(1500), Some(4000), Some("1")),
        (None, None, None, None),
    ];
    for (own, pod, scaled_request_millis, expected) in cases {
        let limits = Limits { usable_cpus: Some(8), scaled_request_millis, ..cpu(own, pod) };
        let value = of(Variable::Gomaxprocs, limits);
        assert_eq!(value.as_deref(), expected, "{own:?} {pod:?} {scaled_request_millis:?}");
    }
    // Go 1.25 knows limits, not requests.
    let limits =
        Limits { usable_cpus: Some(8), scaled_request_millis: Some(2000), ..cpu(None, None) };
    let new_go = value(Variable::Gomaxprocs, &limits, &known, HEAP_SHARE);
    assert_eq!(new_go.as_deref(), Some("2"));
}

#[test]
fn go_that_follows_its_limit_is_right_on_few_cpus() {
    let known = Known { go_follows_limit: true, ..Known::default() };
    let cases = [
        // Rounded up, 3 threads, but no more than 2 run.
        (Some(2500), None, 2, None),
        (Some(1000), None, 1, None),
        (Some(1000), None, 2, Some("1")),
        (Some(16_000), None, 8, None),
        // Without a limit of its own Go uses all CPUs.
        (None, Some(16_000), 8, None),
        (None, Some(4000), 8, Some("4")),
    ];
    for (own, pod, cpus, expected) in cases {
        let limits = Limits { usable_cpus: Some(cpus), ..cpu(own, pod) };
        let value = value(Variable::Gomaxprocs, &limits, &known, HEAP_SHARE);
        assert_eq!(value.as_deref(), expected, "{own:?} {pod:?} {cpus}");
    }
}

#[test]
fn gomemlimit_is_70_percent_of_the_limit_or_what_the_live_set_needs() {
    let cases = [
        (None, None, None),
        (Some(512 * MIB), None, Some("358MiB")),
        (Some(1024 * MIB), Some(0), Some("716MiB")),
        (Some(100 * MIB), Some(50 * MIB), Some("70MiB")),
        // 1.25 times 64 MiB.
        (Some(100 * MIB), Some(64 * MIB), Some("80MiB")),
        // 1.25 times 80 MiB would be over 90 % of the limit: the limit is too low for any.
        (Some(100 * MIB), Some(80 * MIB), None),
        (Some(1_000_000), None, Some("700000")),
        (Some(0), None, None),
    ];
    for (memory_bytes, live_set_bytes, expected) in cases {
        let limits = Limits { memory_bytes, ..Limits::default() };
        let known = Known { live_set_bytes, go_follows_limit: true };
        let value = value(Variable::Gomemlimit, &limits, &known, HEAP_SHARE);
        assert_eq!(value.as_deref(), expected, "{memory_bytes:?} {live_set_bytes:?}");
    }
}

#[test]
fn another_share_of_the_memory_limit_gives_another_gomemlimit() {
    let limits = Limits { memory_bytes: Some(100 * MIB), ..Limits::default() };
    let of = |live_set_bytes, share| {
        let known = Known { live_set_bytes, ..Known::default() };
        value(Variable::Gomemlimit, &limits, &known, share)
    };
    assert_eq!(of(None, 0.5).as_deref(), Some("50MiB"));
    assert_eq!(of(Some(64 * MIB), 0.5).as_deref(), Some("80MiB"), "what the live set needs");
    assert_eq!(of(None, MAX_HEAP_SHARE).as_deref(), Some("90MiB"));
}

#[test]
fn only_variables_that_the_container_lacks_are_injected() {
    let request = Request::parse("true", None).unwrap().unwrap();
    let limits = Limits { memory_bytes: Some(100 * MIB), ..cpu(Some(2000), None) };
    let missing = |present: &str| {
        let missing =
            request.missing(|name| name == present, &limits, &Known::default(), HEAP_SHARE);
        missing.into_iter().map(|(variable, _)| variable).collect::<Vec<_>>()
    };
    assert_eq!(missing("PATH"), [Variable::Gomaxprocs, Variable::Gomemlimit]);
    assert_eq!(missing("GOMAXPROCS"), [Variable::Gomemlimit]);
    assert_eq!(missing("GOMEMLIMIT"), [Variable::Gomaxprocs]);
    let none = request.missing(|_| false, &Limits::default(), &Known::default(), HEAP_SHARE);
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn gogc_is_off_only_together_with_an_injected_gomemlimit() {
    let limits = Limits { memory_bytes: Some(100 * MIB), ..cpu(Some(2000), None) };
    let values = |request: &str, present: &str, limits: &Limits, live_set: u64| {
        let request = Request::parse(request, None).unwrap().unwrap();
        let known = Known { live_set_bytes: Some(live_set), ..Known::default() };
        let missing = request.missing(|name| name == present, limits, &known, HEAP_SHARE);
        let pair = |(variable, value): (Variable, String)| (variable.name(), value);
        missing.into_iter().map(pair).collect::<Vec<_>>()
    };
    let both = [("GOGC", "off".to_owned()), ("GOMEMLIMIT", "70MiB".to_owned())];
    assert_eq!(values("GOGC,GOMEMLIMIT", "PATH", &limits, 0), both);
    assert_eq!(values("GOGC,GOMEMLIMIT", "GOGC", &limits, 0), both[1..]);
    assert_eq!(values("GOGC,GOMEMLIMIT", "GOMEMLIMIT", &limits, 0), []);
    assert_eq!(values("GOGC", "PATH", &limits, 0), []);
    assert_eq!(values("GOGC,GOMEMLIMIT", "PATH", &Limits::default(), 0), []);
    let too_large = 80 * MIB;
    assert_eq!(values("GOGC,GOMEMLIMIT", "PATH", &limits, too_large), []);
}

#[test]
fn init_and_ephemeral_containers_are_meant_only_by_name() {
    let all = Request::parse("true", None).unwrap().unwrap();
    let named = Request::parse("true", Some("setup, debug")).unwrap().unwrap();
    let cases = [
        ("app", Some(Place::Containers), true, false),
        ("setup", Some(Place::InitContainers), false, true),
        ("debug", Some(Place::Ephemeral), false, true),
        ("setup", None, false, true),
        ("app", None, false, false),
    ];
    for (name, place, by_all, by_name) in cases {
        assert_eq!(all.selects(name, place), by_all, "{name} {place:?}");
        assert_eq!(named.selects(name, place), by_name, "{name} {place:?}");
    }
}

#[test]
fn a_request_is_true_false_or_a_list_of_known_names() {
    let variables = |text| Request::parse(text, None).map(|request| request.map(|r| r.variables));
    assert_eq!(variables("false"), Ok(None));
    assert_eq!(variables(" true "), Ok(Some(Variable::DEFAULT.to_vec())));
    let list = vec![Variable::Java, Variable::Omp];
    assert_eq!(variables("JAVA_TOOL_OPTIONS, OMP_NUM_THREADS,"), Ok(Some(list)));
    let twice = variables("GOMAXPROCS,RAYON_NUM_THREADS,GOMAXPROCS");
    assert_eq!(twice, Ok(Some(vec![Variable::Gomaxprocs, Variable::Rayon])));
    assert_eq!(variables("GOMAXPROCS,PATH"), Err(UnknownVariable("PATH".into())));
    let text = variables("yes").unwrap_err().to_string();
    assert!(text.starts_with("\"yes\": expected true, false, or a list of GOMAXPROCS, "));
    assert!(variables("").is_err() && variables(",").is_err());
    for variable in Variable::ALL {
        assert_eq!(Variable::by_name(variable.name()), Some(variable));
    }
}
