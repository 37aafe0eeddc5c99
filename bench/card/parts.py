"""What `tools/card` runs, part by part: the machine, the build, the tests and a first training."""

import json
import os
import pathlib
import platform
import re

import counters
import machine
import measure
import self_test
from work import ROOT, TIMED_OUT, Missing

SHARDS = 8
MOST_NAMED = 12
LEAST_ACCURACY = 95  # percent; the CPU's demo reaches 98
# Runs that are cut off in the middle and go on, by what they train.
RESUMED = {"a classifier": "demo", "a segmenter": "segment-demo", "a detector": "detect-demo"}
HALF, FEW_HALF = 10, 1  # steps
NVIDIA_FACTS = {
    "driver": "driver_version", "memory (MiB)": "memory.total", "power limit (W)": "power.limit",
    "power limit, by default (W)": "power.default_limit", "power limit, at most (W)": "power.max_limit",
    "core clock, at most (MHz)": "clocks.max.sm", "memory clock, at most (MHz)": "clocks.max.mem",
    "PCIe generation": "pcie.link.gen.current", "PCIe generation, at most": "pcie.link.gen.max",
    "PCIe lanes": "pcie.link.width.current", "PCIe lanes, at most": "pcie.link.width.max",
    "persistence mode": "persistence_mode", "ECC": "ecc.mode.current", "MIG": "mig.mode.current",
}
# Tools of compute-sanitizer: what each finds, and the tests that run under it.
CHECKERS = {
    "memcheck": ("accesses out of bounds", "*"),
    "racecheck": ("races in shared memory", "*Matmul*:*Products*:*GpuKernel*"),
    "initcheck": ("memory that is read before it is written", "*GpuKernel*"),
}


# ------------------------------------------------------------------------------------------------ the machine


def environment(work):
    rows = [["GPU", work.card.name], ["architecture", work.card.architecture or "not known"]]
    rows += {"nvidia": nvidia_facts, "amd": amd_facts}.get(work.card.vendor, lambda _: [])(work)
    rows += system_facts(work)
    work.table("The machine", ["what", "value"], rows)
    if not work.card.architecture:
        work.wrong("the system does not say the GPU's architecture; HEARTH_GPU_ARCHITECTURES has to name it")
    facts = dict(rows)
    lanes, most = facts.get("PCIe lanes"), facts.get("PCIe lanes, at most")
    if lanes and most and lanes != most:
        work.missing(f"PCIe x{lanes} of x{most}: data between host and GPU take longer")
    work.right(f"the system sees {work.card.name}, {work.card.architecture or 'architecture not known'}")


def nvidia_facts(work):
    rows = []
    for name, field in NVIDIA_FACTS.items():
        found = machine.nvidia_rows(field)
        if found and found[0][0] not in ("[N/A]", ""):
            rows.append([name, found[0][0]])
    work.run(machine.tool("nvidia-smi"), "-q", seconds=20)
    busy = machine.output_of("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader").split("\n")
    if any(busy):
        work.missing(f"the GPU to itself: {sum(map(bool, busy))} other programs use it, so times are not its best")
    return rows


def amd_facts(work):
    folder = work.card.folder
    hwmon = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder)
    driver = machine.line_of(pathlib.Path("/sys/module/amdgpu/version")) or f"of Linux {platform.release()}"
    places = {
        "power limit (W)": (hwmon / "power1_cap", 1e-6), "power limit, at most (W)": (hwmon / "power1_cap_max", 1e-6),
        "memory (GiB)": (folder / "mem_info_vram_total", 2**-30),
    }
    rows = [["driver", f"amdgpu {driver}"]]
    rows += [[name, f"{int(text) * factor:.4g}"] for name, (path, factor) in places.items()
             if (text := machine.line_of(path)).isdigit()]
    texts = {
        "PCIe lanes": "current_link_width", "PCIe lanes, at most": "max_link_width", "PCIe speed": "current_link_speed",
        "performance level": "power_dpm_force_performance_level", "VBIOS": "vbios_version",
    }
    rows += [[name, text] for name, file in texts.items() if (text := machine.line_of(folder / file))]
    for command in (("rocm-smi", "--showallinfo"), ("rocminfo",)):
        if machine.tool(command[0]):
            work.run(machine.tool(command[0]), *command[1:], seconds=20)
        else:
            work.missing(command[0])
    return rows


def system_facts(work):
    release = pathlib.Path("/etc/os-release")
    name = re.search(r'PRETTY_NAME="?([^"\n]*)', release.read_text()) if release.exists() else None
    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    rows = [["system", f"{name[1] if name else 'unknown'}, Linux {platform.release()}"]]
    rows += [["processor", f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} threads"]]
    rows += [["host memory (GiB)", f"{memory:.0f}"]]
    rocm = machine.line_of(pathlib.Path("/opt/rocm/.info/version"))
    compilers = {"nvcc": r"release [\d.]+", "hipcc": r"HIP version.*", "g++": r".*"}
    for compiler, pattern in compilers.items():
        found = re.search(pattern, machine.output_of(compiler, "--version"))
        rows += [[compiler, found[0]]] if found else []
    return rows + ([["ROCm", rocm]] if rocm else []) + [["torch", work.options.torch_words]]


# ------------------------------------------------------------------------------------------------ the build


def build(work):
    if work.options.built:
        work.right(f"{work.options.build} was built before")
    else:
        build_here(work)
    said = work.run(work.program(), "doctor", "--json")
    try:
        doctor = json.loads(said.text)
    except json.JSONDecodeError:
        return work.wrong(f"hearth doctor ended with status {said.status}: {said.last_line()}")
    findings = doctor["findings"]
    work.table("hearth doctor", ["what", "value"], [list(row) for row in doctor["machine"].items()])
    work.table("hearth doctor", ["level", "id", "what"], [[f["level"], f["id"], f["what"]] for f in findings])
    if work.card.vendor == "emulated":
        return None
    found = any(finding["id"] == "device" for finding in findings)
    for finding in findings:
        if finding["level"] in ("warning", "broken"):
            (work.missing if found else work.wrong)(f"hearth doctor: {finding['id']}: {finding['what']}")
    return None if found else work.wrong("hearth finds no GPU")


def build_here(work):
    card = work.card
    for group in ("build", "test", *(["cuda"] if card.vendor == "nvidia" else [])):
        done = work.run("tools/deps", group, seconds=120)
        if done.status != 0:
            work.missing(f"all that tools/deps {group} installs: {done.last_line()}")
    done = work.run(
        "tools/build", "--gpu", card.module, HEARTH_TESTS="lean", HEARTH_TARGETS="hearth test_card",
        HEARTH_GPU_ARCHITECTURES=os.environ.get("HEARTH_GPU_ARCHITECTURES", card.architecture),
    )
    if done.status == 77:
        raise Missing(f"the compiler for it: {done.text.strip()}"[:300])
    if done.status != 0:
        errors = [line for line in done.text.splitlines() if "error" in line.lower()]
        return work.wrong(f"tools/build --gpu {card.module} failed: {(errors or [done.last_line()])[0][:300]}")
    work.right(f"it is built for {card.architecture} in {work.seconds():.0f} s")


# ------------------------------------------------------------------------------------------------ tests


def tests(work):
    """In several processes one after the other, so that one that dies takes few tests with it."""
    program, passed, skipped = work.program(work.card.tests), 0, []
    # On an emulated GPU the tests of kernels take minutes, and run elsewhere.
    chosen = "Library.*:AnyGpu.*" if work.card.vendor == "emulated" else "*"
    for shard in range(SHARDS):
        done = work.run(
            program, f"--gtest_filter={chosen}", HEARTH_EXPECT_GPU="1", GTEST_COLOR="no",
            GTEST_TOTAL_SHARDS=str(SHARDS), GTEST_SHARD_INDEX=str(shard),
        )
        passed += len(re.findall(r"^\[       OK \] .* ms\)$", done.text, re.M))
        skipped += re.findall(r"^\[  SKIPPED \] (\S+) .*ms\)$", done.text, re.M)
        failed = re.findall(r"^\[  FAILED  \] ([^ ,]+)[^\n]* ms\)$", done.text, re.M)
        if done.status != 0 and not failed:
            last = re.findall(r"^\[ RUN      \] (\S+)", done.text, re.M)
            work.wrong(f"{program.name} ended with status {done.status} in {(last or ['no test'])[-1]}: {done.last_line()}")
        for name in failed:
            work.wrong(f"{program.name}: {name} fails")
    if skipped:
        work.missing(f"what {len(skipped)} tests of kernels need: {', '.join(skipped[:MOST_NAMED])}")
    if passed:
        work.right(f"{passed} tests of {program.name} pass")
    elif not work.result["wrong"]:
        work.wrong(f"{program.name} ran no test")


def memory(work):
    if work.card.vendor != "nvidia":
        raise Missing("a memory checker: the vendor has none for this GPU; tools/machine_code and the emulator have one")
    checker = machine.tool("compute-sanitizer")
    if not checker:
        raise Missing("compute-sanitizer: it comes with cuda-toolkit")
    program = work.program(work.card.tests)
    for number, (name, (what, chosen)) in enumerate(CHECKERS.items()):
        share = work.seconds_left() / (len(CHECKERS) - number)
        done = work.run(
            checker, "--tool", name, "--report-api-errors", "no", "--error-exitcode", "99", "--print-limit", "20", program,
            f"--gtest_filter={chosen}:-Slow*", "--gtest_brief=1", HEARTH_EXPECT_GPU="1", seconds=share,
        )
        found = re.findall(r"^=+ ((?:Invalid|Error|Warning|Race|Uninitialized|Program hit)[^\n]*)", done.text, re.M)
        if found or done.status not in (0, TIMED_OUT):
            work.wrong(f"{name} ({what}): status {done.status}: {'; '.join(dict.fromkeys(found[:3])) or done.last_line()}")
        elif done.status == TIMED_OUT:
            work.missing(f"{name} to its end: it was stopped after {share:.0f} s, having found nothing")
        else:
            work.right(f"{name} finds nothing ({what}) in {chosen}")


# ------------------------------------------------------------------------------------------------ trainings


def losses(work):
    """tests/machine_code/train on this GPU: every family of recipes against the processor."""
    more = ["--all"] if work.card.vendor != "emulated" else []
    done = work.run("tests/machine_code/train", work.program(), work.card.architecture, "--device", work.card.device, *more)
    for line in re.findall(r"^losses of .*", done.text, re.M):
        work.right(f"{line} from the CPU's")
    for name, why in re.findall(r"^FAILED (.*?): (.*(?:\n(?!FAILED|losses of|\d+ passed).*)*)", done.text, re.M):
        kernels = self_test.distrusted(why)
        work.wrong(f"{name}: {kernels[0] if kernels else why.strip().splitlines()[0][:300]}")
    if done.status != 0 and not work.result["wrong"]:
        work.wrong(f"tests/machine_code/train ended with status {done.status}: {done.last_line()}")


def demo(work):
    """Twice: as people run it, and with each kernel waited for and nothing recorded, which must give the same losses."""
    short = ["train.steps=2", "data.count=8", "data.val_count=4", "train.batch=4"] if work.card.vendor == "emulated" else []
    waiting = {"nvidia": {"CUDA_LAUNCH_BLOCKING": "1"}, "amd": {"AMD_SERIALIZE_KERNEL": "3"}}.get(work.card.vendor, {})
    runs = {"as it is": ([], {}), "each kernel waited for": (["record=never"], waiting)}
    rows, found = [], []
    for name, (settings, variables) in runs.items():
        out = work.folder("runs") / f"demo-{len(found)}"
        work.run("rm", "-rf", out)
        done = work.run(
            work.program(), "train", ROOT / "recipes/demo.yaml", f"device={work.card.device}", "supervise=false",
            *short, *settings, "--out", out, **variables,
        )
        if done.status != 0:
            return work.wrong(f"the demo, {name}, ended with status {done.status}: {done.last_line()}")
        said = re.search(r"^done: (\d+) steps in ([\d.]+ \w+), best validation accuracy ([\d.]+%)", done.text, re.M)
        rows.append([name, *(said.groups() if said else ["-"] * 3)])
        found.append(self_test.losses_of(out))
        for line in self_test.distrusted(done.text):
            work.wrong(f"the demo: {line}")
    work.table("The demo", ["run", "steps", "time", "validation accuracy"], rows)
    if not found[0] or found[0] != found[1]:
        return work.wrong("the demo's losses differ where each kernel is waited for and nothing is recorded")
    accuracy = float(rows[0][3].rstrip("%")) if said else 0
    if work.card.vendor != "emulated" and accuracy < LEAST_ACCURACY:
        return work.wrong(f"the demo trains to {accuracy:g}%, expected {LEAST_ACCURACY}%")
    return work.right(f"the demo trains to {rows[0][3]} in {rows[0][2]}, its {len(found[0])} losses the same bits queued and recorded")


def course_of(run):
    """What a run's log says of its steps and evaluations, without the time that they took."""
    lines = [json.loads(line) for line in (run / "trainer_log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "elapsed_time"} for line in lines]


def resume(work):
    """Each run loses its newest checkpoint and goes on from the one in the middle: to the same bits."""
    emulated = work.card.vendor == "emulated"
    half = FEW_HALF if emulated else HALF
    few = ["train.batch=2", "data.count=4", "data.val_count=2", "data.image_size=32"]
    settings = [f"train.steps={2 * half}", f"train.checkpoint_every={half}", f"device={work.card.device}", "supervise=false",
                *(few if emulated else ["data.count=400", "data.val_count=40"])]
    for what, recipe in RESUMED.items():
        out = work.folder("runs") / f"resume-{recipe}"
        work.run("rm", "-rf", out)
        command = [work.program(), "train", ROOT / f"recipes/{recipe}.yaml", *settings, "--out", out]
        whole = work.run(*command)
        if whole.status != 0:
            work.wrong(f"{what} ended with status {whole.status}: {whole.last_line()}")
            continue
        before = course_of(out)
        work.run("rm", "-r", out / f"checkpoints/step-{2 * half:09}")
        rest = work.run(*command, "--resume")
        if rest.status != 0 or f"(step {half})" not in rest.text:
            work.wrong(f"{what} does not resume at step {half}, status {rest.status}: {rest.last_line()}")
        elif course_of(out) != before:
            work.wrong(f"{what} that resumes at step {half} takes another course: {out}/trainer_log.jsonl")
        else:
            work.right(f"{what} resumes at step {half} of {2 * half} to the same bits")


# Most seconds, what it is, and the function; in the order in which they run.
PARTS = {
    "environment": (90, "the card, its driver and limits, compilers", environment),
    "build": (540, "hearth and its tests of kernels, for this card alone", build),
    "tests": (300, "test_card, where a missing GPU is a failure", tests),
    "memory": (420, "test_card under the vendor's memory checker", memory),
    "losses": (240, "tiny trainings of every family against the CPU", losses),
    "demo": (180, "the demo, twice", demo),
    "resume": (180, "runs of pictures that are cut off and go on, bit by bit", resume),
    "self_test_images": (240, "the self-test of every classifier in every precision", self_test.images),
    "self_test_segment": (240, "the self-test of segmenters in every precision", self_test.segment),
    "self_test_detect": (300, "the self-test of detectors in every precision", self_test.detect),
    "self_test_language": (420, "the self-test of every way to train a Llama, in the layers of a 1B and an 8B", self_test.language),
    "kernels": (300, "matmuls against torch", measure.kernels),
    "attention": (180, "attention against torch's flash attention and cuDNN", measure.attention),
    "llama_full": (300, "steps of Llama 1B, all weights, against torch", measure.llama_full),
    "llama_lora": (300, "steps of Llama 1B, LoRA, against torch", measure.llama_lora),
    "llama_qlora": (300, "steps of Llama 1B, QLoRA, against torch", measure.llama_qlora),
    "resnet": (240, "steps of ResNet-50 against torch", measure.resnet),
    "images": (240, "steps of a stack of convolutions against torch", measure.images),
    "segment": (300, "steps of U-Net and DeepLabV3 against torch", measure.segment),
    "detect": (300, "steps of YOLOX-S against torch", measure.detect),
    "report_8b": (200, "AMD's training benchmark: LoRA on Llama 3.1 8B", measure.report_8b),
    "report_resnet": (120, "AMD's training benchmark: ResNet-50", measure.report_resnet),
    "cudnn": (90, "workspace and time of cuDNN's attention, backward", measure.cudnn),
    "profile_llama": (90, "where the time of steps of Llama 1B goes, op by op", measure.profile_llama),
    "profile": (150, "where the time of the other steps goes, op by op", measure.profile),
    "counters": (240, "what the vendor's profiler counts of the kernels of a step of Llama 1B", counters.counters),
}

# Parts of --quick in order, with the time limit of each in seconds. They leave no time for a build: use --build.
QUICK_MINUTES = 15
QUICK = {
    "tests": 60, "attention": 90, "counters": 60, "llama_full": 120, "llama_lora": 120, "profile_llama": 60, "resnet": 150,
    "cudnn": 60, "report_8b": 100,
}
