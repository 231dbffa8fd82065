"""Trains the story model and writes it as GGUF, with the files that belong to it. `make story` runs it."""
import argparse
import hashlib
import itertools
import json
import pathlib
import random
import time

import torch
from torch.nn import functional as F

import bpe
import export
import grammar
from model import Config, Story

TOKENS = 768  # of a micro-batch, at most
MICRO = 3  # micro-batches of a step
POOL = 512  # conversations that are sorted by length at a time


def conversation(tok, examples, rng):
    """Token ids and whether each is to be learned: the answers are. One in seven has several turns, which have nothing to do with each other."""
    ids, learned = [], []
    turns = 1 if rng.random() < 6 / 7 else rng.randint(2, 4)
    for turn in range(turns):
        system, prompt, answer = next(examples)
        head, body = tok.prompt(prompt, None if turn else system), tok.encode(answer) + [tok.turn_end]
        ids += head + body
        learned += [0] * len(head) + [1] * len(body)
        if turn + 1 < turns:
            ids, learned = ids + tok.encode("\n"), learned + [0]
    return ids, learned


def tensors(rows, pad):
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows])
    learned = torch.tensor([learned + [0] * (width - len(learned)) for _, learned in rows]).bool()
    return ids[:, :-1], ids[:, 1:], learned[:, 1:]


def micro_batches(tok, seed, context):
    """Conversations of like length together, so that little is padding; short and long ones in turn at random."""
    rng, examples = random.Random(seed), grammar.stream(seed)
    while True:
        pool = [c for c in (conversation(tok, examples, rng) for _ in range(POOL)) if len(c[0]) <= context]
        pool.sort(key=lambda c: len(c[0]))
        cut, rows = [], []
        for c in pool:
            if rows and (len(rows) + 1) * len(c[0]) > TOKENS:
                cut, rows = cut + [rows], []
            rows.append(c)
        cut.append(rows)
        rng.shuffle(cut)
        for rows in cut:
            yield tensors(rows, tok.end_of_text)


def long_batches(tok, seed, context):
    """Conversations of as many turns as the context holds."""
    rng, examples = random.Random(seed), grammar.stream(seed)
    while True:
        ids, learned = [], []
        while len(ids) <= context:
            more = conversation(tok, examples, rng)
            ids, learned = ids + more[0] + tok.encode("\n"), learned + more[1] + [0]
        yield tensors([(ids[:context + 1], learned[:context + 1])], tok.end_of_text)


def loss_of(model, ids, targets, mask):
    with torch.autocast("cpu", torch.bfloat16):
        x = model(ids)
        logits = model.logits(x[mask])
    return F.cross_entropy(logits.float(), targets[mask])


def schedule(step, steps):
    """Warm up, hold, then fall to nothing over the last 45 %."""
    return min(1, (step + 1) / 50, (steps - step) / (0.45 * steps))


def train(args, tok, model):
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if not (p.ndim == 2 and "embed" not in n)]
    rates = [args.rate, args.rate / 3]
    optimizers = [torch.optim.Muon(matrices, lr=rates[0], weight_decay=0.01, adjust_lr_fn="match_rms_adamw", ns_steps=4),
                  torch.optim.AdamW(others, lr=rates[1], betas=(0.9, 0.98), weight_decay=0.0)]
    source, long_source = micro_batches(tok, args.seed, model.c.context), long_batches(tok, args.seed + 1, model.c.context)
    begin, smooth, history, seen = time.monotonic(), None, [], 0
    for step in range(args.steps):
        # Long conversations are rare and towards the end: they are for positions that others do not reach.
        long = step > args.steps * 0.8 and step % 10 == 0
        batches = [next(long_source)] if long else [next(source) for _ in range(MICRO)]
        total = 0.0
        for ids, targets, learned in batches:
            # The mean of each micro-batch counts alike, so that short answers are not drowned by long ones.
            loss = loss_of(model, ids, targets, learned) / len(batches)
            loss.backward()
            total += loss.item()
            seen += ids.numel()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for o, rate in zip(optimizers, rates):
            for g in o.param_groups:
                g["lr"] = rate * schedule(step, args.steps)
            o.step()
            o.zero_grad(set_to_none=True)
        smooth = total if smooth is None else 0.95 * smooth + 0.05 * total
        if step % 50 == 49 or step + 1 == args.steps:
            took = time.monotonic() - begin
            history.append({"step": step + 1, "loss": round(smooth, 4)})
            print(f"step {step + 1}/{args.steps}  loss {smooth:.4f}  {seen / took:.0f} tokens/s  {took:.0f} s", flush=True)
        if step % 250 == 249:
            torch.save({"model": model.state_dict(), "merges": tok.merges}, args.checkpoint)
    torch.save({"model": model.state_dict(), "merges": tok.merges}, args.checkpoint)
    return {"steps": args.steps, "tokens": seen, "seconds": round(time.monotonic() - begin), "loss": round(smooth, 4), "history": history}


def evaluate(model, tok, count, seed):
    """The share of held-out prompts, by kind, whose greedy answer ends and is accepted."""
    right, failures = {}, []
    model.eval()
    for ex in grammar.test_set(count, seed):
        out, ended = model.greedy(tok.prompt(ex.prompt), 700, tok.turn_end)
        answer = tok.decode(out)
        ok = ended and grammar.accepted(grammar.pattern(ex.tree), ex.distinct, answer)
        right.setdefault(ex.kind, []).append(ok)
        if not ok:
            failures.append((ex.kind, ex.prompt, answer, ended))
    return {k: [sum(v), len(v)] for k, v in right.items()}, failures


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder for the model and the files that belong to it")
    p.add_argument("--checkpoint", type=pathlib.Path, required=True, help="file for the state of training, for those who want to look at it")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=2400)
    p.add_argument("--rate", type=float, default=0.006)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--eval", type=int, default=110, help="held-out prompts to answer after training")
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    c = Config()
    texts = [t for example in itertools.islice(grammar.stream(0, invented=0), 8000) for t in example if t] + ["user\n", "assistant\n", "system\n"] * 8000
    tok = bpe.Tokenizer(bpe.train(texts, c.vocab))
    c.vocab = len(tok.tokens)
    model = Story(c)
    weights = sum(x.numel() for x in model.parameters())
    print(f"{weights / 1e6:.2f} M weights, {c.vocab} tokens of vocabulary", flush=True)
    report = train(args, tok, model)
    right, failures = evaluate(model, tok, args.eval, args.seed + 1000)
    for f in failures:
        print("WRONG", *f, sep=" | ")
    print("right:", right)
    report |= {"weights": weights, "vocab": c.vocab, "seed": args.seed, "rate": args.rate, "threads": args.threads, "accepted": right}
    args.out.mkdir(parents=True, exist_ok=True)
    gguf = args.out / "story.gguf"
    export.write(model, tok, gguf)
    (args.out / "story.gguf.sha256").write_text(f"{hashlib.sha256(gguf.read_bytes()).hexdigest()}  story.gguf\n")
    (args.out / "training.json").write_text(json.dumps(report, indent=1) + "\n")
    export.prompts(args.out / "prompts.json")
    export.held_out(args.out / "heldout.json")
    (args.out / "testdata").mkdir(exist_ok=True)
    export.tokenization(args.out / "testdata" / "tokenization.txt", tok)


if __name__ == "__main__":
    main()
