//! Expressions print what Python's jinja2 prints, and what is missing of jinja2 and of Python is
//! named here.
//!
//! `data/templates/expressions.json` has both; `tools/templates/make_expression_references.py`
//! recorded it.

use minijinja::{ErrorKind, Value, context};
use serde_json::Value as Json;

use super::environment;

const RECORDED: &str = include_str!("../../data/templates/expressions.json");

/// Templates that print something else here, or end with an error.
const DIFFERENT: &[&str] = &[
    "{{ '%r' % 'a' }}",
    "{{ 'Stra'.casefold() }}",
    "{{ 1e20 ~ '' }}",
    "{{ [1e20, 1.0] }}",
    "{{ {'a': 1e20} }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m(1) }}",
    "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}",
    "{{ 'a b'|urlencode }}",
    "{{ {'a': 1}|xmlattr }}",
    "{{ m is callable }}",
    "{% set c = cycler('a', 'b') %}{{ c.current }}",
    "{{ range is callable }}",
];

/// Filters, tests, functions and methods that templates for Python may use and that end with an
/// error here.
const MISSING: &[&str] = &[
    "|random",
    "|urlencode",
    "|urlize",
    "|wordwrap",
    "|xmlattr",
    "is callable",
    "lipsum()",
    "str.casefold",
    "str.encode",
    "str.format_map",
    "str.maketrans",
    "str.translate",
    "dict.fromkeys",
];

fn rendered(source: &str) -> Result<String, minijinja::Error> {
    let environment = environment::compile("t", source)?;
    environment.get_template("t")?.render(context!())
}

#[test]
fn expressions_print_as_in_python() {
    let recorded: Json = serde_json::from_str(RECORDED).unwrap();
    let mut wrong = Vec::new();
    for pair in recorded["templates"].as_array().unwrap() {
        let source = pair[0].as_str().unwrap();
        let found = rendered(source);
        let same = match (&found, pair[1].as_str()) {
            (Ok(found), Some(expected)) => found == expected,
            (Err(_), None) => true,
            _ => false,
        };
        if same == DIFFERENT.contains(&source) {
            wrong.push(format!("{source}\n  {found:?}\n  {}", pair[1]));
        }
    }
    assert!(wrong.is_empty(), "{} templates:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_missing_is_named() {
    let recorded: Json = serde_json::from_str(RECORDED).unwrap();
    let names = |json: &Json| -> Vec<String> {
        match json {
            Json::Object(map) => map.keys().cloned().collect(),
            json => json.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
        }
    };
    let holds = |source: String| rendered(&source).unwrap() == "True";
    let mut missing = Vec::new();
    let filters = names(&recorded["filters"])
        .into_iter()
        .filter(|name| !holds(format!("{{{{ '{name}' is filter }}}}")));
    missing.extend(filters.map(|name| format!("|{name}")));
    let tests =
        names(&recorded["tests"]).into_iter().filter(|name| !holds(format!("{{{{ '{name}' is test }}}}")));
    missing.extend(tests.map(|name| format!("is {name}")));
    let functions = names(&recorded["functions"])
        .into_iter()
        .filter(|name| !holds(format!("{{{{ {name} is defined }}}}")));
    missing.extend(functions.map(|name| format!("{name}()")));
    for (kind, value) in [("str", "'a'"), ("list", "[1]"), ("dict", "{'a': 1}")] {
        let unknown = names(&recorded["methods"][kind]).into_iter().filter(|name| {
            let error = rendered(&format!("{{{{ {value}.{name}(1, 2, 3, 4, 5, 6) }}}}")).err();
            error.is_some_and(|error| error.kind() == ErrorKind::UnknownMethod)
        });
        missing.extend(unknown.map(|name| format!("{kind}.{name}")));
    }
    assert_eq!(missing, MISSING);
}

/// Every parameter that a filter of jinja2 has may be given by name.
#[test]
fn parameters_have_names() {
    let recorded: Json = serde_json::from_str(RECORDED).unwrap();
    let mut unknown = Vec::new();
    for (filter, parameters) in recorded["filters"].as_object().unwrap() {
        for parameter in parameters.as_array().unwrap() {
            let source = format!("{{{{ x|{filter}({}=1) }}}}", parameter.as_str().unwrap());
            let mut environment = environment::compile("t", &source).unwrap();
            environment.add_global("x", Value::from("x"));
            let error = environment.get_template("t").unwrap().render(context!()).err();
            if error.is_some_and(|error| {
                matches!(error.kind(), ErrorKind::TooManyArguments) || error.to_string().contains("keyword")
            }) {
                unknown.push(source);
            }
        }
    }
    // It needs an attribute.
    assert_eq!(unknown, ["{{ x|groupby(default=1) }}"]);
}
