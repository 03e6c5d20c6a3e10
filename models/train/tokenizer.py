# SPDX-License-Identifier: MIT
"""Byte-level BPE: training, encoding, and the Hugging Face files.

Written out in plain Python because Debian packages no tokenizer library.
The pre-tokenizer is Qwen2's, and the special tokens come last, as there.
"""

import collections
import functools
import json

import regex

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
           r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

WORDS = regex.compile(PATTERN)
SPLIT_SPECIAL = regex.compile(
    "(" + "|".join(regex.escape(s) for s in SPECIAL) + ")")


def byte_alphabet():
    """GPT-2's table: every byte as a printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in printable}
    spare = (b for b in range(256) if b not in table)
    table.update((b, chr(256 + n)) for n, b in enumerate(spare))
    return table


TO_CHAR = byte_alphabet()
TO_BYTE = {c: b for b, c in TO_CHAR.items()}


def to_symbols(word):
    return [TO_CHAR[b] for b in word.encode("utf-8")]


def fuse(symbols, pair):
    """Replaces each occurrence of the pair by one symbol."""
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def train(texts, size):
    """Returns the merges for a vocabulary of the given size."""
    words = collections.Counter()
    for text in texts:
        for part in SPLIT_SPECIAL.split(text):
            if part not in SPECIAL:
                words.update(WORDS.findall(part))
    table = [(to_symbols(word), count) for word, count in words.items()]
    merges = []
    while len(merges) < size - 256 - len(SPECIAL):
        pairs = collections.Counter()
        for symbols, count in table:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        # Ties are broken by the pair itself, so that a run can be repeated.
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        table = [(fuse(symbols, best), count) if best[0] in symbols
                 else (symbols, count) for symbols, count in table]
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(pair) for pair in merges]
        self.rank = {pair: n for n, pair in enumerate(self.merges)}
        names = (sorted(TO_BYTE) + [a + b for a, b in self.merges] + SPECIAL)
        self.id = {name: n for n, name in enumerate(names)}
        self.name = names
        self.word_ids = functools.lru_cache(maxsize=None)(self.encode_word)

    @classmethod
    def load(cls, folder):
        with open(f"{folder}/tokenizer.json", encoding="utf-8") as file:
            return cls(json.load(file)["model"]["merges"])

    def encode_word(self, word, keep=None):
        """One pre-token. keep(), if given, may veto a merge: BPE dropout."""
        symbols = to_symbols(word)
        while len(symbols) > 1:
            found = [pair for pair in zip(symbols, symbols[1:])
                     if pair in self.rank and (keep is None or keep())]
            if not found:
                break
            symbols = fuse(symbols, min(found, key=self.rank.get))
        return tuple(self.id[s] for s in symbols)

    def encode(self, text, keep=None):
        ids = []
        for part in SPLIT_SPECIAL.split(text):
            if part in SPECIAL:
                ids.append(self.id[part])
                continue
            for word in WORDS.findall(part):
                ids += (self.encode_word(word, keep) if keep
                        else self.word_ids(word))
        return ids

    def decode(self, ids):
        plain = (self.name[i] for i in ids if self.name[i] not in SPECIAL)
        return bytes(TO_BYTE[c] for c in "".join(plain)).decode(
            "utf-8", errors="replace")

    def save(self, folder):
        write_json(f"{folder}/tokenizer.json", self.description())
        write_json(f"{folder}/tokenizer_config.json", config())

    def description(self):
        """tokenizer.json, as the Hugging Face library reads it."""
        added = [dict(id=self.id[s], content=s, single_word=False,
                      lstrip=False, rstrip=False, normalized=False,
                      special=True) for s in SPECIAL]
        split = dict(type="Split", pattern=dict(Regex=PATTERN),
                     behavior="Isolated", invert=False)
        byte_level = dict(type="ByteLevel", add_prefix_space=False,
                          trim_offsets=True, use_regex=False)
        vocab = {n: i for n, i in self.id.items() if n not in SPECIAL}
        return dict(
            version="1.0", truncation=None, padding=None, added_tokens=added,
            normalizer=None,
            pre_tokenizer=dict(type="Sequence",
                               pretokenizers=[split, byte_level]),
            post_processor=None, decoder=byte_level,
            model=dict(type="BPE", dropout=None, unk_token=None,
                       continuing_subword_prefix=None,
                       end_of_word_suffix=None, fuse_unk=False,
                       byte_fallback=False, ignore_merges=False,
                       vocab=vocab, merges=[list(m) for m in self.merges]))


def config():
    return dict(
        tokenizer_class="PreTrainedTokenizerFast", add_prefix_space=False,
        add_bos_token=False, bos_token=None, eos_token="<|im_end|>",
        pad_token="<|endoftext|>", unk_token=None, model_max_length=1024,
        clean_up_tokenization_spaces=False, chat_template=TEMPLATE,
        additional_special_tokens=SPECIAL[1:])


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
