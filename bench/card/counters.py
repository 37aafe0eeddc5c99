"""What the vendor's profiler counts of kernels: Nsight Compute, or rocprofv3."""

import csv
import statistics

import machine
import measure
from work import TIMED_OUT, Missing

MOST_ROWS = 15
NVIDIA_METRICS = {
    "gpu__time_duration.sum": "time",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "of the arithmetic",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "of the bandwidth",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank conflicts",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
}
LAUNCHES = 60
KERNELS = "regex:multiply|attend|gradient|norm"
NOT_ALLOWED = "ERR_NVGPUCTRPERM"


def counters(work):
    {"nvidia": nvidia, "amd": amd}.get(work.card.vendor, none)(work)


def none(_):
    raise Missing("a profiler of an emulated GPU; tools/kernels has its counters")


def step(work):
    return [work.program(), "bench", measure.LLAMA[0], "--device", work.card.device, "--steps", 1]


def nvidia(work):
    profiler = machine.tool("ncu")
    if not profiler:
        raise Missing("ncu (Nsight Compute): it comes with cuda-toolkit")
    done = work.run(
        profiler, "--csv", "--clock-control", "none", "-c", LAUNCHES, "-k", KERNELS, "--metrics", ",".join(NVIDIA_METRICS),
        *step(work),
    )
    if NOT_ALLOWED in done.text:
        raise Missing("leave to read the GPU's counters: NVreg_RestrictProfilingToAdminUsers=0, or root")
    rows = nvidia_rows(done.text)
    if not rows:
        return work.wrong(f"ncu ended with status {done.status} and counted nothing: {done.last_line()}")
    work.table("Kernels of a step (means)", ["kernel", "launches", *NVIDIA_METRICS.values()], rows)
    work.right(f"ncu counted {len(rows)} kernels")


def nvidia_rows(said):
    """A row for each kernel, of ncu's line for each launch and metric."""
    lines = said.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found = {}
    for cells in csv.DictReader(line for line in lines[begin:] if line.startswith('"')):
        values = found.setdefault(cells["Kernel Name"][:100], {}).setdefault(cells["Metric Name"], [])
        values.append((float(cells["Metric Value"].replace(",", "") or "nan"), cells["Metric Unit"]))
    rows = []
    for kernel, metrics in found.items():
        means = [metrics.get(name) for name in NVIDIA_METRICS]
        texts = [f"{statistics.fmean(v for v, _ in m):.4g} {m[0][1]}".strip() if m else "-" for m in means]
        rows.append([kernel, str(max(map(len, metrics.values()))), *texts])
    return rows


def amd(work):
    profiler = machine.tool("rocprofv3")
    if not profiler:
        raise Missing("rocprofv3: it comes with ROCm 6.2 or later")
    folder = work.folder("rocprofv3")
    work.run("rm", "-rf", folder)
    done = work.run(
        profiler, "--kernel-trace", "--stats", "--output-format", "csv", "-d", folder, "-o", "step", "--", *step(work)
    )
    rows = [row for file in folder.rglob("*kernel_stats.csv") for row in csv.DictReader(file.read_text().splitlines())]
    if not rows:
        late = "was stopped" if done.status == TIMED_OUT else f"ended with status {done.status}"
        return work.wrong(f"rocprofv3 {late} and wrote no kernel_stats.csv: {done.last_line()}")
    rows.sort(key=lambda row: -float(row["TotalDurationNs"]))
    cells = [[row["Name"][:100], row["Calls"], f"{float(row['AverageNs']) * 1e-3:.1f}", f"{float(row['Percentage']):.1f}"]
             for row in rows[:MOST_ROWS]]
    work.table("Kernels of a step, by time", ["kernel", "launches", "mean (us)", "share (%)"], cells)
    work.right(f"rocprofv3 timed {len(rows)} kernels")
