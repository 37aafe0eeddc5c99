"""`tools/bench gpu`: the same training steps and kernels in Hearth and in torch on one GPU, alternating, in one run.

Per case it starts a torch process per variant, leaves out the clearly slower ones after a first round, and alternates
rounds of Hearth with rounds of each variant left; who does not run waits, its memory on the GPU. Medians are over the
steps of all rounds; torch's figure is its best variant's. Writes bench/RESULTS-gpu.md and prints, last, a line
`ratio NAME VALUE` per case (torch's time over Hearth's) and `bar NAME WHAT VALUE LIMIT met|missed` per bar. A case that
either side cannot run is said and makes the command end with status 1.
"""

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys

from compare import ROOT, SLOWER, Hearth, Torch, one_line, row, steps_for

TRAINING = ("llama1b-b4-bf16", "llama1b_lora-b4-bf16", "llama1b_qlora-b4-bf16")
TRAINING += ("resnet50-b128-bf16", "conv_stack-b32-bf16", "unet-b16-bf16", "deeplabv3_r50-b8-bf16", "yolox_s-b16-bf16")
MATMULS = ("q", "kv", "up", "down", "head", "up_dx", "up_dw")
ATTENTION = ("attention-b4-bf16", "attention_grad-b4-bf16", "attention_d128-b1-bf16", "attention_d128_grad-b1-bf16")
KERNELS = (*(f"matmul_{name}-b4-bf16" for name in MATMULS), *ATTENTION)
# At least: torch's time over Hearth's, and the share of the GPU's peak.
TIME_BARS = dict(zip(TRAINING, (1.1, 1.2, 1.2, 1.0))) | dict.fromkeys(ATTENTION, 0.9)
MFU_BARS = dict.fromkeys(TRAINING[:2], 0.45)
# At most: Hearth's bytes over torch's.
MEMORY_BARS = dict.fromkeys(TRAINING[:4], 0.8)
TRAINING_HEAD = ["case", "hearth (ms)", "torch best (ms)", "ratio", "hearth", "torch", "MFU", "torch's MFU"]
TRAINING_HEAD += ["memory (GiB)", "torch allocated", "torch reserved", "memory ratio"]
KERNEL_HEAD = ["kernel", "hearth (ms)", "torch best (ms)", "ratio", "TFLOP/s", "torch's TFLOP/s", "of the peak"]


class Case:
    """What both sides came to. `hearth` or `best` is None where that side could not run; `notes` say why."""

    def __init__(self, name):
        self.name, self.hearth, self.best, self.peers, self.notes = name, None, None, [], []

    def seconds(self):
        """Medians of Hearth and of torch's best variant."""
        return [side.median() if side else None for side in (self.hearth, self.best)]

    def ratio(self):
        hearth, torch = self.seconds()
        return torch / hearth if hearth and torch else None

    def rates(self, amount):
        return [amount / seconds if seconds else None for seconds in self.seconds()]

    def shares(self):
        """Of the GPU's peak, by the arithmetic that Hearth counts."""
        peak = self.hearth.answer["peak_flops_per_second"] if self.hearth else 0
        return self.rates(self.hearth.answer["flops_per_step"] / peak) if peak else [None, None]

    def memory_bytes(self):
        """Hearth's, and what torch's best variant allocated and reserved."""
        torch = self.best.answer if self.best else {}
        hearth = self.hearth.answer["gpu_bytes"] if self.hearth else None
        return hearth, torch.get("allocated_bytes") or None, torch.get("reserved_bytes") or None

    def memory_ratio(self):
        hearth, allocated, _ = self.memory_bytes()
        return hearth / allocated if hearth and allocated else None

    def summary(self):
        """For --json: what is not known is null."""
        hearth_ms, torch_ms = scaled(self.seconds(), 1e3)
        rate = self.rates(self.hearth.answer["flops_per_step"])[0] if self.hearth else None
        return {
            "case": self.name,
            "hearth_ms": hearth_ms,
            "torch_ms": torch_ms,
            "ratio": self.ratio(),
            "flops_per_second": rate or None,
            "share": self.shares()[0],
            "gib": scaled(self.memory_bytes(), 2**-30)[0],
            "memory_ratio": self.memory_ratio(),
            "notes": self.notes,
        }

    def bars(self):
        """(what, value, limit, whether it is met), for every bar that was measured."""
        found = [("time", self.ratio(), TIME_BARS.get(self.name)), ("MFU", self.shares()[0], MFU_BARS.get(self.name))]
        made = [(what, value, limit, value >= limit) for what, value, limit in found if limit and value]
        value, limit = self.memory_ratio(), MEMORY_BARS.get(self.name)
        return made + ([("memory", value, limit, value <= limit)] if limit and value else [])


def why_no_torch(tiny):
    """Empty where torch can run."""
    if not importlib.util.find_spec("torch"):
        return f"{sys.executable} has no torch"
    import torch

    return "" if tiny or torch.cuda.is_available() else f"torch {torch.__version__} finds no GPU"


def start_torch(case, options, stack):
    from peer_gpu import variants_of

    for variant in variants_of(case.name):
        peer = None
        try:
            peer = Torch(case.name, variant, options.threads, "bench/peer_gpu.py", ["--tiny"] if options.tiny else [])
            stack.callback(peer.close)
            peer.round(steps_for(min(peer.run(1)), options.round_seconds))
            print(f"  torch {variant}: {peer.median() * 1e3:.3f} ms", flush=True)
            case.peers.append(peer)
        except (RuntimeError, BrokenPipeError) as error:
            case.notes.append(f"torch {variant}: {error}")
    for peer in case.peers:
        peer.active = peer.median() <= SLOWER * min(p.median() for p in case.peers)
        if not peer.active:
            peer.close()


def hearth_round(case, options):
    """False where it fails."""
    where = ["--device", "emulated", "--tiny"] if options.tiny else ["--device", options.device]
    hearth = case.hearth or Hearth(case.name, options.threads, options.program, where)
    seconds = min((peer.median() for peer in case.peers), default=options.round_seconds / 20)
    try:
        hearth.round(1 if options.tiny else steps_for(seconds, options.round_seconds))
    except subprocess.CalledProcessError as error:
        case.hearth = None
        case.notes.append(f"hearth: {' '.join(error.cmd[1:])} ended with status {error.returncode}")
        return False
    case.hearth = hearth
    return True


def run_case(name, options):
    print(name, flush=True)
    case = Case(name)
    with contextlib.ExitStack() as stack:
        if not options.no_torch:
            start_torch(case, options, stack)
        active = [peer for peer in case.peers if peer.active]
        works = True
        for _ in range(options.rounds):
            works = works and hearth_round(case, options)
            for peer in list(active):
                try:
                    peer.round(steps_for(peer.median(), options.round_seconds))
                except (RuntimeError, BrokenPipeError) as error:
                    case.notes.append(f"torch {peer.variant}: {error}")
                    active.remove(peer)
        case.best = min(active, key=Torch.median, default=None)
    case.notes += sorted({peer.answer["scheme"] for peer in case.peers if peer.answer["scheme"]})
    return case


def number(value, form=".2f"):
    return "-" if value is None else format(value, form)


def scaled(values, factor):
    return [None if value is None else value * factor for value in values]


def time_cells(case):
    return [case.name, *(number(ms, ".3f") for ms in scaled(case.seconds(), 1e3)), number(case.ratio())]


def training_row(case):
    unit = "tokens/s" if case.name.startswith("llama") else "images/s"
    samples = case.hearth.answer["samples_per_step"] if case.hearth else 0
    rates = [f"{number(rate if samples else None, '.0f')} {unit}" for rate in case.rates(samples)]
    shares = [number(share, ".1%") for share in case.shares()]
    memory = [number(size) for size in scaled(case.memory_bytes(), 2**-30)]
    return row([*time_cells(case), *rates, *shares, *memory, number(case.memory_ratio())])


def kernel_row(case):
    flops = case.hearth.answer["flops_per_step"] if case.hearth else 0
    rates = [number(rate * 1e-12 if rate and flops else None, ".1f") for rate in case.rates(flops)]
    return row([*time_cells(case), *rates, number(case.shares()[0], ".1%")])


def table(head, rows):
    return row(head) + row(["---"] * len(head)) + "".join(rows) + "\n" if rows else ""


def bar_rows(cases):
    for case in cases:
        for what, value, limit, met in case.bars():
            side = "at most" if what == "memory" else "at least"
            yield row([case.name, what, f"{value:.3f}", f"{side} {limit}", "met" if met else "missed"])


def versions(options, cases):
    hearth = next((case.hearth.answer for case in cases if case.hearth), {})
    lines = [f"{datetime.date.today()}, {hearth.get('gpu', 'no GPU')}, driver {hearth.get('driver', 'unknown')}"]
    commit = one_line(["git", "describe", "--always", "--dirty"])
    lines.append(f"{one_line([options.program, '--version'])}, commit {commit}")
    if options.tiny:
        lines.append("A trial of the command: an emulated GPU, torch on the processor, sizes of a test")
    if options.no_torch:
        lines.append(f"torch was left out: {options.no_torch}")
    else:
        import torch

        lines.append(f"torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}")
    lines.append(f"Command: tools/bench gpu {' '.join(options.command)}".rstrip())
    return lines


def write_results(cases, options, path):
    lines = versions(options, cases)
    lines += [
        f"{options.rounds} alternating rounds; medians over all steps; ratios are torch's best variant over Hearth in "
        "time, and Hearth over that variant in memory",
        "Hearth's memory is everything it allocates on the GPU; torch's, the peak of its allocator after the first "
        "steps (allocated) and what it held (reserved); neither counts the driver's own",
        "Times are measured by GPU events before and after a step. Hearth's steps copy their inputs from host memory and "
        "read the loss; torch's inputs are on the GPU, and its loss stays there",
        "Weights and moments in f32, matmuls in bf16 (autocast); under LoRA the model is bf16, under QLoRA nf4. AdamW "
        "for tokens, SGD with momentum for images; no gradient is clipped",
        "MFU counts the model's arithmetic, without what is computed again, over the vendor's peak",
    ]
    out = "# Training steps on a GPU: Hearth against PyTorch\n\nMade by `tools/bench gpu`; do not edit.\n\n"
    out += "".join(f"- {line}\n" for line in lines) + "\n"
    out += table(TRAINING_HEAD, [training_row(case) for case in cases if case.name in TRAINING])
    out += table(KERNEL_HEAD, [kernel_row(case) for case in cases if case.name in KERNELS])
    out += table(["case", "bar", "value", "limit", "result"], list(bar_rows(cases)))
    out += "## Every variant of torch (ms)\n\n" + table(
        ["case", "variants"],
        [row([c.name, ", ".join(f"{p.variant} {p.median() * 1e3:.3f}" for p in c.peers)]) for c in cases if c.peers],
    )
    notes = [f"- {case.name}: {note}\n" for case in cases for note in case.notes]
    out += "## Notes\n\n" + "".join(notes) if notes else ""
    path.write_text(out.rstrip() + "\n")


def parse_options():
    parser = argparse.ArgumentParser(prog="tools/bench gpu", description="Hearth and PyTorch on a GPU.")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--round-seconds", type=float, default=2.0)
    parser.add_argument("--cases", default=",".join(TRAINING + KERNELS), help="comma-separated")
    parser.add_argument("--device", default="gpu", help="gpu, gpu:1, ...: Hearth's GPU (torch's is CUDA's first)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "hearth", help="a hearth that is built already")
    parser.add_argument("--no-torch", action="store_const", const="--no-torch", default="", help="Hearth alone")
    parser.add_argument("--tiny", action="store_true", help="try the command: no GPU, sizes of a test; needs --out")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures of each case there")
    options = parser.parse_args()
    options.command = sys.argv[1:]
    for case in options.cases.split(","):
        if case not in TRAINING + KERNELS:
            parser.error(f"expected cases among {', '.join(TRAINING + KERNELS)}, got '{case}'")
    if options.tiny and not options.out:
        parser.error("expected --out FILE with --tiny")
    options.out = options.out or ROOT / "bench/RESULTS-gpu.md"
    return options


def main():
    options = parse_options()
    options.no_torch = options.no_torch or why_no_torch(options.tiny)
    if options.no_torch:
        print(f"torch is left out: {options.no_torch}")
    cases = []
    for name in options.cases.split(","):
        cases.append(case := run_case(name, options))
        print("".join(f"  {note}\n" for note in case.notes) + "  " + " ".join(time_cells(case)[1:]), flush=True)
        write_results(cases, options, options.out)
        if options.json:
            options.json.write_text(json.dumps([case.summary() for case in cases], indent=1) + "\n")
    print(f"wrote {options.out}")
    for case in cases:
        if case.ratio():
            print(f"ratio {case.name} {case.ratio():.3f}")
    for case in cases:
        for what, value, limit, met in case.bars():
            print(f"bar {case.name} {what} {value:.3f} {limit} {'met' if met else 'missed'}")
    sys.exit(any(not case.hearth or not (case.best or options.no_torch) for case in cases))


if __name__ == "__main__":
    main()
