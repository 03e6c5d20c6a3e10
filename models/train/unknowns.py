# SPDX-License-Identifier: MIT
"""Questions that the model must not answer, and what it says instead.

Tools, messages and options that do not exist, arithmetic, gibberish, the
world outside, and what nobody told it about the board. A kind is a function
(rng, held) -> question; with held it uses only words and templates that
training never sees.
"""

import string

from wordlists import (BOARD, BOARD_QUESTIONS, DOINGS, KINDS, LETTERS, PARTS,
                       REQUESTS, STEMS, THINGS, VERBS, WORLD)

ANSWERS = {
    "tool": "I do not know a tool of that name. Some that I know are npu_top, "
            "npu_server and npu_compiler.",
    "message": "I do not know that message. Look into dmesg and "
               "/sys/kernel/debug/npu/exception_log.",
    "option": "I do not know that option or path. The --help of each tool "
              "lists what exists.",
    "arithmetic": "I cannot calculate. I only know the M6 board and its "
                  "software.",
    "gibberish": "I did not understand that. Please ask about the M6 board, "
                 "its tools or its errors.",
    "world": "I only know the M6 board and its software. Please ask me about "
             "those.",
    "board": "I do not know that about the board. The Documentation folder "
             "may have it.",
    "request": "I cannot do that. I only answer questions about the M6 board "
               "and its software.",
}
ADMITS = r"do not know|cannot|did not understand|I only know"

# What really exists must never be taught as unknown.
REAL_NAMES = set("""npu_server npu_compiler npu_top npu_temp npu_freq
    npu_mem_test npu_mem_pool_prealloc npu_flash_tool npu_reset npu_isp_config
    npu_dma_map_error npu_init npu_conf npu_driver""".split())
REAL_TARGETS = ("demo serve test check vm bench modules install clean help "
                "model").split()
REAL_OPTIONS = set("""--info --verify --inspect --json --once --config --help
    --version --model --host /health /metrics /props /slots /tokenize
    POOL_CREATE POOL_DESTROY POOL_INFO BO_CREATE BO_INFO
    BO_SYNC""".split()) | {f"make {target}" for target in REAL_TARGETS}
REAL_WORDS = ("THERMAL", "MMU_PAGE", "UNIT_HANG", "CACHE_FULL", "EXPERT_FAULT",
              "DMA_ERROR", "LINK_DEGRADED", "ECC_")

ASK_TOOL = ("what is {n}|what does {n} do|how do i use {n}|{n}|explain {n}|"
            "where is {n}|{n} does not work|tell me about {n}|how do i run {n}|"
            "is there a tool called {n}|what is {n} for|how to use {n}|"
            "do you know {n}|help with {n}|i want to use {n}|can i run {n}|"
            "{n}: command not found|which options has {n}|describe {n}|"
            "what can {n} do|how do i install {n}|show me {n}|"
            "how does {n} work|how do i start {n}|when do i need {n}|"
            "start {n}|{n} --help")
ASK_TOOL_HELD = "what would {n} be good for|how does one start {n}|what is {n}"
ASK_MESSAGE = ("what does {n} mean|i get {n}|{n}|{n} in the log|"
               "how do i fix {n}|the log says {n}|why do i see {n}|"
               "help with {n}|what is {n}|dmesg shows {n}|explain {n}|"
               "what to do about {n}|is {n} serious|why does {n} happen")
ASK_MESSAGE_HELD = ("what causes {n}|what does {n} mean|"
                    "dmesg prints {n} what now")
ASK_OPTION = ("what does {n} do|what is {n}|how do i set {n}|{n}|explain {n}|"
              "where do i put {n}|can i use {n}|which value for {n}|"
              "is {n} needed|do i need {n}|what is in {n}|tell me about {n}|"
              "what is {n} for|when should i use {n}|how does {n} work|"
              "what happens if i set {n}|help with {n}")
ASK_OPTION_HELD = "what is {n} good for|what happens with {n}|what does {n} do"
ASK_WORLD = ("who {v} {o}|how do i {w} {o}|what is the {p} of {o}|"
             "tell me about {o}|where is {o}|when was {o} {v}|"
             "what is the best {o}|do you like {o}|can you {w} {o}|"
             "why is {o} so {q}|what do you think about {o}|explain {o}|"
             "how {q} is {o}|i want to {w} {o}|which {o} is {q}|what is {o}|"
             "please {w} {o}|is {o} {q}|where can i buy {o}|write about {o}|"
             "what color is {o}|what do you know about {o}|{o}|"
             "how does {o} work|have you seen {o}|{o} is {q}|i like {o}|"
             "tell me a fact about {o}|who is {o}|how long does {o} take|"
             "how many {o} are there|tell me the {p} of {o}|i need {o}|"
             "what is the difference between {o} and {u}|{o} or {u}|"
             "how do i get from {o} to {u}|is {o} better than {u}")
ASK_WORLD_HELD = ("who first {v} {o}|how can one {w} {o}|"
                  "say the {p} of {o}|have you heard of {o}|"
                  "how {q} was {o}")
ASK_BOARD = ("what is {n}|tell me {n}|do you know {n}|what about {n}|{n}|"
             "how is {n}|can you tell me {n}|i want to know {n}|explain {n}|"
             "where do i find {n}|does the board have {n}|is {n} good|"
             "what can you say about {n}|describe {n}|tell me about {n}|"
             "give me details of {n}|say something about {n}")
ASK_BOARD_HELD = "give me {n}|please tell me about {n}|what is {n} like"
ASK_REQUEST = ("{n}|please {n}|can you {n}|could you {n}|i want you to {n}|"
               "{n} for me|are you able to {n} for me|{n} quickly|"
               "would you {n}|i need you to {n}|{n} now")
ASK_REQUEST_HELD = "would you be able to {n}|{n} right away please|please {n}"
ASK_SUM = ("{a} {o} {b}|what is {a} {o} {b}|{a}{s}{b}|what is {a}{s}{b}|"
           "how much is {a} {o} {b}|calculate {a} {o} {b}|compute {a}{s}{b}|"
           "{a} {s} {b}|{a}{s}{b}=|what's {a} {s} {b}|solve {a} {s} {b}|"
           "{a} {s} {b} = ?|tell me {a} {o} {b}|can you add {a} and {b}|"
           "what is the sum of {a} and {b}|"
           "what is the square root of {a}|is {a} a prime number|"
           "what is {a} percent of {b}|what is {a} squared|"
           "count from {a} to {b}|what comes after {a}|half of {a}|"
           "convert {a} to hex|how many seconds are {a} hours|"
           "{a} {o} {b} {o} {c}|what is {a}{s}{b}{s}{c}|double {a}|"
           "what is {x} {o} {y}|how much is {x} {o} {y}|{x} {o} {y}")
ASK_SUM_HELD = ("what do you get for {a} {o} {b}|work out {a}{s}{b}|"
                "what is {a}{s}{b}|how much would {a} {o} {b} be|"
                "please add {a} to {b}|what is the product of {a} and {b}")
OPERATORS = ["plus", "minus", "times", "divided by", "multiplied by"]
SIGNS = ["+", "-", "*", "/", "x"]
NUMERALS = ("one two three four five six seven eight nine ten twelve "
            "twenty").split()
NOISE = ["?", "??", "???", "...", "!!!", "!?", "-", ".", "*", "#", "/", ":)"]
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxz"
ROWS = ["qwertyuiop", "asdfghjkl", "zxcvbnm"]


def fill(rng, templates, **words):
    return rng.choice(templates.split("|")).format(**words)


def syllables(rng):
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS)
                   + (rng.choice(CONSONANTS) if rng.random() < 0.4 else "")
                   for _ in range(rng.choice([1, 2, 2, 3])))


def stem(rng, held):
    return syllables(rng) if rng.random() < 0.3 else STEMS.pick(rng, held)


def tool_name(rng, held):
    while True:
        a, b = stem(rng, held), stem(rng, held)
        name = rng.choice([f"npu_{a}"] * 5 + [f"npu_{a}_{b}"] * 3 + [
            f"npu_{a}{b}", f"m6_{a}", f"m6{a}", f"{a}ctl", f"npu{a}",
            f"npu_{a}_tool", f"npu_{a}r", f"npu-{a}", f"npu_mem_{a}",
            f"npu_mem_pool_{a}", f"npu_flash_{a}", f"npu_isp_{a}", f"{a}_npu",
            f"{a}_quantizer", f"npu_{a}_config", f"m6-{a}"])
        if name not in REAL_NAMES:
            return name


def message_name(rng, held):
    while True:
        a, b = stem(rng, held), stem(rng, held)
        code = rng.choice([n for n in range(256) if n != 0x1A])
        name = rng.choice([
            f"{a}_{b}".upper(), f"{a}_ERROR".upper(), f"{a}_{b}_ERR".upper(),
            f"{a}_TIMEOUT".upper(), f"{a}_FAULT".upper(), f"{a}_FULL".upper(),
            f"{a}_VIOLATION".upper(), f"npu_{a}_error", f"npu_{a}_failed",
            f"0x{code:02X}", f"error {code}", f"exception 0x{code:02X}",
            f"{a}_{b}_miss: {a} full", f"npu_{a}_{b}_error"])
        if not any(word in name for word in REAL_WORDS):
            return name


def option_name(rng, held):
    a, b = stem(rng, held), stem(rng, held)
    name = rng.choice([
        f"--{a}", f"--{a}-{b}", f"--npu-{a}", f"--{a}-{b}-{a}", f"{a}_{b}=1",
        f"/etc/{a}.conf", f"/sys/kernel/debug/npu/{a}", f"/v1/{a}", f"/{a}",
        f"/dev/{a}", f"make {a}", f"{a}.json", f"npu-{a}.service",
        f"POOL_{a.upper()}", f"BO_{a.upper()}",
        f"{a.upper()}_{b.upper()} ioctl"])
    return option_name(rng, held) if name in REAL_OPTIONS else name


def tool(rng, held):
    return fill(rng, ASK_TOOL_HELD if held else ASK_TOOL,
                n=tool_name(rng, held))


def message(rng, held):
    return fill(rng, ASK_MESSAGE_HELD if held else ASK_MESSAGE,
                n=message_name(rng, held))


def option(rng, held):
    return fill(rng, ASK_OPTION_HELD if held else ASK_OPTION,
                n=option_name(rng, held))


def arithmetic(rng, held):
    def number():
        return rng.randrange(rng.choice([10, 100, 100, 1000, 10000]))
    return fill(rng, ASK_SUM_HELD if held else ASK_SUM, a=number(), b=number(),
                c=number(), o=rng.choice(OPERATORS), s=rng.choice(SIGNS),
                x=rng.choice(NUMERALS), y=rng.choice(NUMERALS))


def mash(rng):
    row = rng.choice(ROWS)
    return "".join(rng.choice(row) for _ in range(rng.randrange(3, 10)))


def gibberish(rng, held):
    # Random by nature: a new draw is unseen, whatever training drew.
    kind = rng.randrange(8)
    if kind < 2:
        return " ".join(mash(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    if kind < 5:
        # At least two, for one alone may be a word: "hi".
        return " ".join(syllables(rng) for _ in range(rng.randrange(2, 6)))
    if kind == 5:
        return "".join(rng.choice(LETTERS + string.digits)
                       for _ in range(rng.randrange(4, 16)))
    if kind == 6:
        words = [STEMS.pick(rng, held) for _ in range(rng.randrange(3, 6))]
        return " ".join(words + [syllables(rng)])
    return rng.choice(NOISE) if not held else rng.choice(NOISE) * 2


def world(rng, held):
    if rng.random() < 0.25:
        return WORLD.pick(rng, held)
    # Invented nouns teach that what is unknown need not be well known.
    thing = (syllables(rng) if rng.random() < 0.1 else
             THINGS.pick(rng, held))
    return fill(rng, ASK_WORLD_HELD if held else ASK_WORLD, o=thing,
                v=VERBS.pick(rng),
                w=DOINGS.pick(rng), p=PARTS.pick(rng), q=KINDS.pick(rng),
                u=THINGS.pick(rng))


def board(rng, held):
    if rng.random() < 0.4:
        return BOARD_QUESTIONS.pick(rng, held)
    thing = BOARD.pick(rng, held)
    if rng.random() < 0.3:
        thing = thing.removeprefix("the ")
    return fill(rng, ASK_BOARD_HELD if held else ASK_BOARD, n=thing)


def request(rng, held):
    return fill(rng, ASK_REQUEST_HELD if held else ASK_REQUEST,
                n=REQUESTS.pick(rng, held))


KINDS_OF = dict(tool=tool, message=message, option=option,
                arithmetic=arithmetic, gibberish=gibberish, world=world,
                board=board, request=request)
# How often each is asked in training.
SHARE = dict(tool=6, message=3, option=3, arithmetic=3, gibberish=3, world=5,
             board=3, request=2)


def draw(rng):
    """(kind, question, answer) to train on."""
    kind = rng.choices(list(SHARE), SHARE.values())[0]
    return kind, KINDS_OF[kind](rng, held=False), ANSWERS[kind]
