"""Records what Python's jinja2 makes of expressions, and which filters, tests and methods it has.

    pip install jinja2==3.1.6
    python tools/templates/make_expression_references.py

Writes crates/text/data/templates/expressions.json: the output of each template, `null` where jinja2 fails; the parameters of
its filters behind the value; its tests; the methods of Python's str, list and dict that a sandbox without changes lets a
template call. The environment is that of the transformers library.
"""

import inspect
import json

from make_template_references import ROOT, environment

TARGET = ROOT / "crates/text/data/templates/expressions.json"

TEXT = """
{{ x|default(default_value='d') }} {{ ''|default(default_value='d', boolean=true) }} {{ ''|d('e', true) }}
{{ 'x'|int(default=7) }} {{ '1f'|int(base=16) }} {{ '0x1f'|int(0, 16) }} {{ '12.7'|int }} {{ ' 42 '|int }} {{ 3.9|int }}
{{ 'x'|float(default=1.5) }} {{ '2'|float }} {{ 7|float }}
{{ ['a', 'b']|join(d=', ') }} {{ [{'k': 1}, {'k': 2}]|join('-', attribute='k') }}
{{ 'aXbXc'|replace(old='X', new='-') }} {{ 'aaa'|replace('a', 'b', count=2) }} {{ 'aaa'|replace('a', 'b', 1) }}
{{ '--a--'|trim(chars='-') }}|{{ '  a '|trim }}|
{{ 3.14159|round(precision=2) }} {{ 2.5|round }} {{ 2.1|round(method='ceil') }} {{ 2.567|round(1, 'floor') }}
{{ 'a\\nb'|indent(width=2, first=true) }} {{ 'a\\n\\nb'|indent(2, blank=true) }}
{{ [1, 2, 3]|batch(linecount=2, fill_with=0)|list }} {{ [1, 2, 3]|slice(slices=2, fill_with=0)|list }}
{{ [3, 1, 2]|sort(reverse=true) }} {{ [3, 1, 2]|sort(true) }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A']|sort(case_sensitive=true) }}
{{ ['a', 'A', 'b']|unique|list }} {{ ['a', 'A', 'b']|unique(true)|list }}
{{ {'b': 1, 'a': 2}|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(false, 'value') }} {{ {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) }}
{{ [{'a': 2}, {'a': 1}]|min(attribute='a') }} {{ ['b', 'A']|max(case_sensitive=true) }} {{ ['b', 'A']|max(true) }}
{{ [{'a': 2}, {'a': 1}]|sum(attribute='a') }} {{ [1, 2]|sum(start=10) }}
{{ '%.2f' % 3.14159 }} {{ '%d items' % 3 }} {{ '%s and %s' % ('a', 'b') }} {{ '%05.1f|%-5s|%+d|%x|%%' % (2.25, 'ab', 4, 255) }}
{{ '%s' % 'x'|upper }} {{ '%s' % [1, 2][0] }} {{ 'a' ~ '%02d' % 7 ~ 'b' }} {{ 7 % 4 }} {{ '%s%s' % (1, 2) == '12' }}
{{ '%.1f' % (1 + 2) }} {{ '%r' % 'a' }} {{ '%s' % none }} {{ '%s' % true }} {{ '%c' % 'x' }} {{ '%e' % 12345.678 }} {{ '%g' % 0.0001 }}
{{ '%.2f'|format(1.005) }} {{ '%s-%s'|format('a', 1) }} {{ '%(a)s'|format(a=1) }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b  c'.rsplit(maxsplit=1) }} {{ 'a b  c'.split(none, 1) }} {{ 'a,b'.split(sep=',') }} {{ ' a b '.split() }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ 'prefix-a'.removeprefix('prefix-') }} {{ 'a.txt'.removesuffix('.txt') }} {{ 'a'.removeprefix('b') }}
{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'a'.center(4, '*') }} {{ 'ab'.center(5, '*') }}
{{ 'aBc'.swapcase() }} {{ 'a\\tb'.expandtabs(4) }} {{ 'abcb'.index('b') }} {{ 'abcb'.rindex('b') }} {{ 'Stra'.casefold() }}
{{ 'abcabc'.find('b', 2) }} {{ 'abcabc'.rfind('a', 0, 3) }} {{ 'aXaXa'.count('a', 1) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith(('x', 'c')) }}
{{ '12'.isdecimal() }} {{ '\u00b2'.isdecimal() }} {{ 'a1_'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'Ab Cd'.istitle() }} {{ 'ab'.istitle() }} {{ 'a b'.isprintable() }} {{ 'a\\nb'.isprintable() }}
{{ '\u00bd'.isnumeric() }} {{ '\u00bd'.isdigit() }} {{ '\u00b2'.isdigit() }} {{ ''.isalpha() }} {{ ' '.isspace() }} {{ 'aB'.islower() }}
{{ 'hello wORLD'.title() }} {{ 'hELLO'.capitalize() }} {{ "they're".title() }} {{ 'a\\r\\nb\\x0bc\\n'.splitlines() }} {{ 'a\\nb\\n'.splitlines(true) }} {{ 'a\\nb'.splitlines(keepends=true) }}
{{ 'x'.join(['a', 'b']) }} {{ 'xyxz'.strip('xz') }} {{ '  a '.lstrip() }}| {{ ' a  '.rstrip() }}| {{ 'aaa'.replace('a', 'b', 2) }}
{{ '{} {1}'.format(1, 2) if false else '{0} {1:>4} {x}'.format(1, 2, x='y') }} {{ '{:.2f}'.format(2.005) }} {{ '{:,}'.format(1234567) }}
{{ [1, 2, 1].index(2) }} {{ [1, 2, 1].count(1) }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.items()|list }} {{ {'a': 1}.keys()|list }} {{ {'a': 1}.values()|list }}
{{ {'a': 1}.copy() }} {{ [1].copy() }}
{{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 1.0 }} {{ 0.1 }} {{ 1e-5 }} {{ 1e-4 }} {{ 123456789.125 }} {{ 2 ** 70 }} {{ 10 / 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 1.5e300 * 1 }}
{{ 1e20|string }} {{ 1e20 ~ '' }} {{ [1e20, 1.0] }} {{ {'a': 1e20} }}
{{ [1, 'a', none, true, 1.5, 'it\\'s', "q\\"", 'n\\n'] }} {{ {'a': 'b', 1: none} }} {{ (1, 2) }} {{ (1,) }} {{ [] }} {{ {} }} {{ ['\u00e9', '\\t', '\\\\'] }}
{{ true }} {{ none }} {{ false }} {{ [true]|string }} {{ none|string }} {{ ['a']|string }}
{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m(1) }}
{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}
{{ 'abcdef'|truncate(5) }} {{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(length=9, killwords=true) }} {{ 'foo bar baz qux'|truncate(11, end='') }}
{{ 'ab'|center(6) }}| {{ 'a b c'|wordcount }} {{ 'foo bar'|title }} {{ '<b>x</b> y'|striptags }} {{ 'ab'|list }} {{ 'abc'|first }} {{ [1, 2]|last }} {{ 1000000|filesizeformat }} {{ 1024|filesizeformat(binary=true) }}
{{ [1, 2, 3, 4]|select('even')|list }} {{ [1, 2]|map('string')|join }} {{ [{'a': 1}]|map(attribute='b', default=3)|list }} {{ [{'a': 1}, {'a': 2}]|selectattr('a', 'eq', 2)|list }} {{ [{'a': 1}, {}]|rejectattr('a')|list }}
{{ 'a b'|urlencode }} {{ {'a': 1}|xmlattr }} {{ 'a&b'|e }} {{ 'abc'|reverse }} {{ [1, 2]|reverse|list }} {{ -3|abs }} {{ 'AB'|lower }}
{{ 5 is divisibleby 5 }} {{ 'a' in 'abc' }} {{ 3 is odd }} {{ [] is iterable }} {{ 'x' is string }} {{ {} is mapping }} {{ 1 is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ m is callable }} {{ range is callable }} {{ 'a' is lower }} {{ 'a' is escaped }} {{ 3 is sameas 3 }} {{ 2 is in [1, 2] }}
{{ range(3)|list }} {{ range(1, 6, 2)|list }} {{ dict(a=1) }} {{ [1, 2] + [3] }} {{ 'ab' * 2 }} {{ [0] * 2 }} {{ 'abc'[::-1] }} {{ 'abc'[1:] }} {{ [1, 2, 3][-1] }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }} {% set j = joiner(', ') %}{{ j() }}x{{ j() }}y
{% set c = cycler('a', 'b') %}{{ c.current }}
{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{{ loop.index }}{{ loop.cycle('p', 'q') }}{{ loop.changed(a) }}{% endfor %}
{% set ns = namespace(a=1.0) %}{% set ns.a = ns.a + 1e20 %}{{ ns.a }} {{ ns.a|int }} {{ 5 if x is defined else 'no' }}
{{ 'a'.upper().lower().title() }} {{ ('a' ~ 1 ~ none ~ 1.0) }} {{ 1 == 1.0 }} {{ 'b' > 'a' }} {{ not '' }} {{ 3 and 0 or 'x' }}
"""


def templates():
    for line in TEXT.strip().splitlines():
        if line.startswith("{%"):
            yield line
            continue
        depth, start = 0, 0
        while (at := line.find("{{", start)) >= 0:
            end = line.find(" }}", at)
            end = len(line) if end < 0 else end + 3
            yield line[at:end]
            start = end


def outcome(made, source):
    try:
        return made.from_string(source).render()
    except Exception:
        return None


def main() -> None:
    made = environment()
    filters = {}
    for name, function in sorted(made.filters.items()):
        names = list(inspect.signature(function).parameters.values())
        context = getattr(function, "jinja_pass_arg", None) is not None
        filters[name] = [str(name.name) for name in names[1 + context :] if name.kind == name.POSITIONAL_OR_KEYWORD]
    changing = set("append clear extend insert pop popitem remove reverse setdefault sort update".split())
    methods = {
        kind.__name__: [name for name in dir(kind) if not name.startswith("_") and name not in (changing if kind is not str else ())]
        for kind in (str, list, dict)
    }
    found = {
        "templates": [[source, outcome(made, source)] for source in templates()],
        "filters": filters,
        "tests": sorted(made.tests),
        "functions": sorted(set(made.globals) - {"raise_exception", "strftime_now"}),
        "methods": methods,
    }
    TARGET.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
