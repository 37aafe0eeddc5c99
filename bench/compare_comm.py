"""`tools/bench comm`: sums and copies between processes, Hearth's by each transport and torch's gloo, alternating, in one run.

Each round starts all anew; medians are over the rounds. Writes bench/RESULTS-comm.md and prints, last, a line
`ratio TRANSPORT-COLLECTIVE-BYTES VALUE` per size: gloo's time over Hearth's. The bars are shm's.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare import ROOT, one_line, row

TRIES = 7
TRY_BYTES = 32 << 20
MOST_REPEATS = 1000
HEAD = ["transport", "collective", "bytes", "hearth (us)", "gloo (us)", "ratio", "hearth GB/s", "bus GB/s", "gloo GB/s", "of copying"]
# At least, from a MiB on: gloo's time over Hearth's, and Hearth's share of the rate of plain copies.
RATIO_BAR, COPY_BAR, BAR_BYTES = 3.0, 0.7, 1 << 20


def hearth_round(options, transport):
    command = [ROOT / "hearth", "bench", "comm", "--json", "--most", options.most]
    if transport == "mpi":
        start = ["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-n", options.ranks]
        command = [*start, *command, "--transport", "mpi"]
    else:
        command += ["--ranks", options.ranks]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    timings = {(transport, t["collective"], t["bytes"]): t["seconds"] for t in answer["timings"]}
    return answer["copy_bytes_per_second"], timings


def gloo_round(options, sizes):
    """The same calls on the same sizes; a process per rank, this script again."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--gloo-ranks", options.ranks, "--store", f"{folder}/store"]
        command += ["--sizes", ",".join(map(str, sizes))]
        ranks = []
        for rank in range(options.ranks):
            ranks.append(
                subprocess.Popen(
                    [str(part) for part in [*command, "--gloo-rank", rank]],
                    stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
                    text=True,
                )
            )
        out = ranks[0].communicate()[0]
        if any(rank.wait() for rank in ranks):
            sys.exit("expected gloo's ranks to end with status 0")
    return {(name, size): seconds for name, size, seconds in json.loads(out)}


def gloo_rank(options):
    import time

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    ranks, rank = options.gloo_ranks, options.gloo_rank
    dist.init_process_group("gloo", init_method=f"file://{options.store}", rank=rank, world_size=ranks)
    sizes = [int(size) for size in options.sizes.split(",")]
    data, other = torch.ones(max(sizes) // 4), torch.zeros(max(sizes) // 4)
    timings = []
    for name in ("all_reduce", "all_gather", "send"):
        for size in sizes:
            whole, part = data[: size // 4], data[: size // 4 // ranks]
            parts = list(other[: part.numel() * ranks].split(part.numel()))

            def call():
                if name == "all_reduce":
                    dist.all_reduce(whole)
                elif name == "all_gather":
                    dist.all_gather(parts, part)
                elif rank == 0:
                    dist.send(whole, ranks - 1)
                elif rank == ranks - 1:
                    dist.recv(whole, 0)

            repeats = min(MOST_REPEATS, max(1, TRY_BYTES // size))
            call()
            tries = []
            for _ in range(TRIES):
                dist.barrier()
                before = time.perf_counter()
                for _ in range(repeats):
                    call()
                dist.barrier()
                tries.append((time.perf_counter() - before) / repeats)
            timings.append((name, size, statistics.median(tries)))
    print(json.dumps(timings))
    dist.destroy_process_group()


def bus_bytes(name, size, ranks):
    share = (ranks - 1) / ranks
    return size * {"all_reduce": 2 * share, "send": 1}.get(name, share)


def parse_options():
    parser = argparse.ArgumentParser(prog="tools/bench comm", description="Hearth's collectives and gloo's.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--most", default="256MiB", help="largest array")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/RESULTS-comm.md")
    parser.add_argument("--gloo-ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--gloo-rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.command = sys.argv[1:]
    return options


def write_results(options, copy, hearth, gloo, path):
    import torch

    out = "# Sums and copies between processes\n\nMade by `tools/bench comm`; do not edit.\n\n"
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} processors, commit {one_line(['git', 'describe', '--always', '--dirty'])}",
        f"torch {torch.__version__}'s gloo; {options.ranks} processes of one thread each; {options.rounds} alternating rounds",
        f"Command: tools/bench comm {' '.join(options.command)}".rstrip(),
        f"Each process copies {copy / 1e9:.2f} GB/s in its own memory while the others do, outside the caches: what "
        '"of copying" is a share of',
    ]
    out += "".join(f"- {line}\n" for line in lines) + "\n" + row(HEAD) + row(["---"] * len(HEAD))
    for (transport, name, size), seconds in hearth.items():
        peer = gloo.get((name, size))
        cells = [transport, name, size, f"{seconds * 1e6:.1f}", f"{peer * 1e6:.1f}" if peer else "-"]
        cells += [f"{peer / seconds:.2f}" if peer else "-", f"{size / seconds / 1e9:.2f}"]
        cells += [f"{bus_bytes(name, size, options.ranks) / seconds / 1e9:.2f}"]
        cells += [f"{size / peer / 1e9:.2f}" if peer else "-", f"{size / seconds / copy:.0%}"]
        out += row(cells)
    path.write_text(out)


def main():
    options = parse_options()
    if options.gloo_ranks:
        gloo_rank(options)
        return
    copies, hearth, gloo = [], {}, {}
    transports = ["shm", "mpi"] if shutil.which("mpirun") else ["shm"]
    for _ in range(options.rounds):
        for transport in transports:
            copy, timings = hearth_round(options, transport)
            if transport == "shm":
                copies.append(copy)
            for key, seconds in timings.items():
                hearth.setdefault(key, []).append(seconds)
        for key, seconds in gloo_round(options, sorted({size for _, _, size in hearth})).items():
            gloo.setdefault(key, []).append(seconds)
    copy = statistics.median(copies)
    hearth = {key: statistics.median(seconds) for key, seconds in hearth.items()}
    gloo = {key: statistics.median(seconds) for key, seconds in gloo.items()}
    write_results(options, copy, hearth, gloo, options.out)
    print(f"wrote {options.out}")
    for (transport, name, size), seconds in hearth.items():
        if (name, size) in gloo:
            print(f"ratio {transport}-{name}-{size} {gloo[name, size] / seconds:.3f}")
    large = {size: t for (transport, name, size), t in hearth.items() if (transport, name) == ("shm", "all_reduce")}
    large = {size: seconds for size, seconds in large.items() if size >= BAR_BYTES}
    ratio = min(gloo["all_reduce", size] / seconds for size, seconds in large.items())
    share = min(size / seconds / copy for size, seconds in large.items())
    if transports == ["shm"]:
        print("SKIPPED: mpi: there is no mpirun here")
    print(f"bar all_reduce ratio {ratio:.3f} {RATIO_BAR} {'met' if ratio >= RATIO_BAR else 'missed'}")
    print(f"bar all_reduce copying {share:.3f} {COPY_BAR} {'met' if share >= COPY_BAR else 'missed'}")


if __name__ == "__main__":
    main()
