# SPDX-License-Identifier: MIT
"""Dialogues as batches of tokens with a weight for each."""

import random

import torch

from tokenizer import SPLIT_SPECIAL

# The model is to learn answers. A little of the questions' loss is kept:
# it makes the lower layers learn the language faster.
QUESTION_WEIGHT = 0.1
DROPOUT, DROPOUT_SHARE = 0.1, 0.25
CHUNK = 2048        # dialogues that are sorted by length together


class Batches:
    def __init__(self, tokenizer, dialogues, room, seed):
        self.rng = random.Random(seed)
        self.tokenizer, self.room = tokenizer, room
        self.pad = tokenizer.id["<|endoftext|>"]
        self.data = [self.encode(text) for text in dialogues]

    def encode(self, text):
        """(ids, weights). Some users' words are cut into odd pieces (BPE
        dropout), so that a slip of the finger is nothing new."""
        keep = None
        if self.rng.random() < DROPOUT_SHARE:
            def keep():
                return self.rng.random() >= DROPOUT
        ids, weights, role = [], [], ""
        for part in SPLIT_SPECIAL.split(text):
            if not part:
                continue
            is_user = part.startswith("user\n")
            more = self.tokenizer.encode(part, keep if is_user else None)
            if part.startswith("<|"):
                weight = [1.0 if role == "assistant" else QUESTION_WEIGHT]
                role = ""
            else:
                role = part.split("\n", 1)[0]
                weight = [1.0 if role == "assistant" else QUESTION_WEIGHT
                          ] * len(more)
            if role == "assistant":
                # The role's own name and line end are given, not said.
                given = len(self.tokenizer.encode("assistant\n"))
                weight[:given] = [QUESTION_WEIGHT] * given
            ids += more
            weights += weight
        return ids, weights

    def pack(self, ids):
        """Cuts a list of dialogue numbers into batches of similar length."""
        batch = []
        for i in sorted(ids, key=lambda i: len(self.data[i][0])):
            if batch and (len(batch) + 1) * len(self.data[i][0]) > self.room:
                yield batch
                batch = []
            batch.append(i)
        yield batch

    def tensors(self, batch):
        length = max(len(self.data[i][0]) for i in batch)
        ids = torch.full((len(batch), length), self.pad)
        weights = torch.zeros(len(batch), length)
        for row, i in enumerate(batch):
            n = len(self.data[i][0])
            ids[row, :n] = torch.tensor(self.data[i][0])
            weights[row, :n] = torch.tensor(self.data[i][1])
        return ids, weights

    def stream(self, rank, ranks):
        """Endless; each process takes its own share of the same order."""
        while True:
            order = list(range(len(self.data)))
            self.rng.shuffle(order)
            for begin in range(0, len(order), CHUNK):
                packed = list(self.pack(order[begin:begin + CHUNK]))
                self.rng.shuffle(packed)
                whole = len(packed) // ranks * ranks
                for batch in packed[:whole][rank::ranks]:
                    yield self.tensors(batch)
