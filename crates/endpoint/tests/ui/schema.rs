//! Answers of the JSON API against the OpenAPI document.

use serde_json::Value;

/// The documented schema of a path's answer, in which properties that it does not list are errors.
pub(crate) fn schema(document: &Value, path: &str, status: &str) -> Value {
    let response = &document["paths"][path]["get"]["responses"][status];
    let mut schema = response["content"]["application/json"]["schema"].clone();
    assert!(schema.is_object(), "{path}: no schema for {status}");
    schema["components"] = document["components"].clone();
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("properties").is_some_and(Value::is_object)
                && !fields.contains_key("additionalProperties")
            {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Checks an answer against its schema in the OpenAPI document.
pub(crate) fn assert_valid(document: &Value, path: &str, status: &str, answer: &Value) {
    let schema = schema(document, path, status);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(answer)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{path}: {errors:#?}\n{answer:#}");
}
