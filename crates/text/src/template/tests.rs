use super::*;
use crate::{DecodeOptions, TokenType, Tokenizer, TokenizerSpec};
use serde_json::{Map, json};
use std::time::{Duration, UNIX_EPOCH};

mod any;

fn input(messages: serde_json::Value) -> RenderInput {
    let messages = Message::list_from_json(messages.as_array().unwrap()).unwrap();
    RenderInput { messages, ..RenderInput::default() }
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Some("<s>"), Some("</s>")).unwrap()
}

fn render(source: &str, input: &RenderInput) -> Result<String, TemplateError> {
    template(source).render(input)
}

/// Renders a template that looks at no messages.
fn text(source: &str) -> String {
    render(source, &RenderInput::default()).unwrap()
}

#[test]
fn conversations_are_rendered() {
    let source = "{{ bos_token }}{% for message in messages %}\
        [{{ message.role }}] {{ message['content'] }}{{ eos_token }}\n{% endfor %}\
        {% if add_generation_prompt %}[assistant]{% endif %}";
    let mut input = input(json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null},
    ]));
    input.add_generation_prompt = true;
    let rendering = render(source, &input).unwrap();
    assert_eq!(rendering, "<s>[user] Hi</s>\n[assistant] None</s>\n[assistant]");
}

/// Templates come from files that anybody may have written: whatever became of one, it renders or
/// is an error.
#[test]
fn damaged_templates_render_or_are_refused() {
    let whole = "{%- set ns = namespace(n=0) -%}{% for message in messages %}{% if loop.first and message.role == 'system' %}\
        {{ raise_exception('no') }}{% elif message['content'] is string %}[{{ message.role | upper }}] \
        {{- message.content.split('</think>')[-1] | trim }}{% set ns.n = ns.n + loop.index0 %}{{ ns.n // 2 }}\
        {% else %}{{ message | tojson(indent=2) }}{% endif %}{% endfor %}{% macro m(a, b=[1, 2][0:1]) %}{{ a ~ b }}{% endmacro %}\
        {{ m('x') }}{{ strftime_now('%Y') | length }}{% if add_generation_prompt %}{{ '<a>\\n' }}{% endif %}";
    let input = input(json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}]));
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let [mut rendered, mut refused] = [0, 0];
    let mut spec = TokenizerSpec::byte_level("qwen2", &["h i"]);
    spec.push_token("<a>", TokenType::Control);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert!(template(whole).render(&input).is_ok());
    for _ in 0..400 {
        let mut changed: Vec<char> = whole.chars().collect();
        for _ in 0..1 + below(3) {
            let (start, length) = (below(changed.len()), 1 + below(12));
            let piece: Vec<char> = changed[start..(start + length).min(changed.len())].to_vec();
            let (at, removed) = (below(changed.len()), below(3));
            changed.splice(at..(at + removed).min(changed.len()), piece);
        }
        let source: String = changed.into_iter().collect();
        let done = any::render(&source, &input, &tokenizer);
        *if done.is_ok() { &mut rendered } else { &mut refused } += 1;
    }
    assert!(rendered > 20 && refused > 20, "{rendered} and {refused}");
}

#[test]
fn block_tags_swallow_their_lines() {
    let source = "a\n    {% if true %}\nb\n    {% endif %}\nc\n  {{- ' d' }}\n";
    assert_eq!(text(source), "a\nb\nc d");
    assert_eq!(text("{% generation %}\nx{% endgeneration %}"), "x");
}

#[test]
fn pythons_methods_are_there() {
    let source = "{% set t = ' a,b ' %}{{ t.strip().split(',')[-1] }}{{ t.startswith(' ') }}\
        {{ t.lstrip() }}|{{ t.rstrip() }}|{{ 'x'.upper() }}{{ 'ab'.replace('a', 'c') }}\
        {{ t.endswith('b') }}{{ {'k': 1}.get('k') }}{{ {'k': 1}.get('z', 2) }}\
        {% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}";
    assert_eq!(text(source), "bTruea,b | a,b|XcbFalse12b1a2");
}

#[test]
fn namespaces_and_loop_controls_are_there() {
    let source = "{% set ns = namespace(n=0) %}{% for i in range(10) %}\
        {% if i is odd %}{% continue %}{% endif %}{% if i > 6 %}{% break %}{% endif %}\
        {% set ns.n = ns.n + i %}{{ loop.index0 }}{% endfor %}={{ ns.n }}";
    assert_eq!(text(source), "0246=12");
}

#[test]
fn macros_and_slices_are_there() {
    let source = "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('a') }}\
        {{ [1, 2, 3][::-1] | join(',') }}{{ 'abc'[1:] }}{{ none is none }}{{ zzz is defined }}";
    assert_eq!(text(source), "aa3,2,1bcTrueFalse");
}

#[test]
fn tojson_writes_as_python_does() {
    let mut input = RenderInput::default();
    let tool = json!({"z": [1, 2.0, "é\"\n<&'"], "a": {}, "n": null, "t": true, "l": []});
    input.tools = vec![tool];
    let rendered = |source: &str| render(source, &input).unwrap();
    insta::assert_snapshot!(rendered("{{ tools[0] | tojson }}"), @r#"{"z": [1, 2.0, "é\"\n<&'"], "a": {}, "n": null, "t": true, "l": []}"#);
    insta::assert_snapshot!(
        rendered("{{ tools[0] | tojson(ensure_ascii=true, separators=(',', ':'), sort_keys=true) }}"),
        @r#"{"a":{},"l":[],"n":null,"t":true,"z":[1,2.0,"\u00e9\"\n<&'"]}"#
    );
    insta::assert_snapshot!(rendered("{{ {'a': [1, {}], 'b': '👍'} | tojson(indent=2) }}"), @r#"
    {
      "a": [
        1,
        {}
      ],
      "b": "👍"
    }
    "#);
    assert_eq!(rendered("{{ '👍\u{7f}' | tojson(ensure_ascii=true) }}"), r#""\ud83d\udc4d\u007f""#);
    assert_eq!(rendered("{{ '\u{1}\u{7f}' | tojson }}"), "\"\\u0001\u{7f}\"");
    assert_eq!(rendered("{{ {1: 2, none: 3, false: 4} | tojson }}"), r#"{"1": 2, "null": 3, "false": 4}"#);
    assert!(matches!(render("{{ zzz | tojson }}", &input), Err(TemplateError::Render { .. })));
}

#[test]
fn dates_are_told() {
    let now = Some(UNIX_EPOCH + Duration::from_secs(86_400));
    let input = RenderInput { now, ..RenderInput::default() };
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}", &input).unwrap(), "02 Jan 1970");
    let error = render("{{ strftime_now('%Q') }}", &input).unwrap_err();
    assert!(error.to_string().contains("%Q"), "{error}");
    assert_eq!(text("{{ strftime_now('%Y')[:2] }}"), "20");
}

#[test]
fn a_refusal_is_told_in_the_templates_words() {
    let source =
        "\n{% for m in messages %}{{ raise_exception('Roles must alternate: ' + m.role) }}{% endfor %}";
    let error = render(source, &input(json!([{"role": "user", "content": "x"}]))).unwrap_err();
    assert_eq!(error, TemplateError::Raised("Roles must alternate: user".to_owned()));
    let inside = "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}";
    let error = render(inside, &RenderInput::default()).unwrap_err();
    assert_eq!(error, TemplateError::Raised("no".to_owned()));
}

#[test]
fn faults_name_their_line() {
    let error = ChatTemplate::new("a\n{% if %}", None, None).unwrap_err();
    assert!(matches!(&error, TemplateError::Syntax { line: 2, .. }), "{error}");
    let error = render("a\nb\n{{ 'x' + none }}", &RenderInput::default()).unwrap_err();
    assert!(matches!(&error, TemplateError::Render { line: 3, .. }), "{error}");
}

#[test]
fn hostile_templates_end_with_an_error() {
    let endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let doubling = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}\
        {% set ns.s = ns.s + ns.s %}{% endfor %}";
    let json = "{% set ns = namespace(s='ab') %}{% for i in range(14) %}{% set ns.s = ns.s + ns.s %}\
        {% endfor %}{% for i in range(99999) %}{% set x = ns.s | tojson %}{% endfor %}";
    for source in [endless, doubling, json] {
        assert_eq!(render(source, &RenderInput::default()), Err(TemplateError::OutOfFuel));
    }
    let recursion = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(render(recursion, &RenderInput::default()).is_err());
    let deep = "{% set ns = namespace(x=[]) %}{% for i in range(500) %}\
        {% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}";
    assert!(render(deep, &RenderInput::default()).is_err());
}

#[test]
fn hostile_nesting_does_not_exhaust_the_stack() {
    let nest = "{% set ns = namespace(x=[], y=[]) %}{% for i in range(1000) %}{% for j in range(60) %}\
        {% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{% endfor %}";
    for use_it in ["", "{{ ns.x }}", "{{ ns.x == ns.y }}", "{{ ns.x | tojson }}", "{{ [ns.x, ns.y] | sort }}"]
    {
        let _ = render(&format!("{nest}{use_it}"), &RenderInput::default());
    }
    let units = ["(", "-", "not ", "1+", "[", "x.", "x|", "{% if x %}", "{'a':", "1 if 2 else "];
    for unit in units {
        let source = format!("{{{{ {} 1 }}}}", unit.repeat(200_000 / unit.len()));
        let _ =
            ChatTemplate::new(&source, None, None).map(|template| template.render(&RenderInput::default()));
    }
    let source = "x".repeat(MAX_SOURCE_BYTES + 1);
    let error = ChatTemplate::new(&source, None, None).unwrap_err();
    assert_eq!(error, TemplateError::TooLong { bytes: source.len() });
}

/// A namespace that holds itself, and lists that hold each other so often that nobody could walk
/// through them.
#[test]
fn what_cannot_be_walked_is_an_error() {
    let new = "{% set ns = namespace(x=[1], y=[1], z=namespace()) %}";
    for cycle in [
        "{% set ns.x = ns %}",
        "{% set ns.x = [ns] %}",
        "{% set ns.x = {'a': (ns,)} %}",
        "{%- set ns.z.z = ns.z -%}",
        "{% set ns.z.z, a = ns, 1 %}",
    ] {
        let error = render(&format!("{new}{cycle}{{{{ ns }}}}{{{{ ns == ns.z }}}}"), &RenderInput::default());
        assert!(error.unwrap_err().to_string().contains("cannot hold a namespace"), "{cycle}");
    }
    let double = "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = {'a': ns.y, 'b': ns.y} %}{% endfor %}";
    let slice = "{% for i in range(20000) %}{% set ns.x = ns.x[:] %}{% endfor %}";
    let calls = "{% macro m(x, n) %}{% if n %}{{ m([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ m(1, 60) }}";
    for (many, is_error) in [(double, true), (slice, false), (calls, true)] {
        for use_it in ["", "{{ ns.x }}", "{{ ns.x == ns.y }}", "{{ ns.x | string }}", "{{ [ns.x] | sort }}"] {
            let result = render(&format!("{new}{many}{use_it}"), &RenderInput::default());
            assert_eq!(result.is_err(), is_error, "{many}{use_it}: {result:?}");
        }
    }
}

#[test]
fn conversations_fit_into_a_namespace() {
    let source = "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + [m] %}{% endfor %}\
        {{ ns.all | length }}";
    let messages: Vec<_> = (0..2000).map(|i| json!({"role": "user", "content": format!("{i}")})).collect();
    assert_eq!(render(source, &input(json!(messages))).unwrap(), "2000");
}

#[test]
fn the_last_message_can_be_continued() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}";
    let trimming = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}";
    let mut input = input(json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Well, \n"},
    ]));
    input.continue_final_message = true;
    assert_eq!(render(source, &input).unwrap(), "<user>Hi</>\n<assistant>Well, \n");
    assert_eq!(render(trimming, &input).unwrap(), "<user>Hi</>\n<assistant>Well,");
    assert_eq!(render("{{ messages[0].content }}", &input), Err(TemplateError::NothingToContinue));
    input.messages.clear();
    assert_eq!(render(source, &input), Err(TemplateError::NothingToContinue));
    input.add_generation_prompt = true;
    assert_eq!(render(source, &input), Err(TemplateError::GenerationPromptAndContinuation));
}

#[test]
fn text_parts_reach_the_template_as_text() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let source = "{{ messages[0].content }}";
    let joined = input(json!([{"role": "user", "content": parts}]));
    assert_eq!(render(source, &joined).unwrap(), "a\nb");
    let image = input(json!([{"role": "user", "content": [{"type": "image"}]}]));
    assert_eq!(render("{{ messages[0].content[0].type }}", &image).unwrap(), "image");
}

#[test]
fn templates_get_the_forms_that_they_print() {
    let typed = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}";
    assert_eq!(render(typed, &input(json!([{"role": "user", "content": "Hi"}]))).unwrap(), "Hi");
    let call = json!({"function": {"name": "f", "arguments": {"city": "Rome"}}});
    let called = input(json!([{"role": "assistant", "tool_calls": [call]}]));
    let added = "{% for m in messages %}{% for call in m.tool_calls %}\
        {{ '>' + call.function.arguments }}{% endfor %}{% endfor %}";
    assert_eq!(render(added, &called).unwrap(), ">{\"city\":\"Rome\"}");
    assert_eq!(render(&added.replace("'>' +", "'' ~"), &called).unwrap(), "{\"city\":\"Rome\"}");
    assert_eq!(
        render(&added.replace("'>' +", "'>' ~").replace("nts }", "nts | tojson }"), &called).unwrap(),
        ">{\"city\": \"Rome\"}"
    );
}

#[test]
fn values_behave_as_in_python() {
    let mut input = RenderInput::default();
    input.variables.insert("x".to_owned(), json!({"big": 1e20, "small": -1e-7, "one": 1.0}));
    let rendered = |source: &str| render(source, &input).unwrap();
    assert_eq!(rendered("{{ x }}"), "{'big': 1e+20, 'small': -1e-07, 'one': 1.0}");
    assert_eq!(
        rendered("{{ x.big }} {{ x.small ~ '' }} {{ x.big | string }} {{ x | tojson }}"),
        "1e+20 -1e-07 1e+20 {\"big\": 1e+20, \"small\": -1e-07, \"one\": 1.0}"
    );
    assert_eq!(
        rendered(
            "{{ x.big is number }}{{ x.big is float }}{{ x.one is float }}{{ 1 is float }}{{ true is number }}"
        ),
        "TrueTrueTrueFalseTrue"
    );
    assert_eq!(rendered("{{ none is iterable }}{{ 'a' is iterable }}{{ 1 is iterable }}"), "FalseTrueFalse");
    assert_eq!(rendered("{{ 'a' is sequence }}{{ {} is sequence }}{{ none is sequence }}"), "TrueTrueFalse");
    assert_eq!(
        rendered(
            "{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 2.9 | int }} {{ '2.9' | int }} {{ '1e3' | float }} {{ x.small | float }}"
        ),
        "12 0 7 2 2 1000.0 -1e-07"
    );
    assert_eq!(
        rendered("{{ '<b>' | safe + '<i>' + '&' | safe + '\"' }}|{{ '<' | safe }}"),
        "<b>&lt;i&gt;&&#34;|<"
    );
}

#[test]
fn line_ends_are_pythons() {
    assert_eq!(text("a\r\n{% if true %}\r\nb\r{% endif %}c"), "a\nb\nc");
}

#[test]
fn content_cannot_hide_a_spelling_behind_markers() {
    let source = "{{ 'a' | safe + messages[0].content }}";
    let hidden = input(json!([{"role": "user", "content": "<|im_\u{fdd0}end|>\u{fdd1}"}]));
    assert_eq!(render(source, &hidden).unwrap(), "a&lt;|im_\u{fffd}end|&gt;\u{fffd}");
}

#[test]
fn tool_calls_have_objects_for_arguments() {
    let source = "{{ messages[0].tool_calls[0].function.arguments.city }}";
    let call = |arguments: serde_json::Value| {
        input(json!([{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]))
    };
    assert_eq!(render(source, &call(json!("{\"city\": \"Rome\"}"))).unwrap(), "Rome");
    assert_eq!(render(source, &call(json!({"city": "Rome"}))).unwrap(), "Rome");
    let text = "{{ messages[0].tool_calls[0].function.arguments }}";
    assert_eq!(render(text, &call(json!("[oops"))).unwrap(), "[oops");
}

#[test]
fn variables_are_passed_but_do_not_replace_the_conversation() {
    let mut input = input(json!([{"role": "user", "content": "x"}]));
    let variables = json!({"enable_thinking": false, "messages": "gone", "bos_token": "gone"});
    input.variables = variables.as_object().cloned().unwrap_or_else(Map::new);
    let source = "{{ enable_thinking }}{{ messages[0].content }}{{ bos_token }}{{ tools is none }}";
    assert_eq!(render(source, &input).unwrap(), "Falsex<s>True");
}

#[test]
fn malformed_messages_are_refused() {
    for (message, expected) in [
        (json!("hi"), "message 0: not an object"),
        (json!({"content": "x"}), "message 0: has no role"),
        (json!({"role": "user", "content": 3}), "message 0: content must be text or a list of parts"),
    ] {
        let error = Message::list_from_json(&[message]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
