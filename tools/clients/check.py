"""Checks a running minfer server with the clients that people use.

    python check.py http://127.0.0.1:8080

The model behind it should be SmolLM2 or Qwen2.5: the checks read forms and counts, not sense.
"""

import json
import sys
import traceback

import anthropic
import ollama
import openai

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "What will the weather be in Paris?"}]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def assert_fits(arguments):
    assert set(arguments) == {"city", "unit", "days"}, arguments
    assert arguments["unit"] in ("celsius", "fahrenheit") and 1 <= arguments["days"] <= 9, arguments


# OpenAI


@check
def openai_plain_and_stream(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    name = client.models.list().data[0].id
    whole = client.chat.completions.create(model=name, messages=QUESTION, seed=1, max_tokens=20)
    assert whole.model == name and whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(
        client.chat.completions.create(
            model=name, messages=QUESTION, seed=1, max_tokens=20, stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


@check
def openai_several_answers_repeat(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")

    def ask():
        answer = client.chat.completions.create(model="any", messages=QUESTION, seed=3, n=3, max_tokens=15)
        return [choice.message.content for choice in answer.choices]

    first = ask()
    assert first == ask() and len(set(first)) > 1, first


@check
def openai_logprobs(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    answer = client.chat.completions.create(
        model="any", messages=QUESTION, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 3 for token in content)
    legacy = client.completions.create(model="any", prompt="The sky is", temperature=0, max_tokens=4, logprobs=2)
    assert len(legacy.choices[0].logprobs.token_logprobs) == 4


@check
def openai_strict_schema(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    answer = client.chat.completions.create(
        model="any", messages=QUESTION, seed=1, max_tokens=200,
        response_format={"type": "json_schema", "json_schema": {"name": "w", "strict": True, "schema": SCHEMA}},
    )
    assert_fits(json.loads(answer.choices[0].message.content))


@check
def openai_tools(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    tools = [{"type": "function", "function": {"name": "weather", "description": "Forecast", "parameters": SCHEMA}}]
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        asked = dict(model="any", messages=QUESTION, seed=1, max_tokens=300, tools=tools, tool_choice=choice,
                     parallel_tool_calls=False)
        answer = client.chat.completions.create(**asked)
        assert answer.choices[0].finish_reason == "tool_calls"
        [call] = answer.choices[0].message.tool_calls
        assert_fits(json.loads(call.function.arguments))
        pieces = ""
        for chunk in client.chat.completions.create(stream=True, **asked):
            for part in chunk.choices[0].delta.tool_calls or []:
                pieces += part.function.arguments or ""
        assert pieces == call.function.arguments
        # The call and its result go back to the model.
        turn = QUESTION + [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
        again = client.chat.completions.create(model="any", messages=turn, tools=tools, max_tokens=10)
        assert again.choices[0].finish_reason in ("stop", "length", "tool_calls")


@check
def openai_errors(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    try:
        client.chat.completions.create(model="any", messages=[], max_tokens=1)
        raise AssertionError("no messages were accepted")
    except openai.BadRequestError as error:
        assert error.body["param"] == "messages"
    try:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "word " * 200_000}])
        raise AssertionError("a prompt that is too long was accepted")
    except openai.BadRequestError as error:
        assert error.body["type"] == "exceed_context_size_error" and error.body["n_ctx"] > 0


@check
def openai_responses(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    asked = dict(model="any", instructions="Be brief.", input="Say hello.", max_output_tokens=20, temperature=0)
    whole = client.responses.create(**asked)
    assert whole.status in ("completed", "incomplete") and whole.usage.output_tokens > 0
    events = list(client.responses.create(stream=True, **asked))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    asked = dict(model="any", input=QUESTION, tools=tools, tool_choice="required", max_output_tokens=300,
                 parallel_tool_calls=False)
    [call] = client.responses.create(**asked).output
    assert_fits(json.loads(call.arguments))
    turn = QUESTION + [call, {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    assert client.responses.create(model="any", input=turn, tools=tools, max_output_tokens=10).output
    form = {"format": {"type": "json_schema", "name": "w", "schema": SCHEMA, "strict": True}}
    assert_fits(json.loads(client.responses.create(model="any", input=QUESTION, text=form).output_text))


# Anthropic

GREEDY = {"temperature": 0}


@check
def anthropic_messages(url):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    asked = dict(model="any", max_tokens=20, system="Be brief.", messages=QUESTION, extra_body=GREEDY)
    whole = client.messages.create(**asked)
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.output_tokens > 0
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == whole.content[0].text == last.content[0].text
    assert last.stop_reason == whole.stop_reason
    counted = client.messages.count_tokens(model="any", system="Be brief.", messages=QUESTION)
    usage = whole.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    formed = client.messages.create(
        model="any", max_tokens=200, messages=QUESTION,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    assert_fits(json.loads(formed.content[0].text))
    stopped = client.messages.create(**{**asked, "stop_sequences": [text[3:6]]})
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[3:6]


@check
def anthropic_tools(url):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    tools = [{"name": "weather", "description": "Forecast", "input_schema": SCHEMA}]
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
        asked = dict(model="any", max_tokens=300, messages=QUESTION, tools=tools, tool_choice=choice, extra_body=GREEDY)
        whole = client.messages.create(**asked)
        assert whole.stop_reason == "tool_use"
        call = whole.content[-1]
        assert_fits(call.input)
        with client.messages.stream(**asked) as stream:
            assert stream.get_final_message().content[-1].input == call.input
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        turn = QUESTION + [
            {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}
        ]
        assert client.messages.create(model="any", max_tokens=10, messages=turn, tools=tools).content is not None


@check
def anthropic_errors(url):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    try:
        client.messages.create(model="any", max_tokens=5, messages=[])
        raise AssertionError("no messages were accepted")
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"


# Ollama


@check
def ollama_chat_and_generate(url):
    client = ollama.Client(host=url)
    options = {"temperature": 0, "num_predict": 20}
    name = client.list().models[0].model
    whole = client.chat(model=name, messages=QUESTION, options=options)
    assert whole.done and whole.eval_count > 0 and whole.prompt_eval_count > 0
    parts = list(client.chat(model=name, messages=QUESTION, options=options, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].done_reason in ("stop", "length")
    written = client.generate(model=name, prompt="The sky is", raw=True, options=options)
    parts = list(client.generate(model=name, prompt="The sky is", raw=True, options=options, stream=True))
    assert "".join(part.response for part in parts) == written.response and written.response
    assert client.show(name).details.family and client.ps().models


@check
def ollama_forms_and_tools(url):
    client = ollama.Client(host=url)
    formed = client.chat(model="any", messages=QUESTION, format=SCHEMA, options={"num_predict": 200})
    assert_fits(json.loads(formed.message.content))
    tools = [{"type": "function", "function": {"name": "weather", "description": "Forecast", "parameters": SCHEMA}}]
    answer = client.chat(model="any", messages=QUESTION, tools=tools, options={"num_predict": 60})
    assert answer.message.content or answer.message.tool_calls
    try:
        client.chat(model="any", messages=[{"role": "robot", "content": "a"}])
        raise AssertionError("an unknown role was accepted")
    except ollama.ResponseError as error:
        assert error.status_code == 400 and "role" in error.error


def main():
    url = sys.argv[1].rstrip("/")
    failed = 0
    for function in CHECKS:
        try:
            function(url)
            print("ok    ", function.__name__)
        except Exception:
            failed += 1
            print("FAILED", function.__name__)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


main()
