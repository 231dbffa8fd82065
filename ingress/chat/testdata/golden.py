#!/usr/bin/env python3
"""Writes the golden files of ingress/chat and ingress/chat/jinja with Python's jinja2, set up as transformers does.

    python3 -m venv /tmp/jinja && /tmp/jinja/bin/pip install jinja2==3.1.6
    /tmp/jinja/bin/python ingress/chat/testdata/golden.py

templates/*.jinja are the chat templates of public models, conversations.json what is rendered with each of them, and
../jinja/testdata/snippets.txt small templates, separated by lines of four dashes, that cover the language.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 6, 13, 5, 9)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's text; as in transformers, but without recording where it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, variables):
    try:
        return {"text": environment().from_string(source).render(**variables)}
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"syntax": str(e)}
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:
            return {"raised": str(e)}
        return {"error": type(e).__name__}
    except Exception as e:
        return {"error": type(e).__name__}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def main():
    snippets = (HERE / "../jinja/testdata/snippets.txt").read_text()[:-1].split("\n----\n")
    variables = json.loads((HERE / "../jinja/testdata/variables.json").read_text())
    write(HERE / "../jinja/testdata/snippets.golden.json", [render(s, variables) for s in snippets])

    conversations = json.loads((HERE / "conversations.json").read_text())
    golden = {}
    for template in sorted((HERE / "templates").glob("*.jinja")):
        for name, messages in conversations.items():
            for prompt in (True, False):
                golden[f"{template.stem}/{name}/{'prompt' if prompt else 'whole'}"] = render(template.read_text(), {
                    "messages": messages, "add_generation_prompt": prompt, "bos_token": "<BOS>", "eos_token": "<EOS>",
                    "tools": None, "documents": None})
    write(HERE / "golden.json", golden)


if __name__ == "__main__":
    main()
