"""Cycles of AMD's GPUs from what the instruction emulator counts (tests/machine_code/counters.h).

A kernel takes as long as the unit that is busiest, or as its waves need when each waits for its own loads and only
the waves beside it fill the gap. Units are taken to overlap perfectly and caches to be warm, so this is a lower bound.

Checked (`tools/kernels --model`) with rocBLAS's own gfx1100 kernels for f16, executed on the same emulator, against rates that PyTorch
users publish for an RX 7900 XTX. At the boost clock the model says 97% of the WMMA peak for 4096^3 where 78 to 82% are published: SUSTAINED is
that ratio. What remains at 2048^3 and 1024^3 is about the same time, CALL_SECONDS, which is taken for a cost of the published
measurement and is no part of kernels here. Both are fitted to three sizes; that they mean what their names say is not known.
"""

import math
import re
from dataclasses import dataclass

MOST_WAVES = 16  # of a SIMD
VGPRS, VGPR_GRANULE = 1536, 24  # of a lane of a SIMD; gfx1100, gfx1101, gfx1151, gfx1200, gfx1201
LDS_BYTES = 128 << 10  # of a WGP: two compute units of two SIMDs
LDS_GRANULE = 1 << 10
MOST_BLOCKS = 32  # of a WGP
LINE = 128
# Of the whole GPU, a cycle and compute unit: 3 TB/s of an RX 7900 XTX.
L2_BYTES_A_CYCLE = 3e12 / 2.5e9 / 96
# Of the boost clock that matrix work leaves.
SUSTAINED = 0.82
CALL_SECONDS = 70e-6


@dataclass(frozen=True)
class Gpu:
    """AMD's published figures."""

    name: str
    target: str
    compute_units: int
    hertz: float
    bytes_per_second: float
    wmma_cycles: int  # of a SIMD: 16 x 16 x 16 in 16 bits

    def clock(self):
        return SUSTAINED * self.hertz

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
        "L2": kernel.block_lines / kernel.launches * LINE / (L2_BYTES_A_CYCLE * gpu.compute_units) * SUSTAINED,
        "DRAM": kernel.traffic_lines / kernel.launches * LINE / gpu.bytes_per_second * gpu.clock(),
        "issue": of_busiest(instructions) / busy_simds,
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
