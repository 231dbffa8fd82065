// Stream one chat through the unmodified OpenAI client; print what came as JSON. Usage: chat.mjs BASE_URL MODEL PROMPT
import { createRequire } from 'node:module';
import path from 'node:path';

// ES modules do not look at NODE_PATH: resolve from the folder where make installed the client.
const require = createRequire(path.join(process.env.CADENCE_TEST_NODE_MODULES, 'anchor.js'));
const { OpenAI } = require('openai');

const [baseURL, model, prompt] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: 'not-needed' });
const out = { text: '', finish_reason: null, usage: null, chunks: 0 };
const stream = await client.chat.completions.create({
  model,
  messages: [{ role: 'system', content: 'You are brief.' }, { role: 'user', content: prompt }],
  max_tokens: 24,
  temperature: 0,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  out.chunks++;
  if (chunk.usage) {
    const { prompt_tokens, completion_tokens, total_tokens } = chunk.usage;
    out.usage = { prompt_tokens, completion_tokens, total_tokens };
  }
  for (const choice of chunk.choices) {
    out.text += choice.delta.content ?? '';
    out.finish_reason = choice.finish_reason ?? out.finish_reason;
  }
}
console.log(JSON.stringify(out));
