#!/usr/bin/env python3
"""gpu_cases.py write DIR: the cases of bench/KERNELS.md as graphs of one node, DIR/CASE.NUMBER.ir (bench/micro/run_graph.cpp runs them).

Whole steps come from `hearth dump`; their equal nodes are one graph, how often they occur is in DIR/cases.json.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Case:
    """What one bar is made of, in part or in whole."""

    name: str
    bar: str
    unit: str  # what the bar counts: peak, tflops, bandwidth, or of whole steps mfu or seconds
    target: float  # min of the bound by counters; max if the unit is seconds
    blocks: int = 8  # of each launch that are run
    nodes: list = field(default_factory=list)  # (text, how often)


LEAF = re.compile(r"^\w+ (%\d+) \"[^\"]*\" : (\S.*\])")
NODE = re.compile(r"^(%[^=]*) = (\w+)\(([^)]*)\)(?: (\{.*\}))? : ([^#]*\])")
TYPE = re.compile(r"\w+\[[^\]]*\]")
# Whose whole numbers are rows of a table: not all the same.
SPREADS = {"embedding", "embedding_grad", "head_cross_entropy_train", "head_cross_entropy"}
# Inputs whose numbers decide what there is to do (bench/micro/run_graph.cpp).
NAMES = {("simota", 0): "zeros", ("simota", 1): "boxes"}


def graph(op, inputs, outputs, attrs=""):
    """The text of a graph of one node; an input of "none" is absent."""
    lines, names = [], []
    for i, kind in enumerate(inputs):
        if kind == "none":
            names.append("none")
            continue
        name = "spread" if op in SPREADS and kind.startswith("i32") else NAMES.get((op, i), f"in{i}")
        lines.append(f'input %{i} "{name}" : {kind}')
        names.append(f"%{i}")
    made = ", ".join(f"%{len(inputs) + i}" for i in range(len(outputs)))
    attrs = f" {{{attrs}}}" if attrs else ""
    lines.append(f"{made} = {op}({', '.join(names)}){attrs} : {', '.join(outputs)}")
    lines.append(f"return {made}")
    return "\n".join(lines) + "\n"


def matmuls():
    for layout, attrs in (("nt", "transpose_b=1"), ("nn", ""), ("tn", "transpose_a=1")):
        text = graph("matmul", ["bf16[4096, 4096]"] * 2, ["bf16[4096, 4096]"], attrs)
        yield Case(f"matmul-{layout}", f"matmul-{layout}", "peak", 70 if layout == "tn" else 75, 4, [(text, 1)])


def attentions():
    x, lse = "bf16[2048, 4096]", "f32[2048, 32]"
    attrs = "heads=32, kv_heads=32, head_size=128, scale=0.088, window=0, softcap=0.0, batch=1, causal=1"
    yield Case("attention", "attention", "tflops", 55, 32, [(graph("attention", [x, x, x, "none"], [x, lse], attrs), 1)])
    text = graph("attention_grad", [x, x, x, x, lse, x, "none"], [x, x, x], attrs)
    yield Case("attention_grad", "attention-backward", "tflops", 39, 32, [(text, 1)])


def convolutions():
    """ResNet-50's 3x3 at 64 images."""
    for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7)):
        x, w = f"bf16[64, {side}, {side}, {channels}]", f"[3, 3, {channels}, {channels}]"
        attrs = "stride=1, padding=1"
        for name, op, inputs, output, more in (
                ("forward", "conv2d", [x, "bf16" + w], x, ""),
                ("data", "conv2d_grad_input", [x, "bf16" + w], x, f", in_h={side}, in_w={side}"),
                ("weight", "conv2d_grad_weight", [x, x], "f32" + w, ", kernel_h=3, kernel_w=3")):
            yield Case(f"conv-{name}-{channels}", f"conv-{name}", "tflops", 73, 8, [(graph(op, inputs, [output], attrs + more), 1)])


def odd_convolutions():
    """Those of DeepLabV3's pyramid at 8 pictures of 512, YOLOX-Nano's depthwise ones at 16 of 416, and one that enlarges."""
    x, w, y = "bf16[8, 64, 64, 2048]", "[3, 3, 2048, 256]", "bf16[8, 64, 64, 256]"
    attrs = "stride=1, padding=12, dilation=12"
    for name, op, inputs, output, more in (
            ("forward", "conv2d", [x, "bf16" + w], y, ""),
            ("data", "conv2d_grad_input", [y, "bf16" + w], x, ", in_h=64, in_w=64"),
            ("weight", "conv2d_grad_weight", [x, y], "f32" + w, ", kernel_h=3, kernel_w=3")):
        yield Case(f"dilated-{name}", "dilated", "tflops", 67, 8, [(graph(op, inputs, [output], attrs + more), 1)])
    x, w = "bf16[16, 52, 52, 64]", "[3, 3, 1, 64]"
    attrs = "stride=1, padding=1, groups=64"
    for name, op, inputs, output, more in (
            ("forward", "conv2d", [x, "bf16" + w], x, ""),
            ("data", "conv2d_grad_input", [x, "bf16" + w], x, ", in_h=52, in_w=52"),
            ("weight", "conv2d_grad_weight", [x, x], "f32" + w, ", kernel_h=3, kernel_w=3")):
        yield Case(f"depthwise-{name}", f"depthwise-{name}", "bandwidth", 20, 16, [(graph(op, inputs, [output], attrs + more), 1)])
    # A transposed convolution is the gradient of one that halves.
    text = graph("conv2d_grad_input", ["bf16[8, 64, 64, 256]", "bf16[2, 2, 128, 256]"], ["bf16[8, 128, 128, 128]"],
                 "stride=2, padding=0, in_h=128, in_w=128")
    yield Case("transposed", "transposed", "tflops", 67, 8, [(text, 1)])


def maps():
    """What segmenters and detectors do with feature maps and pixels."""
    small, large, both = "bf16[16, 64, 64, 128]", "bf16[16, 128, 128, 128]", "bf16[16, 128, 128, 256]"
    pixels, labels = "f32[1048576, 11]", "i32[1048576]"
    towers, sums = "bf16[4, 80, 80, 256]", "f32[4, 32]"
    for name, bar, op, inputs, outputs, attrs in (
            ("resize", "resize", "resize", [small], [large], "height=128, width=128, linear=1"),
            ("resize_nearest", "resize", "resize", [small], [large], "height=128, width=128, linear=0"),
            ("resize_grad", "resize-gradient", "resize_grad", [large], [small], "height=64, width=64, linear=1"),
            ("concat", "concat", "concat_last", [large, large], [both], ""),
            ("concat_grad", "concat", "slice_last", [both], [large], "begin=128, count=128"),
            ("group_norm", "group-norm", "group_norm", [towers, "f32[256]", "f32[256]"], [towers, sums, sums], "groups=32, eps=1e-05"),
            ("group_norm_grad", "group-norm-gradient", "group_norm_grad", [towers, towers, sums, sums, "f32[256]"],
             [towers, "f32[256]", "f32[256]"], "groups=32, eps=1e-05"),
            ("pixel_losses", "pixel-losses", "softmax_cross_entropy", [pixels, labels], ["f32[1048576]"], "smoothing=0.0, ignore=-1"),
            ("pixel_losses_grad", "pixel-losses", "softmax_cross_entropy_grad", [pixels, labels, "f32[1048576]"], [pixels],
             "smoothing=0.0, ignore=-1")):
        yield Case(name, bar, "bandwidth", 30 if "resize" in bar else 60, 64, [(graph(op, inputs, outputs, attrs), 1)])
    anchors = "16, 8400"
    text = graph("simota", [f"f32[{anchors}, 85]", "f32[16, 120, 5]"], [f"i32[{anchors}]", f"f32[{anchors}]", f"f32[{anchors}, 4]", f"f32[{anchors}]"],
                 "strides=[8, 16, 32], height=640, width=640")
    yield Case("simota", "simota", "bandwidth", 5, 64, [(text, 1)])


def quantized():
    n, k = 4096, 4096
    parts = {"nf4": [f"u8[{n * k // 2}]", f"u8[{n * k // 64}]", f"f32[{n * k // 64 // 256}]", "f32[1]"], "int8": [f"i8[{n}, {k}]", f"f32[{n}]"],
             "fp8": [f"u8[{n}, {k}]", f"f32[{n}]"]}
    for m in (256, 4096):
        for form in parts:
            for way, back in (("", ""), ("-back", ", back=1")):
                text = graph("quantized_linear", [f"bf16[{m}, {n if back else k}]", *parts[form]], [f"bf16[{m}, {k if back else n}]"],
                             f'format="{form}", rows={n}, columns={k}{back}')
                yield Case(f"{form}-m{m}{way}", f"{form}-m{m}", "tflops", 67, 8, [(text, 1)])


def heads():
    x, w = "bf16[2048, 2048]", "[128256, 2048]"
    for name, more, outputs in (("head", "", [x, "f32" + w]), ("head-frozen", ", frozen=1", [x])):
        text = graph("head_cross_entropy_train", [x, "bf16" + w, "i32[2048]", "f32[]"], ["f32[2048]", *outputs], "rows=256, softcap=0.0" + more)
        yield Case(name, name, "tflops", 73, 1, [(text, 1)])


def streams():
    """What memory alone should limit, at the sizes of Llama 1B with 8192 tokens."""
    x, h, w, row = "f32[8192, 2048]", "bf16[8192, 8192]", "f32[2048]", "f32[8192]"
    moments = ["u8[8192, 2048]", "f32[65536]"]
    scalars = ["f32[]", "f32[]"]
    adam = "beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01"
    for name, bar, op, inputs, outputs, attrs in (
            ("rms_norm", "norms", "rms_norm", [x, w], [x, row], "eps=1e-05, offset=0.0"),
            ("layer_norm", "norms", "layer_norm", [x, w, w], [x, row, row], "eps=1e-05"),
            ("rms_norm_grad", "norm-gradients", "rms_norm_grad", [x, w, row, x], [x, w], "offset=0.0"),
            ("layer_norm_grad", "norm-gradients", "layer_norm_grad", [x, w, row, x, row], [x, w, w], ""),
            ("embedding_grad", "embedding-gradient", "embedding_grad", ["i32[8192]", x], ["f32[128256, 2048]"], "rows=128256"),
            ("adamw", "optimizers", "adamw_update", [x, x, *scalars, x, x, "f32[]"], [x, x, x], adam),
            ("adamw8bit", "optimizers", "adamw8bit_update", [x, x, *scalars, *moments, *moments, "f32[]"], [x, *moments, *moments], adam),
            ("add", "elementwise", "add", [x, x], [x], ""),
            ("cast", "elementwise", "cast", [x], ["bf16[8192, 2048]"], 'dtype="bf16"'),
            ("glu", "elementwise", "glu", [h, h], [h], 'activation="silu"'),
            ("glu_grad", "elementwise", "glu_grad", [h, h, h], [h, h], 'activation="silu"'),
            ("add3", "elementwise", "fused_elementwise", [x, x, x], [x], 'program="add(i0,i1);add(t0,i2)"')):
        yield Case(name, bar, "bandwidth", 85, 64, [(graph(op, inputs, outputs, attrs), 1)])


def denoisers():
    """What FLUX.1 adds to that at 512 pixels: a picture is 1024 patches after 512 tokens of text; attention with a bias as T5 has it."""
    x, lse, row, table = "bf16[1536, 3072]", "f32[1536, 24]", "bf16[1, 3072]", "f32[1536, 128]"
    attrs = "heads=24, kv_heads=24, head_size=128, scale=0.088, batch=1, causal=0"
    yield Case("attention-joint", "attention-joint", "tflops", 55, 32, [(graph("attention", [x, x, x, "none"], [x, lse], attrs), 1)])
    text = graph("attention_grad", [x, x, x, x, lse, x, "none"], [x, x, x], attrs)
    yield Case("attention-joint_grad", "attention-joint-backward", "tflops", 39, 32, [(text, 1)])
    t, bias = "bf16[512, 4096]", "f32[64, 512, 512]"
    text = graph("attention", [t, t, t, "none", bias], [t, "f32[512, 64]"], "heads=64, kv_heads=64, head_size=64, scale=1.0, batch=1, causal=0")
    yield Case("attention-bias", "attention-bias", "tflops", 37, 32, [(text, 1)])
    means, patches, target = "f32[1536]", "bf16[16384, 64]", "f32[16384, 64]"
    for name, bar, target_rate, op, inputs, outputs, more in (
            ("rope", "rope", 60, "rope", [x, table], [x], "head_size=128, inverse=0, interleaved=1"),
            ("modulated_norm", "modulation", 60, "modulated_norm", [x, row, row], [x, means, means], "eps=1e-06"),
            ("gated_add", "modulation", 60, "gated_add", [x, row, x], [x], ""),
            ("modulated_norm_grad", "modulation-gradients", 60, "modulated_norm_grad", [x, row, means, means, x], [x, row, row], ""),
            ("gated_add_grad", "modulation-gradients", 60, "gated_add_grad", [x, row, x], [x, row], ""),
            ("timestep_embedding", "timesteps", 1, "timestep_embedding", ["f32[256]"], ["f32[256, 256]"], "size=256, shift=0"),
            ("axes_rope_table", "axes", 1, "axes_rope_table", [], [table],
             "batch=1, text=512, height=32, width=32, axes=[16, 56, 56], theta=10000.0"),
            ("squared_error", "flow-loss", 60, "squared_error", [patches, target, "f32[16]"], ["f32[16]"], ""),
            ("squared_error_grad", "flow-loss", 60, "squared_error_grad", [patches, target, "f32[16]", "f32[16]"], [patches], "")):
        yield Case(name, bar, "bandwidth", target_rate, 64, [(graph(op, inputs, outputs, more), 1)])


def nodes_of(dump):
    """The nodes of a graph's text that differ, each alone, and how often it occurs."""
    types, count = {"none": "none"}, {}
    for line in dump.splitlines():
        if leaf := LEAF.match(line):
            types[leaf[1]] = leaf[2]
        elif node := NODE.match(line):
            outputs = TYPE.findall(node[5])
            types.update(zip(node[1].split(", "), outputs))
            # Dropout's salt tells its nodes apart and costs nothing.
            attrs = re.sub(r"salt=\d+", "salt=0", (node[4] or "{}")[1:-1])
            text = graph(node[2], [types[name] for name in re.findall(r"%\d+|none", node[3])], outputs, attrs)
            times = 1
            # The head takes its rows a part at a time: some parts stand for all.
            if node[2] == "head_cross_entropy_train" and "i32[8192]" in text:
                text, times = text.replace("[8192", "[2048"), 4
            count[text] = count.get(text, 0) + times
    return list(count.items())


def dumped(program, recipe, *settings):
    """The nodes of a recipe's step as GPUs run it, one micro-batch."""
    command = [program, "dump", ROOT / f"recipes/{recipe}.yaml", "precision=bf16", "device=emulated", *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return nodes_of(done.stdout)


def steps(program):
    """Of Llama 1B with 4 x 2048 tokens, of a U-Net as `hearth bench unet-b16-bf16` has it, and of FLUX.1-dev in nf4 with one picture."""
    for name, recipe in (("llama1b-full", "llama-full"), ("llama1b-lora", "llama-lora")):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text((ROOT / "bench/configs/llama-3.2-1b.json").read_text(encoding="utf-8"), encoding="utf-8")
            nodes = dumped(program, recipe, f"model={folder}", "data.path=none.txt", "train.batch=4", "data.context=2048")
        yield Case(name, name, "mfu", 55, 1, nodes)
    nodes = dumped(program, "segment-demo", "segment.loss=[cross_entropy]", "model.width=64", "data.image_size=256", "data.count=16",
                   "data.val_count=1", "train.batch=16", "optimizer.name=sgd")
    yield Case("unet", "unet", "mfu", 55, 1, nodes)
    nodes = dumped(program, "flux-lora", "model.path=", "model.config=recipes/flux/flux1-dev.json")
    yield Case("flux-lora", "flux-lora", "seconds", 1.07, 1, nodes)


def all_cases(program):
    return [*matmuls(), *attentions(), *convolutions(), *odd_convolutions(), *quantized(), *heads(), *streams(), *maps(), *denoisers(), *steps(program)]


def write(folder, program):
    """A file for each node, `runs` with each and the blocks that stand for a launch, and cases.json: of each case, all but its
    nodes, and how often each of them occurs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases, runs = [], []
    for case in all_cases(program):
        for i, (text, _) in enumerate(case.nodes):
            (folder / f"{case.name}.{i}.ir").write_text(text, encoding="utf-8")
            runs.append(f"{case.name}.{i} {case.blocks}\n")
        cases.append(vars(case) | {"nodes": [times for _, times in case.nodes]})
    (folder / "runs").write_text("".join(runs), encoding="utf-8")
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    return cases


if __name__ == "__main__":
    made = write(Path(sys.argv[2]), ROOT / "build/cpu/hearth")
    print(f"{len(made)} cases, {sum(len(case['nodes']) for case in made)} nodes in {sys.argv[2]}")
