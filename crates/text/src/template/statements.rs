//! Finding the statements, `{% ... %}`, and expressions, `{{ ... }}`, of a template's source, to
//! put others in their place.

/// The template with what `statement` and `expression` make of the inside of each, whitespace
/// controls included; `None` leaves one as it is. Raw blocks, comments and strings have none.
pub(super) fn rewritten(
    source: &str,
    statement: impl Fn(&str) -> Option<String>,
    expression: impl Fn(&str) -> Option<String>,
) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, inside, end)) = next_block(rest) {
        let is_statement = before.ends_with('%');
        let changed = if is_statement { statement(inside) } else { expression(inside) };
        result.push_str(before);
        result.push_str(changed.as_deref().unwrap_or(inside));
        rest = &rest[end..];
        if is_statement && word(inside) == "raw" {
            let raw = rest.find("endraw").unwrap_or(rest.len());
            result.push_str(&rest[..raw]);
            rest = &rest[raw..];
        }
    }
    result.push_str(rest);
    result
}

/// The inside of a statement without white space and whitespace control.
pub(super) fn word(statement: &str) -> &str {
    statement.trim_matches(['-', '+', ' ', '\t', '\r', '\n'])
}

/// The text up to the next statement or expression, its opening included, what is inside, and where
/// that ends.
fn next_block(source: &str) -> Option<(&str, &str, usize)> {
    let mut at = 0;
    loop {
        let open = at + source[at..].find('{')?;
        let inside = open + 2;
        match source.get(open..inside) {
            Some(opening @ ("{%" | "{{")) => {
                let closing = if opening == "{%" { "%}" } else { "}}" };
                let end = inside + end_of(&source[inside..], closing)?;
                return Some((&source[..inside], &source[inside..end], end));
            }
            Some("{#") => at = inside + source[inside..].find("#}")?,
            _ => at = open + 1,
        }
    }
}

/// Where an expression's closing is, which is not in a string.
fn end_of(source: &str, closing: &str) -> Option<usize> {
    let mut quote = None;
    let mut characters = source.char_indices();
    while let Some((at, character)) = characters.next() {
        match quote {
            Some(_) if character == '\\' => drop(characters.next()),
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if source[at..].starts_with(closing) => return Some(at),
            None if ['"', '\''].contains(&character) => quote = Some(character),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_what_the_engine_takes_for_them() {
        let changed = |source: &str| {
            rewritten(source, |inside| word(inside).starts_with('s').then(|| " X ".to_owned()), |_| None)
        };
        for (source, wanted) in [
            ("a{% s %}b{%- s -%}c{% t %}", "a{% X %}b{% X %}c{% t %}"),
            ("{%s = '%}' ~ \"\\\"%}\"%}c", "{% X %}c"),
            ("{% raw %}{% s %}{% endraw %}{% s %}", "{% raw %}{% s %}{% endraw %}{% X %}"),
            ("{# {% s %} #}{ {% s %}{{ '{% s %}' }}", "{# {% s %} #}{ {% X %}{{ '{% s %}' }}"),
            ("{% s %}{% s = 1", "{% X %}{% s = 1"),
        ] {
            assert_eq!(changed(source), wanted);
        }
    }
}
