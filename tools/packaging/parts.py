#!/usr/bin/env python3
"""tools/packaging/parts.py licenses BUILD FOLDER: writes the licenses of what is compiled into the program of the build folder BUILD
into the installed tree FOLDER. The other scripts here ask it what the program is made of.

A part is a library that is not Hearth's own: shared, or compiled in. dpkg knows its version, its supplier and its license.
"""
import dataclasses
import pathlib
import re
import subprocess
import sys

# What every system with glibc has stays the system's: drivers of GPUs bring code that needs its newest version.
SYSTEM = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so.*")
SYSTEM_SOURCES = re.compile(r"gcc-\d+|gcc-defaults|glibc|linux")
LICENSES = "share/doc/hearth/licenses"


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    source: str  # the source package, which all of its packages share
    version: str
    supplier: str
    homepage: str
    license_file: pathlib.Path

    def license_name(self):
        """What the copyright file says of most files: its stanza for all of them, else its first."""
        stanzas = re.findall(r"^Files:(.*?)^License:[ \t]*(.*?)$", self.license_file.read_text(errors="replace"), re.M | re.S)
        every = [name for files, name in stanzas if files.strip().startswith("*")]
        return (every or [name for _, name in stanzas] or [""])[0]


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def needed(file):
    """The shared libraries that an ELF file needs, and theirs: {name: path}, without the system's."""
    found = re.findall(r"^\s*(\S+) => (.*?)(?: \(0x[0-9a-f]+\))?$", run("ldd", str(file)), re.M)
    missing = [name for name, path in found if path == "not found"]
    if missing:
        sys.exit(f"error: expected every library of {file} on this machine, got no {', '.join(missing)}")
    return {name: pathlib.Path(path) for name, path in found if not SYSTEM.fullmatch(name)}


def elf_files(prefix):
    """The program, and the libraries in its folder of modules."""
    return [prefix / "bin/hearth", *sorted((prefix / "lib/hearth").glob("*.so*"))]


def part_of(path):
    """The part with a file of this system; dpkg knows it by its path before or after /lib became a link."""
    real = str(path.resolve())
    for name in (real, real.removeprefix("/usr"), str(path)):
        answer = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if answer.returncode == 0:
            return part_named(re.split(": |, ", answer.stdout)[0])
    sys.exit(f"error: expected a Debian package with {path}, got none, and so no license")


def part_named(package):
    form = "${Package}|${source:Package}|${Version}|${Maintainer}|${Homepage}"
    name, source, version, supplier, homepage = run("dpkg-query", "-W", "-f", form, package).split("|")
    return Part(name, source, version, supplier, homepage, pathlib.Path("/usr/share/doc", name, "copyright"))


def shared_parts(build):
    """{name of a shared library that the program or a module of a build folder needs: its part}"""
    files = [build / "hearth", *sorted(build.glob("libhearth_*.so"))]
    return {name: part_of(path) for file in files for name, path in needed(file).items()}


def cuda_runtime():
    """NVIDIA's, which is linked into libhearth_cuda.so; its package may have come without a license file."""
    header = next(iter(sorted(pathlib.Path("/usr/local").glob("cuda*/include/cuda_runtime_api.h"))), None)
    header = header or pathlib.Path("/usr/include/cuda_runtime_api.h")
    number = int(re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text())[1])
    texts = [*header.parents[1].glob("dist-info/nvidia_cuda_runtime*/licenses/*"), header.parents[1] / "EULA.txt",
             *pathlib.Path("/usr/share/doc").glob("cuda-cudart*/copyright")]
    text = next((text for text in texts if text.exists()), None)
    if text is None:
        sys.exit("error: expected the license of CUDA's runtime in the toolkit, got none")
    return Part("cuda-runtime", "cuda-runtime", f"{number // 1000}.{number % 1000 // 10}", "NVIDIA Corporation",
                "https://developer.nvidia.com/cuda-toolkit", text)


def compiled_in(build):
    """Libraries whose headers the compiler has read and that are none of the shared ones."""
    headers = set(re.findall(r"^\s+(/usr/include/\S+)$", run("ninja", "-C", str(build), "-t", "deps"), re.M))
    owners = run("dpkg-query", "-S", *sorted(headers)).splitlines()
    parts = {part_named(name) for name in {re.split(": |, ", line)[0] for line in owners}}
    known = {part.source for part in shared_parts(build).values()}
    found = {part.source: part for part in sorted(parts, key=lambda part: part.name)
             if part.source not in known and not SYSTEM_SOURCES.fullmatch(part.source)}
    if (build / "libhearth_cuda.so").exists():
        found["cuda-runtime"] = cuda_runtime()
    return list(found.values())


def main():
    build, prefix = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    (prefix / LICENSES).mkdir(parents=True, exist_ok=True)
    for part in compiled_in(build):
        (prefix / LICENSES / f"{part.name}.txt").write_bytes(part.license_file.read_bytes())


if __name__ == "__main__":
    main()
