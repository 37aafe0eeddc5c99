#!/usr/bin/env python3
"""Tests hearth serve with OpenAI's Python client and with raw sockets: tests/interop/serve.py [TEST...], names as of unittest.

The language model is llama2.c's stories260K. Exit status 77: there is no ./hearth or no shared data.
"""
import base64
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import openai

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "hearth"
STORIES = pathlib.Path(os.environ.get("HEARTH_DATA", ROOT.parent / "shared" / "data")) / "models" / "stories260k"
KEY = "secret-key"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


class Server:
    """A running hearth serve."""

    def __init__(self, *arguments):
        command = [PROGRAM, "serve", *arguments, "--port", "0"]
        environment = {**os.environ, "HEARTH_API_KEY": KEY}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        if match is None:
            raise AssertionError(f"no address in {line!r}: {self.process.communicate()[1]}")
        self.port = int(match.group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def request(self, path, body=None, key=KEY, headers=()):
        """Returns status and body of a request: POST if there is a body."""
        headers = dict(headers)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers)) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def metric(self, name):
        text = self.request("/metrics")[1].decode()
        return int(re.search(rf"^hearth_serve_{name} (\d+)$", text, re.M).group(1))

    def raw(self, body):
        """Opens a connection and sends a request for a completion."""
        connection = socket.create_connection(("127.0.0.1", self.port))
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        return connection


def setUpModule():
    global FOLDER, TEXT
    FOLDER = tempfile.TemporaryDirectory()
    model = pathlib.Path(FOLDER.name) / "stories"
    python = subprocess.run([ROOT / "tools" / "python"], capture_output=True, text=True, check=True).stdout.strip()
    writer = [python, ROOT / "tests/parity/stories.py", STORIES / "checkpoint_legacy.bin", STORIES / "tokenizer.bin", model]
    subprocess.run(writer, check=True)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    TEXT = Server(model, "--slots", "4", "--context", "512", "--threads", "1")


def tearDownModule():
    status = TEXT.stop()
    FOLDER.cleanup()
    if status != 0:
        raise AssertionError(f"hearth serve ended with status {status}")


def complete(prompt, **options):
    return TEXT.client.completions.create(model="stories", prompt=prompt, **{"max_tokens": 40, "temperature": 0, **options})


class Completions(unittest.TestCase):
    def test_greedy_tokens_are_the_published_ones(self):
        expected = (STORIES / "expected_greedy_200.txt").read_text().strip()
        self.assertEqual(complete("", max_tokens=200).choices[0].text.strip(), expected)

    def test_greedy_tokens_are_those_of_generate(self):
        for prompt in ("Once upon a time", "The dog"):
            command = [PROGRAM, "generate", pathlib.Path(FOLDER.name) / "stories", "--prompt", prompt, "-n", "200"]
            expected = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertEqual(complete(prompt, max_tokens=200).choices[0].text, expected[:-1])

    def test_chat_and_stream(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": "Once upon "}, {"type": "text", "text": "a time"}]}]
        options = {"model": "stories", "messages": messages, "max_completion_tokens": 30, "temperature": 0}
        full = TEXT.client.chat.completions.create(**options)
        self.assertEqual(full.choices[0].finish_reason, "length")
        self.assertEqual(full.usage.completion_tokens, 30)
        self.assertEqual(full.usage.total_tokens, full.usage.prompt_tokens + 30)
        chunks = list(TEXT.client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, full.choices[0].message.content)
        self.assertGreater(len(chunks), 10)
        self.assertEqual(chunks[-2].choices[0].finish_reason, "length")
        self.assertEqual(chunks[-1].usage, full.usage)

    def test_token_ids_are_prompts(self):
        tokens = json.loads(TEXT.request("/tokenize", {"content": "Once upon a time", "add_special": True})[1])["tokens"]
        self.assertEqual(complete(tokens).choices[0].text, complete("Once upon a time").choices[0].text)
        text = json.loads(TEXT.request("/detokenize", {"tokens": tokens[1:]})[1])["content"]
        self.assertEqual(text.strip(), "Once upon a time")

    def test_template(self):
        body = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "<b>"}]}
        self.assertEqual(json.loads(TEXT.request("/apply-template", body)[1]), {"prompt": "a<b>"})

    def test_stop(self):
        text = complete("Once upon a time").choices[0].text
        word = text.split()[8]
        stopped = complete("Once upon a time", stop=["never", word]).choices[0]
        self.assertEqual(stopped.text, text[: text.index(word)])
        self.assertEqual(stopped.finish_reason, "stop")
        chunks = complete("Once upon a time", stop=word, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), stopped.text)

    def test_seed(self):
        sampled = [complete("Once", temperature=1, seed=seed).choices[0].text for seed in (1, 1, 2)]
        self.assertEqual(sampled[0], sampled[1])
        self.assertNotEqual(sampled[0], sampled[2])

    def test_penalties_and_bias(self):
        plain = complete("Once upon a time").choices[0].text
        self.assertNotEqual(complete("Once upon a time", presence_penalty=2, frequency_penalty=2).choices[0].text, plain)
        self.assertNotEqual(complete("Once upon a time", extra_body={"repetition_penalty": 1.5}).choices[0].text, plain)
        letter = json.loads(TEXT.request("/tokenize", {"content": "z"})[1])["tokens"][-1]
        self.assertEqual(complete("Once", logit_bias={str(letter): 100}, max_tokens=3).choices[0].text, "zzz")

    def test_logprobs(self):
        options = {"model": "stories", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 10, "temperature": 0}
        choice = TEXT.client.chat.completions.create(**options, logprobs=True, top_logprobs=3).choices[0]
        self.assertEqual(len(choice.logprobs.content), 10)
        self.assertEqual("".join(token.token for token in choice.logprobs.content), choice.message.content)
        for token in choice.logprobs.content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob)
            self.assertEqual(bytes(token.bytes).decode(), token.token)
        streamed = list(TEXT.client.chat.completions.create(**options, logprobs=True, top_logprobs=3, stream=True))
        tokens = [token for chunk in streamed if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.content]
        self.assertEqual(tokens, choice.logprobs.content)
        plain = complete("Once", logprobs=2, max_tokens=5).choices[0]
        self.assertEqual("".join(plain.logprobs.tokens), plain.text)
        self.assertEqual(plain.logprobs.text_offset[1], len(plain.logprobs.tokens[0]))
        self.assertEqual(len(plain.logprobs.top_logprobs[0]), 2)

    def test_clients_at_the_same_time_get_the_texts_they_get_alone(self):
        jobs = [{"prompt": text, "seed": i, "temperature": i % 2, "max_tokens": 60} for i, text in enumerate(["Once", "The cat", "A big red ball", "She"] * 2)]
        alone = [complete(**job).choices[0].text for job in jobs]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda job: complete(**job).choices[0].text, jobs))
        self.assertEqual(together, alone)


class Errors(unittest.TestCase):
    def assert_refused(self, field, **options):
        with self.assertRaises(openai.BadRequestError) as caught:
            complete("Once", **options)
        self.assertIn(field, str(caught.exception))

    def test_unsupported_and_invalid_fields_are_named(self):
        self.assert_refused("n:", n=2)
        self.assert_refused("echo", echo=True)
        self.assert_refused("temperature", temperature=-1)
        self.assert_refused("top_p", top_p=7)
        self.assert_refused("max_tokens", max_tokens=-1)
        self.assert_refused("stop", stop=[""])
        self.assert_refused("logit_bias", logit_bias={"99999": 1})
        for name, value in (("tools", [{"type": "function"}]), ("response_format", {"type": "json_object"}), ("prompt", [["a"]]), ("seed", 1.5)):
            self.assert_refused(name, extra_body={name: value})
        with self.assertRaises(openai.BadRequestError):
            complete([5] * 600)
        with self.assertRaises(openai.BadRequestError):
            TEXT.client.chat.completions.create(model="stories", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])

    def test_status_codes(self):
        with self.assertRaises(openai.NotFoundError):
            TEXT.client.completions.create(model="other", prompt="a")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=TEXT.url + "/v1", api_key="wrong", max_retries=0).models.list()
        self.assertEqual(TEXT.request("/v1/completions", b'{"prompt": ')[0], 400)
        self.assertEqual(TEXT.request("/v1/completions", b"[" * 100000)[0], 400)
        self.assertEqual(TEXT.request("/v1/completions", b"x" * (9 << 20))[0], 413)
        self.assertEqual(TEXT.request("/v1/completions")[0], 405)
        self.assertEqual(TEXT.request("/../etc/passwd")[0], 404)
        self.assertEqual(TEXT.request("/health", key=None), (200, b'{"status":"ok"}'))
        self.assertEqual(TEXT.request("/metrics", key=None)[0], 401)
        self.assertEqual(TEXT.request("/v1/models", headers={"Host": "evil.example"})[0], 403)
        self.assertEqual(TEXT.request("/v1/completions", {"prompt": "a"}, headers={"Origin": "http://evil.example"})[0], 403)
        self.assertEqual([model.id for model in TEXT.client.models.list()], ["stories"])

    def test_other_machines_need_a_key(self):
        environment = {key: value for key, value in os.environ.items() if key != "HEARTH_API_KEY"}
        command = [PROGRAM, "serve", pathlib.Path(FOLDER.name) / "stories", "--host", "0.0.0.0", "--port", "0"]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--api-key", ended.stderr)

    def test_page(self):
        status, page = TEXT.request("/")
        self.assertEqual(status, 200)
        for file in re.findall(rb'(?:src|href)="(/[^"]+)"', page):
            self.assertEqual(TEXT.request(file.decode())[0], 200)


class Connections(unittest.TestCase):
    def test_idle_and_slow_clients_block_nobody(self):
        clients = [socket.create_connection(("127.0.0.1", TEXT.port)) for _ in range(1000)]
        for client in clients[::2]:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        self.assertEqual(complete("Once", max_tokens=1).usage.completion_tokens, 1)
        for client in clients:
            client.close()

    def test_clients_that_leave_free_their_slots(self):
        before = {name: TEXT.metric(name) for name in ("finished_requests_total", "cancelled_requests_total")}
        for connection in [TEXT.raw({"prompt": "Once", "max_tokens": 480, "temperature": 1, "logit_bias": {"2": -100, "1": -100}}) for _ in range(12)]:
            connection.close()
        self.assertEqual(complete("Once", max_tokens=1).usage.completion_tokens, 1)
        deadline = time.monotonic() + 60
        while TEXT.metric("active_requests") + TEXT.metric("waiting_requests") > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(TEXT.metric("active_requests") + TEXT.metric("waiting_requests"), 0)
        self.assertLess(TEXT.metric("finished_requests_total"), before["finished_requests_total"] + 12)

    def test_sigterm_drains(self):
        server = Server(pathlib.Path(FOLDER.name) / "stories", "--context", "512", "--threads", "1")
        stream = server.client.completions.create(model="stories", prompt="Once", max_tokens=300, temperature=0, stream=True)
        text = next(stream).choices[0].text
        server.process.send_signal(signal.SIGTERM)
        text += "".join(chunk.choices[0].text for chunk in stream)
        self.assertEqual(text, complete("Once", max_tokens=300).choices[0].text)
        server.process.communicate(timeout=60)
        self.assertEqual(server.process.returncode, 0)

    def test_memory_does_not_grow(self):
        def resident():
            return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{TEXT.process.pid}/status").read_text()).group(1))

        def load():
            jobs = range(int(os.environ.get("HEARTH_LOAD_REQUESTS", "100")))
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: complete("Once upon " * (i % 20), max_tokens=4, logprobs=2), jobs))

        load()
        before = resident()
        load()
        load()
        self.assertLess(resident() - before, 16 << 10)


def bitmap(width, height):
    """Returns a BMP file with a gradient."""
    pixels = bytes(value for y in range(height) for x in range(width) for value in (2 * x, 3 * y, 255 - 2 * x))
    header = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + len(pixels), 0, 54, 40, width, height, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return header + pixels


class Images(unittest.TestCase):
    def predict(self, recipe, *keys):
        """Trains for a few steps and returns the predictions of the server and of hearth predict for a training image."""
        folder = pathlib.Path(FOLDER.name)
        run = folder / recipe
        train = [PROGRAM, "train", recipe, "train.steps=6", "train.batch=4", "data.count=16", "data.val_count=8", *keys, "--out", run]
        subprocess.run(train, check=True, capture_output=True, cwd=folder)
        image = folder / "image.bmp"
        image.write_bytes(bitmap(96, 64))
        predicted = subprocess.run([PROGRAM, "predict", run, image, "--out", folder / "out"], check=True, capture_output=True, text=True)
        server = Server(run)
        answers = [server.request(f"/predict{query}", image.read_bytes()) for query in ("", "?format=png")]
        self.assertEqual(server.request("/predict", b"no image")[0], 400)
        self.assertEqual(server.request("/")[0], 200)
        self.assertEqual(server.stop(), 0)
        return json.loads(answers[0][1]), answers[1], predicted.stdout

    def test_classes(self):
        answer, mask, printed = self.predict("demo")
        best = answer["classes"][0]
        self.assertIn(f"image.bmp: {best['name']} {100 * best['share']:.1f}%", printed)
        self.assertAlmostEqual(sum(one["share"] for one in answer["classes"]), 1, places=4)
        self.assertEqual((answer["width"], answer["height"], mask[0]), (96, 64, 400))

    def test_mask(self):
        answer, mask, printed = self.predict("segment-demo")
        self.assertEqual(mask[1], (pathlib.Path(FOLDER.name) / "out/image.png").read_bytes())
        self.assertEqual(mask[1], base64.b64decode(answer["mask_png"]))
        self.assertIn(f"{answer['classes'][0]['name']} {100 * answer['classes'][0]['share']:.1f}%", printed)

    def test_boxes(self):
        answer, _, printed = self.predict("detect-demo")
        self.assertEqual(answer["boxes"] == [], "nothing" in printed)


def main():
    for needed, advice in ((PROGRAM, "tools/build makes it"), (STORIES, "it is shared test data")):
        if not needed.exists():
            print(f"SKIPPED: hearth serve: there is no {needed}; {advice}")
            return 77
    names = [f"__main__.{name}" for name in sys.argv[1:]]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names) if names else loader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
