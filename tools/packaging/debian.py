#!/usr/bin/env python3
"""tools/packaging/debian.py FOLDER VERSION ARCHITECTURE: what a Debian package holds beside its files.

FOLDER has the installed tree in usr; it gets DEBIAN/control, whose dependencies are those that dpkg-shlibdeps finds, DEBIAN/md5sums,
the changelog and the copyright file.
"""
import email.utils
import gzip
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MAINTAINER = "Hearth developers <hearth@example.org>"
DESCRIPTION = """trains neural networks on the CPU and on consumer GPUs
 Hearth trains image models (classification, segmentation, detection) and
 language models on your own computer. It plans all memory before the first
 step, resumes from crashes with the same bits, and tests every kernel on your
 GPU before it is used. It is one native program; no Python is needed.
 .
 "hearth train demo" trains a first model in about a minute on two cores.
"""
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Hearth

Files: *
Copyright: YEAR The Hearth developers
License: Apache-2.0
 On Debian systems, the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
Comment: the licenses of libraries that are compiled into the program are in
 /usr/share/doc/hearth/licenses.
"""


def dependencies(folder):
    """Packages of the shared libraries, with the oldest versions that have what is called."""
    files = [folder / "usr/bin/hearth", *sorted((folder / "usr/lib/hearth").glob("*.so"))]
    with tempfile.TemporaryDirectory() as name:
        control = pathlib.Path(name, "debian/control")
        control.parent.mkdir()
        control.write_text("Source: hearth\n\nPackage: hearth\nArchitecture: any\n")
        answer = subprocess.run(["dpkg-shlibdeps", "-O", "--warnings=0", *map(str, files)], cwd=name, check=True,
                                capture_output=True, text=True).stdout
    return answer.strip().removeprefix("shlibs:Depends=")


def write(path, contents):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def main():
    folder, version, architecture = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    date = email.utils.formatdate(epoch)
    changelog = f"hearth ({version}) stable; urgency=medium\n\n  * Built from the sources of this version.\n\n -- {MAINTAINER}  {date}\n"
    documents = folder / "usr/share/doc/hearth"
    write(documents / "changelog.Debian.gz", gzip.compress(changelog.encode(), 9, mtime=0))
    write(documents / "copyright", COPYRIGHT.replace("YEAR", str(time.gmtime(epoch).tm_year)))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    size = sum((path.stat().st_size + 1023) // 1024 for path in files)
    write(folder / "DEBIAN/md5sums", "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
                                             for path in files))
    write(folder / "DEBIAN/control", f"""Package: hearth
Version: {version}
Architecture: {architecture}
Maintainer: {MAINTAINER}
Installed-Size: {size}
Depends: {dependencies(folder)}
Recommends: libcurl4 | libcurl4t64, ca-certificates
Section: science
Priority: optional
Description: {DESCRIPTION}""")


if __name__ == "__main__":
    main()
