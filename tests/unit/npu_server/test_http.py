#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The daemon over real HTTP, on a model that echoes (fake_npu.c).

Usage: test_http.py NPU_SERVER_FAKE
"""

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))
PATIENCE = 30
# The end of why a step fails.
TOLD = "section 12 (expert 1.3): read error: none; check the disk"


class Server:
    """The program on a free port, until the end of a with block."""

    def __init__(self, *options, step_ms=0):
        self.options, self.step_ms = options, step_ms

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = dict(os.environ)
        if self.step_ms:
            environment["FAKE_STEP_MS"] = str(self.step_ms)
        self.process = subprocess.Popen(
            [PROGRAM, "--model", "echo.npu", "--host",
             f"127.0.0.1:{self.port}", "--conf", os.devnull, *self.options],
            stderr=subprocess.PIPE, text=True, env=environment)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if "listening" in line:
                break
        self.reader = threading.Thread(
            target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.status = self.process.wait(PATIENCE)
        self.reader.join()
        self.process.stderr.close()

    def connect(self):
        """A new connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        """One request on a connection of its own: (status, parsed, headers)."""
        connection = self.connect()
        text = body if isinstance(body, (bytes, str)) or body is None \
            else json.dumps(body)
        connection.request(method, path, text, headers or {})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if response.getheader("Content-Type") == "application/json":
            data = json.loads(data)
        return response.status, data, response.headers

    def figures(self):
        """Those of /metrics by name, labels and all."""
        page = self.ask("GET", "/metrics")[1].decode()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
                for line in page.splitlines() if line[0] != "#"}

    def complete(self, prompt, **options):
        """A completion that must go well: its choice."""
        status, data, _ = self.ask("POST", "/v1/completions",
                                   {"prompt": prompt, **options})
        assert status == 200, data
        return data["choices"][0]

    def wait_for(self, name, least):
        """Until a figure of /metrics is so large."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.figures()[name] >= least:
                return True
        return False

    def wait_idle(self, busy=0, queued=0):
        """Until /health reports these numbers."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            health = self.ask("GET", "/health")[1]
            if health["slots_busy"] == busy and health["queued"] == queued:
                return True
        return False


def events(response):
    """The data of an event stream, one by one."""
    for line in response:
        line = line.decode()
        if line.startswith("data: "):
            yield line[6:].strip()


class Answers(unittest.TestCase):
    """What a client gets."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-concurrent", "4").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        assert cls.server.status == 0, cls.server.log

    def test_completion(self):
        """Plain completion: text, reason, usage."""
        status, data, _ = self.server.ask(
            "POST", "/v1/completions", {"prompt": "hello there"})
        self.assertEqual(status, 200)
        self.assertEqual(data["object"], "text_completion")
        self.assertEqual(data["model"], "echo")
        self.assertEqual(data["choices"][0]["text"], "hello there")
        self.assertEqual(data["choices"][0]["finish_reason"], "stop")
        self.assertEqual(data["usage"], {"prompt_tokens": 11,
                                         "completion_tokens": 11,
                                         "total_tokens": 22})
        # One step of a millisecond reads the prompt, 11 more say it.
        self.assertAlmostEqual(data["timings"]["device_prompt_ms"], 1)
        self.assertAlmostEqual(data["timings"]["device_predicted_ms"], 11)

    def test_chat(self):
        """Chat, plain; content may be a list of parts."""
        for content in ("hi", [{"type": "text", "text": "h"},
                               {"type": "text", "text": "i"}]):
            status, data, _ = self.server.ask(
                "POST", "/v1/chat/completions",
                {"messages": [{"role": "system", "content": "be brief"},
                              {"role": "user", "content": content}]})
            self.assertEqual(status, 200)
            self.assertEqual(data["object"], "chat.completion")
            self.assertEqual(data["choices"][0]["message"],
                             {"role": "assistant", "content": "hi"})

    def stream(self, body, path="/v1/chat/completions"):
        """All chunks of a stream, which must be well-formed."""
        connection = self.server.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertEqual(response.getheader("Content-Type"),
                         "text/event-stream")
        got = list(events(response))
        connection.close()
        self.assertEqual(got[-1], "[DONE]")
        return [json.loads(chunk) for chunk in got[:-1]]

    def test_stream(self):
        """A chat stream gives the same text, role first, reason last."""
        text = "caf\u00e9 \u20ac \U0001f331 end"
        chunks = self.stream({"messages": [{"role": "user",
                                            "content": text}],
                              "stream_options": {"include_usage": True}})
        usage = chunks.pop()
        self.assertEqual(usage["choices"], [])
        self.assertEqual(usage["usage"]["completion_tokens"],
                         len(text.encode()))
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        self.assertEqual(deltas[0]["role"], "assistant")
        self.assertEqual("".join(d.get("content", "") for d in deltas), text)
        self.assertNotIn("\ufffd", "".join(d.get("content", "")
                                           for d in deltas))
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")
        self.assertTrue(all(c["choices"][0]["finish_reason"] is None
                            for c in chunks[:-1]))
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)

    def test_completion_stream(self):
        """A completion stream carries text."""
        chunks = self.stream({"prompt": "abc"}, "/v1/completions")
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks),
                         "abc")

    def test_limits(self):
        """max_tokens and stop strings end an answer."""
        choice = self.server.complete("abcdef", max_tokens=3)
        self.assertEqual((choice["text"], choice["finish_reason"]),
                         ("abc", "length"))
        choice = self.server.complete("abcdef", stop=["zz", "de"])
        self.assertEqual((choice["text"], choice["finish_reason"]),
                         ("abc", "stop"))
        choice = self.server.complete("\u00e9\u00e9", max_tokens=3)
        self.assertEqual(choice["text"], "\u00e9\ufffd")

    def test_context(self):
        """The context's end is an end; a prompt beyond it is an error."""
        choice = self.server.complete("!loop" + "x" * 1995)
        self.assertEqual(choice["finish_reason"], "length")
        # 2000 tokens of prompt leave 48 positions; the last needs none.
        self.assertEqual(len(choice["text"]), 48)
        status, data, _ = self.server.ask("POST", "/v1/completions",
                                          {"prompt": "x" * 2048})
        self.assertEqual(status, 400)
        self.assertEqual(data["error"]["code"], "context_length_exceeded")

    def test_logprobs(self):
        """Log probabilities of the tokens, and of their rivals."""
        status, data, _ = self.server.ask(
            "POST", "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "ab"}],
             "logprobs": True, "top_logprobs": 2})
        self.assertEqual(status, 200)
        content = data["choices"][0]["logprobs"]["content"]
        self.assertEqual([e["token"] for e in content], ["a", "b"])
        self.assertEqual(content[0]["bytes"], [97])
        self.assertAlmostEqual(content[0]["logprob"], 0, 5)
        self.assertEqual(len(content[0]["top_logprobs"]), 2)
        self.assertEqual(content[0]["top_logprobs"][0]["token"], "a")
        self.assertEqual(content[0]["top_logprobs"][0]["logprob"],
                         content[0]["logprob"])

    def test_text_logprobs(self):
        """Completions have them as parallel lists, offsets in characters."""
        logprobs = self.server.complete("\u20acab", logprobs=2)["logprobs"]
        self.assertEqual(logprobs["tokens"], ["\ufffd"] * 3 + ["a", "b"])
        self.assertEqual(logprobs["text_offset"], [0, 1, 1, 1, 2])
        self.assertAlmostEqual(logprobs["token_logprobs"][3], 0, 5)
        # Among equals the lowest id, which is NUL.
        self.assertEqual(list(logprobs["top_logprobs"][3]), ["a", "\0"])
        self.assertAlmostEqual(logprobs["top_logprobs"][3]["\0"], -30, 3)
        logprobs = self.server.complete("ab", logprobs=0)["logprobs"]
        self.assertEqual(logprobs["top_logprobs"], [{}, {}])

    def test_stream_logprobs(self):
        """Each token's come once, and with its chunk."""
        chunks = self.stream({"messages": [{"role": "user", "content": "abc"}],
                              "logprobs": True})
        got = [(chunk["choices"][0]["delta"].get("content"),
                [e["token"]
                 for e in chunk["choices"][0]["logprobs"]["content"]])
               for chunk in chunks]
        self.assertEqual(sum((tokens for _, tokens in got), []),
                         ["a", "b", "c"])
        for text, tokens in got[:-1]:
            self.assertIn(text, "".join(tokens))

    def test_unprintable(self):
        """An error is valid JSON whatever it quotes, wherever it is cut."""
        for path, shown in (("/%ff%fe", "\ufffd"), ("/%e2%82%ac", "\u20ac"),
                            ("/" + "%e2%82%ac" * 300, "\u20ac"),
                            ("/a" + "%e2%82%ac" * 300, "\u20ac"),
                            ("/aa" + "%e2%82%ac" * 300, "\u20ac")):
            with self.subTest(path=path):
                status, data, _ = self.server.ask("GET", path)
                self.assertEqual(status, 404)
                self.assertIn(shown, data["error"]["message"])

    def test_refused(self):
        """Bad requests are refused with the parameter at fault."""
        chat, text = "/v1/chat/completions", "/v1/completions"
        hello = [{"role": "user", "content": "hi"}]
        for path, body, param in (
                (text, "{", None),
                (text, "[]", None),
                (text, "", None),
                (text, {}, "prompt"),
                (text, {"prompt": ""}, "prompt"),
                (text, {"prompt": [1, 999]}, "prompt"),
                (text, {"prompt": "a\x7f"}, "prompt"),
                (chat, {"messages": [{"role": "user", "content": "\x7f"}]},
                 "messages"),
                (text, {"prompt": [-1]}, "prompt"),
                (text, {"prompt": "a", "temperature": "hot"}, "temperature"),
                (text, {"prompt": "a", "temperature": 2.5}, "temperature"),
                (text, {"prompt": "a", "top_p": -1}, "top_p"),
                (text, {"prompt": "a", "max_tokens": 0}, "max_tokens"),
                (text, {"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
                (text, {"prompt": "a", "n": 2}, "n"),
                (text, {"prompt": "a", "echo": True}, "echo"),
                (text, {"prompt": "a", "stop": [1]}, "stop"),
                (text, {"prompt": "a", "stop": ""}, "stop"),
                (text, {"prompt": "a", "stop": ["x"] * 17}, "stop"),
                (text, {"prompt": "a", "stream": "yes"}, "stream"),
                (text, {"prompt": "a", "logprobs": 21}, "logprobs"),
                (chat, {}, "messages"),
                (chat, {"messages": []}, "messages"),
                (chat, {"messages": "hi"}, "messages"),
                (chat, {"messages": [{"content": "hi"}]}, "messages"),
                (chat, {"messages": [{"role": "user"}]},
                 "messages[0].content"),
                (chat, {"messages": [{"role": "pope", "content": "hi"}]},
                 "messages"),
                (chat, {"messages": [{"role": "user", "content": [
                    {"type": "image_url"}]}]}, "messages[0].content"),
                (chat, {"messages": [{"role": "user", "content": "a\0b"}]},
                 "messages[0].content"),
                (chat, {"messages": [{"role": "user", "content": [
                    {"type": "text", "text": "a\0b"}]}]},
                 "messages[0].content"),
                (chat, {"messages": [{"role": "user\0x", "content": "a"}]},
                 "messages"),
                (chat, {"messages": hello, "tools": [{}]}, "tools"),
                (chat, {"messages": hello, "response_format":
                        {"type": "json_object"}}, "response_format"),
                (chat, {"messages": hello, "top_logprobs": 2},
                 "top_logprobs")):
            with self.subTest(body=body):
                status, data, _ = self.server.ask("POST", path, body)
                self.assertEqual(status, 400)
                self.assertEqual(data["error"]["type"],
                                 "invalid_request_error")
                self.assertEqual(data["error"]["param"], param)
                self.assertTrue(data["error"]["message"])

    def test_routes(self):
        """Unknown paths, wrong methods, bodies beyond the limit."""
        self.assertEqual(self.server.ask("GET", "/nothing")[0], 404)
        self.assertEqual(
            self.server.ask("GET", "/v1/chat/completions")[0], 405)
        self.assertEqual(self.server.ask("POST", "/health", "{}")[0], 405)
        status, data, _ = self.server.ask("POST", "/v1/completions",
                                          b"x" * (9 << 20))
        self.assertEqual(status, 413)
        self.assertIn("error", data)

    def test_figures(self):
        """/v1/models and /metrics."""
        status, data, _ = self.server.ask("GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(data["data"][0]["id"], "echo")
        self.server.complete("abc")
        status, data, headers = self.server.ask("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain"))
        lines = dict(line.rsplit(" ", 1) for line in
                     data.decode().splitlines() if line[0] != "#")
        self.assertEqual(float(lines["npu_temperature_celsius"]), 41.5)
        self.assertEqual(float(lines["npu_router_cache_hit_ratio"]), 0.7)
        self.assertGreaterEqual(int(lines["npu_generated_tokens_total"]), 3)
        self.assertAlmostEqual(
            float(lines["npu_device_tokens_per_second"]), 2 / 0.003, 2)

    def test_figures_format(self):
        """A page that Prometheus takes: each family once, told of before it
        comes, and in one piece."""
        page = self.server.ask("GET", "/metrics")[1].decode()
        self.assertTrue(page.endswith("\n"))
        value = r"(?:[0-9.]+(?:e[+-]?[0-9]+)?|\+Inf)"
        families, series = {}, set()
        for line in page.splitlines():
            if line.startswith("# HELP "):
                name, text = line.split(" ", 3)[2:]
                self.assertNotIn(name, families)
                self.assertRegex(text, r"^[A-Z].*\.$")
                families[name] = None
            elif line.startswith("# TYPE "):
                self.assertEqual(line.split(" ")[2], name)
                families[name] = line.split(" ")[3]
                self.assertIn(families[name], ("counter", "gauge", "summary"))
                self.assertEqual(families[name] == "counter",
                                 name.endswith("_total"))
            else:
                self.assertRegex(
                    line, "^" + name + r'(?:_sum|_count)?(?:\{[a-z]+="\w+"\})?'
                    " " + value + "$")
                self.assertNotIn(line.split(" ")[0], series)
                series.add(line.split(" ")[0])
        self.assertNotIn(None, families.values())
        with open(os.path.join(TREE, "Documentation",
                               "npu_server.8")) as manual:
            told = set(re.findall(r"\bnpu_\w+", manual.read()))
        for name in families:
            if "expert" in name or "router" in name:
                self.assertIn(name, told)

    def test_expert_figures(self):
        """Of experts: libnpu's, and sums over the layers."""
        figures = self.server.figures()
        for name, want in (("npu_expert_uses_total", 100),
                           ("npu_expert_hits_total", 80),
                           ("npu_expert_hit_ratio", 0.8),
                           ("npu_expert_missed_total", 20),
                           ("npu_expert_waits_total", 15),
                           ("npu_expert_hints_total", 9),
                           ("npu_expert_prefetches_total", 8),
                           ("npu_expert_prefetches_used_total", 6),
                           ("npu_expert_fallbacks_total", 0),
                           ("npu_expert_stall_seconds_total", 2.5),
                           ("npu_expert_prefetch_threshold", 0.95),
                           ("npu_router_cache_hits_total", 70),
                           ("npu_router_cache_misses_total", 30),
                           ("npu_router_cache_evictions_total", 10),
                           ("npu_expert_sram_hits_total", 8),
                           ("npu_expert_sram_prefetches_total", 14),
                           ('npu_expert_layer_faults_total{layer="1"}', 1),
                           ('npu_router_cache_layer_misses_total{layer="0"}',
                            10)):
            self.assertEqual(figures[name], want, name)

    def test_tokens(self):
        """/tokenize and /detokenize undo each other."""
        _, data, _ = self.server.ask("POST", "/tokenize", {"content": "\u20ac"})
        self.assertEqual(data, {"tokens": [0xe2, 0x82, 0xac]})
        _, back, _ = self.server.ask("POST", "/detokenize", data)
        self.assertEqual(back, {"content": "\u20ac"})
        self.assertEqual(self.server.ask("POST", "/detokenize",
                                         {"tokens": [300]})[0], 400)

    def test_failed_step(self):
        """A failing job ends its request with an error, and no other."""
        status, data, _ = self.server.ask("POST", "/v1/completions",
                                          {"prompt": "!fail"})
        self.assertEqual(status, 500)
        self.assertIn(TOLD, data["error"]["message"])
        self.assertEqual(self.server.complete("fine")["text"], "fine")

    def test_failed_stream(self):
        """One that fails midway ends its stream with an error event."""
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "!late or never", "stream": True}))
        got = [json.loads(event) for event in
               events(connection.getresponse())]
        connection.close()
        self.assertEqual("".join(e["choices"][0]["text"] for e in got[:-1]),
                         "!late or never"[:4])
        self.assertIn(TOLD, got[-1]["error"]["message"])


class Load(unittest.TestCase):
    """Several clients, and those that leave."""

    def test_concurrent(self):
        """More requests than slots all get their own answer."""
        with Server("--max-concurrent", "3", step_ms=1) as server:
            texts = [f"request {i} " * (i + 1) for i in range(12)]
            got = [None] * len(texts)

            def one(i):
                got[i] = server.complete(texts[i])["text"]

            threads = [threading.Thread(target=one, args=(i,))
                       for i in range(len(texts))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(got, texts)
        self.assertEqual(server.status, 0, server.log)

    def beside(self, server, prompt, count=2):
        """Ask for a prompt while others answer: its end, and theirs."""
        begun = server.figures()["npu_generated_tokens_total"]
        texts = [f"answer {i} " * 30 for i in range(count)]
        got = [None] * count

        def one(i):
            got[i] = server.ask("POST", "/v1/completions",
                                {"prompt": texts[i]})[:2]

        threads = [threading.Thread(target=one, args=(i,))
                   for i in range(count)]
        for thread in threads:
            thread.start()
        # Prompts take turns; so many tokens are more than one of them's.
        self.assertTrue(server.wait_for("npu_generated_tokens_total",
                                        begun + 20 * count))
        status, data, _ = server.ask("POST", "/v1/completions",
                                     {"prompt": prompt})
        for thread in threads:
            thread.join()
        return (status, data), list(zip(texts, got))

    def test_alone(self):
        """Who makes a shared step fail ends; the others' answers are right."""
        with Server("--max-concurrent", "3", step_ms=3) as server:
            for prompt in ("!fail", "!late and on"):
                (status, data), others = self.beside(server, prompt)
                self.assertEqual(status, 500)
                self.assertIn(TOLD, data["error"]["message"])
                for text, (status, data) in others:
                    self.assertEqual(status, 200, data)
                    self.assertEqual(data["choices"][0]["text"], text)
            # Each time the step of three, then the one that is to blame.
            figures = server.figures()
            self.assertEqual(figures["npu_steps_failed_total"], 4)
            self.assertEqual(figures['npu_requests_total{reason="error"}'], 2)
        self.assertEqual(server.status, 0, server.log)

    def test_gone(self):
        """Without the device nobody is tried again, and the server stays."""
        with Server("--max-concurrent", "3", step_ms=3) as server:
            (status, data), others = self.beside(server, "!gone")
            for status, data in [(status, data)] + [got for _, got in others]:
                self.assertEqual(status, 500)
                self.assertIn("gone", data["error"]["message"])
            self.assertEqual(server.figures()["npu_steps_failed_total"], 1)
        self.assertEqual(server.status, 0, server.log)

    def test_queue(self):
        """Beyond slots and queue: 503, at once, and health still answers."""
        with Server("--max-concurrent", "1", "--queue", "1",
                    step_ms=5) as server:
            waiting = []
            for busy, queued in ((1, 0), (1, 1)):
                connection = server.connect()
                connection.request("POST", "/v1/completions", json.dumps(
                    {"prompt": "!loop", "max_tokens": 2000}))
                waiting.append(connection)
                self.assertTrue(server.wait_idle(busy, queued))
            status, data, headers = server.ask("POST", "/v1/completions",
                                               {"prompt": "x"})
            self.assertEqual(status, 503)
            self.assertEqual(data["error"]["code"], "queue_full")
            self.assertEqual(headers["Retry-After"], "1")
            # The one in the queue leaves, then the one that runs.
            for connection, left in ((waiting[1], 1), (waiting[0], 0)):
                connection.close()
                self.assertTrue(server.wait_idle(left, 0))
        self.assertEqual(server.status, 0, server.log)

    def test_disconnect(self):
        """A client that leaves frees its slot, streaming or not."""
        with Server("--max-concurrent", "1", step_ms=2) as server:
            for stream in (True, False):
                connection = server.connect()
                connection.request("POST", "/v1/completions", json.dumps(
                    {"prompt": "!loop", "stream": stream}))
                self.assertTrue(server.wait_idle(1))
                connection.sock.shutdown(socket.SHUT_RDWR)
                connection.close()
                self.assertEqual(server.complete("next")["text"], "next")
            page = server.ask("GET", "/metrics")[1].decode()
            self.assertIn('npu_requests_total{reason="cancelled"} 2', page)
        self.assertEqual(server.status, 0, server.log)

    def test_more_slots_than_rows(self):
        """More answers under way than a step has rows: none waits for ever."""
        with Server("--max-concurrent", "20", "--max-seq-len", "50000",
                    step_ms=2) as server:
            holders = []
            for busy in range(1, 20):
                holder = server.connect()
                holder.request("POST", "/v1/completions", json.dumps(
                    {"prompt": "!loop", "stream": True}))
                holders.append(holder)
                self.assertTrue(server.wait_idle(busy))
            self.assertEqual(server.complete("quick")["text"], "quick")
            self.assertEqual(
                server.ask("GET", "/health")[1]["slots_busy"], 19)
            for holder in holders:
                holder.sock.shutdown(socket.SHUT_RDWR)
                holder.close()
        self.assertEqual(server.status, 0, server.log)

    def test_slow_reader(self):
        """A client that doesn't read its stream holds nobody up."""
        with Server("--max-concurrent", "2") as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "!loop", "stream": True}))
            select.select([connection.sock], [], [], PATIENCE)
            self.assertEqual(server.complete("other")["text"], "other")
            connection.close()
        self.assertEqual(server.status, 0, server.log)

    def test_sigterm(self):
        """SIGTERM lets a request end, and cancels what takes longer."""
        with Server("--grace", "20", step_ms=20) as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions",
                               json.dumps({"prompt": "finish me"}))
            self.assertTrue(server.wait_idle(1))
            server.process.send_signal(signal.SIGTERM)
            answer = json.loads(connection.getresponse().read())
            self.assertEqual(answer["choices"][0]["text"], "finish me")
            self.assertEqual(server.process.wait(PATIENCE), 0)
        with Server("--grace", "0", step_ms=20) as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions",
                               json.dumps({"prompt": "!loop"}))
            self.assertTrue(server.wait_idle(1))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(connection.getresponse().status, 503)
            self.assertEqual(server.process.wait(PATIENCE), 0)
        # A stream that is cut off must not look like one that ended.
        with Server("--grace", "0", step_ms=20) as server:
            connection = server.connect()
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "!loop", "stream": True}))
            self.assertTrue(server.wait_idle(1))
            server.process.send_signal(signal.SIGTERM)
            got = list(events(connection.getresponse()))
            self.assertIn("stopping", json.loads(got[-1])["error"]["message"])
            self.assertNotIn('"finish_reason":"', "".join(got))
            self.assertEqual(server.process.wait(PATIENCE), 0)


    def test_sigterm_while_loading(self):
        """SIGTERM ends it while the model is loaded, and that is no failure."""
        with subprocess.Popen(
                [PROGRAM, "--model", "echo.npu", "--host", "127.0.0.1:0",
                 "--conf", os.devnull], stderr=subprocess.PIPE, text=True,
                env=dict(os.environ, FAKE_LOAD_MS="100000")) as process:
            for line in process.stderr:
                if "loading" in line:
                    break
            process.send_signal(signal.SIGTERM)
            self.assertIn("cancelled", process.stderr.read())
            self.assertEqual(process.wait(PATIENCE), 0)


class Report(unittest.TestCase):
    """--npu-expert-report."""

    @staticmethod
    def read(path):
        """Sum of the uses, tokens."""
        with open(path) as stream:
            report = json.load(stream)
        assert report["model"] == "echo"
        assert len(report["layers"]) == 2
        assert all(len(layer["use"]) == 4 for layer in report["layers"])
        uses = [sum(layer["use"]) for layer in report["layers"]]
        assert uses[0] == uses[1]
        return uses[0], report["tokens"]

    def test_report(self):
        """Upon SIGUSR1 and at the end, whole, with the tokens that ran."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "use.json")
            with Server("--npu-expert-report", path) as server:
                # The last one of an answer is not run.
                server.complete("abcd", max_tokens=3)
                self.assertFalse(os.path.exists(path))
                server.process.send_signal(signal.SIGUSR1)
                end = time.monotonic() + PATIENCE
                while not os.path.exists(path) and time.monotonic() < end:
                    time.sleep(0.01)
                self.assertEqual(self.read(path), (6, 6))
                server.complete("abcd", max_tokens=1)
            self.assertEqual(server.status, 0, server.log)
            self.assertEqual(self.read(path), (10, 10))
            self.assertEqual(os.listdir(folder), ["use.json"])

    def test_meanwhile(self):
        """While steps run no expert has had more tokens than there were:
        npu_compiler would not take that."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "use.json")
            # All of these take expert 0, and a step has long counted them
            # when it ends.
            with Server("--npu-expert-report", path, step_ms=300) as server:
                connection = server.connect()
                connection.request("POST", "/v1/completions", json.dumps(
                    {"prompt": "dddd", "stream": True}))
                next(events(connection.getresponse()))
                server.process.send_signal(signal.SIGUSR1)
                end = time.monotonic() + PATIENCE
                while not os.path.exists(path) and time.monotonic() < end:
                    time.sleep(0.01)
                with open(path) as stream:
                    report = json.load(stream)
                connection.close()
            self.assertEqual(server.status, 0, server.log)
            self.assertEqual(report["layers"][0]["use"][0], report["tokens"])

    def test_nowhere(self):
        """A file that cannot be written is told, and hurts nobody."""
        with Server("--npu-expert-report", "/nowhere/use.json") as server:
            server.process.send_signal(signal.SIGUSR1)
            self.assertEqual(server.complete("ab")["text"], "ab")
        self.assertEqual(server.status, 0, server.log)
        self.assertIn("/nowhere/use.json: No such file", "".join(server.log))

    def test_unasked(self):
        """SIGUSR1 without a report to write ends nothing."""
        with Server() as server:
            server.process.send_signal(signal.SIGUSR1)
            self.assertEqual(server.complete("ab")["text"], "ab")
        self.assertEqual(server.status, 0, server.log)


class Options(unittest.TestCase):
    """Command line, configuration file, API key."""

    def run_program(self, *options):
        """To its end: (status, stdout, stderr)."""
        done = subprocess.run([PROGRAM, *options], capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_messages(self):
        """Wrong options are named; --help goes to stdout."""
        status, out, _ = self.run_program("--help")
        self.assertEqual(status, 0)
        for flag in ("--model", "--config", "--host", "--npu-device-id",
                     "--max-concurrent", "--npu-disable-expert-cache",
                     "--npu-expert-preload-threshold", "--max-seq-len",
                     "--api-key"):
            self.assertIn(flag, out)
        self.assertEqual(self.run_program("--version")[0], 0)
        for options, word in ((("--frob",), "frob"),
                              (("--conf", os.devnull), "--model"),
                              (("--max-concurrent", "0"), "max-concurrent"),
                              (("--max-concurrent", "2x"), "2x"),
                              (("--max-seq-len", "0"), "16777216"),
                              (("--model", "m", "--host", "x"), "--host"),
                              (("--model", "m", "--kv-cache-type", "f8"),
                               "kv-cache-type"),
                              (("--model", "m", "--conf", "/nowhere"),
                               "/nowhere"),
                              (("--model", "m", "--conf", "/"),
                               "directory"),
                              (("--model", "m", "--host", "127.0.0.1:65536"),
                               "--host"),
                              (("--model", "m", "--host", "127.0.0.1:-1"),
                               "--host"),
                              (("--model", "m", "surplus"), "surplus"),
                              (("--npu-expert-preload-threshold", "1.01"),
                               "from 0 to 1, or off, not '1.01'"),
                              (("--npu-expert-preload-threshold", "nan"),
                               "not 'nan'"),
                              (("--npu-expert-preload-threshold", "0.5x"),
                               "not '0.5x'"),
                              (("--dynamic-expert-threshold", "0.3"),
                               "the lower one first"),
                              (("--dynamic-expert-threshold", "0.7,0.3"),
                               "not '0.7,0.3'"),
                              (("--dynamic-expert-threshold", "0.3,1.2"),
                               "not '0.3,1.2'"),
                              (("--dynamic-expert-threshold", "0.3,"),
                               "not '0.3,'"),
                              (("--model", "m", "--dynamic-expert-threshold",
                                "0.3,0.7", "--npu-expert-preload-threshold",
                                "off"), "leave one of them out")):
            with self.subTest(options=options):
                status, _, err = self.run_program(*options)
                self.assertEqual(status, 1)
                self.assertIn(word, err)

    def test_taken(self):
        """A port in use is told before anything is loaded."""
        with Server() as server:
            status, _, err = self.run_program(
                "--model", "m", "--conf", os.devnull,
                "--host", f"127.0.0.1:{server.port}")
            self.assertEqual(status, 1)
            self.assertIn("in use", err)
            self.assertEqual(len(err.splitlines()), 1, err)

    def test_thresholds(self):
        """What the options for reading ahead come to."""
        for options, want in (((), 0.95),
                              (("--npu-experts-on-demand",), 0.85),
                              (("--npu-expert-preload-threshold", "0.5"), 0.5),
                              (("--npu-expert-preload-threshold", "1"), 1),
                              (("--npu-expert-preload-threshold", "0"), 0.001),
                              (("--npu-expert-preload-threshold", "off"),
                               float("inf")),
                              (("--dynamic-expert-threshold", "0.3,0.7"), 0.7),
                              (("--dynamic-expert-threshold", "0.3,0.7",
                                "--npu-expert-preload-threshold", ".4"), 0.4)):
            with self.subTest(options=options), Server(*options) as server:
                self.assertEqual(
                    server.figures()["npu_expert_prefetch_threshold"], want)
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("[npu_server]\nnpu-expert-fallback = yes\n"
                       "dynamic-expert-threshold = 0.2,0.4\n")
            conf.flush()
            with Server("--conf", conf.name) as server:
                figures = server.figures()
                self.assertEqual(figures["npu_expert_fallbacks_total"], 20)
                self.assertEqual(figures["npu_expert_prefetch_threshold"],
                                 0.4)

    def test_told_everywhere(self):
        """--help, the man page and the completion name the same options."""
        told = self.run_program("--help")[1]
        wanted = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", told))
        self.assertGreater(len(wanted), 15)
        with open(os.path.join(TREE, "Documentation",
                               "npu_server.8")) as page:
            named = set(re.findall(r"Fl -([a-z][a-z0-9-]+)", page.read()))
        self.assertEqual({"--" + name for name in named}, wanted)
        with open(os.path.join(TREE, "userspace", "npu_server",
                               "npu_server.bash")) as script:
            words = re.search(r"-W '(--model.*?)'", script.read(), re.S)[1]
        self.assertEqual(set(words.split()), wanted)

    def test_conf(self):
        """The file's keys count, the command line's win; key and all."""
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("temp_offset=1800\n# comment\n[other]\nx=1\n"
                       "[npu_server]\nmax-concurrent = 7\n"
                       "max-seq-len=100\napi-key = secret\n")
            conf.flush()
            with Server("--conf", conf.name, "--max-seq-len",
                        "50") as server:
                self.assertEqual(server.ask("GET", "/health")[1]["slots"], 7)
                self.assertEqual(server.ask("GET", "/v1/models")[0], 401)
                for key, want in (("Bearer secret", 200),
                                  ("bearer secret", 200),
                                  ("Bearer secre", 401),
                                  ("Bearer secrets", 401),
                                  ("Basic secret", 401)):
                    status, data, _ = server.ask(
                        "GET", "/v1/models", None, {"Authorization": key})
                    self.assertEqual(status, want)
                self.assertEqual(data["error"]["code"], "invalid_api_key")
                status, data, _ = server.ask(
                    "GET", "/v1/models", None,
                    {"Authorization": "Bearer secret"})
                self.assertEqual(data["data"][0]["meta"]["max_seq_len"], 50)
            conf.write("max-tokns = 3\n")
            conf.flush()
            status, _, err = self.run_program("--model", "m", "--conf",
                                              conf.name)
            self.assertEqual(status, 1)
            self.assertIn("max-tokns", err)


class TapResult(unittest.TestResult):
    """Each test as a line of TAP."""

    def point(self, test, good, text=""):
        """One line, and what went wrong below it."""
        print(f"{'' if good else 'not '}ok {self.testsRun} - {test.id()}")
        for line in text.splitlines():
            print("# " + line)
        sys.stdout.flush()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.point(test, True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.point(test, False, self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            print(f"not ok {self.testsRun} - {subtest.id()}")
            for line in self._exc_info_to_string(err, test).splitlines():
                print("# " + line)


def main():
    """All tests, as TAP."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(
        sys.modules["__main__"])
    print(f"1..{suite.countTestCases()}")
    result = TapResult()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
