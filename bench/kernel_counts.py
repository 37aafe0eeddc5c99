"""Cases of gpu_cases.py as the emulator counted them: the tables of bench/KERNELS.md, its bars, and what kernels may not do."""

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import gpu_model

LAUNCH_SECONDS = 5e-6  # between the kernels of a step, as in src/cost/device.cpp
# Passes of shared memory and lines of 128 bytes beside the least.
MOST = {"passes": 1.0, "lines": 1.1}
# By how much plans for the usual GPU (src/cost) may differ from the counters, either way.
MOST_APART = 1.25
EXCEPTIONS = Path(__file__).with_name("kernel_exceptions.json")
UNITS = {"peak": "% of peak by cycles", "tflops": "TFLOP/s", "bandwidth": "% of bandwidth", "mfu": "% MFU"}
STEPS = {"mfu", "seconds"}  # units of whole steps


@dataclass
class Counted:
    """One node of a case on one target."""

    flops: float
    bytes: float
    planned: float  # seconds on the usual GPU
    kernels: list
    times: int  # in the case

    def seconds(self, gpu):
        return self.times * gpu_model.seconds_of(self.kernels, gpu)

    def expected_seconds(self, gpu):
        """Returns the expected, shortest and longest time."""
        return [self.times * seconds for seconds in gpu_model.expected_seconds(self.kernels, gpu)]

    def launches(self):
        return self.times * sum(kernel.launches for kernel in self.kernels)


def read_node(text, times):
    node = re.search(r"^node \S+ flops=(\S+) bytes=(\S+) planned=(\S+)", text, re.M)
    # A view has no kernel.
    return Counted(*map(float, node.groups()), gpu_model.read_counted(text), times) if node else None


def read_cases(log, cases, target):
    """The nodes of each case that ran to its end, of a log with `== counted TARGET CASE.NUMBER` before each report."""
    reports = dict(re.findall(rf"^== counted {target} (\S+)\n(.*?)(?=^== |\Z)", log, re.M | re.S))
    found = {}
    for case in cases:
        texts = [reports.get(f"{case['name']}.{i}") for i in range(len(case["nodes"]))]
        if None not in texts:
            nodes = [read_node(text, times) for text, times in zip(texts, case["nodes"])]
            found[case["name"]] = [node for node in nodes if node]
    return found


def launch_seconds(nodes, unit):
    return LAUNCH_SECONDS * sum(node.launches() for node in nodes) if unit in STEPS else 0


def seconds_of(nodes, gpu, unit):
    return sum(node.seconds(gpu) for node in nodes) + launch_seconds(nodes, unit)


def rate_of(nodes, gpu, unit, seconds):
    """Returns the rate in the unit of the bar: TFLOP/s, percent of the bandwidth or of the matrix peak, or seconds."""
    if unit == "seconds":
        return seconds
    flops = sum(node.times * node.flops for node in nodes)
    if unit == "tflops":
        return flops / seconds / 1e12
    if unit == "bandwidth":
        return 100 * sum(node.times * node.bytes for node in nodes) / seconds / gpu.bytes_per_second
    return 100 * flops / seconds / gpu.peak_flops()


@dataclass
class Bar:
    name: str
    value: float  # bound by counters
    expected: list  # expected, best and worst rate by calibration.json
    unit: str
    wanted: float
    planned: float  # seconds that plans (src/cost) predict for gfx1100, divided by those by counters at the clock of plans

    def is_met(self):
        return self.value <= self.wanted if self.unit == "seconds" else self.value >= self.wanted

    def digits(self):
        return 2 if self.unit == "seconds" else 0

    def __str__(self):
        return f"{self.value:.2f} s" if self.unit == "seconds" else f"{self.value:.1f} {UNITS[self.unit]}"

    def expectation(self):
        expected, best, worst = (f"{rate:.{self.digits()}f}" for rate in self.expected)
        low, high = (best, worst) if self.unit == "seconds" else (worst, best)
        return f"{expected} ({low} to {high})"

    def target(self):
        return f"at most {self.wanted}" if self.unit == "seconds" else f"{self.wanted}"


def expected_rates(nodes, gpu, unit):
    """Returns the expected, best and worst rate in the unit of the bar."""
    sums = [sum(seconds) + launch_seconds(nodes, unit) for seconds in zip(*(node.expected_seconds(gpu) for node in nodes))]
    return [rate_of(nodes, gpu, unit, seconds) for seconds in sums]


def bars_of(cases, counted, gpu):
    """The bars whose cases are all counted; a value is of them together."""
    bars = {}
    for case in cases:
        bars.setdefault(case["bar"], []).append(case)
    made = []
    for name, of in bars.items():
        if all(case["name"] in counted for case in of):
            nodes = sum((counted[case["name"]] for case in of), [])
            unit = of[0]["unit"]
            counters = sum(node.seconds(gpu.at_plans_clock()) for node in nodes)
            made.append(Bar(name, rate_of(nodes, gpu, unit, seconds_of(nodes, gpu, unit)), expected_rates(nodes, gpu, unit), unit,
                            of[0]["target"], sum(node.times * node.planned for node in nodes) / counters))
    return made


def check_plans(bars):
    """Sentences on bars whose seconds plans get wrong."""
    return [f"{bar.name}: plans count on {bar.planned:.2f} times the seconds by counters, at most {MOST_APART} times either way"
            for bar in bars if not 1 / MOST_APART <= bar.planned <= MOST_APART]


@cache
def short_name(mangled):
    """`losses<bf16>` of the mangled name."""
    name = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    name = name.replace("(anonymous namespace)::", "").replace("hearth::rt::", "").replace("hearth::ops::", "")
    return re.search(r"(\w+(?:<[^(]*>)?)\(", name).group(1)


def rows_of(case, nodes, gpu):
    """A row for each kernel of a case, in the order of their time."""
    seconds = seconds_of(nodes, gpu, case["unit"])
    rate = f"{rate_of(nodes, gpu, case['unit'], seconds):.0f} {UNITS[case['unit']]}"
    kernels = [(k, *gpu_model.limit_of(k, gpu)) for node in nodes for k in node.kernels]
    kernels.sort(key=lambda row: -row[0].launches * row[2])
    for first, (k, limit, cycles) in enumerate(kernels):
        counts = [k.matrix, k.vector + k.quarter + k.double, k.scalar + k.scalar_load, k.shared, k.load + k.store, k.control]
        cells = ["" if first else case["name"], f"`{short_name(k.name)}`", *(f"{count / 1e6:.2f}" for count in counts),
                 f"{k.passes_of_least():.2f}" if k.passes else "", f"{k.lines_of_least():.2f}", f"{k.vgprs:.0f}", f"{k.scratch:.0f}", f"{k.lds:.0f}",
                 f"{k.occupancy():.0f}", f"{k.launches * cycles / 1e3:.0f}", limit,
                 f"{100 * k.launches * cycles / gpu.clock() / seconds:.0f}%", "" if first else rate]
        yield "| " + " | ".join(cells) + " |\n"


def step_rows(nodes, gpu):
    """The longest ops of a step: their time, share and rate."""
    ops = {}
    for node in nodes:
        name = " + ".join(short_name(k.name).split("<")[0] for k in node.kernels)
        sums = ops.setdefault(name, [0, 0, 0.0, 0.0])
        for i, value in enumerate((node.times, node.launches(), node.seconds(gpu), node.times * node.flops)):
            sums[i] += value
    total = sum(sums[2] for sums in ops.values())
    for name, (times, launches, seconds, flops) in sorted(ops.items(), key=lambda op: -op[1][2])[:12]:
        yield f"| {name} | {times} | {launches:.0f} | {1e3 * seconds:.1f} | {100 * seconds / total:.0f}% | {flops / seconds / 1e12:.1f} |\n"


def tables(cases, counted, target):
    """What the emulator counted for one target, as Markdown."""
    gpu = gpu_model.usual_gpu(target)
    text = f"\n## {target}, modeled as {gpu.name}\n\n"
    usual = target == "gfx1100"
    text += "| bar | bound | expected | bound wanted | seconds by plans / counters |\n| --- | --- | --- | --- | --- |\n"
    for bar in bars_of(cases, counted, gpu):
        text += f"| {bar.name} | {bar} | {bar.expectation()} | {bar.target() if usual else ''} | {f'{bar.planned:.2f}' if usual else ''} |\n"
    text += ("\n| case | kernel | matrix | vector | scalar | LDS | memory | control | passes / least | lines / least | VGPRs | scratch "
             "| LDS bytes | waves | kcycles | limit | share | rate |\n|" + " --- |" * 18 + "\n")
    for case in cases:
        if case["name"] in counted and case["unit"] not in STEPS:
            text += "".join(rows_of(case, counted[case["name"]], gpu))
    for case in cases:
        if case["name"] in counted and case["unit"] in STEPS:
            nodes = counted[case["name"]]
            seconds = seconds_of(nodes, gpu, "mfu")
            text += (f"\n{case['name']}: at least {1e3 * seconds:.0f} ms, {rate_of(nodes, gpu, 'mfu', seconds):.1f}% MFU\n\n"
                     "| kernels | nodes | launches | ms | share | TFLOP/s |\n|" + " --- |" * 6 + "\n")
            text += "".join(step_rows(nodes, gpu))
    return text


def excesses(cases, counted):
    """What kernels of the cases take beyond MOST, as {"CASE KERNEL": {"passes": 3.07}}."""
    found = {}
    for case in cases:
        if case["unit"] in STEPS:
            continue
        for node in counted.get(case["name"], []):
            for k in node.kernels:
                values = {"passes": k.passes_of_least(), "lines": k.lines_of_least()}
                # Several kernels of a case may share a name: the worst counts.
                for what, value in values.items():
                    if value > MOST[what] + 0.005:
                        over = found.setdefault(f"{case['name']} {short_name(k.name).split('<')[0]}", {})
                        over[what] = max(over.get(what, 0), round(value, 2))
    return found


def check_bounds(cases, counted, target):
    """Sentences on what exceeds both MOST and its exception, and on exceptions that are larger than they need be."""
    allowed = json.loads(EXCEPTIONS.read_text(encoding="utf-8")).get(target, {})
    found = excesses(cases, counted)
    bad, loose = [], []
    for name, over in found.items():
        for what, value in over.items():
            most = allowed.get(name, {}).get(what, MOST[what])
            if value > most + 0.01:
                bad.append(f"{target}: {name}: {what} {value} times the least, at most {most}")
    for name, over in allowed.items():
        for what, most in over.items():
            value = found.get(name, {}).get(what, MOST[what])
            if value < most - 0.01 and name.split()[0] in counted:
                loose.append(f"{target}: {name}: {what} are down to {value} from {most}: lower it in {EXCEPTIONS.name}")
    return bad, loose


def load_cases(folder):
    return json.loads((Path(folder) / "cases.json").read_text(encoding="utf-8"))
