//! Sets up minijinja as `transformers` sets up jinja2.

use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::{clock, filters, json, namespaces, percent, python, statements, text_methods};

/// Steps a rendering may take. A step is an instruction or 64 bytes of text,
/// so this also bounds the memory that a template can fill. Megabytes of
/// conversation need a tenth of it.
const FUEL: u64 = 2_000_000;

/// How deep macros and loops may call themselves.
const RECURSION_LIMIT: usize = 200;

/// Compiles `source` under the name `name`.
///
/// Block tags swallow the line that holds them (`trim_blocks` and
/// `lstrip_blocks`), as the `transformers` library sets it.
pub(super) fn compile(name: &'static str, source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(text_methods::call);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter(namespaces::FILTER, namespaces::kept);
    environment.add_function("raise_exception", raise_exception);
    python::register(&mut environment);
    filters::register(&mut environment);
    environment.add_template_owned(name, prepared(source))?;
    Ok(environment)
}

/// The function `strftime_now(format)` at the time `now`, or at the time of
/// the call.
pub(super) fn strftime_now(now: Option<SystemTime>) -> Value {
    Value::from_function(move |format: &str| {
        let now = now.unwrap_or_else(SystemTime::now);
        clock::strftime(now, format).ok_or_else(|| {
            let detail = format!("strftime_now cannot write '{format}'");
            Error::new(ErrorKind::InvalidOperation, detail)
        })
    })
}

/// The message of `raise_exception`, if that ended the rendering.
pub(super) fn raised(error: &Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return Some(raised.0.clone());
        }
        cause = current.source();
    }
    None
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(words: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "raise_exception was called");
    Err(error.with_source(Raised(words)))
}

/// The template with `\n` line ends, and with constructs that only jinja2 supports rewritten.
fn prepared(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    python::with_markup_sums(&statements::rewritten(&source, changed, percent::rewritten))
}

/// Rewrites statements of jinja2 extensions, `%` formatting, and assignments to namespaces.
fn changed(statement: &str) -> Option<String> {
    let formatted = percent::rewritten(statement);
    let statement = formatted.as_deref().unwrap_or(statement);
    without_generation(statement).or_else(|| namespaces::with_filter(statement)).or(formatted.clone())
}

/// A block that always holds in place of `generation` and `endgeneration`, which mark text for
/// training and print nothing. Whitespace controls stay.
fn without_generation(statement: &str) -> Option<String> {
    let word = statements::word(statement);
    match word {
        "generation" => Some(statement.replace(word, "if true")),
        "endgeneration" => Some(statement.replace(word, "endif")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_plain_blocks() {
        let source = "{%- generation -%}a{% endgeneration %}{% if generation %}";
        let expected = "{%- if true -%}a{% endif %}{% if generation %}";
        assert_eq!(prepared(source), expected);
        assert_eq!(prepared("{% generation"), "{% generation");
    }
}
