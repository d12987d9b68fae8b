"""sbom.py STAGED: prints the bill of materials (SPDX 2.3, JSON) of what .ci/release/stage has staged in that folder.

It lists the installed files with their checksums, the libraries that pgscale.so links, the server it was built for and the
compiler, each with the package and version that it came from. The time in it is SOURCE_DATE_EPOCH.
"""
import datetime
import hashlib
import json
import os
import re
import sys
import uuid

CONTRIBUTORS = "pgscale contributors"


def read_facts(staged):
    """What stage has found out: lists of words by their first word."""
    facts = {}
    with open(os.path.join(staged, "facts"), encoding="utf-8") as lines:
        for line in lines:
            key, *words = line.split()
            facts.setdefault(key, []).append(words)
    return facts


def identifier(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def file_of(staged, path):
    with open(os.path.join(staged, path), "rb") as file:
        content = file.read()
    return {
        "fileName": "./" + path,
        "SPDXID": identifier("file-" + path),
        "checksums": [{"algorithm": name, "checksumValue": hashlib.new(name.lower(), content).hexdigest()}
                      for name in ("SHA1", "SHA256")],
        "licenseConcluded": "PostgreSQL",
        "licenseInfoInFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }


def other_package(name, version, reference=None):
    """What is not pgscale's and not distributed with it."""
    package = {
        "name": name,
        "SPDXID": identifier("package-" + name),
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }
    if reference:
        package["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": reference}]
    return package


def main():
    staged = sys.argv[1]
    with open("META.json", encoding="utf-8") as meta_file:
        meta = json.load(meta_file)
    facts = read_facts(staged)
    (system,), (architecture,) = facts["os"][0], facts["architecture"][0]
    paths = sorted(os.path.relpath(os.path.join(folder, name), staged)
                   for folder, _, names in os.walk(staged) for name in names if name != "facts")
    files = [file_of(staged, path) for path in paths]
    checksums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    verification = hashlib.sha1("".join(checksums).encode()).hexdigest()
    major = facts["server"][0][0].split(".")[0]
    major = re.match(r"\d+", major).group()
    title = f"pgscale-{meta['version']}-{major}-{system}-{architecture}"
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)

    def debian(name, version):
        return other_package(name, version, f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}"
                                            f"?arch={architecture}&distro={system}")

    own = {
        "name": "pgscale",
        "SPDXID": identifier("package-pgscale"),
        "versionInfo": meta["version"],
        "supplier": f"Organization: {CONTRIBUTORS}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": verification},
        "licenseConcluded": "PostgreSQL",
        "licenseDeclared": "PostgreSQL",
        "licenseInfoFromFiles": ["NOASSERTION"],
        "copyrightText": f"Copyright (c) 2026, {CONTRIBUTORS}",
        "summary": meta["abstract"],
        "primaryPackagePurpose": "LIBRARY",
    }
    packages = {own["SPDXID"]: own}
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"])]
    relations += [(own["SPDXID"], "CONTAINS", file["SPDXID"]) for file in files]
    library = identifier("file-lib/pgscale.so")

    def relate(package, *relation):
        packages[package["SPDXID"]] = package
        relations.append(tuple(package["SPDXID"] if end is None else end for end in relation))

    for _, name, version in facts["needed"]:
        relate(debian(name, version), library, "DYNAMIC_LINK", None)
    server = facts["server"][0]
    package = debian(*server[1:]) if len(server) == 3 else other_package("postgresql", server[0])
    relate(package, None, "BUILD_DEPENDENCY_OF", own["SPDXID"])
    relate(package, None, "RUNTIME_DEPENDENCY_OF", own["SPDXID"])
    compiler = " ".join(facts["compiler"][0])
    relate(other_package(compiler.split(":")[0].lower(), compiler.split(":", 1)[-1].strip()), None, "BUILD_TOOL_OF", own["SPDXID"])

    json.dump({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": title,
        "documentNamespace": uuid.uuid5(uuid.NAMESPACE_OID, title + verification).urn,
        "creationInfo": {
            "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Organization: {CONTRIBUTORS}", f"Tool: pgscale-sbom-{meta['version']}"],
        },
        "packages": list(packages.values()),
        "files": files,
        "relationships": sorted(({"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b}
                                 for a, how, b in set(relations)), key=lambda r: list(r.values())),
    }, sys.stdout, indent=1)
    print()


main()
