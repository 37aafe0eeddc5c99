#!/usr/bin/env python3
"""tools/packaging/sbom.py BUILD PREFIX PACKAGE VERSION: writes PACKAGE.spdx.json, the SBOM (SPDX 2.3) of a package file.

PREFIX is the installed tree that was packed, BUILD the build folder it comes from. It names Hearth with each of its files, and every
library that is in the package, is compiled into it, or is asked of the system: version, license, supplier.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import sys

from parts import compiled_in, shared_parts

# Debian's short names of licenses, where SPDX has others.
SPDX = {"Expat": "MIT", "MIT": "MIT", "X11": "X11", "Apache-2.0": "Apache-2.0", "BSD-2-clause": "BSD-2-Clause", "BSD-2-Clause": "BSD-2-Clause",
        "BSD-3-clause": "BSD-3-Clause", "BSD-3-Clause": "BSD-3-Clause", "BSL-1.0": "BSL-1.0", "Zlib": "Zlib", "libpng": "Libpng"}


def hexdigest(kind, data):
    return hashlib.new(kind, data).hexdigest()


class Document:
    def __init__(self, package, version):
        digest = hexdigest("sha256", package.read_bytes())
        created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
        self.json = {
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": package.name,
            "documentNamespace": f"https://spdx.org/spdxdocs/{package.name}-{digest}",
            "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [f"Tool: hearth-package-{version}"]},
            "packages": [], "files": [], "relationships": [], "hasExtractedLicensingInfos": []}

    def relate(self, one, kind, other):
        self.json["relationships"].append({"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other})

    def license_of(self, part):
        """Its identifier; what SPDX has no name for is added with its text."""
        name = part.license_name()
        if name in SPDX:
            return SPDX[name]
        identifier = "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{part.source}-{name}").rstrip("-")
        self.json["hasExtractedLicensingInfos"].append(
            {"licenseId": identifier, "name": name or "as its license file says", "extractedText": part.license_file.read_text(errors="replace")})
        return identifier

    def add_package(self, identifier, name, version, license_name, files=(), **more):
        entry = {"SPDXID": identifier, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
                 "filesAnalyzed": bool(files), "licenseConcluded": "NOASSERTION", "licenseDeclared": license_name,
                 "copyrightText": "NOASSERTION", **more}
        if files:
            sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
            entry["packageVerificationCode"] = {"packageVerificationCodeValue": hexdigest("sha1", "".join(sums).encode())}
        self.json["packages"].append(entry)
        for file in files:
            self.relate(identifier, "CONTAINS", file["SPDXID"])

    def add_part(self, part, kind, files=()):
        identifier = f"SPDXRef-Package-{re.sub(r'[^A-Za-z0-9.-]', '-', part.name)}"
        who = "Organization" if part.name == "cuda-runtime" else "Person"
        more = {"homepage": part.homepage} if part.homepage else {}
        self.add_package(identifier, part.name, part.version, self.license_of(part), files,
                         supplier=f"{who}: {part.supplier.replace('<', '(').replace('>', ')')}", **more)
        self.relate("SPDXRef-Package-hearth", kind, identifier)

    def add_file(self, prefix, path):
        place, data = path.relative_to(prefix).as_posix(), path.read_bytes()
        sums = [{"algorithm": kind.upper(), "checksumValue": hexdigest(kind, data)} for kind in ("sha1", "sha256")]
        entry = {"SPDXID": f"SPDXRef-File-{hexdigest('sha1', place.encode())[:16]}", "fileName": f"./{place}", "checksums": sums,
                 "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"}
        self.json["files"].append(entry)
        return entry


def main():
    build, prefix, package, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    document = Document(package, version)
    entries = [(path, document.add_file(prefix, path)) for path in sorted(prefix.rglob("*")) if path.is_file()]
    bundled = {path.name: entry for path, entry in entries if path.parent == prefix / "lib/hearth"}
    parts = {}
    for name, part in sorted(shared_parts(build).items()):
        parts.setdefault(part, []).extend([bundled[name]] if name in bundled else [])
    others = {entry["SPDXID"] for owned in parts.values() for entry in owned}
    document.add_package("SPDXRef-Package-hearth", "hearth", version, "Apache-2.0",
                         [entry for _, entry in entries if entry["SPDXID"] not in others],
                         supplier="Organization: Hearth developers", packageFileName=package.name, primaryPackagePurpose="APPLICATION",
                         checksums=[{"algorithm": "SHA256", "checksumValue": hexdigest("sha256", package.read_bytes())}])
    document.relate("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-hearth")
    for part, owned in parts.items():
        document.add_part(part, "CONTAINS" if owned else "DEPENDS_ON", owned)
    for part in compiled_in(build):
        document.add_part(part, "STATIC_LINK")
    text = json.dumps(document.json, indent=1, sort_keys=True) + "\n"
    package.with_name(package.name + ".spdx.json").write_text(text)


if __name__ == "__main__":
    main()
