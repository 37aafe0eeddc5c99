#!/usr/bin/env python3
"""tools/packaging/libraries.py FOLDER: makes an installed tree independent of the system's libraries.

Copies every shared library that bin/hearth and the modules in lib/hearth need into lib/hearth, with their licenses, and lets each
file look for the others beside it, wherever the tree lies.
"""
import pathlib
import shutil
import sys

from parts import LICENSES, elf_files, needed, part_of, run


def main():
    folder = pathlib.Path(sys.argv[1])
    libraries = {name: path for file in elf_files(folder) for name, path in needed(file).items()}
    for name, path in sorted(libraries.items()):
        shutil.copyfile(path, folder / "lib/hearth" / name)
        part = part_of(path)
        shutil.copyfile(part.license_file, folder / LICENSES / f"{part.name}.txt")
    for file in elf_files(folder):
        file.chmod(0o755)
        run("patchelf", "--set-rpath", "$ORIGIN/../lib/hearth" if file.parent.name == "bin" else "$ORIGIN", str(file))


if __name__ == "__main__":
    main()
