"""Memory and time of a FLUX.1-dev LoRA: python bench/flux_fits.py, which writes docs/flux-memory.md.

Plans recipes/flux-lora.yaml for each storage type of the base model, each resolution and each GPU memory size, without the model's
weights: whether one image per step fits, and the seconds of a step by the model of an RX 7900 XT.
"""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASES = {"bf16": "", "int8": "int8", "fp8": "fp8", "nf4": "nf4"}
SIDES = (512, 768, 1024)
GIB = (12, 16, 20, 24)
HEAD = """# Memory and time of a FLUX.1-dev LoRA

Written by `python bench/flux_fits.py` from plans of `recipes/flux-lora.yaml` (rank 16, one image per step, bf16). Planned and modeled, not
measured. For each GPU memory size: seconds per step by the model of an RX 7900 XT with the fastest settings that fit (recompute, offload),
and the memory that the step needs. `minimum` is the memory with as much recompute as helps, without offload. The encoders, which run
before training, layer by layer, are not included, nor is the desktop's memory.

"""


def plan(side, base, *extra):
    command = [ROOT / "hearth", "plan", "recipes/flux-lora.yaml", "model.path=", "model.config=recipes/flux/flux1-dev.json"]
    command += [f"data.image_size={side}", f"adapter.quantize={base}", "--json", "--svg", "/dev/null", "--model-gpu", "rx7900xt", *extra]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def cell(side, base, gib):
    fit = plan(side, base, "memory=0", "--memory", f"{gib}GiB").get("fit")
    return f"{fit['modeled_seconds']:.2f} s ({fit['peak_bytes'] / 2**30:.1f} GiB)" if fit else "no"


def main():
    rows = [f"| stored as | pixels | {' | '.join(f'{gib} GiB' for gib in GIB)} | minimum |", "|---" * (len(GIB) + 3) + "|"]
    for name, base in BASES.items():
        for side in SIDES:
            cells = [cell(side, base, gib) for gib in GIB]
            minimum = plan(side, base, "memory=1MiB")["peak_bytes"] / 2**30
            rows.append(f"| {name} | {side} | {' | '.join(cells)} | {minimum:.1f} GiB |")
            print(rows[-1], flush=True)
    (ROOT / "docs" / "flux-memory.md").write_text(HEAD + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
