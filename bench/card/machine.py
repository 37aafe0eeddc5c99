"""The GPU that is here, by what the system says of it."""

import dataclasses
import pathlib
import re
import shutil
import subprocess

NVIDIA_TOOLS = ("/usr/local/cuda/bin", "/usr/local/nvidia/bin")
AMD_TOOLS = ("/opt/rocm/bin",)
AMD_NAMES = "usr/share/libdrm/amdgpu.ids"


def tool(name):
    """The path of a vendor's program, on the PATH or where the vendor puts it; None where it is not here."""
    return shutil.which(name) or next(
        (found for folder in NVIDIA_TOOLS + AMD_TOOLS if (found := shutil.which(name, path=folder))), None
    )


def output_of(*command, seconds=30):
    """What a command prints; empty where it is not here, fails or hangs."""
    path = tool(command[0])
    if not path:
        return ""
    try:
        done = subprocess.run(
            [path, *command[1:]], capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def line_of(path):
    """The first line of a file; empty where it cannot be read."""
    try:
        return (path.read_text(errors="replace").strip().splitlines() or [""])[0]
    except OSError:
        return ""


@dataclasses.dataclass
class Card:
    vendor: str  # nvidia, amd or emulated
    name: str
    architecture: str = ""  # sm_90, gfx1100; empty: not known
    folder: pathlib.Path | None = None  # AMD's: of the device in /sys

    @property
    def module(self):
        """As tools/build --gpu names it."""
        return {"nvidia": "cuda", "amd": "hip"}[self.vendor]

    @property
    def tests(self):
        """The program that tests kernels on it, in the build."""
        return "tests/test_gpu" if self.vendor == "emulated" else "test_card"

    @property
    def device(self):
        """As `hearth bench --device` and recipes name it."""
        return "emulated" if self.vendor == "emulated" else "gpu"

    @property
    def file_name(self):
        return "GPU-" + re.sub(r"[^A-Za-z0-9]+", "-", self.name).strip("-")


def emulated_card():
    return Card("emulated", "emulated", "emulated")


def find_card(root=pathlib.Path("/")):
    """The first GPU of NVIDIA, else the one of AMD with the most memory; None where there is none."""
    return find_nvidia() or find_amd(root)


def find_nvidia():
    rows = nvidia_rows("name", "compute_cap")
    if not rows:
        return None
    name, capability = rows[0]
    return Card("nvidia", name, "sm_" + capability.replace(".", ""))


def nvidia_rows(*fields):
    """A row of texts for each GPU; empty where nvidia-smi is not here or does not know a field."""
    said = output_of("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
    return rows if all(len(row) == len(fields) for row in rows) else []


def find_amd(root):
    folders = [
        folder
        for folder in sorted((root / "sys/bus/pci/devices").glob("*"))
        if line_of(folder / "vendor") == "0x1002" and line_of(folder / "class").startswith("0x03")
    ]
    if not folders:
        return None
    folder = max(folders, key=lambda path: int(line_of(path / "mem_info_vram_total") or 0))
    architecture = amd_architecture(root, folder.name)
    return Card("amd", amd_name(root, folder, architecture), architecture, folder)


def amd_architecture(root, address):
    """gfx1100 of 110000, as the kernel's topology has it."""
    for properties in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        values = dict(line.split()[:2] for line in properties.read_text().splitlines() if len(line.split()) >= 2)
        place, version = int(values.get("location_id", 0)), int(values.get("gfx_target_version", 0))
        found = f"{int(values.get('domain', 0)):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
        if version and found == address:
            return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return ""


def amd_name(root, folder, architecture):
    """By rocminfo, else by the list of libdrm, else the architecture."""
    agents = re.findall(r"Name:\s+(gfx\w+)\s.*?Marketing Name:[ \t]*([^\n]*)", output_of("rocminfo"), re.S)
    for found, name in agents:
        if found == architecture and name.strip():
            return name.strip()
    wanted = [line_of(folder / key).removeprefix("0x").upper() for key in ("device", "revision")]
    names = root / AMD_NAMES
    for line in names.read_text(errors="replace").splitlines() if names.exists() else []:
        cells = [cell.strip() for cell in line.split(",", 2)]
        if len(cells) == 3 and [cells[0].upper(), cells[1].upper()] == wanted:
            return cells[2]
    return f"AMD {architecture or wanted[0]}"
