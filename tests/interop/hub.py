"""hearth download against a server that behaves as the Hugging Face hub does, and against huggingface_hub, which shares the cache:
python tests/interop/hub.py. Needs ./hearth (tools/build) and huggingface_hub (tools/deps services).
"""

import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hub_server import TOKEN, Hub, Repo, etag_of  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEARTH = ROOT / "hearth"
RANDOM = random.Random(1)

MODEL = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"---\nlicense: apache-2.0\n---\n# Tiny\n",
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b'{"x": "' + b"y" * 3000 + b'"}',
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": RANDOM.randbytes(700_000),
    "model-00002-of-00002.safetensors": RANDOM.randbytes(300_000),
    "pytorch_model.bin": RANDOM.randbytes(2000),
    "onnx/model.onnx": RANDOM.randbytes(2000),
    "model-q8_0.gguf": b"GGUF" + RANDOM.randbytes(5000),
}
NEEDED = [name for name in MODEL if not name.startswith((".", "pytorch", "onnx")) and not name.endswith("gguf")]


@contextlib.contextmanager
def hub_and_cache():
    hub = Hub()
    hub.repos["models", "org/tiny"] = Repo(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield hub, pathlib.Path(folder)
        finally:
            hub.close()


def environment(hub, home, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(("hf_", "http", "all_proxy"))}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **variables}


def hearth(hub, home, *arguments, ok=True, **variables):
    """Runs hearth; returns its output, or its error message if it is expected to fail."""
    settings = environment(hub, home, **variables)
    done = subprocess.run([HEARTH, *arguments], env=settings, capture_output=True, text=True, errors="replace", timeout=50)
    if (done.returncode == 0) != ok:
        raise AssertionError(f"{arguments}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip() if ok else done.stderr


def python(hub, home, code, **variables):
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(hub, home, **variables), capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def layout(home):
    """Returns the cache's files: link targets, or contents. Without locks and what only huggingface_hub writes."""
    found = {}
    for path in sorted((home / "hub").rglob("*")):
        name = str(path.relative_to(home / "hub"))
        if path.is_dir() or ".locks" in name or "trees" in name or name.endswith("CACHEDIR.TAG"):
            continue
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


def check_files(folder, names):
    for name in names:
        assert (pathlib.Path(folder) / name).read_bytes() == MODEL[name], name


def expect(text, *parts):
    for part in parts:
        assert part in text, f"expected '{part}' in: {text}"


def fault_once(act, pattern, count=1):
    """A fault that acts on the first `count` requests of a path, and records how many it has acted on."""
    seen = []

    def fault(handler, path, data):
        if pattern not in path or len(seen) >= count:
            return False
        seen.append(handler.headers.get("Range"))
        return act(handler, path, data) is not False

    fault.seen = seen
    return fault


def check_download():
    with hub_and_cache() as (hub, home):
        folder = hearth(hub, home, "download", "org/tiny", HF_TOKEN=TOKEN)
        commit = hub.repos["models", "org/tiny"].branches["main"]
        assert folder == str(home / "hub/models--org--tiny/snapshots" / commit), folder
        check_files(folder, NEEDED)
        assert sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*")) == sorted(NEEDED)
        # The other host must get no token; it answers 400 otherwise.
        assert hub.requests("^GET .*signature"), "no redirect to the store"
        # What is there is not fetched again.
        before = len(hub.log)
        assert hearth(hub, home, "download", "hf:org/tiny@" + commit) == folder
        assert not [entry for entry in hub.log[before:] if "/resolve/" in entry["line"]]
        # A new commit shares the files that have not changed.
        hub.repos["models", "org/tiny"].files["config.json"] = b'{"model_type": "qwen3"}'
        hub.repos["models", "org/tiny"].commit()
        before = len(hub.log)
        assert hearth(hub, home, "download", "org/tiny") != folder
        assert len([entry for entry in hub.log[before:] if "/resolve/" in entry["line"]]) == 1
        # One file, also of an older commit; a folder.
        file = hearth(hub, home, "download", f"org/tiny@{commit[:40]}", "model-q8_0.gguf")
        check_files(pathlib.Path(file).parent, ["model-q8_0.gguf"])
        check_files(hearth(hub, home, "download", "org/tiny", "onnx") + "/..", ["onnx/model.onnx"])
        # As JSON, with the file of an older commit.
        printed = json.loads(hearth(hub, home, "download", f"org/tiny@{commit}", "model-q8_0.gguf", "config.json", "--json"))
        folder = f"{home}/hub/models--org--tiny/snapshots/{commit}"
        names = ["model-q8_0.gguf", "config.json"]
        assert printed == {"downloads": [{"name": f"hf:org/tiny@{commit}/{name}", "path": f"{folder}/{name}"} for name in names]}, printed


def check_same_cache():
    code = """
import huggingface_hub
print(huggingface_hub.snapshot_download("org/tiny", ignore_patterns=["*.bin", "*.gguf", "onnx/*", ".*"]))
"""
    with hub_and_cache() as (hub, home):
        ours, theirs = home / "ours", home / "theirs"
        folder = hearth(hub, ours, "download", "org/tiny")
        other = python(hub, theirs, code)
        assert layout(ours) == layout(theirs), set(layout(ours)) ^ set(layout(theirs))
        # Each finds what the other has fetched, without the server.
        hub.close()
        assert python(hub, ours, code, HF_HUB_OFFLINE="1") == folder
        one = 'import huggingface_hub; print(huggingface_hub.hf_hub_download("org/tiny", "tokenizer.json"))'
        assert python(hub, ours, one, HF_HUB_OFFLINE="1") == folder + "/tokenizer.json"
        assert hearth(hub, theirs, "download", "org/tiny", HF_HUB_OFFLINE="1") == other
        expect(hearth(hub, theirs, "download", "org/other", HF_HUB_OFFLINE="1", ok=False), "not in the cache", "HF_HUB_OFFLINE")
        # A shard that is missing is noticed.
        (pathlib.Path(other) / "model-00002-of-00002.safetensors").unlink()
        expect(hearth(hub, theirs, "download", "org/tiny", HF_HUB_OFFLINE="1", ok=False), "model-00002-of-00002.safetensors")


def check_refusals():
    with hub_and_cache() as (hub, home):
        hub.repos["models", "org/gated"] = Repo(MODEL, gated=True)
        hub.repos["models", "org/private"] = Repo(MODEL, private=True)
        hub.repos["models", "org/ggufs"] = Repo({"a.gguf": b"GGUF", "b.gguf": b"GGUF"})
        fails = lambda *arguments, **variables: hearth(hub, home, "download", *arguments, ok=False, **variables)  # noqa: E731
        expect(fails("org/gated"), "is gated", f"{hub.url}/org/gated", "HF_TOKEN")
        expect(fails("org/gated", HF_TOKEN="hf_other"), "is gated", "no access yet")
        check_files(hearth(hub, home, "download", "org/gated", HF_TOKEN=TOKEN), NEEDED)
        expect(fails("org/private"), "was not found", "private")
        expect(fails("org/nothing", HF_TOKEN=TOKEN), "was not found")
        expect(fails("org/tiny", HF_TOKEN="hf_wrong"), "does not accept the token")
        expect(fails("org/tiny@v9"), "no branch, tag or commit 'v9'")
        expect(fails("org/tiny", "nothing.json"), "has no file 'nothing.json'")
        expect(fails("org/tiny", "nothing"), "has no file 'nothing'", "config.json")
        expect(fails("datasets/org/data", "train.parquet"), "train.parquet is Parquet")
        expect(fails("org/ggufs"), "hf:org/ggufs/FILE", "a.gguf")
        for name in ("../x", "org/../../etc", "org/tiny/../x", "/etc/passwd", "org/tiny@../../x", "a/b\\c"):
            expect(fails(name), "is not a name on the Hugging Face hub")
        expect(fails("org/tiny", HF_ENDPOINT="http://192.0.2.1", HF_TOKEN=TOKEN), "not encrypted")
        (home / "token").write_text(TOKEN + "\n")
        check_files(hearth(hub, home, "download", "org/private"), NEEDED)


def check_faults():
    def refuse(status, **headers):
        return lambda handler, *_: handler.reply(status, b"busy", **headers)

    def damage(handler, _, data):
        handler.reply(200, bytes(reversed(data)))

    with hub_and_cache() as (hub, home):
        big = "model-00001-of-00002.safetensors"
        number = etag_of(MODEL[big])
        cut = fault_once(lambda handler, _, data: handler.cut_after(data, len(data) // 3), number, 2)
        limited = fault_once(refuse(429, Retry_After="1"), "/revision/")
        broken = fault_once(refuse(503), "tokenizer")
        lists = fault_once(refuse(502), "/tree/")
        hub.faults = [cut, limited, broken, lists]
        start = time.monotonic()
        check_files(hearth(hub, home, "download", "org/tiny"), NEEDED)
        assert time.monotonic() - start >= 1
        assert [len(fault.seen) for fault in hub.faults] == [2, 1, 1, 1]
        ranges = [entry["headers"].get("Range") for entry in hub.requests(number)]
        assert ranges == [None, "bytes=233333-", "bytes=388888-"], ranges

        # A file that is damaged once is fetched again; twice is an error, and nothing of it stays.
        name = "onnx/model.onnx"
        hub.faults = [fault_once(damage, etag_of(MODEL[name]))]
        check_files(hearth(hub, home, "download", "org/tiny", name)[: -len(name)], [name])
        name = "model-q8_0.gguf"
        hub.faults = [fault_once(damage, etag_of(MODEL[name]), 9)]
        expect(hearth(hub, home, "download", "org/tiny", name, ok=False), "was damaged in two downloads", etag_of(MODEL[name]))
        assert not (home / "hub/models--org--tiny/blobs" / etag_of(MODEL[name])).exists()
        hub.faults = []
        check_files(pathlib.Path(hearth(hub, home, "download", "org/tiny", name)).parent, [name])


def check_resume():
    """A process that is killed leaves what it has; the next one fetches the rest."""
    with hub_and_cache() as (hub, home):
        big = "model-00001-of-00002.safetensors"
        number = etag_of(MODEL[big])

        def stall(handler, _, data):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:400_000])
            handler.wfile.flush()
            time.sleep(20)

        hub.faults = [fault_once(stall, number)]
        process = subprocess.Popen([HEARTH, "download", "org/tiny"], env=environment(hub, home), stderr=subprocess.DEVNULL)
        part = home / "hub/models--org--tiny/blobs" / (number + ".incomplete")
        for _ in range(400):
            if part.exists() and part.stat().st_size == 400_000:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        hub.faults = []
        check_files(hearth(hub, home, "download", "org/tiny"), NEEDED)
        assert hub.requests(number)[-1]["headers"]["Range"] == "bytes=400000-"
        assert not part.exists()
        # A server without ranges answers with the complete file.
        name = "model-q8_0.gguf"
        blob = home / "hub/models--org--tiny/blobs" / etag_of(MODEL[name])
        blob.with_name(blob.name + ".incomplete").write_bytes(b"GGU")
        hub.faults = [fault_once(lambda handler, *_: handler.reply(200, MODEL[name]), blob.name)]
        check_files(pathlib.Path(hearth(hub, home, "download", "org/tiny", name)).parent, [name])


def check_hostile_listings():
    with hub_and_cache() as (hub, home):
        for path in ("../../../../escaped", "/tmp/escaped", "a/../../b", "a\\..\\b", "a//b"):
            entry = {"type": "file", "oid": "0" * 40, "size": 1, "path": path}
            hub.faults = [fault_once(lambda handler, *_: handler.reply_json([entry]), "/tree/")]
            expect(hearth(hub, home, "download", "org/tiny", ok=False), "is not allowed")
        entry = {"type": "file", "oid": "../../../escaped", "size": 1, "path": "config.json"}
        hub.faults = [fault_once(lambda handler, *_: handler.reply_json([entry]), "/tree/")]
        expect(hearth(hub, home, "download", "org/tiny", ok=False), "hash of config.json is invalid")
        hub.faults = [fault_once(lambda handler, *_: handler.reply_json({"sha": "../../x"}), "/revision/")]
        expect(hearth(hub, home, "download", "org/tiny", ok=False), "sent no commit")
        evil = {"Link": '<http://127.0.0.1:1/more>; rel="next"'}
        hub.faults = [fault_once(lambda handler, *_: handler.reply_json([], **evil), "/tree/")]
        expect(hearth(hub, home, "download", "org/tiny", ok=False), "at another host")
        # More bytes than announced are not written.
        hub.faults = [fault_once(lambda handler, *_: handler.reply(200, b"x" * 5000), "config.json")]
        expect(hearth(hub, home, "download", "org/tiny", ok=False), "more than the")
        assert not list(home.rglob("escaped*"))


def check_full_disk():
    with hub_and_cache() as (hub, home):
        # A write that fails during the download; what has arrived is kept.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))  # noqa: E731
        command, settings = [HEARTH, "download", "org/tiny"], environment(hub, home)
        done = subprocess.run(command, env=settings, capture_output=True, text=True, preexec_fn=limit, timeout=50)
        assert done.returncode == 2, done.stderr
        expect(done.stderr, etag_of(MODEL["model-00001-of-00002.safetensors"]) + ".incomplete", "File too large")
        assert not (home / "hub/models--org--tiny/snapshots").exists()
        check_files(hearth(hub, home, "download", "org/tiny"), NEEDED)
        disk = home / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True).returncode != 0:
            print("SKIPPED: a full disk: mount needs root")
            return
        try:
            expect(hearth(hub, disk, "download", "org/tiny", ok=False), "only", "are free", "HF_HOME")
        finally:
            subprocess.run(["umount", disk], check=True)


def byte_tokenizer():
    """A byte-level BPE tokenizer without merges: 256 tokens and one for the end."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 256, "content": "<|end|>", "special": True, "normalized": False}
    end |= {"single_word": False, "lstrip": False, "rstrip": False}
    model = {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}
    return {"version": "1.0", "added_tokens": [end], "pre_tokenizer": level, "decoder": level, "model": model}


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 257,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "eos_token_id": 256,
}


def check_train_and_upload():
    """The chain of a user: data and a configuration by name, training, an upload, a LoRA on it by name, and its upload."""
    with hub_and_cache() as (hub, home):
        texts = b'{"text": "one two three"}\n' * 200
        hub.repos["datasets", "org/texts"] = Repo({"train.jsonl": texts, "README.md": b"text"})
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
        files = {"config.json": CONFIG, "tokenizer.json": byte_tokenizer(), "tokenizer_config.json": settings}
        start = {name: json.dumps(value).encode() for name, value in files.items()}
        hub.repos["models", "org/start"] = Repo(start)
        common = ["data=hf:datasets/org/texts/train.jsonl", "data.context=32", "train.steps=2", "train.batch=2", "device=cpu"]
        run, upload = home / "run", {"HF_TOKEN": TOKEN}
        new = ["model.config=hf:org/start/config.json", "model.tokenizer=hf:org/start/tokenizer.json"]
        hearth(hub, home, "train", "pretrain-llama", *new, *common, "--out", str(run))
        # Local paths cause no request, nor does a text that looks like a name.
        before = len(hub.log)
        local = hearth(hub, home, "generate", str(run), "--prompt", "hf:org/none", "-n", "4", "--temperature", "0")
        assert len(hub.log) == before

        expect(hearth(hub, home, "upload", str(run), "me/tuned", ok=False), "needs a token")
        dry = hearth(hub, home, "upload", str(run), "me/tuned", "--dry-run")
        expect(dry, "model.safetensors", "pipeline_tag: text-generation", "- org/texts")
        assert ("models", "me/tuned") not in hub.repos
        hub.part_bytes = 20_000
        hub.faults = [fault_once(lambda handler, *_: handler.reply(500), "/1", 1)]
        printed = json.loads(hearth(hub, home, "upload", str(run), "me/tuned", "--private", "--json", **upload))
        hub.faults = []
        repo, url = hub.repos["models", "me/tuned"], printed["url"]
        sizes = {file["path"]: file["bytes"] for file in printed["files"]}
        assert sizes == {name: len(repo.files[name]) for name in repo.files.keys() - {".gitattributes"}}, sizes
        assert printed["name"] == "hf:me/tuned" and printed["card"].encode() == repo.files["README.md"]
        assert url == f"{hub.url}/me/tuned/commit/{repo.branches['main']}" and repo.private
        assert repo.files["model.safetensors"] == (run / "model.safetensors").read_bytes()
        assert len(hub.requests("^PUT ")) > 2 and len(hub.requests("^POST /complete")) == 1
        assert str(home).encode() not in b"".join(repo.files.values()), "a path of this machine was published"

        # Other machine: the model by name. With the same weights it continues the text equally.
        repo.files["README.md"] = b"---\nlicense: apache-2.0\n---\n"
        repo.commit()
        other = home / "other"
        sampled = ["--prompt", "hf:org/none", "-n", "4", "--temperature", "0"]
        assert hearth(hub, other, "generate", "hf:me/tuned", *sampled, **upload) == local
        lora = home / "lora"
        hearth(hub, other, "train", "llama-lora", "model=hf:me/tuned", *common, "--out", str(lora), **upload)
        hub.part_bytes = None
        hearth(hub, other, "upload", str(lora), "me/lora", **upload)
        files = hub.repos["models", "me/lora"].files
        card = files["README.md"].decode()
        expect(card, "license: apache-2.0", "base_model: me/tuned", "base_model_relation: adapter", "library_name: peft", "eval_loss")
        adapter = json.loads(files["adapter_config.json"])
        assert (adapter["base_model_name_or_path"], adapter["revision"]) == ("me/tuned", repo.branches["main"])
        assert str(home) not in card + files["config.yaml"].decode(), "a path of this machine was published"
        # The adapter by name finds its base in the cache; huggingface_hub reads the card and the files.
        text = hearth(hub, other, "generate", "hf:me/lora", *sampled)
        assert text == hearth(hub, other, "generate", str(lora), *sampled)
        code = """
import huggingface_hub
card = huggingface_hub.ModelCard.load("me/lora")
print(card.data.base_model, card.data.license, card.data.datasets, card.data.tags)
print(huggingface_hub.snapshot_download("me/lora"))
"""
        output = python(hub, home / "third", code, **upload).splitlines()
        assert output[0] == "me/tuned apache-2.0 ['org/texts'] ['hearth', 'lora']", output
        stored = pathlib.Path(output[1]) / "adapter_model.safetensors"
        assert stored.read_bytes() == files["adapter_model.safetensors"]
        # A private repository is not replaced by a public one.
        hub.repos["models", "me/lora"].private = False
        expect(hearth(hub, home, "upload", str(run), "me/lora", "--private", ok=False, **upload), "is public")


def check_uploads_as_huggingface_hub():
    """The same folder, uploaded by huggingface_hub and by Hearth, gives the same requests and the same repository."""
    with hub_and_cache() as (hub, home):
        folder = home / "model"
        folder.mkdir()
        for name in NEEDED:
            (folder / name).write_bytes(MODEL[name])
        hearth(hub, home, "upload", str(folder), "me/ours", HF_TOKEN=TOKEN)
        ours = list(hub.log)
        hub.objects.clear()
        hub.log.clear()
        code = f"""
import huggingface_hub
api = huggingface_hub.HfApi()
api.create_repo("me/theirs")
api.upload_folder(repo_id="me/theirs", folder_path={str(folder)!r})
"""
        python(hub, home, code, HF_TOKEN=TOKEN)
        lines = [sorted(line["line"].replace("me/theirs", "me/ours") for line in log if "validate-yaml" not in line["line"])
                 for log in (ours, hub.log)]
        lines = [[line for line in log if line.split()[0] in ("POST", "PUT") and "/create" not in line] for log in lines]
        assert lines[0] == lines[1], lines
        assert hub.repos["models", "me/ours"].files == hub.repos["models", "me/theirs"].files


CHECKS = [
    check_download,
    check_same_cache,
    check_refusals,
    check_faults,
    check_resume,
    check_hostile_listings,
    check_full_disk,
    check_train_and_upload,
    check_uploads_as_huggingface_hub,
]

if __name__ == "__main__":
    chosen = sys.argv[1:]
    for check in CHECKS:
        if chosen and check.__name__ not in chosen:
            continue
        start = time.monotonic()
        check()
        print(f"{check.__name__}: {time.monotonic() - start:.1f} s", flush=True)
