"""What Hearth writes, read by the programs that others use: python tests/interop/interop.py.

model.safetensors by the safetensors package into torch models (names, shapes, values, layouts), the event files by
TensorBoard, a checkpoint's manifest by libxxhash. Needs ./hearth (tools/build).
"""

import ctypes
import ctypes.util
import json
import pathlib
import sys

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
from parity import hearth, make_model, run_checks, run_hearth, synthetic_batch, write_recipe  # noqa: E402

BATCH = 8
STEPS = 6
RATE = 1e-3
LOSS_TOLERANCE = 1e-5


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")


def log_of(run):
    return [json.loads(line) for line in (run / "trainer_log.jsonl").read_text().splitlines()]


def train(name, folder, steps, *, resume=False):
    """Trains to `steps` at a constant rate; returns the start, the data and the run folder."""
    model = make_model(name)
    images, labels = synthetic_batch(name, BATCH * STEPS, seed=3)
    recipe = write_recipe(folder, name, "sgd", RATE, BATCH, steps)
    arguments = [str(recipe), "train.checkpoint_every=2"] + ["--resume"] * resume
    return model, images, labels, run_hearth(folder, arguments, model, images, labels)


def check_weights(name, folder):
    """torch, with the weights that Hearth wrote, gets the loss and accuracy that Hearth logged."""
    model, images, labels, run = train(name, folder, STEPS)
    last = log_of(run)[-1]
    for file in ("model.safetensors", "best.safetensors"):
        with safe_open(run / file, "pt") as opened:
            expect(f"{file} metadata", opened.metadata(), {"format": "pt"})
    found = load_file(run / "model.safetensors")
    start = {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}
    expect("names", sorted(found), sorted(start))
    for key, value in start.items():
        expect(f"shape of {key}", tuple(found[key].shape), tuple(value.shape))
        expect(f"dtype of {key}", found[key].dtype, torch.float32)
        if torch.equal(found[key], value):
            raise AssertionError(f"{key} has not moved in {STEPS} steps")
    model.load_state_dict(found, strict=False)
    with torch.no_grad():
        logits = model.eval().double()(images.double())
    loss = functional.cross_entropy(logits, labels).item()
    gap = abs(loss - last["eval_loss"]) / loss
    if gap > LOSS_TOLERANCE:
        raise AssertionError(f"torch evaluates to {loss}, Hearth logged {last['eval_loss']}")
    correct = (logits.argmax(1) == labels).sum().item()
    expect("pictures right", round(last["eval_accuracy"] * len(labels)), correct)
    return f"{name}: {len(found)} tensors in torch's names and shapes, loss in torch within {gap:.1e}"


def check_values(name, folder):
    """At a rate of zero the weights come back bit for bit."""
    model = make_model(name)
    images, labels = synthetic_batch(name, BATCH, seed=3)
    recipe = write_recipe(folder, name, "sgd", 0.0, BATCH, 1)
    run = run_hearth(folder, [str(recipe)], model, images, labels)
    found = load_file(run / "model.safetensors")
    parameters = dict(model.named_parameters())
    for key, value in parameters.items():
        if not torch.equal(found[key], value.detach()):
            raise AssertionError(f"{key} came back changed")
    return f"{name}: {len(parameters)} weights unchanged bit for bit by a step of rate 0"


def check_events(folder):
    """TensorBoard shows every step once, over two sessions of a run, with the numbers of the log."""
    train("mlp", folder, 3)
    _, _, _, run = train("mlp", folder, STEPS, resume=True)
    files = sorted(run.glob("events.out.tfevents.*"))
    expect("event files of two sessions", len(files), 2)
    log = log_of(run)
    keys = {"train/loss": "loss", "train/learning_rate": "lr", "train/grad_norm": "grad_norm",
            "eval/loss": "eval_loss", "eval/accuracy": "eval_accuracy"}
    wanted = {tag: [(r["current_steps"], numpy.float32(r[key])) for r in log if key in r] for tag, key in keys.items()}
    got = {tag: [] for tag in keys}
    for file in files:
        events = EventAccumulator(str(file))
        events.Reload()
        expect(f"tags of {file.name}", sorted(events.Tags()["scalars"]), sorted(keys))
        for tag in keys:
            got[tag] += [(event.step, numpy.float32(event.value)) for event in events.Scalars(tag)]
    expect("logged steps", [step for step, _ in wanted["train/loss"]], list(range(1, STEPS + 1)))
    for tag in keys:
        expect(tag, got[tag], wanted[tag])
    whole = EventAccumulator(str(run))
    whole.Reload()
    expect("steps of the folder", [event.step for event in whole.Scalars("train/loss")], list(range(1, STEPS + 1)))
    return f"events: {sum(map(len, got.values()))} scalars under {len(keys)} tags, all equal to the log's"


def check_pictures(folder):
    """TensorBoard shows the pictures that evaluations made, as the files in samples/ have them."""
    config = {"_class_name": "DiTTransformer2DModel", "in_channels": 3, "patch_size": 4, "num_layers": 1, "sample_size": 16}
    config |= {"num_attention_heads": 2, "attention_head_dim": 8, "num_embeds_ada_norm": 10}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "recipe.yaml").write_text(f"""
model: {{config: {folder / "config.json"}}}
data: {{kind: shapes, image_size: 16, count: 16, val_count: 4}}
train: {{objective: v, steps: 4, batch: 4, eval_every: 2}}
diffuse: {{steps: 2, val_images: 2}}
""")
    run = folder / "run"
    hearth("train", folder / "recipe.yaml", "--out", run)
    events = EventAccumulator(str(run), size_guidance={"images": 0})
    events.Reload()
    expect("tags", events.Tags()["images"], ["samples/classes"])
    shown = {image.step: image for image in events.Images("samples/classes")}
    expect("steps", sorted(shown), [2, 4])
    for step, image in shown.items():
        expect("size", (image.width, image.height), (10 * 17 - 1, 4 * 17 - 1))
        expect("picture", image.encoded_image_string, (run / f"samples/step-{step:06}-classes.png").read_bytes())
    return "pictures: two steps of them as TensorBoard reads them"


def xxh3(data):
    name = ctypes.util.find_library("xxhash")
    if name is None:
        raise AssertionError("libxxhash, which Hearth is built with, cannot be loaded")
    hasher = ctypes.CDLL(name).XXH3_64bits
    hasher.argtypes, hasher.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint64
    return f"{hasher(data, len(data)):016x}"


def check_manifest(folder):
    """Every file of a checkpoint has the size and the XXH3 that its manifest states; the weights lie in it."""
    expect("XXH3 of nothing", xxh3(b""), "2d06800538d394c2")
    _, _, _, run = train("mlp", folder, STEPS)
    checkpoints = sorted((run / "checkpoints").iterdir())
    expect("checkpoints", [path.name for path in checkpoints], ["step-000000004", "step-000000006"])
    for path in checkpoints:
        manifest = json.loads((path / "manifest.json").read_text())
        expect("step", manifest["step"], int(path.name.removeprefix("step-")))
        expect("files", sorted(manifest["files"]), sorted(p.name for p in path.iterdir() if p.name != "manifest.json"))
        for name, stated in manifest["files"].items():
            data = (path / name).read_bytes()
            expect(f"{name} of {path.name}", stated, {"bytes": len(data), "xxh3": xxh3(data)})
    weight = load_file(run / "model.safetensors")["fc1.bias"].numpy().tobytes()
    if weight not in (checkpoints[-1] / "memory.bin").read_bytes():
        raise AssertionError("the last checkpoint does not hold the weights of model.safetensors")
    return f"manifest: {len(checkpoints)} checkpoints, sizes and hashes right"


def checks():
    for name in ("simplecnn", "mlp", "resnet18"):
        yield f"{name} weights", lambda folder, name=name: check_weights(name, folder)
        yield f"{name} values", lambda folder, name=name: check_values(name, folder)
    yield "events", check_events
    yield "pictures", check_pictures
    yield "manifest", check_manifest


if __name__ == "__main__":
    sys.exit(run_checks(checks()))
