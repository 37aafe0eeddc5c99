#!/usr/bin/env python3
"""What fits 20 and 24 GiB: plans well-known language models by ./hearth and writes bench/PLANS.md.

Nothing is trained and no weights are read: a plan needs a config.json only.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ["llama-3.1-8b", "mistral-7b", "llama-2-13b", "phi-3-mini", "qwen2.5-3b"]
LORA = ["recipes/llama-lora.yaml"]
METHODS = {
    "full": ["recipes/llama-full.yaml", "precision=bf16", "train.accumulate=1", "train.clip_norm=0",
             "optimizer.name=adamw8bit", "optimizer.in_backward=true"],
    "LoRA": LORA,
    "QLoRA": LORA + ["adapter.quantize=nf4"],
}
LENGTHS = [1024, 2048, 4096, 8192]
BUDGETS = [20, 24]
GIB = 1 << 30


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plan(folder, method, length, budget):
    """The plan as JSON, and the processor seconds that making it took, whatever else the machine does."""
    command = [ROOT / "hearth", "plan", *METHODS[method], f"model={folder}", "data.path=none.txt", "train.batch=1",
               f"data.context={length}", "--memory", f"{budget}GiB", "--json", "--svg", folder / "plan.svg"]
    start = children_seconds()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout), children_seconds() - start


def gib(count):
    return f"{count / GIB:.1f}"


def row(model, method, length, budget, found):
    fit = found["fit"]
    as_it_is = found["largest_batch"] or "-"
    peak = gib(found["peak_bytes"])
    parts = [gib(found["weight_bytes"] + found["frozen_bytes"]), gib(found["optimizer_bytes"]),
             gib(found["gradient_bytes"]), gib(found["activation_bytes"] + found["workspace_bytes"])]
    if fit is None:
        way = ["does not fit", "", "", ""]
    else:
        way = [fit["way"], gib(fit["host_bytes"]), f"{fit['modeled_seconds']:.2f}", fit["largest_batch"]]
    return "| " + " | ".join(map(str, [model, method, length, budget, peak, *parts, as_it_is, *way])) + " |"


def cell(found):
    """Largest micro-batch as it is, and by every means."""
    return f"{found['largest_batch'] or '-'} / {found['fit']['largest_batch']}" if found["fit"] else "-"


def summary(plans):
    """The table of docs/planning.md."""
    lines = ["| model, method | " + " | ".join(f"{length} tokens" for length in LENGTHS) + " |", "|" + " --- |" * 5]
    for model in MODELS:
        for method in METHODS:
            cells = [", ".join(cell(plans[model, method, length, budget]) for budget in BUDGETS) for length in LENGTHS]
            lines.append(f"| {model}, {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    rows, seconds, plans = [], [], {}
    with tempfile.TemporaryDirectory() as temporary:
        for model in MODELS:
            folder = Path(temporary) / model
            folder.mkdir()
            shutil.copy(ROOT / "bench" / "configs" / f"{model}.json", folder / "config.json")
            for method in METHODS:
                for length in LENGTHS:
                    for budget in BUDGETS:
                        found, took = plan(folder, method, length, budget)
                        seconds.append(took)
                        plans[model, method, length, budget] = found
                        rows.append(row(model, method, length, budget, found))
                        print(rows[-1], flush=True)
    seconds.sort()
    text = f"""# What fits 20 and 24 GiB

Made by `tools/bench plans`; do not edit. Each row is `hearth plan RECIPE model=FOLDER --memory SIZE` from config.json alone,
micro-batch 1. Bytes are planned, of one contiguous arena and everything beside it. Seconds are a model of an RX 7900 XT with
PCIe 4.0 (`src/cost/device.cpp`), not a measurement. No AMD GPU has run this yet.

- full: all weights, computed in bf16 over f32 weights, `adamw8bit`, each weight updated within the backward pass. LoRA: rank 16,
  all linear layers, frozen weights in bf16. QLoRA: the same over nf4.
- Peak and its parts are those of the plan as it is: without recompute, with everything on the GPU.
- The cheapest way is the one of least modeled time; host GiB is what it keeps in host memory.
- A plan took {seconds[len(seconds) // 2]:.2f} s of processor time (median of {len(seconds)}; longest {seconds[-1]:.2f} s).

The largest micro-batch as it is / by every means, whatever they cost in time (recompute; activations, optimizer state and weights
in host memory); within 20 GiB, then within 24 GiB. -: not even one row fits.

{summary(plans)}

| model | method | sequence | budget GiB | peak GiB | weights | optimizer | gradients | activations | largest micro-batch as it is | cheapest way for 1 | host GiB | s per micro-batch | largest by every means |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
""" + "\n".join(rows) + "\n"
    (ROOT / "bench" / "PLANS.md").write_text(text)
    print(f"median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s; wrote bench/PLANS.md")


if __name__ == "__main__":
    main()
