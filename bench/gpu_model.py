"""Time of kernels on AMD's GPUs from the counters of the instruction emulator (tests/machine_code/counters.h): bound and expected time.

The bound: a kernel takes as long as its busiest unit at the boost clock, or as long as its waves need if each waits for its own
loads and only the waves alongside fill the gap. Units overlap perfectly, caches are warm, and DRAM reaches AMD's rate.

The expected time is the bound times a factor by class of kernel, with an error bar. bench/calibrate.py fits the factors to
half of the kernels of other projects with published rates (calibration.json), and checks them on the other half. One of these
kernels is 5% faster than its bound: its loads hit L0, and the emulator gives each load the latency of L2.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

MOST_WAVES = 16  # of a SIMD
VGPRS, VGPR_GRANULE = 1536, 24  # of a lane of a SIMD; gfx1100, gfx1101, gfx1151, gfx1200, gfx1201
LDS_BYTES = 128 << 10  # of a WGP: two compute units of two SIMDs
LDS_GRANULE = 1 << 10
MOST_BLOCKS = 32  # of a WGP
LINE = 128
# Of the whole GPU, a cycle and compute unit: 3 TB/s of an RX 7900 XTX.
L2_BYTES_A_CYCLE = 3e12 / 2.5e9 / 96
# Max instructions that a SIMD issues per cycle, from different waves and for different units (AMD's RDNA whitepaper).
ISSUES = 4
# Fraction of the bound's rate that plans (src/cost) assume for kernels that memory does not limit.
PLANS_CLOCK = 0.82
CALIBRATION = Path(__file__).with_name("calibration.json")


@dataclass(frozen=True)
class Gpu:
    """AMD's published figures."""

    name: str
    target: str
    compute_units: int
    hertz: float
    bytes_per_second: float
    wmma_cycles: int  # of a SIMD: 16 x 16 x 16 in 16 bits
    clock_share: float = 1.0

    def clock(self):
        return self.clock_share * self.hertz

    def at_plans_clock(self):
        return replace(self, clock_share=PLANS_CLOCK)

    def peak_flops(self):
        return 2 * 16**3 / self.wmma_cycles * 2 * self.compute_units * self.hertz


GPUS = [
    Gpu("rx7900xtx", "gfx1100", 96, 2.5e9, 960e9, 32),
    Gpu("rx7900xt", "gfx1100", 84, 2.394e9, 800e9, 32),
    Gpu("rx9070xt", "gfx1201", 64, 2.97e9, 640e9, 16),
]


def usual_gpu(target):
    """What plans are for where no GPU is named, or the one that there is."""
    return [gpu for gpu in GPUS if gpu.target == target][-1]


@dataclass
class Kernel:
    """One kernel of a case: what `counted` says of all its blocks in all its launches."""

    name: str
    counted: dict

    def __getattr__(self, name):
        return self.counted[name]

    def passes_of_least(self):
        return self.passes / self.least_passes if self.least_passes else 1.0

    def lines_of_least(self):
        return self.lines / self.least_lines if self.least_lines else 1.0

    def waves_of_block(self):
        return self.waves / self.blocks

    def simds_of_unit(self):
        """A block's waves stay in one WGP, or in one compute unit."""
        return 4 if self.wgp else 2

    def resident(self):
        """Blocks that a WGP or compute unit holds at a time."""
        simds = self.simds_of_unit()
        registers = math.ceil(self.vgprs / VGPR_GRANULE) * VGPR_GRANULE
        slots = simds * min(MOST_WAVES, VGPRS // registers)
        by_lds = MOST_BLOCKS
        if self.lds:
            by_lds = LDS_BYTES * simds // 4 // (math.ceil(self.lds / LDS_GRANULE) * LDS_GRANULE)
        return max(1, min(int(slots // self.waves_of_block()), by_lds, MOST_BLOCKS * simds // 4))

    def occupancy(self):
        """Waves of a SIMD."""
        return self.resident() * self.waves_of_block() / self.simds_of_unit()


def read_counted(text):
    """The kernels that ran, of a report of the emulator, which names one for each code object that has it."""
    kernels, name = {}, ""
    for line in text.splitlines():
        if line.startswith("kernel "):
            name = line.split(" ", 2)[2]
        elif line.startswith("counted "):
            counted = {key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", line)}
            kernels[name] = Kernel(name, counted)
    return list(kernels.values())


def cycles_by_limit(kernel, gpu):
    """Cycles of one launch by what could limit it. Blocks are whole: the WGP or compute unit with the most of them decides."""
    blocks = kernel.blocks / kernel.launches
    simds = kernel.simds_of_unit()
    most = math.ceil(blocks / (2 * gpu.compute_units / simds))
    at_once = min(most, kernel.resident())
    busy_simds = min(simds, kernel.waves_of_block() * at_once)
    busy_units = min(simds / 2, busy_simds)

    def of_busiest(count):
        return most * count / kernel.blocks

    # WMMA runs on the vector unit's own multipliers: both take its time.
    matrix = gpu.wmma_cycles * kernel.matrix
    vector = kernel.vector + 4 * kernel.quarter + 16 * kernel.double
    instructions = sum(getattr(kernel, unit) for unit in UNITS)
    return {
        "vector unit": of_busiest(matrix + vector) / busy_simds,
        "LDS": of_busiest(kernel.passes) / busy_units,
        "L0": of_busiest(kernel.lines) / busy_units,
        "L2": kernel.block_lines / kernel.launches * LINE / (L2_BYTES_A_CYCLE * gpu.compute_units) * gpu.clock_share,
        "DRAM": kernel.traffic_lines / kernel.launches * LINE / gpu.bytes_per_second * gpu.clock(),
        "scalar unit": of_busiest(kernel.scalar) / busy_simds,
        "issue": of_busiest(instructions) / busy_simds / ISSUES,
        "latency": math.ceil(most / kernel.resident()) * kernel.wave_cycles / kernel.waves,
    }


UNITS = ["scalar", "vector", "quarter", "double", "matrix", "shared", "load", "store", "scalar_load", "control"]


def limit_of(kernel, gpu):
    """What limits a launch, and its cycles."""
    cycles = cycles_by_limit(kernel, gpu)
    limit = max(cycles, key=cycles.get)
    return limit, cycles[limit]


def seconds_of(kernels, gpu):
    """Of kernels that run one after another."""
    return sum(k.launches * limit_of(k, gpu)[1] for k in kernels) / gpu.clock()


# Classes of kernels with matrix instructions, by name; others with such instructions are convolutions.
CLASSES = {"attention": r"attend|gradient_of_(queries|keys)", "quantized": r"multiply_quantized", "matmul": r"multiply_tiles"}


def class_of(kernel, gpu):
    if limit_of(kernel, gpu)[0] == "latency":
        return "latency"
    if not kernel.matrix:
        return "memory"
    return next((name for name, pattern in CLASSES.items() if re.search(pattern, kernel.name)), "convolution")


@dataclass(frozen=True)
class Fit:
    """Expected time of a class divided by its bound, and the error bar: the factor by which the time may be longer or shorter."""

    factor: float
    error: float


@cache
def fits():
    return {name: Fit(**fit) for name, fit in json.loads(CALIBRATION.read_text(encoding="utf-8"))["fits"].items()}


def expected_seconds(kernels, gpu):
    """Returns the expected, shortest and longest time of kernels that run one after another, within their error bars."""
    sums = [0.0, 0.0, 0.0]
    for kernel in kernels:
        fit = fits()[class_of(kernel, gpu)]
        seconds = fit.factor * seconds_of([kernel], gpu)
        for i, value in enumerate((seconds, seconds / fit.error, seconds * fit.error)):
            sums[i] += value
    return sums
