"""Measures workspace and time of the backward pass of cuDNN's attention in torch, with and without deterministic algorithms.

cudnn.py [--tiny]: prints a line of JSON per size: tokens, deterministic, milliseconds, workspace in MiB, and for comparison the
MiB of dP, batch x heads x query tokens x key tokens elements of 16 bits. --tiny: small sizes, on the CPU.
"""

import argparse
import json
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128  # of Llama 3.1 8B
TOKENS, TINY_TOKENS = (2048, 8192), (16, 32)
LAUNCHES, WARM_UP = 8, 2


def seconds_of(work):
    """Returns the median time of work() by GPU events, in seconds."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
    for start, end in pairs:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) * 1e-3 for start, end in pairs)


def measure(tokens, deterministic, device):
    torch.use_deterministic_algorithms(deterministic)
    on_gpu = device == "cuda"
    inputs = [
        torch.randn(1, heads, tokens, HEAD_SIZE, dtype=torch.bfloat16, device=device, requires_grad=True)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION if on_gpu else SDPBackend.MATH]):
        out = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)
    dout = torch.randn_like(out)

    def backward():
        return torch.autograd.grad(out, inputs, dout, retain_graph=True)

    row = {"tokens": tokens, "deterministic": deterministic, "dp_mib": HEADS * tokens * tokens * 2 / 2**20}
    if not on_gpu:
        return row | {"ms": 0.0, "workspace_mib": 0.0, "ran": len(backward())}
    for _ in range(WARM_UP):
        backward()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gradients = backward()
    beyond = torch.cuda.max_memory_allocated() - before - sum(g.numel() * g.element_size() for g in gradients)
    return row | {"ms": seconds_of(backward) * 1e3, "workspace_mib": beyond / 2**20}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    for tokens in TINY_TOKENS if options.tiny else TOKENS:
        for deterministic in (False, True):
            try:
                row = measure(tokens, deterministic, "cpu" if options.tiny else "cuda")
            except RuntimeError as error:
                row = {"tokens": tokens, "deterministic": deterministic, "fault": str(error).splitlines()[0]}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
