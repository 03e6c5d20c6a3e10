# SPDX-License-Identifier: MIT
"""What the model is taught: the questions and answers of facts/*.txt.

A file is a list of entries, separated by blank lines:

    [name]
    answer: the one answer
    must:   regular expressions, all of which a right answer matches
    ask:    phrasings to train on, separated by " | "
    topic:  noun phrases to train on ("what is ...", "tell me about ...")
    held:   phrasings that are only ever used to measure

Phrasings are lower case and have no final punctuation: phrases.py varies
case, punctuation, openers and spelling.
"""

import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent / "facts"
TALK = "talk"       # the file that holds identity and small talk
FIELDS = {"answer", "must", "ask", "topic", "held"}


class Fact:
    """One entry: an answer and the ways to ask for it."""

    def __init__(self, group, name, fields):
        unknown = set(fields) - FIELDS
        if unknown:
            raise ValueError(f"{group}/{name}: unknown field {unknown}")
        self.group, self.name = group, name
        self.answer = fields["answer"]
        self.must = split(fields["must"])
        self.ask = split(fields["ask"])
        self.topic = split(fields.get("topic", ""))
        self.held = split(fields["held"])

    @property
    def is_talk(self):
        return self.group == TALK


def split(text):
    return [part.strip() for part in text.split(" | ") if part.strip()]


def parse(path):
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        lines = [line for line in block.splitlines()
                 if line and not line.startswith("#")]
        if not lines:
            continue
        name = lines[0].strip("[]")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        yield Fact(path.stem, name, fields)


def check(facts):
    """Refuses a set that would teach or measure nonsense."""
    owner = {}
    for fact in facts:
        for text in fact.ask + fact.topic + fact.held:
            if owner.setdefault(text, fact.name) != fact.name:
                raise ValueError(
                    f"{fact.name}: '{text}' also asks for {owner[text]}")
        leaked = set(fact.held) & set(fact.ask + fact.topic)
        if leaked:
            raise ValueError(f"{fact.name}: held-out but trained: {leaked}")
        for pattern in fact.must:
            if not re.search(pattern, fact.answer):
                raise ValueError(
                    f"{fact.name}: its own answer lacks '{pattern}'")


def load():
    facts = [fact for path in sorted(FOLDER.glob("*.txt"))
             for fact in parse(path)]
    check(facts)
    return facts
