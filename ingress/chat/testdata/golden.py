#!/usr/bin/env python3
"""Writes golden.json: what Python's jinja2, set up as transformers does, makes of the templates beside this file.

    python3 -m venv /tmp/jinja && /tmp/jinja/bin/pip install jinja2==3.1.6
    /tmp/jinja/bin/python ingress/chat/testdata/golden.py

Every *.jinja here is rendered with every conversation of conversations.json, with and without the generation prompt.
"tools" is left undefined, as this server has none. "error" is what a template says itself with raise_exception; any
other exception is a fault of a template or conversation here and ends the script.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 3, 4, 5, 6, 7)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, messages, prompt):
    case = {"messages": messages, "add_generation_prompt": prompt}
    try:
        case["text"] = environment().from_string(source).render(
            messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")
    except jinja2.exceptions.TemplateError as e:
        if type(e) is not jinja2.exceptions.TemplateError:
            raise
        case["error"] = str(e)
    return case


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    golden = {
        template.stem: {
            name + ("" if prompt else "/whole"): render(template.read_text(), messages, prompt)
            for name, messages in conversations.items() for prompt in (True, False)
        }
        for template in sorted(HERE.glob("*.jinja"))
    }
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
