# SPDX-License-Identifier: MIT
"""Trains the demo model from nothing: text, tokenizer, weights.

The number of steps and all seeds are fixed, so that a run can be repeated
on the same machine bit by bit. Processes share each step, since products of
this size do not fill two cores from one process.
"""

import argparse
import math
import os
import pathlib
import sys
import tempfile
import time

import torch
from torch import distributed
from torch.nn import functional as F

import hf_folder
from batches import Batches
from dialogues import Teacher
from model import Model, Shape
from tokenizer import Tokenizer, train as train_bpe

DEMO = pathlib.Path(__file__).resolve().parents[1] / "demo"
DIALOGUES = 40000
STEPS = 2900
RANKS = 2
ROOM = 2048                 # tokens of a batch, per process
RATE, WARM_UP, FLOOR = 4e-3, 100, 0.02
DECAY, BETAS, CLIP = 0.05, (0.9, 0.97), 1.0
BALANCE, ROUTER_Z = 0.01, 1e-4
REPORT = 50
SAVE = 400


def rate(step, steps):
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return (RATE * min(1, (step + 1) / WARM_UP)
            * (FLOOR + (1 - FLOOR) * cosine))


def router_loss(model, mask):
    """Evens out the experts' load and keeps router logits small."""
    balance = z = 0
    share = mask / mask.sum()
    for layer in model.layers:
        logits, chance, chosen = layer.experts.route
        used = torch.zeros_like(chance).scatter(-1, chosen, 1.0)
        load, wish = share @ used, share @ chance
        balance += len(load) / model.shape.used * (load * wish).sum()
        z += share @ logits.logsumexp(-1) ** 2
    return (BALANCE * balance + ROUTER_Z * z) / len(model.layers)


def losses(model, ids, weights):
    """(loss to minimize, mean loss of the answers' tokens)."""
    hidden = model.hidden(ids[:, :-1])
    weight = weights[:, 1:].flatten()
    real = weight > 0
    each = F.cross_entropy(model.logits(hidden.flatten(0, 1)[real]),
                           ids[:, 1:].flatten()[real], reduction="none")
    weight = weight[real]
    mask = (weights[:, :-1] > 0).float().flatten()
    loss = (each * weight).sum() / weight.sum() + router_loss(model, mask)
    return loss, each.detach()[weight == 1].mean()


def share_gradients(model, ranks):
    if ranks == 1:
        return
    weights = list(model.parameters())
    flat = torch.cat([w.grad.flatten() for w in weights])
    distributed.all_reduce(flat)
    flat /= ranks
    for w, grad in zip(weights, flat.split([w.numel() for w in weights])):
        w.grad.copy_(grad.view_as(w))


def optimizer(model):
    matrices = [w for w in model.parameters() if w.dim() > 1]
    norms = [w for w in model.parameters() if w.dim() == 1]
    return torch.optim.AdamW(
        [dict(params=matrices, weight_decay=DECAY),
         dict(params=norms, weight_decay=0.0)],
        lr=RATE, betas=BETAS, eps=1e-8, foreach=True)


def run(model, stream, steps, ranks, report, save):
    update = optimizer(model)
    began, tokens, sum_answer = time.time(), 0, 0.0
    for step, (ids, weights) in zip(range(steps), stream):
        for group in update.param_groups:
            group["lr"] = rate(step, steps)
        loss, answer = losses(model, ids, weights)
        update.zero_grad()
        loss.backward()
        share_gradients(model, ranks)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        update.step()
        tokens += int((weights > 0).sum()) * ranks
        sum_answer += float(answer)
        if (step + 1) % REPORT == 0:
            report(f"step {step + 1}/{steps}  {time.time() - began:.0f} s  "
                   f"{tokens / 1e6:.2f}M tokens  "
                   f"answer loss {sum_answer / REPORT:.4f}")
            sum_answer = 0.0
        # So that an interrupted run leaves something to look at.
        if (step + 1) % SAVE == 0 or step + 1 == steps:
            save()


def work(rank, args, rendezvous):
    """One process of the training."""
    torch.manual_seed(0)
    torch.set_num_threads(1 if args.ranks > 1 else 2)
    if args.ranks > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=rank,
            world_size=args.ranks)
    tokenizer = Tokenizer.load(args.output)
    data = Batches(tokenizer, Teacher().dialogues(args.dialogues), ROOM, seed=0)
    model = Model(Shape(experts=args.experts)).initialize()

    def report(line):
        if rank == 0:
            print(line, flush=True)
    report(f"{sum(w.numel() for w in model.parameters())} weights")

    def save():
        if rank == 0:
            hf_folder.save(model, args.output)
    run(model, data.stream(rank, args.ranks), args.steps, args.ranks, report,
        save)
    if args.ranks > 1:
        distributed.destroy_process_group()


def make_tokenizer(args):
    texts = Teacher().dialogues(args.dialogues)
    merges = train_bpe(texts, Shape().vocab)
    args.output.mkdir(parents=True, exist_ok=True)
    Tokenizer(merges).save(args.output)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=DEMO,
                        help="folder to write (default: models/demo)")
    parser.add_argument("--steps", type=int, default=STEPS,
                        help="optimizer steps (default: %(default)s)")
    parser.add_argument("--dialogues", type=int, default=DIALOGUES,
                        help="training dialogues (default: %(default)s)")
    parser.add_argument("--experts", type=int, default=Shape.experts,
                        help="experts per layer (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=RANKS,
                        help="processes; changes the batch size, and so the "
                             "result (default: %(default)s)")
    return parser.parse_args()


def main():
    args = arguments()
    make_tokenizer(args)
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = os.path.join(folder, "rendezvous")
        torch.multiprocessing.spawn(work, (args, rendezvous), args.ranks)


if __name__ == "__main__":
    sys.exit(main())
