"""One torch training process for `tools/bench`: peer.py CASE VARIANT --threads T.

CASE is like resnet18-b64-fp32, VARIANT is {eager,compile}-{nchw,channels_last}. It takes its first step at once and
then answers every line {"run": STEPS} on stdin with a line of JSON:
{"step_seconds": [...], "peak_rss_bytes": N, "first_step_seconds": S}; first_step_seconds runs from the moment the
parent gave as HEARTH_BENCH_SPAWNED (time.monotonic) to the end of the first step.
"""

import argparse
import json
import os
import resource
import sys
import time

import torch

from models import MODELS, synthetic_batch

VARIANTS = ("eager-nchw", "eager-channels_last", "compile-nchw", "compile-channels_last")
LEARNING_RATE = 0.01


def parse_case(case):
    """'resnet18-b64-bf16' -> ('resnet18', 64, 'bf16')."""
    model, batch, dtype = case.split("-")
    return model, int(batch[1:]), dtype


class Trainer:
    def __init__(self, case, variant):
        name, batch, dtype = parse_case(case)
        mode, layout = variant.split("-")
        torch.manual_seed(0)
        model = MODELS[name]()
        images, self.labels = synthetic_batch(name, batch)
        if layout == "channels_last":
            model = model.to(memory_format=torch.channels_last)
            images = images.to(memory_format=torch.channels_last)
        self.images = images
        self.parameters = list(model.parameters())
        self.model = torch.compile(model) if mode == "compile" else model
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16")
        self.use_optimizer({"fused": True})

    def use_optimizer(self, kind):
        self.optimizer = torch.optim.SGD(self.parameters, lr=LEARNING_RATE, momentum=0.9, **kind)

    def step(self):
        with self.autocast:
            loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def run(self, steps):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        return seconds

    def choose_optimizer(self):
        """Keeps the faster of the fused and the foreach update."""
        best = {}
        for kind in ({"fused": True}, {"foreach": True}):
            self.use_optimizer(kind)
            self.run(1)
            best[min(self.run(4))] = kind
        self.use_optimizer(best[min(best)])


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    spawned = float(os.environ.get("HEARTH_BENCH_SPAWNED", time.monotonic()))

    trainer = Trainer(options.case, options.variant)
    trainer.step()
    first_step_seconds = time.monotonic() - spawned
    trainer.choose_optimizer()
    for line in sys.stdin:
        seconds = trainer.run(json.loads(line)["run"])
        answer = {
            "step_seconds": seconds,
            "peak_rss_bytes": peak_rss_bytes(),
            "first_step_seconds": first_step_seconds,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
