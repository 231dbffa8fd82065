"""Trains the story model and writes it as GGUF, with the files that belong to it. `make story` runs it."""
import argparse
import hashlib
import itertools
import json
import pathlib
import time

import torch
from torch.nn import functional as F

import bpe
import export
import grammar
from model import Config, Story

ROW = 384  # tokens of a training row; whole examples are packed into it
TOKENS = 2304  # of a step, at most


def rows(tok, seed, length):
    """Packed rows of length+1 token ids and the weight of each as a target: answers alone are learned."""
    examples = grammar.stream(seed)
    ids, weights = [], []
    for system, prompt, answer in examples:
        head = tok.prompt(prompt, system)
        body = tok.encode(answer) + [tok.turn_end]
        more, tail = head + body, tok.encode("\n")
        if len(ids) + len(more) > length + 1:
            fill = length + 1 - len(ids)
            if len(more) <= length + 1:
                yield ids + [tok.end_of_text] * fill, weights + [0] * fill
            ids, weights = [], []
        if len(more) > length + 1:
            continue
        ids, weights = ids + more + tail, weights + [0] * len(head) + [1] * len(body) + [0] * len(tail)
        ids, weights = ids[:length + 1], weights[:length + 1]


def batches(tok, seed, length):
    source = rows(tok, seed, length)
    while True:
        pairs = list(itertools.islice(source, TOKENS // length))
        ids, weights = torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])
        yield ids[:, :-1], ids[:, 1:], weights[:, 1:].bool()


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
    optimizers = [torch.optim.Muon(matrices, lr=args.rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw", ns_steps=4),
                  torch.optim.AdamW(others, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)]
    long = args.steps - args.steps // 20  # the last steps see the whole context
    short_rows, long_rows = batches(tok, args.seed, ROW), batches(tok, args.seed + 1, model.c.context)
    begin, smooth, history, seen = time.monotonic(), None, [], 0
    for step in range(args.steps):
        ids, targets, mask = next(short_rows if step < long else long_rows)
        loss = loss_of(model, ids, targets, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for o in optimizers:
            for g in o.param_groups:
                g["lr"] = args.rate * schedule(step, args.steps)
            o.step()
            o.zero_grad(set_to_none=True)
        seen += ids.numel()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
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
