"""Stream one chat through the unmodified OpenAI client; print what came as JSON. Usage: chat.py BASE_URL MODEL PROMPT"""
import json
import sys

from openai import OpenAI

base_url, model, prompt = sys.argv[1:4]
client = OpenAI(base_url=base_url, api_key="not-needed")
text, finish, usage, chunks = "", None, None, 0
for chunk in client.chat.completions.create(
    model=model,
    messages=[{"role": "system", "content": "You are brief."}, {"role": "user", "content": prompt}],
    max_tokens=24,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
):
    chunks += 1
    if chunk.usage:
        usage = chunk.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"})
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
print(json.dumps({"text": text, "finish_reason": finish, "usage": usage, "chunks": chunks}))
