#!/usr/bin/env python3
"""tools/packaging/manual.py HEARTH FOLDER: writes a manual page of the program and of each of its verbs, compressed, into FOLDER.

They are made of what `HEARTH VERB --help` prints: a description, the usage, sections of items, and an example.
"""
import datetime
import gzip
import os
import pathlib
import re
import subprocess
import sys

SECTION = re.compile(r"^(Positionals|Options|Subcommands):$", re.I)
ITEM = re.compile(r"^  (\S.*?)(?:\s{2,}(.*))?$")


class Help:
    """What --help says: description and closing are lines, items are {section: [(name, text)]}."""

    def __init__(self, program, verb):
        text = subprocess.run([program, *verb, "--help"], check=True, capture_output=True, text=True).stdout
        self.description, self.usage, self.items, self.closing = [], "", {}, []
        section = None
        for line in text.splitlines():
            if line.startswith("Usage: "):
                self.usage = line.removeprefix("Usage: ")
            elif not self.usage:
                self.description.append(line)
            elif SECTION.match(line):
                section = line[:-1].upper()
                self.items[section] = []
            elif section and line.startswith("   ") and self.items[section]:
                name, about = self.items[section][-1]
                self.items[section][-1] = (name, f"{about} {line.strip()}".strip())
            elif section and (item := ITEM.match(line)):
                self.items[section].append((item[1], item[2] or ""))
            else:
                section = None if line else section
                self.closing.append(line)

    def verbs(self):
        return [name for name, _ in self.items.get("SUBCOMMANDS", [])]


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^\.", r"\\&.", text)


def paragraphs(lines):
    """Lines as they stand where they are indented, filled paragraphs elsewhere."""
    out, verbatim = [], False
    for line in lines:
        if line.startswith("  ") != verbatim and line:
            verbatim = not verbatim
            # An empty line before what is filled again stands after the request.
            at = len(out) - (not verbatim and out[-1] == ".PP")
            out.insert(at, ".nf" if verbatim else ".fi")
        out.append(escaped(line) if line else ".PP")
    return "\n".join(out + [".fi"] * verbatim)


def page(program, verb, version, date):
    help_ = Help(program, verb)
    name = "-".join(["hearth", *verb])
    lines = [line for line in help_.description]
    summary = "trains neural networks on the machine you own" if not verb else lines[0]
    parts = [f'.TH {name.upper()} 1 "{date}" "hearth {version}" "User Commands"', ".SH NAME", f"{name} \\- {escaped(summary)}",
             ".SH SYNOPSIS", escaped(help_.usage), ".SH DESCRIPTION", paragraphs(lines)]
    for section, items in help_.items.items():
        parts.append(f".SH {section}")
        for item, about in items:
            parts += [".TP", f"\\fB{escaped(item)}\\fR", escaped(about)]
    if any(help_.closing):
        parts += [".SH NOTES", paragraphs(help_.closing)]
    others = [f"hearth-{other}" for other in help_.verbs()] if not verb else ["hearth"]
    parts += [".SH SEE ALSO", ",\n".join(f".BR {escaped(other)} (1)" for other in others)]
    # Blank lines between paragraphs are requests; those at the ends say nothing.
    return re.sub(r"(\.PP\n)+(?=\.SH|\.PP|$)", "", "\n".join(parts) + "\n"), help_.verbs()


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    date = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc).date().isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [[]]
    for verb in waiting:
        text, inner = page(program, verb, version, date)
        waiting += [[*verb, name] for name in inner]
        (folder / f"{'-'.join(['hearth', *verb])}.1.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
