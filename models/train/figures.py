# SPDX-License-Identifier: MIT
"""Questions with a number in them: is 91 C too hot, will 20 GB fit."""

TEMPERATURE = [
    "is {n} c too hot", "is {n} degrees ok", "the board is at {n} c",
    "my npu shows {n} degrees", "what happens at {n} c", "npu_top says {n} c",
    "is a temperature of {n} c normal", "will it throttle at {n} c",
    "the temperature is {n} degrees is that fine", "i see {n} c",
    "it shows {n} c", "the sensor reads {n} degrees",
    "should i worry about {n} c", "i have {n} degrees", "is {n} c fine",
    "{n} c", "{n} degrees", "the chip is at {n} degrees now",
    "my board has {n} c is this ok", "now it is {n} c",
    "the npu reached {n} c"]
TEMPERATURE_HELD = [
    "i measured {n} c should i worry", "it reads {n} degrees now"]
SIZE = [
    "will a {n} gb model fit", "does a model of {n} gb fit",
    "can i load a {n} gb model", "i have a model of {n} gb",
    "is {n} gb too large", "my model has {n} gb",
    "is a {n} gb model possible", "can it run {n} gb", "does {n} gb work",
    "i want to load {n} gb of weights", "the weights are {n} gb",
    "{n} gb model", "would {n} gb fit in memory", "is there room for {n} gb"]
SIZE_HELD = [
    "would a model with {n} gb work", "{n} gb of weights is that possible"]


def judge_temperature(n):
    if n >= 105:
        return f"{n} C is critical: at 105 C the units are halted."
    if n >= 87:
        return f"{n} C is too hot: the NPU throttles at 87 C."
    if n >= 82:
        return f"{n} C is warm but still below the throttle limit of 87 C."
    return f"{n} C is fine. The throttle limit is 87 C."


def judge_size(n):
    if n > 30:
        return (f"No, {n} GB is too much: the board has 32 GB. "
                "Quantize it to INT4.")
    if n > 16:
        return f"Yes, {n} GB fits, but preallocate the pool first."
    return f"Yes, {n} GB fits easily in the 32 GB of memory."


def draw(rng):
    """One training question and its answer."""
    if rng.random() < 0.6:
        n = rng.randrange(30, 125)
        return rng.choice(TEMPERATURE).format(n=n), judge_temperature(n)
    n = rng.randrange(1, 64)
    return rng.choice(SIZE).format(n=n), judge_size(n)


def held():
    """(question, right answer) pairs that training never saw."""
    for text in TEMPERATURE_HELD:
        for n in (45, 67, 71, 79, 83, 86, 88, 91, 99, 104, 106, 118):
            yield text.format(n=n), judge_temperature(n)
    for text in SIZE_HELD:
        for n in (3, 9, 14, 19, 22, 28, 33, 41, 57):
            yield text.format(n=n), judge_size(n)
