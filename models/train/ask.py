# SPDX-License-Identifier: MIT
"""Asks the demo model, with PyTorch: each argument, or else each line of
standard input, is a conversation of its own."""

import argparse
import pathlib
import sys

import dialogues
import hf_folder
from generate import Chat
from tokenizer import Tokenizer
from train import DEMO


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("question", nargs="*")
    parser.add_argument("--folder", type=pathlib.Path, default=DEMO)
    args = parser.parse_args()
    chat = Chat(hf_folder.load(args.folder), Tokenizer.load(args.folder))
    for line in args.question or sys.stdin:
        question = line.strip()
        if question:
            answer, = chat.answer([dialogues.render([(question, None)])])
            print(f"> {question}\n{answer}")


if __name__ == "__main__":
    sys.exit(main())
