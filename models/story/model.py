"""The transformer: llama's architecture, small. Training happens in bfloat16 where that is safe."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab: int = 1920
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    inner: int = 768
    context: int = 2048
    rope_base: float = 10000.0
    epsilon: float = 1e-5


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        head = c.width // c.heads
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.attn_norm, self.ffn_norm = nn.RMSNorm(c.width, c.epsilon), nn.RMSNorm(c.width, c.epsilon)
        self.q, self.k, self.v = linear(c.width, c.width), linear(c.width, head * c.kv_heads), linear(c.width, head * c.kv_heads)
        self.o = linear(c.width, c.width)
        self.gate, self.up, self.down = linear(c.width, c.inner), linear(c.width, c.inner), linear(c.inner, c.width)

    def forward(self, x, cos, sin, cache=None):
        n, t, _ = x.shape
        split = lambda y, heads: y.view(n, t, heads, -1).transpose(1, 2)
        h = self.attn_norm(x)
        q, k, v = split(self.q(h), self.c.heads), split(self.k(h), self.c.kv_heads), split(self.v(h), self.c.kv_heads)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        causal = True
        if cache is not None:
            if cache:
                k, v, causal = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2), False
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, -1))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Story(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocab, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width, c.epsilon)
        nn.init.normal_(self.embed.weight, std=0.02)
        for name, p in self.named_parameters():
            if p.ndim == 2 and "embed" not in name:  # what a block adds is nothing at first
                nn.init.zeros_(p) if name.endswith(("o.weight", "down.weight")) else nn.init.normal_(p, std=p.shape[1] ** -0.5)
        half = c.width // c.heads // 2
        angles = torch.arange(c.context)[:, None] * c.rope_base ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, caches=None):
        at = caches[0][0].shape[2] if caches and caches[0] else 0
        cos, sin = self.cos[at:at + ids.shape[1]], self.sin[at:at + ids.shape[1]]
        x = self.embed(ids)
        for i, b in enumerate(self.blocks):
            x = b(x, cos, sin, None if caches is None else caches[i])
        return self.norm(x)

    def logits(self, x):
        return F.linear(x, self.embed.weight)

    @torch.no_grad()
    def greedy(self, prompt, limit, end):
        """The most probable continuation of a prompt (token ids), up to and without the end token; and whether it ended."""
        caches = [[] for _ in self.blocks]
        out, ids = [], torch.tensor([prompt])
        for _ in range(limit):
            token = int(self.logits(self(ids, caches)[0, -1]).argmax())
            if token == end:
                return out, True
            out.append(token)
            ids = torch.tensor([[token]])
        return out, False
