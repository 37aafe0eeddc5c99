"""What a GPU reaches: kernels and training steps against torch, and the time of each op in a step."""

import csv
import json
import re
import sys

from work import Missing, read_json

LLAMA = ("llama1b-b4-bf16", "llama1b_lora-b4-bf16", "llama1b_qlora-b4-bf16")
IMAGES = ("resnet50-b128-bf16", "conv_stack-b32-bf16")
SEGMENT = ("unet-b16-bf16", "deeplabv3_r50-b8-bf16")
DETECT = ("yolox_s-b16-bf16",)
STEPS = LLAMA + IMAGES + SEGMENT + DETECT
MATMULS = ("q", "kv", "up", "down", "head", "up_dx", "up_dw")
ATTENTION = ("attention-b4-bf16", "attention_grad-b4-bf16", "attention_d128-b1-bf16", "attention_d128_grad-b1-bf16")
KERNELS = tuple(f"matmul_{name}-b4-bf16" for name in MATMULS)
# A rehearsal's, of the above.
FEW = ("matmul_up-b4-bf16", *ATTENTION[::2], *LLAMA, *IMAGES, "unet-b16-bf16", *DETECT)
# Of `hearth bench report` (docs/bench-report.md): rows of the benchmark's length, as few as take seconds; a rehearsal's.
REPORTS = [
    ["-t", "finetune_lora", "-m", "Llama-3.1-8B", "-s", 8192, "-b", 2, "--steps", 8],
    ["-t", "pretrain", "-m", "ResNet-50", "-b", 128, "--steps", 30],
]
FEW_REPORTS = [
    ["-t", "finetune_lora", "-m", "Llama-260K", "-s", 32, "-b", 1, "--steps", 1],
    ["-t", "pretrain", "-m", "ResNet-18", "-s", 16, "-b", 2, "--steps", 1],
]
ROUNDS = 2
PROFILE_STEPS = 10
# What `hearth bench --model-gpu` knows, by a part of the driver's name; the first that fits. Its arithmetic and bytes
# are the same for every GPU, its times are compared for the GPU itself.
MODELS = {"7900 XTX": "rx7900xtx", "7900 XT": "rx7900xt", "RTX 4090": "rtx4090", "H100": "h100", "H200": "h200"}
# GB/s by the vendor, likewise.
BANDWIDTHS = {
    "7900 XTX": 960, "7900 XT": 800, "7900 GRE": 576, "7800 XT": 624, "9070": 640, "6900 XT": 512, "6800": 512,
    "RTX 4090": 1008, "RTX 3090": 936, "H100 80GB HBM3": 3350, "H200": 4800,
}
COMPARED = ["case", "hearth (ms)", "torch (ms)", "ratio", "TFLOP/s", "of the peak", "GiB", "of torch's memory"]
REPORTED = ["mode", "model", "batch", "length", "metric", "measured"]
CUDNN = ["tokens", "deterministic", "ms", "workspace (MiB)", "b h Tq Tk 2 bytes (MiB)"]
OPS = ["op", "ms", "share", "count", "TFLOP/s", "GB/s", "of the bandwidth", "modeled (ms)"]


def by_name(card, table):
    return next((value for part, value in table.items() if part in card.name), None)


def cases_here(work, cases):
    return [case for case in cases if work.card.vendor != "emulated" or case in FEW]


def text(value, form=".2f"):
    return "-" if value is None else format(value, form)


# ------------------------------------------------------------------------------------------------ against torch


def compared_row(found):
    rate = found["flops_per_second"]
    return [
        found["case"], text(found["hearth_ms"], ".3f"), text(found["torch_ms"], ".3f"), text(found["ratio"]),
        text(rate and rate * 1e-12, ".1f"), text(found["share"], ".1%"), text(found["gib"]), text(found["memory_ratio"]),
    ]


def take_case(work, found):
    """Its figures, and what is wrong with it."""
    case = found["case"]
    for name, value in (("ms", found["hearth_ms"]), ("ratio", found["ratio"]), ("share", found["share"]),
                        ("memory ratio", found["memory_ratio"])):
        work.figure(f"{case} {name}", value)
    work.figure(f"{case} TFLOP/s", found["flops_per_second"] and found["flops_per_second"] * 1e-12)
    if found["hearth_ms"] is None:
        work.wrong(f"{case}: {'; '.join(n for n in found['notes'] if n.startswith('hearth')) or 'hearth did not run it'}")
    elif found["torch_ms"] is None and not work.options.no_torch:
        work.missing(f"torch's {case}: {'; '.join(found['notes']) or 'it did not run it'}")


def compare(work, title, cases):
    cases = cases_here(work, cases)
    out = work.folder("compared") / cases[0]
    table = out.with_suffix(".json")
    table.unlink(missing_ok=True)
    more = ["--tiny"] if work.card.vendor == "emulated" else []
    more += ["--no-torch"] if work.options.no_torch else []
    if work.options.no_torch:
        work.missing(f"torch's times: {work.options.torch_words}")
    done = None
    try:
        done = work.run(
            sys.executable, "bench/compare_gpu.py", "--program", work.program(), "--cases", ",".join(cases), "--rounds",
            1 if work.card.vendor == "emulated" else ROUNDS, "--out", out.with_suffix(".md"), "--json", table, *more,
        )
    finally:
        found = read_json(table) or []
        for case in found:
            take_case(work, case)
        work.table(title, COMPARED, [compared_row(case) for case in found])
    if len(found) < len(cases):
        work.wrong(f"bench/compare_gpu.py ended with status {done.status} after {len(found)} cases: {done.last_line()}")
    if not work.result["wrong"]:
        work.right(f"{title}: {', '.join(case['case'] for case in found)} ran")


def kernels(work):
    compare(work, "Matmuls", KERNELS)


def attention(work):
    compare(work, "Attention", ATTENTION)


def llama_full(work):
    compare(work, "Steps of Llama 1B, all weights", LLAMA[:1])


def llama_lora(work):
    compare(work, "Steps of Llama 1B, LoRA", LLAMA[1:2])


def llama_qlora(work):
    compare(work, "Steps of Llama 1B, QLoRA", LLAMA[2:])


def resnet(work):
    compare(work, "Steps of ResNet-50", IMAGES[:1])


def images(work):
    compare(work, "Steps of other image models", IMAGES[1:])


def segment(work):
    compare(work, "Steps of segmenters", SEGMENT)


def detect(work):
    compare(work, "Steps of a detector", DETECT)


def cudnn(work):
    """Measures the workspace and time that a deterministic backward pass of cuDNN's attention needs; Hearth does not use it yet."""
    if work.card.vendor == "amd" or work.options.no_torch:
        raise Missing(f"torch with cuDNN: {work.options.torch_words}")
    more = ["--tiny"] if work.card.vendor == "emulated" else []
    done = work.run(sys.executable, "bench/card/cudnn.py", *more)
    found = [json.loads(line) for line in done.text.splitlines() if line.startswith('{"tokens"')]
    measured = [row for row in found if "fault" not in row]
    for row in found:
        name = f"cuDNN attention_grad {row['tokens']} tokens{', deterministic' * row['deterministic']}"
        if "fault" in row:
            work.missing(f"{name}: {row['fault']}")
            continue
        work.figure(f"{name} ms", row["ms"])
        work.figure(f"{name} workspace MiB", row["workspace_mib"])
    work.table("cuDNN's attention, backward", CUDNN, [
        [str(row["tokens"]), "yes" if row["deterministic"] else "no", text(row["ms"], ".3f"), text(row["workspace_mib"], ".1f"),
         text(row["dp_mib"], ".1f")] for row in measured])
    if not measured:
        return work.wrong(f"bench/card/cudnn.py ended with status {done.status}: {done.last_line()}")
    return work.right(f"cuDNN's workspace was measured in {len(measured)} settings")


# ------------------------------------------------------------------------------------------------ AMD's benchmark


def report_8b(work):
    report(work, 0)


def report_resnet(work):
    report(work, 1)


def report(work, number):
    out, rows = work.folder("report"), []
    options = (FEW_REPORTS if work.card.vendor == "emulated" else REPORTS)[number]
    mode, model = options[1], options[3]
    done = work.run(work.program(), "bench", "report", "--device", work.card.device, "--out", out, *options)
    if done.status != 0:
        return work.wrong(f"{mode} {model} ended with status {done.status}: {done.last_line()}")
    with (out / f"perf_{model}.csv").open() as file:
        found = list(csv.DictReader(file))
    # MFU stands in the log alone.
    shares = re.findall(r"mfu: ([\d.]+)%", done.text)
    measured = [(line["metric"], float(line["performance"])) for line in found] + [("MFU (%)", float(s)) for s in shares[-1:]]
    for metric, value in measured:
        work.figure(f"{mode} {model} {metric}", value)
        rows.append([mode, model, found[0]["batch_size"], found[0]["seq_len"], metric, f"{value:g}"])
    for line in re.findall(r"^.* was requested, but needs .*(?=:$)", done.text, re.M):
        work.missing(f"{mode} {model} as requested: {line}")
    work.table("AMD's training benchmark", REPORTED, rows)
    work.right(f"hearth bench report ran {model}")


# ------------------------------------------------------------------------------------------------ op by op


def profiled(said):
    """{op: [milliseconds, count]} of `hearth bench --profile`, whose rows have an op and the shape of its result."""
    found = {}
    for ms, count, op in re.findall(r"^ *([\d.]+) +[\d.]+% +(\d+) +[\d.]+ +(\w+) \[", said, re.M):
        row = found.setdefault(op, [0.0, 0])
        row[0] += float(ms)
        row[1] += int(count)
    return found


def modeled(said):
    """{op: (milliseconds, GFLOP, MB)} of `hearth bench --model-gpu`."""
    rows = re.findall(r"^ *([\d.]+) +[\d.]+% +\d+ +\d+ +([\d.]+) +([\d.]+) +(\w+)$", said, re.M)
    return {op: (float(ms), float(gflop), float(mb)) for ms, gflop, mb, op in rows}


def op_row(work, case, op, row, total, model):
    """Rates by the arithmetic and the bytes that the model of the step counts."""
    ms, count = row
    model_ms, gflop, mb = model.get(op, (None, None, None))
    bandwidth = by_name(work.card, BANDWIDTHS)
    rate = gflop / ms if gflop and ms else None
    gb = mb / ms if mb and ms else None
    share = gb / bandwidth if gb and bandwidth else None
    work.figure(f"{case} {op} TFLOP/s", rate)
    work.figure(f"{case} {op} bandwidth", share)
    known = model_ms if by_name(work.card, MODELS) else None
    cells = [text(rate, ".1f"), text(gb, ".0f"), text(share, ".0%"), text(known, ".3f")]
    return [op, f"{ms:.3f}", f"{ms / total:.1%}", str(count), *cells]


def profile_llama(work):
    profile_cases(work, LLAMA[:2])


def profile(work):
    profile_cases(work, STEPS[2:])


def profile_cases(work, cases):
    emulated = work.card.vendor == "emulated"
    for case in cases[1:2] if emulated else cases:
        more = ["--tiny", "--steps", 1] if emulated else ["--steps", PROFILE_STEPS]
        done = work.run(work.program(), "bench", case, "--device", work.card.device, "--profile", *more)
        found = profiled(done.text)
        if done.status != 0 or not found:
            work.wrong(f"the profile of {case} ended with status {done.status}: {done.last_line()}")
            continue
        # The model is of the whole case, a rehearsal's step is not.
        name = by_name(work.card, MODELS) or "rx7900xt"
        model = {} if emulated else modeled(work.run(work.program(), "bench", case, "--model-gpu", name).text)
        total = sum(ms for ms, _ in found.values())
        ordered = sorted(found.items(), key=lambda item: -item[1][0])
        work.table(case, OPS, [op_row(work, case, op, row, total, model) for op, row in ordered])
    if not work.result["wrong"]:
        work.right("the steps were profiled op by op")
