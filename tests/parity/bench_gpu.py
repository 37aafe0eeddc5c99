"""The two sides of `tools/bench gpu` do the same work: python tests/parity/bench_gpu.py.

Per case of training: torch's count of the arithmetic of a step's matmuls and convolutions is Hearth's to 5%, at full
size where no adapter is, else at tiny size (Hearth counts all arithmetic, and of causal attention the half that is
done). The 4-bit weights of the plain torch scheme are as near to what they stand for as NormalFloat4 allows. The
command itself runs at tiny size and writes what it says. Needs ./hearth (tools/build).
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import peer_gpu  # noqa: E402

TOLERANCE = 0.05
FULL = ("llama1b-b4-bf16", "resnet50-b128-bf16", "conv_stack-b32-bf16", "unet-b16-bf16", "deeplabv3_r50-b8-bf16")
FULL += ("yolox_s-b16-bf16",)
TINY = ("llama1b_lora-b4-bf16", "llama1b_qlora-b4-bf16")


def output_of(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def loss_of(runner):
    """Which boxes are assigned depends on numbers, which "meta" has none of; their losses multiply no matrices."""
    return runner.model(runner.images).sum() if isinstance(runner, peer_gpu.BoxTrainer) else runner.loss()


def torch_flops(case, tiny):
    """Of one step; at full size nothing is computed: pictures are on "meta", tokens fake, which autocast knows."""
    pictures = not case.startswith("llama")
    peer_gpu.DEVICE = "meta" if pictures else "cpu"
    fake = contextlib.nullcontext() if tiny or pictures else FakeTensorMode(allow_non_fake_inputs=True)
    with fake, torch.device(peer_gpu.DEVICE), sdpa_kernel(SDPBackend.MATH):
        runner = peer_gpu.open_runner(case, "eager", tiny)
        with FlopCounterMode(display=False) as counter:
            loss_of(runner).backward() if pictures else runner.step()
    return counter.get_total_flops()


def check_work():
    for case in FULL:
        table = output_of(ROOT / "hearth", "bench", case, "--model-gpu", "h200")
        hearth = float(re.search(r"([\d.]+) +[\d.]+  in all", table).group(1)) * 1e9
        compare(case, hearth, torch_flops(case, False))
    for case in TINY:
        text = output_of(ROOT / "hearth", "bench", case, "--device", "emulated", "--tiny", "--steps", 1)
        compare(case, json.loads(text.splitlines()[-1])["flops_per_step"], torch_flops(case, True))


def compare(case, hearth, torch_count):
    print(f"{case}: {hearth / 1e9:.3f} GFLOP a step, of torch's count {hearth / torch_count:.3f}")
    assert abs(hearth / torch_count - 1) < TOLERANCE, (case, hearth, torch_count)


def check_nf4():
    torch.manual_seed(0)
    linear = torch.nn.Linear(192, 128, bias=False)
    torch.nn.init.normal_(linear.weight)
    stored = peer_gpu.Nf4Lora(linear, 4)
    made = peer_gpu.dequantize(stored.pairs, stored.codes, stored.absmax8, stored.scale, stored.offset, stored.shape)
    absmax = linear.weight.view(-1, peer_gpu.BLOCK).abs().amax(1, keepdim=True)
    error = ((made.float() - linear.weight).view(-1, peer_gpu.BLOCK).abs() / absmax).max().item()
    # Half of the widest gap between two of its values, and what 8 bits leave of absmax.
    widest = max(b - a for a, b in zip(peer_gpu.NF4, peer_gpu.NF4[1:]))
    print(f"nf4: at most {error:.4f} of a block's absmax off")
    assert error < widest / 2 + 0.02, error


def check_command():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results.md"
        cases = "llama1b_qlora-b4-bf16,matmul_kv-b4-bf16"
        said = output_of(sys.executable, ROOT / "bench/compare_gpu.py", "--tiny", "--rounds", 1, "--round-seconds", 0.05,
                         "--threads", 1, "--cases", cases, "--out", out)
        written = out.read_text()
    for case in cases.split(","):
        ratio = float(re.search(rf"^ratio {case} ([\d.]+)$", said, re.MULTILINE).group(1))
        cells = re.search(rf"^\| {case} \| ([\d.]+) \| ([\d.]+) \|", written, re.MULTILINE).groups()
        assert abs(float(cells[1]) / float(cells[0]) - ratio) < 0.05 * ratio + 1e-3, (cells, ratio)
    assert re.search(r"^bar llama1b_qlora-b4-bf16 time [\d.]+ 1.2 missed$", said, re.MULTILINE), said
    print("the command writes what it says")


def main():
    check_nf4()
    check_work()
    check_command()


if __name__ == "__main__":
    main()
