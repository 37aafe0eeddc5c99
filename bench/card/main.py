"""`tools/card`: everything that is worth knowing of Hearth on the GPU that is here, part by part."""

import argparse
import datetime
import hashlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import traceback

import machine
import report
import sensors
from parts import PARTS, QUICK, QUICK_MINUTES
from work import ROOT, Missing, OutOfTime, Work, read_json

MOST_SECONDS = 540  # of a part
NO_GPU = 77


def parse_options():
    parser = argparse.ArgumentParser(
        prog="tools/card", description="Runs Hearth on the GPU that is here, in parts, and writes bench/GPU-NAME.md and .json. "
        "Parts that are done are not run again while the sources stay the same. Exit status: 1 where a part failed or was "
        "stopped, 77 without a GPU.",
    )
    parser.add_argument("--part", action="append", default=[], metavar="NAME", help="run this part alone; several with commas")
    parser.add_argument("--again", action="store_true", help="run parts that are done already, too")
    parser.add_argument("--list", action="store_true", help="the parts, their limits and how far they are; runs nothing")
    parser.add_argument("--quick", action="store_true", help=f"only the most important parts, with shorter limits, in {QUICK_MINUTES} minutes")
    parser.add_argument("--minutes", type=float, help=f"limit for all parts together; no part starts after it (40; with --quick {QUICK_MINUTES})")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="most for a part (%(default)s)")
    parser.add_argument("--build", type=pathlib.Path, help="a build made before, with hearth, its modules and test_card; builds nothing")
    parser.add_argument("--no-torch", action="store_true", help="Hearth alone, where torch is installed")
    parser.add_argument("--rehearse", action="store_true", help="on an emulated GPU, small; with build/cpu; needs --out")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the report (bench)")
    options = parser.parse_args()
    options.part = [name for names in options.part for name in names.split(",")]
    for name in options.part:
        if name not in PARTS:
            parser.error(f"expected parts among {', '.join(PARTS)}, got '{name}'")
    if options.quick and options.part:
        parser.error("--quick and --part exclude each other; remove one of them")
    options.minutes = options.minutes if options.minutes is not None else QUICK_MINUTES if options.quick else 40
    if options.rehearse and not options.out:
        parser.error("expected --out FOLDER with --rehearse")
    if not 0 < options.seconds <= MOST_SECONDS:
        parser.error(f"expected at most {MOST_SECONDS} for --seconds, got {options.seconds:g}")
    return options


def complete(options, card):
    """What follows from the options and the card."""
    options.built = options.build is not None or card.vendor == "emulated"
    options.build = (options.build or ROOT / "build/cpu").resolve()
    options.out = (options.out or ROOT / "bench").resolve()
    # A rehearsal has its own beside its report.
    options.logs = (options.out if options.rehearse else ROOT / "build/card") / (card.file_name + ".logs")
    for folder in (options.out, options.logs):
        folder.mkdir(parents=True, exist_ok=True)
    can, options.torch_words = look_for_torch(options)
    options.no_torch = not can


def look_for_torch(options):
    """Whether it can be measured, and which it is or why not; in a process of its own, as it may take the GPU's memory."""
    if options.no_torch:
        return False, "left out"
    if not importlib.util.find_spec("torch"):
        return False, f"{sys.executable} has none"
    script = "import torch; print(torch.__version__, torch.version.cuda or torch.version.hip, torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    version, runtime, finds = (done.stdout.split() or ["", "", ""])[:3]
    if finds != "True" and not options.rehearse:
        return False, f"torch {version} finds no GPU"
    return True, f"{version}, {runtime}"


def fingerprint():
    """Of the sources that the programs are built from."""
    found = hashlib.sha256()
    folders = [sorted((ROOT / folder).rglob("*")) for folder in ("cmake", "src", "tests/gpu")]
    for file in [ROOT / "CMakeLists.txt", *sum(folders, [])]:
        if file.is_file():
            found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def commit():
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.stdout.strip() or "unknown"


class State:
    """Every part's result, in a JSON file that is whole at any time, and the report made of it."""

    def __init__(self, card, options):
        self.card, self.path = card, options.out / f"{card.file_name}.json"
        self.sources, self.commit = fingerprint(), commit()
        self.parts = (read_json(self.path) or {}).get("parts", {})

    def done(self, name):
        part = self.parts.get(name)
        return part is not None and part["status"] == "done" and part["sources"] == self.sources

    def seconds_used(self, names):
        """By those that need not run again."""
        return sum(self.parts[name]["seconds"] for name in names if self.done(name))

    def keep(self, name, result, seconds):
        self.parts[name] = {
            **result, "seconds": round(seconds, 1), "sources": self.sources, "commit": self.commit,
            "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
        }
        card = {key: getattr(self.card, key) for key in ("name", "vendor", "architecture")}
        figures = {key: value for part in self.parts.values() for key, value in part["figures"].items()}
        bars = [{"name": b.figure, "value": b.value, "limit": b.limit, "result": b.verdict}
                for b in report.bars_of(self.card, figures)]
        whole = self.path.with_suffix(".json.new")
        whole.write_text(json.dumps({"card": card, "bars": bars, "parts": self.parts}, indent=1) + "\n")
        whole.replace(self.path)
        self.path.with_suffix(".md").write_text(report.to_markdown(self.card, self.parts, PARTS))


def run_part(name, seconds, card, options, state):
    """Whatever happens in it ends it alone."""
    log = options.logs / f"{name}.log"
    print(f"== {name}: {PARTS[name][1]}; at most {seconds:.0f} s, log in {log}", flush=True)
    work = Work(card, options, log, seconds, lambda: state.keep(name, work.result, work.seconds()))
    work.keep()
    watched = sensors.Sensors(card, options.logs / "sensors.csv", name)
    result, status = work.result, None
    try:
        PARTS[name][2](work)
        status = "failed" if result["wrong"] else "done"
    except OutOfTime as late:
        status, result["why"] = "stopped", str(late)[:300]
    except Missing as missing:
        status, result["why"] = "skipped", str(missing)
    except Exception as error:  # A part that cannot go on must not stop the others.
        with log.open("a") as file:
            traceback.print_exc(file=file)
        status, result["why"] = "failed", (str(error).splitlines() or [type(error).__name__])[0][:300]
    finally:
        result["sensors"] = watched.summary()
        if status:
            result["status"] = status
        work.keep()
    why = f": {result['why']}" if result.get("why") else ""
    print(f"   {status} in {work.seconds():.0f} s{why}", flush=True)


def run_parts(names, card, options, state):
    used = 0 if options.again else state.seconds_used(names)
    for name in names:
        if state.done(name) and not options.again:
            print(f"== {name}: done before; --again runs it again", flush=True)
            continue
        most = min(QUICK[name] if options.quick else PARTS[name][0], options.seconds)
        if not options.part:
            most = min(most, options.minutes * 60 - used)
        if most < 1:
            print(f"== {name}: not run: the {options.minutes:g} minutes are used up; --part {name} runs it", flush=True)
            continue
        run_part(name, most, card, options, state)
        used += state.parts[name]["seconds"]


def list_parts(state):
    for name, (seconds, what, _) in PARTS.items():
        part = state.parts.get(name) if state else None
        status = "not run yet" if part is None else part["status"]
        if part and part["sources"] != state.sources:
            status += ", by other sources"
        print(f"{name:<20} {seconds:4} s  {status:<12} {what}")


def conclude(names, state):
    """The last lines, and the exit status."""
    kept = [name for name in names if name in state.parts]
    bad = [name for name in kept if state.parts[name]["status"] in ("failed", "stopped", "running")]
    figures = {key: value for part in state.parts.values() for key, value in part["figures"].items()}
    for bar in report.bars_of(state.card, figures):
        if bar.value is not None:
            print(f"bar {bar.figure.replace(' ', '_')} {bar.value:.3f} {bar.limit} {bar.verdict}")
    print(f"wrote {state.path.with_suffix('.md')} and {state.path.name}")
    counts = [sum(state.parts[name]["status"] == status for name in kept) for status in ("done", "skipped")]
    print(f"{counts[0]} parts done, {len(bad)} not right{': ' * bool(bad)}{', '.join(bad)}, "
          f"{counts[1] + len(names) - len(kept)} not run")
    return 1 if bad else 0


def main():
    options = parse_options()
    card = machine.emulated_card() if options.rehearse else machine.find_card()
    if card is None and options.list:
        return list_parts(None)
    if card is None:
        print("SKIPPED: a GPU: there is none here that the system or nvidia-smi knows; --rehearse --out FOLDER needs none")
        return NO_GPU
    complete(options, card)
    state = State(card, options)
    if options.list:
        return list_parts(state)
    names = options.part or list(QUICK if options.quick else PARTS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Ends what the part has started, too.
    run_parts(names, card, options, state)
    return conclude(names, state)


if __name__ == "__main__":
    sys.exit(main())
