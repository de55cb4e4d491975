//! The chart's schema of its value `config`, compared with the options: helm then rejects what the
//! agent would.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args as _, Command};
use console::{ByteSize, HumanDuration};
use serde_json::{Value, json};

use super::{ListenAddress, Options, RecordDir, camel_case};

const SCHEMA: &str = include_str!("../../deploy/chart/cpuwarden/values.schema.json");
/// The templates that check what a schema cannot.
const HELPERS: &str = include_str!("../../deploy/chart/cpuwarden/templates/_helpers.tpl");

/// Options that the chart sets from other values, so `config` has none of them.
const OF_THE_CHART: [&str; 16] = [
    "cadvisorMetrics",
    "cgroupRoot",
    "events",
    "injectEnv",
    "kubeletUrl",
    "listen",
    "metrics",
    "metricsAuth",
    "nodeCondition",
    "nodeName",
    "nri",
    "nriSocket",
    "schedTraceHint",
    "tlsCert",
    "tlsKey",
    "ui",
];

/// Keys that no flag has.
const IN_THE_FILE_ONLY: [&str; 3] = ["authorization", "injectProfiles", "profiles"];

/// Bounds of the range that the help names: inclusive minimum, exclusive minimum, maximum.
fn bounds(arg: &Arg) -> [Option<f64>; 3] {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let range = help.split("[range: ").nth(1).and_then(|rest| rest.split(']').next());
    let range = range.unwrap_or_default();
    let number = |text: &str| text.trim().parse::<f64>().ok();
    if let Some((from, to)) = range.split_once(" to ") {
        return [number(from), None, number(to)];
    }
    let mut bounds = [None; 3];
    for part in range.split(',').map(str::trim) {
        for (at, prefix) in ["at least ", "above ", "at most "].into_iter().enumerate() {
            bounds[at] = bounds[at].or_else(|| number(part.strip_prefix(prefix)?));
        }
    }
    bounds
}

/// Asserts that the template has the range of durations that the help names.
fn assert_range(arg: &Arg, key: &str) {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let Some((_, range)) = help.split_once("[range: ") else { return };
    let (range, _) = range.split_once(']').unwrap();
    let (from, to) = range.split_once(" to ").unwrap_or_else(|| {
        ("0s", range.strip_prefix("at most ").unwrap_or_else(|| panic!("{key}: {range}")))
    });
    let list = format!("(list {key:?} {from:?} {to:?})");
    assert!(HELPERS.contains(&list), "{list} is not in _helpers.tpl");
}

fn assert_matches(arg: &Arg, key: &str, schema: &Value) {
    let wrong = |expected: &str| panic!("config.{key}: expected {expected}, found {schema}");
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        assert_eq!(schema, &json!({"type": "boolean"}), "config.{key}");
        return;
    }
    if !values.is_empty() {
        // YAML reads off and on as booleans.
        let mut names: Vec<Value> = values.iter().map(|name| json!(name)).collect();
        names.extend(values.contains(&"off".to_owned()).then_some(json!(false)));
        names.extend(values.contains(&"on".to_owned()).then_some(json!(true)));
        assert_eq!(schema, &json!({ "enum": names }), "config.{key}");
        if names.contains(&json!(false)) {
            let (keys, _) = HELPERS.split_once("kindIs \"bool\"").unwrap();
            let becomes_text = keys.contains(&format!("{key:?}"));
            assert!(becomes_text, "config.{key}: off reaches the agent as a boolean");
        }
        return;
    }
    let parser = arg.get_value_parser().type_id();
    let is = |id: TypeId| parser == id;
    let [least, above, most] = ["minimum", "exclusiveMinimum", "maximum"]
        .map(|name| schema.get(name).and_then(Value::as_f64));
    let is_number = [TypeId::of::<usize>(), TypeId::of::<u64>()].into_iter().any(is);
    if is_number && schema["type"] != "integer" {
        wrong("an integer");
    }
    if is(TypeId::of::<f64>()) && schema["type"] != json!(["number", "string"]) {
        wrong("a number");
    }
    if is_number || is(TypeId::of::<f64>()) {
        assert_eq!([least, above, most], bounds(arg), "config.{key}: {schema}");
    } else if is(TypeId::of::<HumanDuration>()) {
        assert_eq!(schema, &json!({"$ref": "#/definitions/span"}), "config.{key}");
        assert_range(arg, key);
    } else if is(TypeId::of::<ByteSize>()) {
        assert_eq!(schema, &json!({"$ref": "#/definitions/size"}), "config.{key}");
    } else {
        let texts = [
            TypeId::of::<String>(),
            TypeId::of::<PathBuf>(),
            TypeId::of::<RecordDir>(),
            TypeId::of::<ListenAddress>(),
        ];
        let is_text = schema["$ref"] == "#/definitions/text"
            || schema["type"] == "string"
            || schema["type"].as_array().is_some_and(|types| types.contains(&json!("string")));
        assert!(texts.into_iter().any(is) && is_text, "config.{key}: {schema}");
    }
}

#[test]
fn every_key_of_the_charts_config_has_the_type_and_range_of_its_option() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let config = &schema["properties"]["config"];
    assert_eq!(config["additionalProperties"], false);
    let known = config["properties"].as_object().unwrap();
    let options = Options::augment_args(Command::new("options"));
    let mut keys: Vec<String> = IN_THE_FILE_ONLY.map(str::to_owned).to_vec();
    for arg in options.get_arguments() {
        let key = camel_case(arg.get_long().unwrap());
        if OF_THE_CHART.contains(&&*key) {
            continue;
        }
        let schema = known.get(&key).unwrap_or_else(|| panic!("config.{key} is not in the schema"));
        assert_matches(arg, &key, schema);
        keys.push(key);
    }
    keys.sort_unstable();
    let mut named: Vec<&String> = known.keys().collect();
    named.sort_unstable();
    assert_eq!(named, keys.iter().collect::<Vec<_>>(), "other keys are no option");
}

#[test]
fn keys_of_the_chart_are_options() {
    let options = Options::augment_args(Command::new("options"));
    let flags: Vec<String> =
        options.get_arguments().map(|arg| camel_case(arg.get_long().unwrap())).collect();
    for key in OF_THE_CHART {
        assert!(flags.contains(&key.to_owned()), "{key}");
    }
}
