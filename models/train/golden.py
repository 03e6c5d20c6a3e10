# SPDX-License-Identifier: MIT
"""Writes what the demo model must say: tests/golden/demo-*.

demo-tokens.json holds fixed prompts, their token ids, and the greedy
continuation in float32 of the weights as they are stored (f16), with the
distance of the best from the second-best logit at each step. Prompts where
that distance ever falls below MIN_GAP are refused: there a device that
computes in f16 might rightly choose otherwise. demo-logits.json holds all
logits behind the last token of a few of these prompts.
"""

import argparse
import json
import pathlib
import sys

import jinja2
import torch

import hf_folder
from generate import last_logits
from tokenizer import Tokenizer, write_json
from train import DEMO

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIN_GAP = 0.05          # f16 noise of these logits is about 0.01
LIMIT = 48
WITH_LOGITS = 4
PROMPTS = pathlib.Path(__file__).with_name("golden-prompts.json")


def renderer(folder):
    """The chat template as transformers runs it."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(config["chat_template"]).render


def greedy(model, ids, end):
    """(continuation, gap per step)."""
    out, gaps = [], []
    while len(out) < LIMIT and (not out or out[-1] != end):
        best = last_logits(model, [ids + out])[0].topk(2)
        out.append(best.indices[0].item())
        gaps.append(round((best.values[0] - best.values[1]).item(), 4))
    return out, gaps


def entry(model, tokenizer, render, messages):
    prompt = render(messages=messages, add_generation_prompt=True)
    ids = tokenizer.encode(prompt)
    tokens, gaps = greedy(model, ids, tokenizer.id[hf_folder.END])
    return dict(messages=messages, prompt=prompt, prompt_ids=ids,
                tokens=tokens, text=tokenizer.decode(tokens), gaps=gaps,
                min_gap=min(gaps))


def write_logits(path, model, entries):
    logits = last_logits(model, [e["prompt_ids"] for e in entries])
    path.write_text(json.dumps(dict(
        note="float32 logits behind the last token of each prompt",
        prompts=[dict(prompt=e["prompt"], prompt_ids=e["prompt_ids"],
                      logits=[round(x, 5) for x in row.tolist()])
                 for e, row in zip(entries, logits)])) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=DEMO)
    parser.add_argument("--output", type=pathlib.Path,
                        default=ROOT / "tests" / "golden")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = hf_folder.load(args.folder), Tokenizer.load(args.folder)
    render = renderer(args.folder)
    entries = [entry(model, tokenizer, render, messages)
               for messages in json.loads(PROMPTS.read_text())]
    near = [e for e in entries if e["min_gap"] <= MIN_GAP]
    for e in near:
        print(f"left out, gap {e['min_gap']}: {e['messages'][-1]['content']}")
    kept = [e for e in entries if e["min_gap"] > MIN_GAP]
    args.output.mkdir(parents=True, exist_ok=True)
    write_json(args.output / "demo-tokens.json", dict(
        note="greedy tokens of models/demo in float32 from the f16 weights; "
             f"every gap between best and second-best logit is above "
             f"{MIN_GAP}, so f16 noise cannot turn a choice",
        min_gap=MIN_GAP, limit=LIMIT, entries=kept))
    write_logits(args.output / "demo-logits.json", model, kept[:WITH_LOGITS])
    print(f"{len(kept)} prompts, smallest gap "
          f"{min(e['min_gap'] for e in kept)}")


if __name__ == "__main__":
    sys.exit(main())
