# SPDX-License-Identifier: MIT
"""Greedy continuation, without a cache: the plainest thing that is right."""

import torch

BATCH = 48


@torch.no_grad()
def last_logits(model, prompts):
    """The logits behind the last token of each of a few token lists."""
    length = max(map(len, prompts))
    ids = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, :len(prompt)] = torch.tensor(prompt)
    # Attention is causal, so what is behind a prompt's end cannot matter.
    hidden = model.hidden(ids)
    ends = torch.tensor([len(prompt) - 1 for prompt in prompts])
    return model.logits(hidden[torch.arange(len(prompts)), ends])


def continue_batch(model, prompts, end, limit):
    texts = [list(prompt) for prompt in prompts]
    going = list(range(len(texts)))
    for _ in range(limit):
        if not going:
            break
        best = last_logits(model, [texts[i] for i in going]).argmax(-1)
        for i, token in zip(going, best.tolist()):
            texts[i].append(token)
        going = [i for i in going if texts[i][-1] != end]
    return [text[len(prompt):] for text, prompt in zip(texts, prompts)]


def continue_all(model, prompts, end, limit=96):
    """Continuations, up to and with the end token, of many prompts."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    result = [None] * len(prompts)
    for begin in range(0, len(order), BATCH):
        part = order[begin:begin + BATCH]
        done = continue_batch(model, [prompts[i] for i in part], end, limit)
        for i, ids in zip(part, done):
            result[i] = ids
    return result


@torch.no_grad()
def agrees(model, prompt, answer):
    """Whether greedy choice continues the prompt with just this answer: one
    evaluation instead of one per token."""
    hidden = model.hidden(torch.tensor([prompt + answer[:-1]]))
    best = model.logits(hidden[0, len(prompt) - 1:]).argmax(-1)
    return best.tolist() == answer


class Chat:
    """A model and its tokenizer, from text to text."""

    def __init__(self, model, tokenizer):
        # More threads only wait for each other at this size.
        torch.set_num_threads(1)
        self.model, self.tokenizer = model, tokenizer
        self.end = tokenizer.id["<|im_end|>"]

    def answer_likely(self, texts, likely):
        """As answer(), and faster where a guess is right."""
        result = list(likely)
        missed = []
        for i, (text, guess) in enumerate(zip(texts, likely)):
            ids = self.tokenizer.encode(guess) + [self.end]
            if not agrees(self.model, self.tokenizer.encode(text), ids):
                missed.append(i)
        for i, text in zip(missed, self.answer([texts[i] for i in missed])):
            result[i] = text
        return result

    def answer(self, texts):
        prompts = [self.tokenizer.encode(text) for text in texts]
        return [self.tokenizer.decode(ids) for ids in
                continue_all(self.model, prompts, self.end)]
