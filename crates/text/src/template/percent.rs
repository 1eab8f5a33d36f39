//! Python's `'%.2f' % x`: a text with `%` behind it becomes the filter `format`.

/// An expression, or a statement, with `('...'|format(x))` in place of `'...' % x`.
pub(super) fn rewritten(expression: &str) -> Option<String> {
    let mut result = String::new();
    let (mut done, mut at) = (0, 0);
    while at < expression.len() {
        if !expression[at..].starts_with(['"', '\'']) {
            at += expression[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let end = text_end(expression, at);
        let operand =
            operator(expression, end).and_then(|operand| Some((operand, operand_end(expression, operand)?)));
        let Some((operand, operand_end)) = operand else {
            at = end;
            continue;
        };
        let text = &expression[at..end];
        let inside = &expression[operand..operand_end];
        let inside = rewritten(inside).unwrap_or_else(|| inside.to_owned());
        result.push_str(&expression[done..at]);
        // A tuple is the arguments.
        match inside.starts_with('(') && group_end(&inside, 0) == Some(inside.len()) {
            true => result.push_str(&format!("({text}|format{inside})")),
            false => result.push_str(&format!("({text}|format({inside}))")),
        }
        (done, at) = (operand_end, operand_end);
    }
    (done > 0).then(|| result + &expression[done..])
}

/// Where the operand of a `%` at `at` begins.
fn operator(expression: &str, at: usize) -> Option<usize> {
    let rest = expression[at..].trim_start().strip_prefix('%')?.trim_start();
    (!rest.starts_with('}')).then(|| expression.len() - rest.len())
}

/// The end of an operand: signs, a value, and the attributes, subscripts, calls and filters behind
/// it.
fn operand_end(expression: &str, start: usize) -> Option<usize> {
    let signs = expression[start..].find(|c: char| !"+- ".contains(c))?;
    let mut at = atom_end(expression, start + signs)?;
    loop {
        let rest = &expression[at..];
        let trimmed = rest.trim_start();
        let spaces = rest.len() - trimmed.len();
        at = match trimmed.chars().next() {
            Some('(' | '[') => group_end(expression, at + spaces)?,
            Some('.' | '|') => {
                let name = trimmed[1..].trim_start();
                name_end(expression, expression.len() - name.len())?
            }
            _ => return Some(at),
        };
    }
}

fn atom_end(expression: &str, start: usize) -> Option<usize> {
    match expression[start..].chars().next()? {
        '(' | '[' | '{' => group_end(expression, start),
        '"' | '\'' => Some(text_end(expression, start)),
        '0'..='9' => {
            let number = |c: char| !(c.is_alphanumeric() || c == '.' || c == '_');
            Some(expression[start..].find(number).map_or(expression.len(), |end| start + end))
        }
        _ => name_end(expression, start),
    }
}

fn name_end(expression: &str, start: usize) -> Option<usize> {
    let other = |c: char| !(c.is_alphanumeric() || c == '_');
    let end = expression[start..].find(other).map_or(expression.len(), |end| start + end);
    (end > start).then_some(end)
}

/// The end of the text whose quote is at `start`.
fn text_end(expression: &str, start: usize) -> usize {
    let mut characters = expression[start..].char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if Some(character) == quote {
            return start + at + 1;
        }
    }
    expression.len()
}

/// The end of the group whose bracket is at `start`.
fn group_end(expression: &str, start: usize) -> Option<usize> {
    let (mut depth, mut at) = (0usize, start);
    while let Some(character) = expression[at..].chars().next() {
        match character {
            '"' | '\'' => {
                at = text_end(expression, at);
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += character.len_utf8();
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_are_formatted() {
        for (source, wanted) in [
            ("'%d' % x", "('%d'|format(x))"),
            ("a ~ '%s-%s' % (x, y[0]) ~ b", "a ~ ('%s-%s'|format(x, y[0])) ~ b"),
            ("\"%.1f\" % -x.y|abs + 1", "(\"%.1f\"|format(-x.y|abs)) + 1"),
            ("'%s' % f(')')[1] % 2", "('%s'|format(f(')')[1])) % 2"),
            ("'%s' % ('%d' % 1)", "('%s'|format(('%d'|format(1))))"),
        ] {
            assert_eq!(rewritten(source).as_deref(), Some(wanted), "{source}");
        }
        for same in ["7 % 4", "x % 'a'", "'a' ~ 1", "'a", "'a' %", "'%d' % (", "x == 'a' and y % 2"] {
            assert_eq!(rewritten(same), None, "{same}");
        }
    }
}
