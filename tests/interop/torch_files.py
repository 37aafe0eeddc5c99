"""Files of torch.save as Hearth reads them: python tests/interop/torch_files.py.

Every tensor has the bits that torch.load gives, in all types, orders and wrappers; what torch.load(weights_only=True)
refuses, Hearth refuses by name, and runs nothing. Needs ./hearth (tools/build) and the program weight_files.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
from parity import ROOT, run_checks  # noqa: E402

PROGRAM = ROOT / "build/cpu/tests/weight_files"
DTYPES = [getattr(torch, name) for name in "float64 float32 bfloat16 float16 int64 int32 int16 int8 uint8 bool".split()]
DTYPES += [torch.float8_e4m3fn, torch.float8_e5m2]


def read(file, folder):
    out = folder / "read.safetensors"
    done = subprocess.run([PROGRAM, file, out], check=False, capture_output=True, text=True)
    return (load_file(out), "") if done.returncode == 0 else ({}, done.stderr)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def expect_equal(file, folder, wanted):
    found, fault = read(file, folder)
    if sorted(found) != sorted(wanted):
        raise AssertionError(f"{file.name}: expected {sorted(wanted)}, got {sorted(found)} {fault}")
    for name, tensor in wanted.items():
        same = found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        if not same or not torch.equal(bits(found[name]), bits(tensor)):
            raise AssertionError(f"{file.name}: another '{name}'")


def tensors_of_all_kinds():
    torch.manual_seed(1)
    found = collections.OrderedDict()
    for dtype in DTYPES:
        found[str(dtype)] = torch.randint(0, 2, (3, 5)).to(dtype)
    base = torch.randn(4, 6, 5, 3)
    found |= {"last": base.to(memory_format=torch.channels_last), "turned": base.permute(3, 1, 0, 2), "part": base[1:3, 2:5]}
    found |= {"step": base[:, ::2], "none": torch.zeros(0, 3), "shared": base, "parameter": torch.nn.Parameter(base[0])}
    return found


def check_tensors(folder):
    found = tensors_of_all_kinds()
    for protocol in (2, 3, 4, 5):
        file = folder / f"protocol{protocol}.pt"
        torch.save(found, file, pickle_protocol=protocol)
        expect_equal(file, folder, {name: tensor.detach() for name, tensor in torch.load(file, weights_only=False).items()})
    return f"{len(found)} tensors of {len(DTYPES)} types in four protocols: the bits of torch.load"


def check_checkpoints(folder):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    state, wrapped = model.state_dict(), {f"module.{name}": value for name, value in model.state_dict().items()}
    rest = {"optimizer": optimizer.state_dict(), "epoch": 3, "args": argparse.Namespace(lr=0.1, size=torch.Size([3]))}
    rest["scheduler"] = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 3]).state_dict()
    rest["path"], rest["best"] = pathlib.PosixPath("x"), torch.tensor(0.5).numpy()[()]
    averaged = torch.optim.swa_utils.AveragedModel(model).state_dict()
    cases = [state, wrapped, {"model": state} | rest, rest | {"state_dict": wrapped}, {"model_ema": averaged}, {"mine": state}]
    for i, case in enumerate(cases):
        torch.save(case, folder / f"{i}.pth")
        expect_equal(folder / f"{i}.pth", folder, state)
    return f"{len(cases)} checkpoints: the state dict is found"


class Code:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def check_refusals(folder):
    marker = folder / "ran"
    cases = {
        "posix.system": Code(os.system, f"touch {marker}"),
        "commands.Popen": Code(subprocess.Popen, ["touch", str(marker)]),
        "eval": Code(eval, f"open({str(marker)!r}, 'w')"),
        "torch.nn.modules": torch.nn.Linear(2, 2),
        "_rebuild_sparse_tensor": torch.eye(2).to_sparse(),
        "ComplexFloatStorage": torch.zeros(2, dtype=torch.complex64),
    }
    for i, (name, value) in enumerate(cases.items()):
        file = folder / f"{i}.pt"
        torch.save({"model": {"w": torch.zeros(2)}, "x": value}, file)
        _, fault = read(file, folder)
        if name not in fault or "runs no code" not in fault:
            raise AssertionError(f"expected '{name}' to be refused by name, got '{fault}'")
    if marker.exists():
        raise AssertionError("a file was executed")
    torch.save({"w": torch.zeros(2)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    _, fault = read(folder / "old.pt", folder)
    command = fault[fault.index("python3 -c ") : fault.rindex('"') + 1].replace("python3", sys.executable, 1)
    subprocess.run(command, shell=True, check=True)
    expect_equal(folder / "old.new.pt", folder, {"w": torch.zeros(2)})
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), folder / "script.pt")
    if "TorchScript" not in read(folder / "script.pt", folder)[1]:
        raise AssertionError("expected a TorchScript program to be refused by name")
    return f"{len(cases)} objects refused by name, an old file converted by the command that is given"


CHECKS = {"tensors": check_tensors, "checkpoints": check_checkpoints, "refusals": check_refusals}

if __name__ == "__main__":
    sys.exit(run_checks(CHECKS.items()))
