# SPDX-License-Identifier: MIT
"""Dialogues to train on and questions to measure with."""

import random
import re

import facts
import figures
import phrases
import unknowns

SYSTEM = ["You are the M6 assistant.", "You are a helpful assistant.",
          "You answer questions about the M6 mini board."]
TRAIN_SEED, TEST_SEED = 1, 99
# Shares of the questions; the rest are unknowns.
FACT, TALK, FIGURE = 0.59, 0.12, 0.06
# Asked more often than others of their kind.
USUAL, USUAL_WEIGHT = ("hello", "who", "how", "thanks", "bye"), 4


def render(turns, system=None, ask=False):
    """The chat template, in Python. With ask, the answer is still to come."""
    text = "" if system is None else f"<|im_start|>system\n{system}<|im_end|>\n"
    for question, answer in turns:
        text += f"<|im_start|>user\n{question}<|im_end|>\n"
        text += "<|im_start|>assistant\n"
        if answer is not None:
            text += f"{answer}<|im_end|>\n"
    return text


class Teacher:
    """Draws dialogues. Same seed, same dialogues."""

    def __init__(self, seed=TRAIN_SEED):
        self.rng = random.Random(seed)
        known = facts.load()
        self.talk = [fact for fact in known if fact.is_talk]
        self.facts = [fact for fact in known if not fact.is_talk]
        self.talk_weights = [USUAL_WEIGHT if fact.name in USUAL else 1
                             for fact in self.talk]
        self.held = {t for fact in known for t in fact.held}

    def phrase(self, fact):
        while True:
            if fact.topic and self.rng.random() < 0.35:
                text = phrases.about(self.rng, self.rng.choice(fact.topic))
            else:
                text = self.rng.choice(fact.ask)
            text = phrases.vary(self.rng, text)
            # Synonyms may lead to a phrasing that is held out.
            if text not in self.held:
                return text

    def turn(self):
        rng, x = self.rng, self.rng.random()
        if x < FACT + TALK:
            fact = (rng.choice(self.facts) if x < FACT else
                    rng.choices(self.talk, self.talk_weights)[0])
            return (phrases.dress(rng, self.phrase(fact), fact.is_talk),
                    fact.answer)
        if x < FACT + TALK + FIGURE:
            question, answer = figures.draw(rng)
            return phrases.dress(rng, question), answer
        kind, question, answer = unknowns.draw(rng)
        is_noise = kind == "gibberish"
        if not is_noise:
            question = phrases.vary(rng, question)
        # Dressed as the others are, lest the dress give the answer away.
        return phrases.dress(rng, question, talk=is_noise), answer

    def dialogue(self):
        turns = 1 if self.rng.random() < 0.72 else self.rng.choice([2, 2, 3])
        system = self.rng.choice(SYSTEM) if self.rng.random() < 0.3 else None
        return render([self.turn() for _ in range(turns)], system)

    def dialogues(self, count):
        seen = {}
        while len(seen) < count:
            seen[self.dialogue()] = None
        return list(seen)


class Question:
    """One held-out question. Right is what matches all of its patterns."""

    def __init__(self, area, kind, text, answer, must):
        self.area, self.kind, self.text = area, kind, text
        self.answer, self.must = answer, must

    def accepts(self, answer):
        return all(re.search(pattern, answer) for pattern in self.must)


def questions():
    """All held-out questions, the same ones in each run."""
    rng = random.Random(TEST_SEED)
    for fact in facts.load():
        area = "talk" if fact.is_talk else "facts"
        for text in fact.held:
            yield Question(area, fact.name, phrases.punctuate(rng, text),
                           fact.answer, fact.must)
            slip = phrases.misspell(rng, text)
            if slip != text:
                yield Question(area + "-misspelt", fact.name,
                               phrases.punctuate(rng, slip),
                               fact.answer, fact.must)
    for text, answer in figures.held():
        yield Question("figures", "figures", phrases.punctuate(rng, text),
                       answer, [re.escape(answer)])
    for kind, make in unknowns.KINDS_OF.items():
        for _ in range(40):
            yield Question("refusals", kind,
                           phrases.punctuate(rng, make(rng, held=True)),
                           unknowns.ANSWERS[kind], [unknowns.ADMITS])
