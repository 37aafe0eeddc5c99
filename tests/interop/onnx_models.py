"""ONNX files that Hearth exports, computed by onnxruntime: python tests/interop/onnx_models.py [CASE...].

A few steps of each model on `shapes`, exported: onnx.checker takes the file, batch norms are gone, metadata says what
the pictures are, and the outputs are those of Hearth within 1e-4 (relative to the largest), for one picture and for
three. `ops` is a graph with every operation that can be exported. `int8 MODEL` exports it with --type int8: onnxruntime's
outputs are those of Hearth's own rounding within half a step of a grid of 256 values, on average, or within a twentieth of
what rounding changes. Needs ./hearth and build/cpu/tests/onnx_outputs (tools/build) or the program that
HEARTH_ONNX_OUTPUTS names.
"""

import collections
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
INT8 = ["mlp", "smallcnn", "resnet18", "mobilenet_v3_small", "efficientnet_b0", "unet", "unet_resnet18", "deeplabv3_resnet50",
        "yolox_nano"]
NUM_CALIBRATION = 8


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


def quantized_shares(path):
    """The layers whose weights are int8, of all layers; and nodes that onnxruntime computes in integers."""
    model = onnx.load(path)
    made_by = {name: node for node in model.graph.node for name in node.output}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    rounded = [node for node in layers if
               all(name in made_by and made_by[name].op_type == "DequantizeLinear" for name in node.input)]
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path) + ".optimized"
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
    return len(rounded), len(layers), collections.Counter(names)


def check_int8(name, folder):
    path, exact = folder / "int8.onnx", folder / "f32.onnx"
    run = trained(name, folder)
    command(HEARTH, "export", run, "--out", exact)
    command(HEARTH, "export", run, "--type", "int8", "--calibration-images", NUM_CALIBRATION, "--out", path)
    _, session = opened(path)
    rounded, layers, nodes = quantized_shares(path)
    if rounded != layers:
        raise AssertionError(f"{layers - rounded} of {layers} layers have f32 weights")
    integers = sum(nodes[kind] for kind in ("QLinearConv", "QGemm"))
    if integers < 0.6 * layers:
        raise AssertionError(f"onnxruntime computes {integers} of {layers} layers in integers: {dict(nodes)}")
    _, channels, height, width = session.get_inputs()[0].shape
    images = numpy.random.default_rng(7).standard_normal((4, height, width, channels), dtype=numpy.float32)
    if CASES[name][2] == "detect":
        images = numpy.clip(128 + 60 * images, 0, 255)
    save_file({"images": images}, folder / "images.safetensors")
    command(PROGRAM, "int8", run, folder / "images.safetensors", folder / "outputs.safetensors", NUM_CALIBRATION)
    command(PROGRAM, "run", run, folder / "images.safetensors", folder / "exact.safetensors")
    wanted, float_values = load_file(folder / "outputs.safetensors"), load_file(folder / "exact.safetensors")
    found = session.run(None, {"images": numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))})
    mean, worst, rounding = 0, 0, 0
    for output, value in zip(session.get_outputs(), found):
        ours = wanted[output.name]
        theirs = (value.transpose(0, 2, 3, 1) if value.ndim == 4 else value).reshape(-1)
        step = (ours.max() - ours.min()) / 255
        apart = numpy.abs(ours - theirs) / step
        mean, worst = max(mean, apart.mean()), max(worst, apart.max())
        rounding = max(rounding, (numpy.abs(ours - float_values[output.name]) / step).mean())
    # A sum on the border between two of 256 values may get the other one; such differences grow with the depth.
    if not mean <= max(0.5, rounding / 20):
        raise AssertionError(f"{mean:.2f} steps apart, at most {worst:.2f}; rounding changes {rounding:.2f}")
    share = path.stat().st_size / exact.stat().st_size
    return (f"int8 {name}: within {mean:.3f} steps (at most {worst:.2f}; rounding changes {rounding:.2f}), {share:.0%} of the "
            f"bytes, {integers} of {layers} layers in integers")


def check_ops(folder):
    command(PROGRAM, "ops", folder)
    _, session = opened(folder / "ops.onnx")
    _, channels, height, width = session.get_inputs()[0].shape
    images = load_file(folder / "images.safetensors")["images"].reshape(-1, height, width, channels)
    gap = largest_gap(session, images, load_file(folder / "outputs.safetensors"))
    return f"{len(session.get_outputs())} values of single operations within {gap:.1e}"


def main():
    failed = 0
    for name in sys.argv[1:] or ["ops", *CASES, *(f"int8 {name}" for name in INT8)]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                folder = pathlib.Path(folder)
                if name == "ops":
                    line = f"ok     {check_ops(folder)}"
                elif name.startswith("int8 "):
                    line = f"ok     {check_int8(name.split()[1], folder)}"
                else:
                    line = f"ok     {check_model(name, folder)}"
            except AssertionError as error:
                failed += 1
                line = f"FAILED {name}: {error}"
        print(line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
