"""Byte-level BPE as GPT-2 has it, for ASCII training text: the same merges give the same tokens in llama.cpp under tokenizer.ggml.pre = gpt-2."""
import re
from collections import Counter, defaultdict

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# GPT-2's expression with its Unicode classes restricted to ASCII.
CUT = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def alphabet():
    """GPT-2's one-to-one map from bytes to printable characters."""
    out, spare = {}, 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255:
            out[b] = chr(b)
        else:
            out[b], spare = chr(spare), spare + 1
    return out


ALPHABET = alphabet()


def spell(text):
    return "".join(ALPHABET[b] for b in text.encode())


def train(texts, size):
    """The merges, most frequent first, that fill a vocabulary of the given size."""
    counts = Counter(w for t in texts for w in CUT.findall(t))
    words = [(tuple(spell(w)), n) for w, n in sorted(counts.items()) if n > 2]
    pairs, where = Counter(), defaultdict(set)

    def count(i, sign):
        word, n = words[i]
        for pair in zip(word, word[1:]):
            pairs[pair] += sign * n
            where[pair].add(i)

    for i in range(len(words)):
        count(i, 1)
    merges = []
    while len(merges) < size - 256 - len(SPECIAL):
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] == 0:
            break
        merges.append(best)
        for i in where.pop(best):
            count(i, -1)
            words[i] = (join(words[i][0], best), words[i][1])
            count(i, 1)
    return merges


def join(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


class Tokenizer:
    """Tokens are numbered: the bytes, the merges, the special tokens."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = [ALPHABET[b] for b in range(256)] + [a + b for a, b in self.merges] + SPECIAL
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.end_of_text, self.turn_start, self.turn_end = (self.id[t] for t in SPECIAL)
        self.byte = {c: b for b, c in ALPHABET.items()}
        self.cache = {}

    def word(self, text):
        if text not in self.cache:
            parts = tuple(spell(text))
            while len(parts) > 1:
                best = min(zip(parts, parts[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
                if best not in self.rank:
                    break
                parts = join(parts, best)
            self.cache[text] = [self.id[p] for p in parts]
        return self.cache[text]

    def encode(self, text):
        """Ordinary text: names of special tokens are not recognised."""
        return [i for w in CUT.findall(text) for i in self.word(w)]

    def decode(self, ids):
        first_special = len(self.tokens) - len(SPECIAL)
        return bytes(self.byte[c] for i in ids if i < first_special for c in self.tokens[i]).decode(errors="replace")

    def turn(self, role, text):
        """One message, as the chat template renders it."""
        return [self.turn_start, *self.encode(role + "\n"), *self.encode(text), self.turn_end, *self.encode("\n")]

    def prompt(self, text, system=None):
        """A conversation up to where the assistant speaks."""
        before = [] if system is None else self.turn("system", system)
        return before + self.turn("user", text) + [self.turn_start, *self.encode("assistant\n")]
