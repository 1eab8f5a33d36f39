//! Filters with the parameters that jinja2 gives them, by position and by name.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};
use minijinja_contrib::filters as contrib;

use super::python;

/// How the engine's own filter takes what a template gives it.
#[derive(Clone, Copy)]
enum Takes {
    /// By position.
    Positions,
    /// By name.
    Names,
}

/// Registers every filter whose parameters the engine takes in fewer ways than jinja2.
pub(super) fn register(environment: &mut Environment<'static>) {
    use Takes::{Names, Positions};
    let mut add = |name, parameters, takes, filter| named(environment, name, parameters, takes, filter);
    add("default", &["default_value", "boolean"], Positions, Value::from_function(filters::default));
    add("d", &["default_value", "boolean"], Positions, Value::from_function(filters::default));
    add("int", &["default", "base"], Positions, Value::from_function(python::to_int));
    add("float", &["default"], Positions, Value::from_function(python::to_float));
    add("join", &["d", "attribute"], Positions, Value::from_function(filters::join));
    add("replace", &["old", "new", "count"], Positions, Value::from_function(replace));
    add("trim", &["chars"], Positions, Value::from_function(filters::trim));
    add("batch", &["linecount", "fill_with"], Positions, Value::from_function(filters::batch));
    add("slice", &["slices", "fill_with"], Positions, Value::from_function(filters::slice));
    add("attr", &["name"], Positions, Value::from_function(filters::attr));
    add("center", &["width"], Positions, Value::from_function(center));
    add("filesizeformat", &["binary"], Positions, Value::from_function(contrib::filesizeformat));
    add("dictsort", &["case_sensitive", "by", "reverse"], Names, Value::from_function(filters::dictsort));
    add("sort", &["reverse", "case_sensitive", "attribute"], Names, Value::from_function(filters::sort));
    add("unique", &["case_sensitive", "attribute"], Names, Value::from_function(filters::unique));
    add("min", &["case_sensitive", "attribute"], Names, Value::from_function(filters::min));
    add("max", &["case_sensitive", "attribute"], Names, Value::from_function(filters::max));
    add(
        "groupby",
        &["attribute", "default", "case_sensitive"],
        Names,
        Value::from_function(filters::groupby),
    );
    add(
        "truncate",
        &["length", "killwords", "end", "leeway"],
        Names,
        Value::from_function(contrib::truncate),
    );
    environment
        .add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.to_vec()));
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_filter("striptags", contrib::striptags);
    environment.add_filter("wordcount", |text: &str| words(text).count());
    environment
        .add_filter("forceescape", |state: &mut State<'_, '_>, value: &Value| filters::escape(state, value));
}

/// Registers `filter` under `name` with the names of its parameters behind the value.
fn named(
    environment: &mut Environment<'static>,
    name: &'static str,
    parameters: &'static [&'static str],
    takes: Takes,
    filter: Value,
) {
    environment.add_filter(name, move |state: &mut State<'_, '_>, given: Rest<ValueOrKwargs>| {
        let given = given.into_values();
        let (given, names): (&[Value], Kwargs) = from_args(&given)?;
        let Some((value, by_position)) = given.split_first() else {
            return Err(Error::from(ErrorKind::MissingArgument));
        };
        if by_position.len() > parameters.len() {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        let mut arguments = vec![Value::UNDEFINED; parameters.len()];
        arguments[..by_position.len()].clone_from_slice(by_position);
        for (argument, parameter) in arguments.iter_mut().zip(parameters).skip(by_position.len()) {
            *argument = names.get::<Option<Value>>(parameter)?.unwrap_or(Value::UNDEFINED);
        }
        names.assert_all_used()?;
        filter.call(state, &arranged(value, arguments, parameters, takes))
    });
}

/// What the engine's filter is called with; arguments that are not given are undefined.
fn arranged(value: &Value, arguments: Vec<Value>, parameters: &[&'static str], takes: Takes) -> Vec<Value> {
    match takes {
        Takes::Positions => {
            let given =
                arguments.iter().rposition(|argument| !argument.is_undefined()).map_or(0, |last| last + 1);
            [value.clone()].into_iter().chain(arguments.into_iter().take(given)).collect()
        }
        Takes::Names => {
            let pairs = parameters.iter().copied().zip(arguments);
            let given: Kwargs = pairs.filter(|(_, argument)| !argument.is_undefined()).collect();
            vec![value.clone(), given.into()]
        }
    }
}

/// `replace(old, new, count=none)`.
fn replace(
    state: &mut State<'_, '_>,
    text: &Value,
    old: &str,
    new: &str,
    count: Option<Value>,
) -> Result<Value, Error> {
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    let count = count.filter(|count| !count.is_none()).and_then(|count| count.as_i64()).unwrap_or(-1);
    let replaced = [Value::from(old), Value::from(new), Value::from(count)];
    minijinja_contrib::pycompat::unknown_method_callback(state, &Value::from(text), "replace", &replaced)
}

fn center(state: &State<'_, '_>, text: &str, width: Option<usize>) -> Result<String, Error> {
    super::text_methods::centered(state, text, width.unwrap_or(80), ' ')
}

/// Runs of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
