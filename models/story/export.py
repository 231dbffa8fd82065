"""Writes a trained model as GGUF (weights in Q8_0, tokenizer and chat template in the metadata), and what tests and harness need."""
import json
import random
import zlib

import gguf
import numpy as np

import grammar

CHAT = ("{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")


def interleave(w, heads):
    """Rotary pairs as llama.cpp has them for llama: neighbours, not halves."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def write(model, tok, path):
    c = model.c
    w = gguf.GGUFWriter(path, "llama")
    w.add_type("model")
    w.add_name("story")
    w.add_description("A very small chat model trained on generated sentences: stories, letters, lists, numbers, facts of the prompt.")
    w.add_license("Apache-2.0")
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(c.layers)
    w.add_context_length(c.context)
    w.add_embedding_length(c.width)
    w.add_feed_forward_length(c.inner)
    w.add_head_count(c.heads)
    w.add_head_count_kv(c.kv_heads)
    w.add_layer_norm_rms_eps(c.epsilon)
    w.add_rope_freq_base(c.rope_base)
    w.add_rope_dimension_count(c.width // c.heads)
    w.add_vocab_size(c.vocab)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tok.tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (len(tok.tokens) - 3) + [gguf.TokenType.CONTROL] * 3)
    w.add_token_merges([a + " " + b for a, b in tok.merges])
    w.add_bos_token_id(tok.end_of_text)
    w.add_eos_token_id(tok.turn_end)
    w.add_pad_token_id(tok.end_of_text)
    w.add_add_bos_token(False)
    w.add_chat_template(CHAT)

    def add(name, tensor, heads=0):
        x = tensor.detach().float().numpy().astype(np.float32)
        if heads:
            x = interleave(x, heads)
        if x.ndim == 1:
            w.add_tensor(name, x)
            return
        q = gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(x), q), raw_dtype=q)

    add("token_embd.weight", model.embed.weight)
    add("output_norm.weight", model.norm.weight)
    for i, b in enumerate(model.blocks):
        add(f"blk.{i}.attn_norm.weight", b.attn_norm.weight)
        add(f"blk.{i}.attn_q.weight", b.q.weight, c.heads)
        add(f"blk.{i}.attn_k.weight", b.k.weight, c.kv_heads)
        add(f"blk.{i}.attn_v.weight", b.v.weight)
        add(f"blk.{i}.attn_output.weight", b.o.weight)
        add(f"blk.{i}.ffn_norm.weight", b.ffn_norm.weight)
        add(f"blk.{i}.ffn_gate.weight", b.gate.weight)
        add(f"blk.{i}.ffn_up.weight", b.up.weight)
        add(f"blk.{i}.ffn_down.weight", b.down.weight)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def prompts(path):
    """The grammar of the prompts, for other programs."""
    templates = [{"kind": t.kind, "text": t.text, "weight": round(t.weight, 5)} for t in grammar.templates() if t is not grammar.SALAD]
    path.write_text(json.dumps({"templates": templates, "slots": grammar.SLOTS}, indent=0) + "\n")


def held_out(path, count=50, seed=7):
    """Held-out prompts with what is accepted as their answers."""
    cases = [{"kind": e.kind, "prompt": e.prompt, "pattern": grammar.pattern(e.tree), "distinct": e.distinct} for e in grammar.test_set(count, seed)]
    path.write_text(json.dumps(cases, indent=1) + "\n")


def tokenization(path, tok, count=1000, seed=8):
    """Held-out texts with a checksum of their tokens (32-bit little-endian ids), to compare llama.cpp's with."""
    rng = random.Random(seed)
    lines = []
    while len(lines) < count:
        for e in grammar.test_set(100, rng.randrange(1 << 30), invented=0.5):
            text = e.prompt if len(lines) % 2 else grammar.say(e.tree, rng)[:300]
            ids = np.array(tok.encode(text), dtype="<u4")
            lines.append(f"{zlib.crc32(ids.tobytes()):08x} {json.dumps(text)}\n")
    path.write_text("".join(lines[:count]))
