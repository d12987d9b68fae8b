"""sbom.py STAGED NAME: prints the bill of materials (SPDX 2.3, JSON) of the files in that folder; NAME is the bill's name.

STAGED/facts says what the files were built with and what they need; .ci/release/stage or .ci/release/checks/sbom wrote it. The
bill lists the files with their checksums, and the server's headers and the compiler with the versions that were used. The
libraries that pgscale.so links and the server that loads it have no version: they are those of the user's system. The time in
it is SOURCE_DATE_EPOCH.
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
    """Lists of words by their first word."""
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


def other_package(name, version=None, reference=None):
    """What is not pgscale's and not distributed with it."""
    package = {
        "name": name,
        "SPDXID": identifier("package-" + name),
        **({"versionInfo": version} if version else {}),
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
    staged, title = sys.argv[1:]
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
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)

    def debian(name, version):
        return other_package(name, version, f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}"
                                            f"?arch={architecture}&distro={system}")

    def users(name):
        return other_package(name, reference=f"pkg:deb/debian/{name}?arch={architecture}")

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
    library = identifier("file-" + next(path for path in paths if path.endswith("lib/pgscale.so")))

    def relate(package, *relation):
        packages[package["SPDXID"]] = package
        relations.append(tuple(package["SPDXID"] if end is None else end for end in relation))

    for _, name in facts["needed"]:
        relate(users(name), library, "DYNAMIC_LINK", None)
    relate(debian(*facts["headers"][0]), None, "BUILD_DEPENDENCY_OF", own["SPDXID"])
    relate(users(f"postgresql-{major}"), None, "RUNTIME_DEPENDENCY_OF", own["SPDXID"])
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
