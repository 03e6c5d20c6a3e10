# SPDX-License-Identifier: MIT
"""Measures the demo model on questions that it never saw in training.

An answer is right when it has all the figures and names that the fact asks
for; for a question without an answer, when it admits not knowing. Writes
accuracy.json next to the weights.
"""

import argparse
import collections
import pathlib
import re
import sys

import dialogues
import hf_folder
from generate import Chat
from tokenizer import Tokenizer, write_json
from train import DEMO
from unknowns import ADMITS


class Score:
    def __init__(self):
        self.right = self.total = 0

    def add(self, right):
        self.right += right
        self.total += 1

    def as_dict(self):
        return dict(right=self.right, total=self.total,
                    share=round(self.right / self.total, 4))


def measure(chat, show):
    """(scores per area, per kind of refusal, facts that were refused)."""
    asked = list(dialogues.questions())
    answers = chat.answer_likely(
        [dialogues.render([(q.text, None)]) for q in asked],
        [q.answer for q in asked])
    areas, kinds = (collections.defaultdict(Score) for _ in range(2))
    refused = Score()
    for question, answer in zip(asked, answers):
        right = question.accepts(answer)
        areas[question.area].add(right)
        if question.area == "refusals":
            kinds[question.kind].add(right)
        if question.area == "facts":
            refused.add(re.search(ADMITS, answer) is not None)
        if show and not right:
            print(f"[{question.area}/{question.kind}] {question.text}\n"
                  f"    {answer}")
    return areas, kinds, refused


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=DEMO)
    parser.add_argument("--show", action="store_true",
                        help="print the questions that went wrong")
    args = parser.parse_args()
    chat = Chat(hf_folder.load(args.folder), Tokenizer.load(args.folder))
    areas, kinds, refused = measure(chat, args.show)
    for name, score in sorted(areas.items()):
        print(f"{name:16} {score.right:4} of {score.total:4}  "
              f"{100 * score.right / score.total:5.1f} %")
    print(f"facts wrongly refused: {refused.right} of {refused.total}")
    write_json(args.folder / "accuracy.json", dict(
        note="held-out questions, greedy; misspelt: one slip in each",
        areas={n: s.as_dict() for n, s in sorted(areas.items())},
        refusals={n: s.as_dict() for n, s in sorted(kinds.items())},
        facts_refused=refused.as_dict()))


if __name__ == "__main__":
    sys.exit(main())
