"""What a LoRA of FLUX.1-dev needs and takes: python bench/flux_fits.py, which writes docs/flux-memory.md.

Plans recipes/flux-lora.yaml for each way to store the model, each resolution and each size of a GPU, without the model's weights:
whether a picture a step fits, by which means, and the seconds of a step by the model of an RX 7900 XT.
"""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASES = {"bf16": "", "int8": "int8", "fp8": "fp8", "nf4": "nf4"}
SIDES = (512, 768, 1024)
GIB = (12, 16, 20, 24)
HEAD = """# What a LoRA of FLUX.1-dev needs

Made by `python bench/flux_fits.py` from plans of `recipes/flux-lora.yaml` (rank 16, a picture a step, bf16): the memory that a step
needs on the GPU, and its seconds by the model of an RX 7900 XT: modeled, not measured. The encoders run before training, layer by
layer, and need nothing of this. `least` is with all the recomputation that helps; a GPU also holds what the desktop needs.

"""


def plan(side, base, *extra):
    command = [ROOT / "hearth", "plan", "recipes/flux-lora.yaml", "model.path=", "model.config=recipes/flux/flux1-dev.json"]
    command += [f"data.image_size={side}", f"adapter.quantize={base}", "--json", "--svg", "/dev/null", "--model-gpu", "rx7900xt", *extra]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def cell(side, base, gib):
    fit = plan(side, base, "memory=0", "--memory", f"{gib}GiB").get("fit")
    return f"{fit['modeled_seconds']:.2f} s ({fit['peak_bytes'] / 2**30:.1f} GiB)" if fit else "no"


def main():
    rows = [f"| stored as | pixels | {' | '.join(f'{gib} GiB' for gib in GIB)} | least |", "|---" * (len(GIB) + 3) + "|"]
    for name, base in BASES.items():
        for side in SIDES:
            cells = [cell(side, base, gib) for gib in GIB]
            least = plan(side, base, "memory=1MiB")["peak_bytes"] / 2**30
            rows.append(f"| {name} | {side} | {' | '.join(cells)} | {least:.1f} GiB |")
            print(rows[-1], flush=True)
    (ROOT / "docs" / "flux-memory.md").write_text(HEAD + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
