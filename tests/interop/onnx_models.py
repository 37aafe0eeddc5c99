"""ONNX files that Hearth exports, computed by onnxruntime: python tests/interop/onnx_models.py [CASE...].

A few steps of each model on `shapes`, exported: onnx.checker takes the file, batch norms are gone, metadata says what
the pictures are, and the outputs are those of Hearth within 1e-4 (relative to the largest), for one picture and for
three. `ops` is a graph with every operation that can be exported. Needs ./hearth and build/cpu/tests/onnx_outputs
(tools/build) or the program that HEARTH_ONNX_OUTPUTS names.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEARTH = os.environ.get("HEARTH", ROOT / "hearth")
PROGRAM = os.environ.get("HEARTH_ONNX_OUTPUTS", ROOT / "build/cpu/tests/onnx_outputs")
TOLERANCE = 1e-4
# Recipe, keys, task and how many classes `shapes` has for it.
CASES = {
    "mlp": ("demo", ["data.image_size=[20, 16]"], "classify"),
    "simplecnn": ("demo", ["data.image_size=[22, 16]"], "classify"),
    "smallcnn": ("demo", ["data.image_size=[33, 23]"], "classify"),
    "resnet18": ("demo", ["data.image_size=[67, 65]", "model.width=8"], "classify"),
    "mobilenet_v3_small": ("demo", ["data.image_size=[67, 65]"], "classify"),
    "mobilenet_v3_large": ("demo", ["data.image_size=[33, 37]", "model.width=8"], "classify"),
    "efficientnet_b0": ("demo", ["data.image_size=[65, 71]", "model.width=8"], "classify"),
    "unet": ("segment-demo", ["data.image_size=[51, 37]", "model.width=4"], "segment"),
    "unet_resnet18": ("segment-demo", ["data.image_size=[69, 75]", "model.width=8"], "segment"),
    "deeplabv3_resnet50": ("segment-demo", ["data.image_size=[65, 49]", "model.width=8"], "segment"),
    "yolox_nano": ("detect-demo", ["data.image_size=[96, 64]"], "detect"),
    "yolox_pico": ("detect-demo", ["data.image_size=[64, 96]"], "detect"),
}


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(str(word) for word in words)}: {done.stderr.strip()}")
    return done.stdout


def trained(name, folder):
    """A short run, whose statistics and weights have moved."""
    recipe, keys, _ = CASES[name]
    run = folder / "run"
    command(HEARTH, "train", recipe, f"model.name={name}", *keys, "data.count=16", "data.val_count=8",
            "train.batch=4", "train.epochs=1", "data.threads=1", "threads=1", "--out", run)
    return run


def largest_gap(session, images, wanted):
    """Images are NHWC; so are wanted values of rank 4."""
    found = session.run(None, {"images": numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))})
    worst = 0
    for output, value in zip(session.get_outputs(), found):
        if output.shape[0] != "N" or list(value.shape[1:]) != output.shape[1:]:
            raise AssertionError(f"{output.name}: said to be {output.shape}, is {value.shape}")
        ours = wanted[output.name].reshape(value.transpose(0, 2, 3, 1).shape if value.ndim == 4 else value.shape)
        theirs = value.transpose(0, 2, 3, 1) if value.ndim == 4 else value
        gap = numpy.abs(ours - theirs).max() / max(1, numpy.abs(ours).max())
        if not gap <= TOLERANCE:
            raise AssertionError(f"{output.name}: {gap:.1e} apart")
        worst = max(worst, gap)
    return worst


def opened(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return model, session


def check_model(name, folder):
    run, path = trained(name, folder), folder / "model.onnx"
    command(HEARTH, "export", run, "--out", path)
    model, session = opened(path)
    if any(node.op_type == "BatchNormalization" for node in model.graph.node) and name != "mlp":
        raise AssertionError("a batch norm was not folded")
    said = {entry.key: entry.value for entry in model.metadata_props}
    if said["task"] != CASES[name][2] or not json.loads(said["names"]) or said["color"] != "RGB":
        raise AssertionError(f"metadata {said}")
    _, channels, height, width = session.get_inputs()[0].shape
    if len(json.loads(said["mean"])) not in (1, channels):
        raise AssertionError(f"mean {said['mean']}")
    worst = 0
    for count in (1, 3):
        images = numpy.random.default_rng(count).standard_normal((count, height, width, channels), dtype=numpy.float32)
        if CASES[name][2] == "detect":
            images = numpy.clip(128 + 60 * images, 0, 255)
        save_file({"images": images}, folder / "images.safetensors")
        command(PROGRAM, "run", run, folder / "images.safetensors", folder / "outputs.safetensors")
        worst = max(worst, largest_gap(session, images, load_file(folder / "outputs.safetensors")))
    return f"{name}: {height} x {width} pictures within {worst:.1e}"


def check_ops(folder):
    command(PROGRAM, "ops", folder)
    _, session = opened(folder / "ops.onnx")
    _, channels, height, width = session.get_inputs()[0].shape
    images = load_file(folder / "images.safetensors")["images"].reshape(-1, height, width, channels)
    gap = largest_gap(session, images, load_file(folder / "outputs.safetensors"))
    return f"{len(session.get_outputs())} values of single operations within {gap:.1e}"


def main():
    failed = 0
    for name in sys.argv[1:] or ["ops", *CASES]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                folder = pathlib.Path(folder)
                line = f"ok     {check_ops(folder) if name == 'ops' else check_model(name, folder)}"
            except AssertionError as error:
                failed += 1
                line = f"FAILED {name}: {error}"
        print(line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
