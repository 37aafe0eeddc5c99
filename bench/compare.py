"""`tools/bench cpu`: the same training steps (or answers) in Hearth and in torch, alternating, in one run.

Per case it starts a torch process per variant, drops the clearly slower ones after a first round, and then alternates
rounds of Hearth with rounds of each variant left; whoever does not run is stopped (SIGSTOP) or not alive. Medians are
over the steps of all rounds. Torch's figure is its best variant's. Writes bench/RESULTS.md and prints, last, a line
`ratio NAME VALUE` per case: torch's time over Hearth's.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The cases, and the ratio that each is meant to reach.
BARS = {
    "simplecnn-b32-fp32": 3.5,
    "simplecnn-b256-fp32": 3.5,
    "mlp-b64-fp32": 1.6,
    "resnet18-b64-fp32": 1.6,
    "resnet18-b64-bf16": 1.05,
    "unet-b8-fp32": 1.5,
    "deeplabv3_r50-b2-fp32": 1.2,
    "yolox_s-b4-fp32": 1.2,
    "yolox_nano-b8-fp32": 1.5,
    "dit_s4-b16-fp32": 1.2,
    "flux_tiny-b4-bf16": 1.2,
    "llama15m-b8-fp32": 1.2,
    "llama15m-b8-bf16": 1.2,
    "llama110m-b2-fp32": 1.08,
    "llama110m-b2-bf16": 1.08,
    "llama110m_lora-b2-fp32": 1.25,
    "llama15m_answer-b1-fp32": 2.0,
    "llama110m_answer-b1-fp32": 2.0,
}
SLOW = {"llama110m-b2-bf16"}  # Torch alone takes half an hour: only when named.
SLOWER = 1.2  # A variant this much slower than the best after the first round runs no further rounds.


def environment(threads):
    return dict(
        os.environ,
        OMP_NUM_THREADS=str(threads),
        HEARTH_BENCH_SPAWNED=repr(time.monotonic()),
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )


class Torch:
    """A torch process that is stopped whenever it is not asked to run."""

    def __init__(self, case, variant, threads, script="bench/peer.py", more=()):
        command = [sys.executable, str(ROOT / script), case, variant, "--threads", str(threads), *more]
        self.variant = variant
        self.process = subprocess.Popen(
            command, env=environment(threads), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.seconds = []
        self.run(1)

    def run(self, steps):
        self.process.send_signal(signal.SIGCONT)
        print(json.dumps({"run": steps}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"torch ({self.variant}) ended with status {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        self.answer = answer = json.loads(line)
        self.rss_bytes = answer["peak_rss_bytes"]
        self.first_step_seconds = answer["first_step_seconds"]
        return answer["step_seconds"]

    def round(self, steps):
        self.seconds += self.run(steps + 1)[1:]

    def median(self):
        return statistics.median(self.seconds)

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Hearth:
    """A process of `hearth bench` per round."""

    def __init__(self, case, threads, program=ROOT / "hearth", more=()):
        self.command = [str(program), "bench", case, "--threads", str(threads), *more]
        self.environment = environment(threads)
        self.seconds, self.rss_bytes, self.first_steps, self.peaks = [], 0, [], []

    def round(self, steps):
        done = subprocess.run(
            [*self.command, "--steps", str(steps)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.answer = answer = json.loads(done.stdout.strip().splitlines()[-1])
        self.seconds += answer["step_seconds"]
        self.rss_bytes = max(self.rss_bytes, answer["peak_rss_bytes"])
        self.first_steps.append(answer["first_step_seconds"])
        self.peaks.append(answer["gemm_peak_gflops"])
        self.flops = answer["flops_per_step"]

    def median(self):
        return statistics.median(self.seconds)

    def share_of_peak(self):
        """Of the rate of a large matmul; None for answers, which memory bounds."""
        return self.flops / self.median() / (max(self.peaks) * 1e9) if self.flops else None

    def share_text(self):
        share = self.share_of_peak()
        return f"{share:.0%} of {max(self.peaks):.0f} GFLOP/s" if share else "-"


def steps_for(step_seconds, round_seconds):
    return max(5 if step_seconds < 1 else 2, min(400, int(round_seconds / step_seconds)))


def start_torch(case, threads, round_seconds, stack):
    """The variants worth alternating with, after a round of each; and a row for each of all."""
    from peer import variants_of  # What else is here runs without torch.

    peers = []
    for variant in variants_of(case):
        peer = Torch(case, variant, threads)
        stack.callback(peer.close)
        peer.round(steps_for(min(peer.run(1) + peer.run(1)), round_seconds))
        print(f"  torch {variant}: {peer.median() * 1e3:.3f} ms", flush=True)
        peers.append(peer)
    best = min(peer.median() for peer in peers)
    for peer in peers:
        peer.active = peer.median() <= SLOWER * best
        if not peer.active:
            peer.close()
    return peers


def run_case(case, options):
    print(f"{case}", flush=True)
    with contextlib.ExitStack() as stack:
        peers = start_torch(case, options.threads, options.round_seconds, stack)
        hearth = None if options.peer_only else Hearth(case, options.threads)
        active = [peer for peer in peers if peer.active]
        for _ in range(options.rounds):
            if hearth:
                hearth.round(steps_for(min(p.median() for p in active) / 3, options.round_seconds))
            for peer in active:
                peer.round(steps_for(peer.median(), options.round_seconds))
        best = min(active, key=Torch.median)
    return {
        "case": case,
        "hearth": hearth,
        "peers": peers,
        "best": best,
        "rss_bytes": min(peer.rss_bytes for peer in peers),
        "first_step_seconds": min(peer.first_step_seconds for peer in peers),
    }


def mib(size):
    return size / 2**20


def describe(result):
    hearth, best = result["hearth"], result["best"]
    text = f"  torch best ({best.variant}): {best.median() * 1e3:.3f} ms, minimum {min(best.seconds) * 1e3:.3f} ms, "
    text += f"peak RSS {mib(result['rss_bytes']):.0f} MiB, first step after {result['first_step_seconds']:.2f} s"
    if hearth:
        text += f"\n  hearth: {hearth.median() * 1e3:.3f} ms, minimum {min(hearth.seconds) * 1e3:.3f} ms, "
        text += f"peak RSS {mib(hearth.rss_bytes):.0f} MiB, first step after {statistics.median(hearth.first_steps):.3f} s, "
        text += f"of the GEMM peak: {hearth.share_text()}"
    return text


def cpu_model():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def one_line(command):
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        return (done.stdout.strip().splitlines() or ["unknown"])[0]
    return "unknown"


def row(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def write_results(results, options, path):
    import torch

    out = "# Training steps on the CPU: Hearth against PyTorch\n\nMade by `tools/bench cpu`; do not edit.\n\n"
    out += f"- {datetime.date.today()}, {cpu_model()}, {os.cpu_count()} cores, {options.threads} threads\n"
    out += f"- Hearth {one_line(['git', 'describe', '--always', '--dirty'])}, {one_line(['c++', '--version'])}\n"
    out += f"- torch {torch.__version__}, Python {platform.python_version()}\n"
    out += f"- {options.rounds} alternating rounds; medians over all steps; ms per step\n"
    out += "- Ratios are torch's best variant over Hearth in time, and Hearth over torch's smallest process in memory; "
    out += "first step counts from process start\n"
    out += "- No gradient is clipped. Hearth moves a weight as soon as its gradient is there, and holds the arenas of the 110M, of DiT and of FLUX "
    out += "down by making activations again, which counts as work in the last column\n"
    out += "- A step of an answer case is a whole answer: 128 greedy tokens after a prompt of 32, with a cache\n\n"
    head = ["case", "hearth", "torch best", "ratio", "bar", "peak RSS (MiB)", "RSS ratio", "first step (s)"]
    head += ["torch first step (s)", "of GEMM peak"]
    out += row(head) + row(["---"] * len(head))
    for result in results:
        hearth, best = result["hearth"], result["best"]
        out += row(
            [
                result["case"],
                f"{hearth.median() * 1e3:.3f}",
                f"{best.median() * 1e3:.3f}",
                f"{best.median() / hearth.median():.2f}",
                BARS[result["case"]],
                f"{mib(hearth.rss_bytes):.0f}",
                f"{hearth.rss_bytes / result['rss_bytes']:.2f}",
                f"{statistics.median(hearth.first_steps):.3f}",
                f"{result['first_step_seconds']:.2f}",
                hearth.share_text(),
            ]
        )
    out += "\n## Every variant of torch (ms per step)\n\n" + row(["case", "variants"]) + row(["---"] * 2)
    for result in results:
        times = (f"{peer.variant} {peer.median() * 1e3:.3f}" for peer in result["peers"])
        out += row([result["case"], ", ".join(times)])
    path.write_text(out)


def main():
    parser = argparse.ArgumentParser(prog="tools/bench cpu", description="Training steps of Hearth and of PyTorch.")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-seconds", type=float, default=2.0)
    parser.add_argument("--cases", default=",".join(case for case in BARS if case not in SLOW), help="comma-separated")
    parser.add_argument("--peer-only", action="store_true", help="measure torch alone; writes no file")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/RESULTS.md")
    options = parser.parse_args()
    for case in options.cases.split(","):
        if case not in BARS:
            parser.error(f"expected cases among {', '.join(BARS)}, got '{case}'")

    results = []
    for case in options.cases.split(","):
        results.append(run_case(case, options))
        print(describe(results[-1]), flush=True)
    if options.peer_only:
        return
    write_results(results, options, options.out)
    print(f"wrote {options.out}")
    for result in results:
        print(f"ratio {result['case']} {result['best'].median() / result['hearth'].median():.3f}")


if __name__ == "__main__":
    main()
