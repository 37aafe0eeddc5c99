#!/usr/bin/env python3
"""Calibrates gpu_model.py on kernels of other projects whose rates on an RX 7900 XTX are published.

calibrate.py         fits to the counters in calibration.json and prints the errors; fails if the stored fit differs
calibrate.py runs    prints the point, code object and arguments of each run of library_kernels (`tools/kernels --model`)
calibrate.py LOG     fits to the counters of a log of these runs, with `== point NAME` before each; fails if a factor differs from the
                     stored one by more than MAX_CHANGE; --store LOG stores counters and fit instead

Model of a published time: factor of the kernel's class * bound + overhead per call of its source. Factors and overheads are
fitted to half of the points; the error bar of a class is the root mean square error of the held-out half, as a factor.
"""

import json
import math
import re
import sys
from functools import cache

import gpu_model

GPU = next(gpu for gpu in gpu_model.GPUS if gpu.name == "rx7900xtx")
# Classes without a kernel whose rate is published: they get the factor of the most similar class, and the largest error bar.
LIKE = {"convolution": "matmul", "quantized": "matmul"}
STEPS = 60
MAX_CHANGE = 1.05


def load():
    return json.loads(gpu_model.CALIBRATION.read_text(encoding="utf-8"))


def save(data):
    """Writes calibration.json with one line per point and object, for readable diffs."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list):
            parts.append(f'"{key}": [\n' + ",\n".join(json.dumps(item) for item in value) + "\n]")
        else:
            parts.append(f'"{key}": {{\n' + ",\n".join(f'"{name}": {json.dumps(item)}' for name, item in value.items()) + "\n}")
    gpu_model.CALIBRATION.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def kernels_of(counted):
    return gpu_model.read_counted(f"kernel 0 foreign\n{counted}")


@cache
def modeled(counted):
    """Returns the bound of a kernel in seconds, and the resource that limits it."""
    kernel = kernels_of(counted)[0]
    return gpu_model.seconds_of([kernel], GPU), gpu_model.limit_of(kernel, GPU)[0]


def bound_of(point):
    return modeled(point["counted"])[0]


def class_of(point):
    """Returns the class of the point's work, or "latency" if the latency of loads limits its kernel in the model."""
    limit = modeled(point["counted"])[1]
    return limit if limit == "latency" else point["class"]


def published_seconds(point):
    """Returns the time at the mean of the published rates."""
    return point["work"] / (sum(point["published"]) / len(point["published"])) / 1e12


def predicted_seconds(point, fit):
    return fit["factors"][class_of(point)] * bound_of(point) + fit["calls"].get(point["source"], 0)


def error_of(point, fit):
    """Returns log(predicted time / published time)."""
    return math.log(predicted_seconds(point, fit) / published_seconds(point))


def lowest(loss, low, high):
    """Returns the argument in [low, high] that minimizes a function with one minimum (golden-section search)."""
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return (low + high) / 2


def fit_to(points, sources):
    """Returns factors by class and seconds per call by source that minimize the squared errors (coordinate descent)."""
    fit = {"factors": {class_of(point): 1.0 for point in points}, "calls": {name: 0.0 for name, source in sources.items() if source["call"]}}
    searches = [("factors", key, 0.5, 5.0) for key in fit["factors"]] + [("calls", key, 0.0, 1e-2) for key in fit["calls"]]
    for _ in range(STEPS):
        for part, key, low, high in searches:

            def loss(value, part=part, key=key):
                fit[part][key] = value
                return sum(error_of(point, fit) ** 2 for point in points)

            fit[part][key] = lowest(loss, low, high)
    return fit


def rms(errors):
    return math.exp(math.sqrt(sum(error**2 for error in errors) / len(errors)))


def fits_of(points, fit):
    """Returns the factor of each class, and its error bar from the held-out points."""
    found = {}
    for name, factor in fit["factors"].items():
        errors = [error_of(point, fit) for point in points if class_of(point) == name and point["held_out"]]
        found[name] = {"factor": round(factor, 3), "error": round(rms(errors), 3) if errors else 0}
    worst = max(item["error"] for item in found.values())
    found |= {name: {"factor": found[like]["factor"], "error": 0} for name, like in LIKE.items()}
    return {name: item | {"error": item["error"] or worst} for name, item in found.items()}


def report(points, fit, fits):
    print("| point | class | published | bound | predicted | error | |\n|" + " --- |" * 7)
    for point in points:
        rates = [point["work"] / seconds / 1e12 for seconds in (bound_of(point), predicted_seconds(point, fit))]
        published = " to ".join(f"{rate:g}" for rate in dict.fromkeys(point["published"]))
        print(f"| {point['name']} | {class_of(point)} | {published} | {rates[0]:.3g} | {rates[1]:.3g} | "
              f"{100 * (math.exp(-error_of(point, fit)) - 1):+.0f}% | {'held out' if point['held_out'] else 'fit'} |")
    for name, seconds in fit["calls"].items():
        print(f"a call of {name}: {1e6 * seconds:.0f} us")
    for name, item in fits.items():
        halves = []
        for held_out in (False, True):
            errors = [error_of(point, fit) for point in points if (class_of(point), point["held_out"]) == (name, held_out)]
            halves.append(f"{100 * (rms(errors) - 1):.0f}% on {len(errors)}" if errors else "none")
        print(f"{name}: {item['factor']:.2f} times the bound; errors: fit {halves[0]}, held out {halves[1]}")
    print(f"errors of one factor for all classes: held out {100 * (rms(single_errors(points)) - 1):.0f}%; "
          f"by class {100 * (rms([error_of(point, fit) for point in points if point['held_out']]) - 1):.0f}%")


def single_errors(points):
    """Returns the held-out errors of a simpler model, for comparison: 0.82 of the boost clock for all kernels, and 70 us per call."""
    return [math.log((bound_of(point) / 0.82 + 70e-6) / published_seconds(point)) for point in points if point["held_out"]]


def store(data, log):
    """Sets the counters of each point to those of its fastest kernel in the log; points that the log lacks are unchanged."""
    reports = dict(re.findall(r"^== point (.*)\n((?:(?!== ).*\n?)*)", log, re.M))
    for point in data["points"]:
        lines = re.findall(r"^counted .*", reports.get(point["name"], ""), re.M)
        if lines:
            point["counted"] = min(lines, key=lambda line: gpu_model.seconds_of(kernels_of(line), GPU))
        else:
            print(f"SKIPPED: {point['name']}: no counters in the log; its stored counters are used")


def check(found, stored, log):
    """Fails if the fit differs from the stored one, or, with a log (of any compiler), if a factor differs by more than MAX_CHANGE."""
    limit = MAX_CHANGE if log else 1.0
    changed = [f"{name}: {fit['factor']} times the bound, stored {stored[name]['factor']}" for name, fit in found.items()
               if not 1 / limit <= fit["factor"] / stored[name]["factor"] <= limit]
    if changed or not log and found != stored:
        sys.exit(f"calibration.json: the stored fit is not the fit to the counters ({'; '.join(changed) or found}); run tools/kernels --model --store")


def main():
    data = load()
    if sys.argv[1:] == ["runs"]:
        for point in data["points"]:
            for name, words in point["runs"]:
                print(f"{point['name']}\t{name}\t{words}")
        return
    log = sys.argv[-1] if sys.argv[1:] else None
    if log:
        with open(log, encoding="utf-8", errors="replace") as file:
            store(data, file.read())
    fit = fit_to([point for point in data["points"] if not point["held_out"]], data["sources"])
    fits = fits_of(data["points"], fit)
    report(data["points"], fit, fits)
    if sys.argv[1:2] == ["--store"]:
        save(data | {"fits": fits})
    else:
        check(fits, data["fits"], log)


if __name__ == "__main__":
    main()
