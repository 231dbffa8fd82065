"""Ask for log-probabilities and for JSON by a schema through the unmodified OpenAI client, which checks the answers' types.

Prints what came as JSON. Usage: structured.py BASE_URL MODEL
"""
import json
import math
import sys
from typing import Literal, Optional

from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field

base_url, model = sys.argv[1:3]
client = OpenAI(base_url=base_url, api_key="not-needed")
messages = [{"role": "user", "content": "Describe a train as JSON."}]


class Wagon(BaseModel):
    kind: Literal["first", "second"]
    seats: int = Field(ge=1, le=99)


class Train(BaseModel):
    name: str = Field(min_length=1, max_length=12)
    wagons: list[Wagon] = Field(min_length=1, max_length=3)
    electric: bool
    note: Optional[Literal["late", "early"]]


def chat(**more):
    return client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0, logprobs=True, top_logprobs=3, **more)


parsed = client.chat.completions.parse(model=model, messages=messages, max_tokens=400, temperature=0, response_format=Train)
anything = client.chat.completions.create(model=model, messages=messages, max_tokens=60, response_format={"type": "json_object"})

whole = chat().choices[0]
entries = whole.logprobs.content
streamed = []
for chunk in chat(stream=True):
    for choice in chunk.choices:
        if choice.logprobs:
            streamed += choice.logprobs.content or []

completion = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=2).choices[0]

try:
    client.chat.completions.create(
        model=model, messages=messages,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "string", "pattern": "a+"}}})
    refused = None
except BadRequestError as e:
    refused = {"param": e.param, "message": e.message}

print(json.dumps({
    "train": parsed.choices[0].message.parsed.model_dump() if parsed.choices[0].message.parsed else None,
    "finish": parsed.choices[0].finish_reason,
    "object": anything.choices[0].message.content,
    "text": whole.message.content,
    "bytes": [b for e in entries for b in e.bytes],
    "greedy": all(e.logprob == max(t.logprob for t in e.top_logprobs) and len(e.top_logprobs) == 3 for e in entries),
    "sorted": all(a.logprob >= b.logprob for e in entries for a, b in zip(e.top_logprobs, e.top_logprobs[1:])),
    "mass": max(sum(math.exp(t.logprob) for t in e.top_logprobs) for e in entries),
    "tokens": len(entries),
    "same": [e.model_dump() for e in streamed] == [e.model_dump() for e in entries],
    "completion": completion.logprobs.model_dump(),
    "refused": refused,
}))
