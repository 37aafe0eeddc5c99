"""Temperature, power and clocks of a GPU while something runs."""

import csv
import threading
import time

import machine

SECONDS = 2
NAMES = ("temperature", "power", "core clock", "memory clock", "busy", "memory")
UNITS = dict(zip(NAMES, ("C", "W", "MHz", "MHz", "%", "GiB")))
NVIDIA_FIELDS = ("temperature.gpu", "power.draw", "clocks.sm", "clocks.mem", "utilization.gpu", "memory.used")
NVIDIA_FACTORS = (1, 1, 1, 1, 1, 2**-10)
THROTTLE = "clocks_throttle_reasons.active"
REASONS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat (driver)", 0x40: "heat", 0x80: "power brake"}


def number(text, factor=1.0):
    """None for [N/A] and the like."""
    try:
        return float(text) * factor
    except ValueError:
        return None


def read_nvidia():
    """A value or None by name, and why the GPU holds its clocks down."""
    rows = machine.nvidia_rows(*NVIDIA_FIELDS, THROTTLE) or machine.nvidia_rows(*NVIDIA_FIELDS)
    if not rows:
        return {}, []
    values = {name: number(*pair) for name, *pair in zip(NAMES, rows[0], NVIDIA_FACTORS)}
    mask = int(rows[0][-1], 16) if rows[0][-1].startswith("0x") else 0
    return values, [reason for bit, reason in REASONS.items() if mask & bit]


def read_amd(folder):
    def value(path, factor=1.0):
        return number(machine.line_of(path), factor)

    hwmon = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder)
    temperatures = [value(path, 1e-3) for path in hwmon.glob("temp*_input")]
    power = value(hwmon / "power1_average", 1e-6)
    values = {
        "temperature": max((t for t in temperatures if t is not None), default=None),
        "power": value(hwmon / "power1_input", 1e-6) if power is None else power,
        "core clock": value(hwmon / "freq1_input", 1e-6),
        "memory clock": value(hwmon / "freq2_input", 1e-6),
        "busy": value(folder / "gpu_busy_percent"),
        "memory": value(folder / "mem_info_vram_used", 2**-30),
    }
    return values, []


def read(card):
    if card.vendor == "nvidia":
        return read_nvidia()
    return read_amd(card.folder) if card.vendor == "amd" else ({}, [])


class Sensors:
    """Samples a GPU in the background, each sample a line of a CSV file, until summary() is asked for."""

    def __init__(self, card, path, part, seconds=SECONDS):
        self.card, self.path, self.part, self.seconds = card, path, part, seconds
        self.samples, self.reasons, self.ended = [], set(), threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(["time", "part", *(f"{name} ({UNITS[name]})" for name in NAMES), "held down by"])
            while True:
                values, reasons = read(self.card)
                if not any(value is not None for value in values.values()):
                    return
                self.samples.append(values)
                self.reasons.update(reasons)
                writer.writerow([f"{time.time():.0f}", self.part, *map(values.get, NAMES), " and ".join(reasons)])
                file.flush()
                if self.ended.wait(self.seconds):
                    return

    def summary(self):
        """{name: [least, mean, most]} and the reasons; empty where nothing could be read."""
        self.ended.set()
        self.thread.join()
        found = {}
        for name in NAMES:
            values = [sample[name] for sample in self.samples if sample.get(name) is not None]
            if values:
                found[name] = [min(values), sum(values) / len(values), max(values)]
        return found | ({"held down by": sorted(self.reasons)} if found else {})
