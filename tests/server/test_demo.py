# SPDX-License-Identifier: MIT
"""The demo model on the board says what the reference says, whatever the way.

The reference is tests/golden/demo-tokens.json: greedy continuations by
PyTorch in float32 of the same weights, in an implementation that is checked
against Hugging Face transformers (models/train/check_reference.py).
"""

import http.client
import json
import os
import time

import pytest

from conftest import TREE, Served, at_once

GOLDEN = os.path.join(TREE, "tests", "golden", "demo-tokens.json")
PATIENCE = 120


def golden():
    """The prompts and their answers."""
    with open(GOLDEN) as stream:
        data = json.load(stream)
    return data["entries"]


def chat(served, entry):
    """The answer's text to an entry's messages."""
    answer = served.post("/v1/chat/completions", {
        "messages": entry["messages"], "temperature": 0, "max_tokens": 48})
    return answer["choices"][0]["message"]["content"]


def expect(entries, texts):
    """All at once, so that a failure shows every difference."""
    wrong = [(e["messages"][-1]["content"], e["text"], t)
             for e, t in zip(entries, texts) if e["text"] != t]
    assert not wrong, wrong
    assert len(texts) >= 20


def wait_for(served, condition):
    """Until the figures of /health fulfil a condition."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition(json.loads(served.get("/health"))):
            return True
    return False


@pytest.mark.parametrize("options", [
    "--max-concurrent 4",
    "--max-concurrent 2 --npu-disable-expert-cache",
    "--max-concurrent 4 --npu-experts-on-demand",
])
def test_greedy(options, server_log):
    """Cache on or off, experts loaded or faulted in: the same text."""
    entries = golden()
    with Served(options, server_log) as served:
        for entry in entries[:3]:
            assert served.ids(entry["prompt"]) == entry["prompt_ids"]
        expect(entries, [chat(served, entry) for entry in entries])
        # The same again, four at a time.
        texts = []
        for i in range(0, len(entries), 4):
            texts += at_once([lambda e=e: chat(served, e)
                              for e in entries[i:i + 4]])
        expect(entries, texts)
        figures = served.metrics()
        hits = figures["npu_router_cache_hits_total"]
        assert (hits == 0) == ("disable-expert-cache" in options)
        faults = figures["npu_expert_faults_total"]
        assert (faults > 0) == ("on-demand" in options)
        assert figures["npu_experts_resident"] == figures["npu_experts"]
        assert figures["npu_expert_places"] == figures["npu_experts"]
        assert figures["npu_expert_evictions_total"] == 0
        assert ("on-demand" in options) == (
            figures["npu_expert_hit_ratio"] < 1)
        assert 20 < figures["npu_temperature_celsius"] < 105
        assert figures["npu_device_seconds_total"] > 0
    assert served.status == 0
    assert not served.board.kernel_complaints()


def test_clients(server_log):
    """Streams, clients that leave, and one that is refused, on one board."""
    entry = golden()[0]
    with Served("--max-concurrent 2 --queue 0", server_log) as served:
        # A stream says the same, piece by piece.
        connection = http.client.HTTPConnection("127.0.0.1", served.port,
                                                timeout=PATIENCE)
        body = {"messages": entry["messages"], "temperature": 0,
                "max_tokens": 48, "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        events = [line[6:] for line in connection.getresponse()
                  .read().decode().splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        text = "".join(json.loads(e)["choices"][0]["delta"].get("content", "")
                       for e in events[:-1])
        assert text == entry["text"]

        # Two that never read hold the slots; a third is told so.
        long = {"prompt": entry["prompt_ids"], "max_tokens": 900,
                "temperature": 2.0, "seed": 1, "stream": True}
        holders = []
        for busy in (1, 2):
            holder = http.client.HTTPConnection("127.0.0.1", served.port,
                                                timeout=PATIENCE)
            holder.request("POST", "/v1/completions", json.dumps(long))
            holders.append(holder)
            if not wait_for(served, lambda h, b=busy: h["slots_busy"] >= b):
                break
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        response.read()
        assert response.status in (200, 503)
        # They leave; their slots are free at once.
        for holder in holders:
            holder.close()
        assert wait_for(served, lambda h: h["slots_busy"] == 0)
        assert chat(served, entry) == entry["text"]
    assert served.status == 0
    assert not served.board.kernel_complaints()
