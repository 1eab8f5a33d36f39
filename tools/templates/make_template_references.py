"""Records what Python's jinja2 makes of chat templates.

    make_template_references.py TEMPLATES OUT MODEL.gguf... [--dump FOLDER]

Renders every template (the .jinja files of the folder TEMPLATES, and those inside the model files) with each conversation
of crates/text/data/templates/conversations.json, as the transformers library sets jinja2 up. OUT gets, for each template,
the digest of its text and of each rendering: the first 32 hexadecimal digits of SHA-256; `!` and the words where the
template refuses by raise_exception; `?` and the error's class where it fails otherwise. --dump also writes the renderings.
Needs the packages jinja2 and gguf.
"""

import argparse
import copy
import datetime
import hashlib
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERSATIONS = ROOT / "crates/text/data/templates/conversations.json"
NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)
TAG = "CONTINUE_HERE "


class Raised(Exception):
    pass


class Generation(jinja2.ext.Extension):
    """The tags that mark what a model is trained on; here they print what they hold."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.If(jinja2.nodes.Const(True), body, [], []).set_lineno(line)


def raise_exception(words):
    raise Raised(words)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return made


def render(template, conversation):
    conversation = copy.deepcopy(conversation)
    messages = conversation["messages"]
    goes_on = conversation.get("continue_final_message", False)
    if goes_on:
        messages[-1]["content"] += TAG
    variables = {
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "documents": None,
        **conversation.get("variables", {}),
        "messages": messages,
        "tools": conversation.get("tools"),
        "add_generation_prompt": conversation.get("add_generation_prompt", False),
    }
    text = template.render(**variables)
    if not goes_on:
        return text
    at = text.rindex(TAG.strip())
    kept = text[:at]
    return kept if text[at : at + len(TAG)] == TAG else kept.rstrip()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def outcome(source, conversation):
    try:
        text = render(environment().from_string(source), conversation)
    except Raised as raised:
        return "!" + str(raised), None
    except Exception as error:
        return "?" + type(error).__name__, f"{type(error).__name__}: {error}"
    return digest(text), text


def templates(folder, models):
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        yield path.name, path.read_bytes().decode()
    if models:
        import gguf

        for path in sorted(models):
            field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
            if field is not None:
                yield pathlib.Path(path).name, field.contents()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("templates")
    parser.add_argument("out")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--dump")
    args = parser.parse_args()
    conversations = json.loads(CONVERSATIONS.read_text(encoding="utf-8"))
    rows = {}
    for name, source in templates(args.templates, args.models):
        row = rows[name] = {"source": digest(source), "renderings": {}}
        for conversation in conversations:
            row["renderings"][conversation["name"]], text = outcome(source, conversation)
            if args.dump and text is not None:
                folder = pathlib.Path(args.dump) / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / conversation["name"]).write_bytes(text.encode())
    pathlib.Path(args.out).write_text(json.dumps(rows, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
