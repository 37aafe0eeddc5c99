#!/usr/bin/env python3
"""tools/packaging/wheel.py TREE VERSION MACHINE OUT: packs an installed tree that is independent of the system's libraries as a wheel.

pip puts scripts beside its own and data below its prefix, so that bin/hearth finds lib/hearth as anywhere else: what pip installs
as `hearth` is the program itself. Files in python/ of the tree are Python packages. The tag says the oldest glibc that has what the
files call.
"""
import base64
import hashlib
import os
import pathlib
import re
import stat
import sys
import time
import zipfile

from parts import elf_files, run

METADATA = """Metadata-Version: 2.1
Name: hearth-train
Version: {version}
Summary: Trains neural networks on the CPU and on consumer GPUs: one native program
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Environment :: GPU
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

Hearth trains image models (classification, segmentation, detection) and language models on your own computer. This wheel holds the
native program with its libraries, and a Python package that starts and follows it.

    hearth train demo

    import hearth_train as hearth
    run = hearth.train("demo")
"""


def oldest_glibc(files):
    """The highest version of glibc that any of the files asks for."""
    versions = {tuple(map(int, found)) for file in files
                for found in re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("objdump", "-T", str(file)))}
    return max(versions)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Wheel:
    """A zip whose bytes depend on what it holds alone."""

    def __init__(self, path, name):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
        self.record, self.info = [], f"{name}.dist-info"

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = (stat.S_IFREG | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        self.record.append(f"{name},sha256={digest(data)},{len(data)}\n")

    def close(self):
        self.record.append(f"{self.info}/RECORD,,\n")
        self.add(f"{self.info}/RECORD", "".join(self.record).encode())
        self.zip.close()


def main():
    tree, version, machine, out = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
    tag = "py3-none-manylinux_{}_{}_{}".format(*oldest_glibc(elf_files(tree)), machine)
    name = f"hearth_train-{version}"
    wheel = Wheel(out / f"{name}-{tag}.whl", name)
    for file in sorted(path for path in tree.rglob("*") if path.is_file()):
        place = file.relative_to(tree)
        if place.parts[0] == "python":
            wheel.add(place.relative_to("python").as_posix(), file.read_bytes())
            continue
        scheme = "scripts" if place.parts[0] == "bin" else "data"
        inside = place.name if scheme == "scripts" else place.as_posix()
        wheel.add(f"{name}.data/{scheme}/{inside}", file.read_bytes(), 0o755 if file.stat().st_mode & 0o100 else 0o644)
    for license_file in sorted((tree / "share/doc/hearth").rglob("*")):
        if license_file.is_file():
            wheel.add(f"{wheel.info}/licenses/{license_file.name}", license_file.read_bytes())
    wheel.add(f"{wheel.info}/METADATA", METADATA.format(version=version).encode())
    wheel.add(f"{wheel.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: hearth\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.close()


if __name__ == "__main__":
    main()
