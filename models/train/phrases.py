# SPDX-License-Identifier: MIT
"""How people type: openers, politeness, letter case, slips of the finger."""

OPENERS = [""] * 14 + [
    "please tell me, ", "quick question: ", "hi, ", "hello, ", "hey, ",
    "i have a question: ", "can you tell me ", "sorry, ", "well, ", "ok, ",
    "so ", "and ", "one more thing: ", "excuse me, ", "please, ", "hm, ",
    "i wonder, ", "do you know ", "now ", "but ", "thanks. ", "one question, ",
    "i would like to know ", "next: ", "could you tell me ", "hello! "]
CLOSERS = [""] * 14 + [
    " please", " on the m6 mini", " on my board", " thanks", " exactly", "  ",
    " on this board", " for me", " again", " here", " now", " with the m6",
    " in general", " then", " by the way", " for the npu"]
ABOUT = [
    "what is {n}", "what about {n}", "tell me {n}", "give me {n}", "{n}",
    "{n}", "i want to know {n}", "i need {n}", "do you know {n}",
    "can you tell me {n}", "explain {n}", "info about {n}",
    "i have a question about {n}", "say something about {n}",
    "what can you say about {n}", "tell me about {n}", "help with {n}",
    "more about {n}", "i would like to know about {n}", "show me {n}",
    "describe {n}", "how about {n}", "what do i need to know about {n}",
    "please explain {n}", "anything about {n}", "what does {n} mean",
    "question about {n}", "{n} please", "i have a problem with {n}",
    "what is the deal with {n}", "details on {n}", "talk about {n}",
    "do you have information about {n}", "i am looking for {n}",
    "what is known about {n}", "{n} explained", "and {n}", "what of {n}"]
QUESTION = set("what how which when why is are can do does where who may will "
               "should at".split())
SYNONYMS = {
    "npu": "chip|device|accelerator|m6",
    "board": "device|machine|m6|m6 mini|m6 board",
    "show": "display|list|print|tell",
    "how do i": "how can i|how to|how does one|how would i|how should i|"
                "how could i|i want to|i need to|what is the way to|"
                "is there a way to|tell me how to|i would like to|"
                "what must i do to|how can one|please help me to|how do you",
    "how can i": "how do i|how to|how does one|i want to|how can you",
    "what is": "what's|tell me|explain|what are|what do you know about|"
               "what exactly is|give me|describe|what was|i need|whats",
    "which": "what",
    "tell me": "explain|say|give me|describe",
    "explain": "describe|tell me about|what is",
    "i get": "i got|i see|there is|i have|it says|i keep getting|suddenly",
    "the npu": "the m6|it|my npu|the accelerator|the hardware|an npu",
    "the board": "it|my board|the m6 mini|the system",
    "memory": "ram",
    "ram": "memory",
    "do i": "should i|must i|can i|would i",
    "can i": "may i|could i|is it possible to|am i able to",
    "start": "begin|launch|run|bring up",
    "run": "start|execute|launch|use",
    "in the log": "in dmesg|in my log|in the kernel log|in the logs",
    "large": "big", "big": "large", "how big": "how large",
    "what does": "please explain what|explain what|tell me what|what can|"
                 "what will|can you explain what|i wonder what",
    "where is": "where can i find|where do i find|how do i find|where are|"
                "where can i see|where would i find|in which place is",
    "are there": "exist|do you have|does it have|are available",
    "is there": "do you have|does it have|have you got|exists",
    "how many": "what number of|how much|tell me how many",
    "how much": "how many|what amount of",
    "how fast": "how quick|how quickly|how slow|at what speed",
    "speed": "performance|rate|throughput", "use": "need|take|employ",
    "see": "check|find|read|look up|view|get", "read": "get|see|look at|query",
    "fix": "solve|repair|cure|get rid of|avoid|resolve",
    "mean": "say|tell me|stand for|want", "means": "says",
    "why do i see": "why is there|what causes|where does it come from",
    "why does": "how come|what makes|when does",
    "file": "document", "tool": "program|command|utility",
    "command": "tool|program|command line", "model": "network|llm",
    "set": "change|configure|choose|adjust", "change": "set|adjust|modify",
    "make": "create|produce|build|get", "create": "make|allocate|set up",
    "allowed": "possible|permitted", "happens": "will happen|is done",
    "help with": "how do i solve|what about|problem with",
    "what to do about": "how to handle|what helps against|cure for",
    "serious": "bad|dangerous|a problem|critical", "job": "task|workload",
    "temperature": "heat|temp", "size": "capacity|amount",
    "get": "obtain|have",
    "the server": "npu_server|the daemon|the api server|my server",
    "does it": "can it|will it|does the board", "support": "have|handle|know",
    "fails": "does not work|failed|breaks|goes wrong", "is": "was|would be",
    "and": "also", "works": "functions", "faster": "quicker",
    "slow": "sluggish|very slow|too slow", "path": "url|endpoint|address",
    "ioctl": "call|ioctl command|system call", "kinds": "types|sorts",
}
SYNONYMS = {old: new.split("|") for old, new in SYNONYMS.items()}
# What people add when they ask for the meaning of a message.
CURES = [" and how do i fix it", " and what can i do", " and what should i do",
         " and how to fix it", " and how can i solve it"]
FILLERS = set("the a is do i does of to my can how what it for in are there "
              "me tell".split())


def about(rng, topic):
    """A noun phrase as a question, often without its article."""
    for article in ("the ", "a ", "an "):
        if topic.startswith(article) and rng.random() < 0.35:
            topic = topic[len(article):]
            break
    return rng.choice(ABOUT).format(n=topic)


def vary(rng, text):
    """Other words for the same: synonyms, or telegraphic style."""
    for chance in (0.55, 0.35, 0.2):
        known = [old for old in SYNONYMS if whole(old, text)]
        if known and rng.random() < chance:
            old = rng.choice(known)
            new = rng.choice(SYNONYMS[old])
            text = f" {text} ".replace(f" {old} ", f" {new} ", 1).strip()
    if text.endswith(" mean") and rng.random() < 0.2:
        return text + rng.choice(CURES)
    if rng.random() < 0.2:
        words = [w for w in text.split(" ")
                 if w not in FILLERS or rng.random() < 0.4]
        if len(words) >= 2:
            text = " ".join(words)
    return text


def whole(phrase, text):
    # Names such as npu_top must stay what they are.
    return f" {phrase} " in f" {text} "


def misspell(rng, text):
    """One slip: a letter left out, swapped or doubled, never in a name."""
    spans, start = [], 0
    for word in text.split(" "):
        if word.isalpha() and len(word) >= 4 and not word.isupper():
            spans.append((start, len(word)))
        start += len(word) + 1
    if not spans:
        return text
    start, length = rng.choice(spans)
    at = start + rng.randrange(1, length - 1)
    slip = rng.randrange(3)
    if slip == 0:
        return text[:at] + text[at + 1:]
    if slip == 1:
        return text[:at] + text[at + 1] + text[at] + text[at + 2:]
    return text[:at + 1] + text[at:]


def punctuate(rng, text):
    """Case and final punctuation, or none of both."""
    asks = text.split(" ")[0] in QUESTION
    style = rng.random()
    if style < 0.5:
        end = "?" if asks else rng.choice([".", ".", "!", ""])
        return text[0].upper() + text[1:] + end
    if style < 0.7:
        return text + ("?" if asks else "")
    if style < 0.85:
        return text[0].upper() + text[1:]
    return text


def dress(rng, text, talk=False):
    """A phrasing as somebody might type it. Small talk has no suffix, and
    a short greeting no opener ("hi, hello")."""
    opener = "" if talk and len(text) < 12 else rng.choice(OPENERS)
    closer = "" if talk else rng.choice(CLOSERS)
    text = (opener + text + closer).strip()
    for chance in (0.22, 0.08):
        if rng.random() < chance:
            text = misspell(rng, text)
    return punctuate(rng, text)
