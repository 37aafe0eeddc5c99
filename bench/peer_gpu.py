"""One torch process for `tools/bench gpu`: peer_gpu.py CASE VARIANT --threads T [--tiny].

CASE is one of `hearth bench` that a GPU runs, VARIANT one of variants_of(CASE). It answers like peer.py, and says what
its allocator held at most: {"allocated_bytes": N, "reserved_bytes": N, "scheme": TEXT} beside the seconds. Steps are
timed by the GPU's clock, queued after one another; a kernel's are means of 16 launches. --tiny: small sizes, on the
CPU, where "compile" traces the model without generating code.
"""

import argparse
import importlib.util
import json
import math
import os
import sys
import time

import torch
import torch._inductor.config
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from models import CONTEXT, LLAMAS, ConvStack, ResNet50, add_lora, make_llama, random_tokens
from peer import LEARNING_RATE, TEXT_RATE, Dilated, Runner, UNet, mask_loss, parse_case, peak_rss_bytes
from peer import random_boxes, yolox_model

PICTURES = {  # side, classes
    "resnet50": (224, 1000), "conv_stack": (256, 10), "unet": (256, 11), "deeplabv3_r50": (512, 21), "yolox_s": (640, 80)
}
WIDTH, TINY_WIDTH = 64, 8
RANK, TINY_RANK = 16, 4
LAUNCHES = 16
WARM_UP = 2


def variants_of(case):
    """The ways in which torch can run a case: the best of them counts."""
    name = parse_case(case)[0]
    if name.startswith("matmul"):
        return ("eager",)
    return ("flash", "cudnn") if name.startswith("attention") else ("eager", "compile")


class GpuRunner(Runner):
    """Steps queued one after the other; the clock is the GPU's where there is one."""

    launches = 1

    def run(self, steps):
        if not torch.cuda.is_available():
            return super().run(steps)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        events[0].record()
        for event in events[1:]:
            for _ in range(self.launches):
                self.step()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e-3 / self.launches for a, b in zip(events, events[1:])]


def compiled(model):
    """Returns the compiled model. On the CPU it is only traced: generating code takes minutes and would find no more errors in a case."""
    return torch.compile(model, backend="inductor" if DEVICE == "cuda" else "aot_eager")


class GpuTrainer(GpuRunner):
    """Subclasses have loss() and `optimizer`."""

    def step(self):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class PictureTrainer(GpuTrainer):
    TINY_SIDE = 16

    def __init__(self, case, variant, tiny):
        name, batch, _ = parse_case(case)
        side, classes = PICTURES[name]
        self.side, batch, width = (self.TINY_SIDE, 2, TINY_WIDTH) if tiny else (side, batch, WIDTH)
        model = self.make(name, width, classes).to(memory_format=torch.channels_last)
        images = torch.randn(batch, 3, self.side, self.side)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = self.make_labels(batch, classes)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9, fused=True)
        self.model = compiled(model) if variant == "compile" else model

    def make(self, name, width, classes):
        return ResNet50(width, classes, large=self.side >= 64) if name == "resnet50" else ConvStack(width, classes)

    def make_labels(self, batch, classes):
        return torch.randint(0, classes, (batch,))

    def loss(self):
        return nn.functional.cross_entropy(self.model(self.images), self.labels)


class MaskTrainer(PictureTrainer):
    def make(self, name, width, classes):
        return UNet(width, classes) if name == "unet" else Dilated(width, classes, deeplab=True, dropout=True)

    def make_labels(self, batch, classes):
        return torch.randint(0, classes, (batch, self.side, self.side))

    def loss(self):
        return mask_loss(self.model(self.images), self.labels)


class BoxTrainer(PictureTrainer):
    """Losses in f32, and boxes are assigned in it."""

    TINY_SIDE = 32

    def make(self, name, _, classes):
        return yolox_model.Yolox(name, classes)

    def make_labels(self, batch, classes):
        self.l1_weight = torch.zeros(batch)
        return random_boxes(batch, self.side, classes)

    def loss(self):
        made = self.model(self.images).float()
        return yolox_model.loss_of(made, self.labels, self.l1_weight, self.side, self.side, torch.float32)


class TextTrainer(GpuTrainer):
    """All weights in f32, or those under an adapter in bf16 or nf4 and the adapter in f32; matmuls in bf16."""

    def __init__(self, case, variant, tiny):
        name, batch, _ = parse_case(case)
        name, _, adapter = name.partition("_")
        name, batch, rank = ("tiny", min(batch, 2), TINY_RANK) if tiny else (name, batch, RANK)
        model = make_llama(name)
        if adapter:
            model = model.to(torch.bfloat16)
        if adapter == "lora":
            model = add_lora(model, rank)
        elif adapter == "qlora":
            model, self.scheme = add_qlora(model, rank)
        self.tokens = random_tokens(batch, CONTEXT[name], vocabulary=LLAMAS[name]["vocab_size"]).to(DEVICE)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(weights, lr=TEXT_RATE, weight_decay=0.01, fused=True)
        self.model = compiled(model) if variant == "compile" else model

    def loss(self):
        return self.model(input_ids=self.tokens, labels=self.tokens, use_cache=False).loss


def linears_of(model):
    """Every linear layer but the head: (its parent, its name there, itself)."""
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and not path.endswith("lm_head"):
            parent, _, name = path.rpartition(".")
            yield model.get_submodule(parent), name, module


def add_qlora(model, rank):
    """The adapter over a frozen model in nf4, and in words how that is stored."""
    if DEVICE == "cuda" and importlib.util.find_spec("bitsandbytes"):
        import bitsandbytes

        for parent, name, linear in linears_of(model):
            stored = bitsandbytes.nn.Linear4bit(
                linear.in_features,
                linear.out_features,
                bias=False,
                compute_dtype=torch.bfloat16,
                compress_statistics=True,
                quant_type="nf4",
                device="cpu",
            )
            stored.weight = bitsandbytes.nn.Params4bit(
                linear.weight.data.cpu(), requires_grad=False, compress_statistics=True, quant_type="nf4"
            )
            setattr(parent, name, stored.to(DEVICE))
        return add_lora(model, rank), f"bitsandbytes {bitsandbytes.__version__}"
    model.requires_grad_(False)
    for parent, name, linear in linears_of(model):
        setattr(parent, name, Nf4Lora(linear, rank))
    return model, "nf4 in plain torch (no bitsandbytes): each weight is dequantized to bf16 before each matmul"


# The values of NormalFloat4 (QLoRA, arXiv 2305.14314, appendix E).
NF4 = (
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334]
    + [-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    + [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
)
BLOCK, ABSMAX_BLOCK = 64, 256


class Nf4Matmul(torch.autograd.Function):
    """x W^T; W is made again for the way back rather than kept."""

    @staticmethod
    def forward(context, x, pairs, codes, absmax8, scale, offset, shape):
        context.save_for_backward(pairs, codes, absmax8, scale, offset)
        context.shape = shape
        return x @ dequantize(pairs, codes, absmax8, scale, offset, shape).T

    @staticmethod
    def backward(context, gradient):
        return (gradient @ dequantize(*context.saved_tensors, context.shape), *[None] * 6)


def dequantize(pairs, codes, absmax8, scale, offset, shape):
    absmax = (absmax8.float() * scale[:, None] + offset).flatten()[: shape[0] * shape[1] // BLOCK]
    values = pairs[codes.int()].view(-1, BLOCK) * absmax[:, None]
    return values.to(torch.bfloat16).view(shape)


def quantize(weight):
    """Codes, two to a byte; absmax of blocks in 8 bits with a scale for each 256 of them and their mean."""
    blocks = weight.float().view(-1, BLOCK)
    absmax = blocks.abs().amax(1).clamp_min(1e-12)
    table = torch.tensor(NF4)
    codes = torch.bucketize(blocks / absmax[:, None], (table[1:] + table[:-1]) / 2).to(torch.uint8).view(-1, 2)
    offset = absmax.mean()
    rest = nn.functional.pad(absmax - offset, (0, -absmax.numel() % ABSMAX_BLOCK)).view(-1, ABSMAX_BLOCK)
    scale = rest.abs().amax(1).clamp_min(1e-12) / 127
    return codes[:, 0] * 16 + codes[:, 1], (rest / scale[:, None]).round().to(torch.int8), scale, offset


class Nf4Lora(nn.Module):
    """W x + B A x of a frozen W in nf4."""

    def __init__(self, linear, rank):
        super().__init__()
        self.shape = tuple(linear.weight.shape)
        codes, absmax8, scale, offset = quantize(linear.weight.data)
        table = torch.tensor(NF4)
        pairs = torch.stack([table.repeat_interleave(16), table.repeat(16)], 1)
        for name, value in {
            "pairs": pairs, "codes": codes, "absmax8": absmax8, "scale": scale, "offset": offset
        }.items():
            self.register_buffer(name, value)
        self.lora_a = nn.Parameter(torch.randn(rank, self.shape[1]) / math.sqrt(self.shape[1]))
        self.lora_b = nn.Parameter(torch.zeros(self.shape[0], rank))

    def forward(self, x):
        x = x.to(torch.bfloat16)
        stored = (self.pairs, self.codes, self.absmax8, self.scale, self.offset, self.shape)
        low = nn.functional.linear(nn.functional.linear(x, self.lora_a), self.lora_b)
        return Nf4Matmul.apply(x, *stored) + low


class Matmul(GpuRunner):
    """A matmul of Llama's layers alone, as nn.Linear makes it."""

    launches = LAUNCHES

    def __init__(self, case, _, tiny):
        name, batch, _ = parse_case(case)
        llama, batch = ("tiny", min(batch, 2)) if tiny else ("llama1b", batch)
        config, tokens = LLAMAS[llama], batch * CONTEXT[llama]
        hidden, wide = config["hidden_size"], config["intermediate_size"]
        kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
        features = {  # what comes in, what goes out
            "matmul_q": (hidden, hidden),
            "matmul_kv": (hidden, kv),
            "matmul_up": (hidden, wide),
            "matmul_down": (wide, hidden),
            "matmul_head": (hidden, config["vocab_size"]),
            "matmul_up_dx": (hidden, wide),
            "matmul_up_dw": (hidden, wide),
        }
        fan_in, fan_out = features[name]
        x = torch.randn(tokens, fan_in, dtype=torch.bfloat16)
        w = torch.randn(fan_out, fan_in, dtype=torch.bfloat16)
        dy = torch.randn(tokens, fan_out, dtype=torch.bfloat16)
        self.a, self.b = {"matmul_up_dx": (dy, w), "matmul_up_dw": (dy.T, x)}.get(name, (x, w.T))
        self.out = torch.empty(self.a.shape[0], self.b.shape[1], dtype=torch.bfloat16)

    def step(self):
        torch.matmul(self.a, self.b, out=self.out)


class Attention(GpuRunner):
    """Causal attention with grouped heads alone, forward or backward."""

    launches = LAUNCHES

    def __init__(self, case, variant, tiny):
        name, batch, _ = parse_case(case)
        llama = "tiny" if tiny else "llama8b" if "_d128" in name else "llama1b"
        config, time_steps, batch = LLAMAS[llama], CONTEXT[llama], min(batch, 2) if tiny else batch
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        size = config["hidden_size"] // heads
        backend = SDPBackend.FLASH_ATTENTION if variant == "flash" else SDPBackend.CUDNN_ATTENTION
        self.backward = name.endswith("_grad")

        def rows(count):
            made = torch.randn(batch, time_steps, count, size, dtype=torch.bfloat16).transpose(1, 2)
            return made.requires_grad_(self.backward)

        self.q, self.k, self.v = rows(heads), rows(kv_heads), rows(kv_heads)
        self.backends = [backend] if DEVICE == "cuda" else [SDPBackend.MATH]
        self.out = self.attend()
        self.dout = torch.randn_like(self.out)

    def attend(self):
        with sdpa_kernel(self.backends):
            return nn.functional.scaled_dot_product_attention(
                self.q, self.k, self.v, is_causal=True, enable_gqa=True
            )

    def step(self):
        if self.backward:
            torch.autograd.grad(self.out, (self.q, self.k, self.v), self.dout, retain_graph=True)
        else:
            self.attend()


def open_runner(case, variant, tiny):
    torch.manual_seed(0)
    name = parse_case(case)[0]
    if name in PICTURES:
        trainer = {"unet": MaskTrainer, "deeplabv3_r50": MaskTrainer, "yolox_s": BoxTrainer}.get(name, PictureTrainer)
        return trainer(case, variant, tiny)
    if name.startswith("llama"):
        return TextTrainer(case, variant, tiny)
    return (Matmul if name.startswith("matmul") else Attention)(case, variant, tiny)


def memory_bytes():
    if DEVICE != "cuda":
        return {"allocated_bytes": 0, "reserved_bytes": 0}
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def main():
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("variant")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.variant not in variants_of(options.case):
        parser.error(f"expected a variant among {', '.join(variants_of(options.case))}, got '{options.variant}'")
    DEVICE = "cpu" if options.tiny else "cuda"
    torch.set_default_device(DEVICE)
    torch.set_num_threads(options.threads)
    torch.backends.cudnn.benchmark = True
    torch._inductor.config.compile_threads = options.threads
    spawned = float(os.environ.get("HEARTH_BENCH_SPAWNED", time.monotonic()))

    runner = open_runner(options.case, options.variant, options.tiny)
    runner.run(1)
    first_step_seconds = time.monotonic() - spawned
    runner.run(WARM_UP)
    if DEVICE == "cuda":
        torch.cuda.empty_cache()  # What was built on the way to the model is not held against torch.
        torch.cuda.reset_peak_memory_stats()
    for line in sys.stdin:
        seconds = runner.run(json.loads(line)["run"])
        answer = {"step_seconds": seconds, "peak_rss_bytes": peak_rss_bytes(), "scheme": getattr(runner, "scheme", "")}
        answer |= {"first_step_seconds": first_step_seconds, **memory_bytes()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
