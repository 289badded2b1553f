//! What may be the key and the value of a label, in the words in which upstream refuses
//! what may not.

use crate::api::labels::{MAX_VALUE, is_key, is_name, is_subdomain, is_value};
use std::collections::BTreeSet;

/// The rule of names, in upstream's words; the examples have two spaces there too.
const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
     and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
     used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Whether a text is the key of a label; an error says why not.
pub fn check_key(key: &str) -> Result<(), String> {
    if is_key(key) {
        return Ok(());
    }
    let parts: Vec<&str> = key.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return Err(format!(
                "<nil>: Invalid value: {key:?}: a valid label key {NAME_RULE} with an optional DNS \
                 subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if !is_subdomain(prefix) => wrong.push(
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        ),
        _ => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_VALUE {
        wrong.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        wrong.push(format!("name part {NAME_RULE}"));
    }
    Err(format!(
        "<nil>: Invalid value: {key:?}: {}",
        wrong.join("; ")
    ))
}

/// The values, if each can be one of the label `key`; an error says why not.
pub fn check_values(key: &str, values: BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    let wrong: Vec<String> = values
        .iter()
        .enumerate()
        .filter(|(_, value)| !is_value(value))
        .map(|(number, value)| wrong_value(number, key, value))
        .collect();
    match wrong.as_slice() {
        [] => Ok(values),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn wrong_value(number: usize, key: &str, value: &str) -> String {
    let why = if value.len() > MAX_VALUE {
        "must be no more than 63 bytes"
    } else {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
         '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    };
    format!("values[{number}][{key}]: Invalid value: {value:?}: {why}")
}
