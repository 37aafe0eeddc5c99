#!/usr/bin/env python3
"""The speedup of several GPUs: replays planned updates over modeled links by ./hearth and writes bench/SCALING.md.

Nothing is trained and no GPU is there: each row is `hearth bench CASE --model-gpu GPU --workers N` with its links.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compare import ROOT, row

GPU = "rx7900xt"
LANGUAGE = ["data.path=none.txt", "train.accumulate=16", "train.batch=1"]
# Of an RX 7900 XT's 20 GiB.
CASES = {
    "SimpleCNN, 32 images a GPU": ["simplecnn-b32-fp32"],
    "SimpleCNN, 256 images a GPU": ["simplecnn-b256-fp32"],
    "ResNet-50, 128 images a GPU": ["resnet50-b128-bf16"],
    "8B LoRA, 16 x 1024 tokens": ["recipes/llama-lora.yaml", "model={}/llama-3.1-8b", *LANGUAGE, "data.context=1024",
                                  "memory=4350MiB", "offload.activations=true"],
    "1B, all weights, 16 x 2048 tokens": ["recipes/llama-full.yaml", "model={}/llama-3.2-1b", *LANGUAGE,
                                          "data.context=2048", "precision=bf16", "optimizer.name=adamw8bit"],
}
LLAMA_1B = {"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072, "tie_word_embeddings": True}
LINKS = {"24 GB/s": ["--link", "24"], "6.5 GB/s": ["--link", "6.5"], "1 Gb/s network": ["--network", "1"]}
WORKERS = [2, 4]
HEAD = ["case", "GPUs", "link", "one GPU (ms)", "together (ms)", "exposed (ms)", "of the update", "per second", "scaling"]

TEXT = """# The speedup of several GPUs

Made by `tools/bench scaling`; do not edit. Simulated, not measured: no two GPUs have run Hearth yet. Each row is `hearth bench
CASE --model-gpu rx7900xt --workers N` with `--link 24`, `--link 6.5` or `--network 1`. It replays the program that a run on GPUs
would have: kernel after kernel at the modeled times, copies and sums on queues of their own, with the waits between them
(`src/exec/replay.h`).

- Links: what a GPU sends to host memory and receives from it at the same time (24 GB/s each way in a slot of 16 lanes of PCIe 4.0: ROCm
  issue 2253; 6.5 GB/s in one of 4 lanes), or a GPU in each machine and 1 Gb/s of Ethernet between them, less the frames and
  headers of TCP. Host memory: 60 GB/s for all GPUs and sums together (two channels of DDR5, assumed). A worker's processor
  sums 9 GB/s (measured on one machine; 4.5 on that of bench/RESULTS-comm.md: `--sums`). A call from a GPU to the host takes
  20 us and a round trip through Ethernet 100 us (assumed).
- Images: one micro-batch for each GPU, against one GPU with one. Language models: an update of 16 micro-batches shared by the
  GPUs, against one GPU with all of them. 8B: LoRA of rank 16 over bf16, in 20 GiB with activations in host memory. 1B: bf16
  over f32 weights, `adamw8bit`. Gradients are summed in f32.
- Exposed: how long a GPU waits for copies, sums and other workers.
- Not included: loading data, the speed at which the processor launches kernels, other users of the links.

{summary}
{table}"""


def simulate(case, workers, links, folder):
    words = [word.format(folder) for word in CASES[case]]
    command = [ROOT / "hearth", "bench", *words, "--model-gpu", GPU, "--workers", str(workers), *links]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def cells(case, workers, link, found):
    step, exposed = found["step_seconds"], found["exposed_seconds"]
    return [case, workers, link, f"{1e3 * found['one_step_seconds']:.2f}", f"{1e3 * step:.2f}", f"{1e3 * exposed:.2f}",
            f"{exposed / step:.1%}", f"{found['samples_per_step'] / step:.0f}", f"{found['scaling']:.2f}"]


def summary(results):
    """The table of docs/several-devices.md."""
    columns = [(workers, link) for link in LINKS for workers in WORKERS]
    lines = [row(["scaling"] + [f"{workers} GPUs, {link}" for workers, link in columns]), row(["---"] * (1 + len(columns)))]
    for case in CASES:
        lines.append(row([case] + [f"{results[case, *column]['scaling']:.2f}" for column in columns]))
    return "".join(lines)


def main():
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"llama-3.1-8b": (ROOT / "bench/configs/llama-3.1-8b.json").read_text(),
                           "llama-3.2-1b": json.dumps(LLAMA_1B)}.items():
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "config.json").write_text(text)
        for case in CASES:
            for link, links in LINKS.items():
                for workers in WORKERS:
                    results[case, workers, link] = simulate(case, workers, links, folder)
    table = row(HEAD) + row(["---"] * len(HEAD))
    table += "".join(row(cells(*key, found)) for key, found in results.items())
    out = ROOT / "bench/SCALING.md"
    out.write_text(TEXT.format(summary=summary(results), table=table))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
