"""pgxn_meta.py: prints each breach of the PGXN Meta Spec 1.0 in META.json, and each file that META.json names and the folder lacks.

The rules are those of the specification that META.json names in its meta-spec.
"""
import json
import os
import re
import sys

NUMBER = r"(?:0|[1-9][0-9]*)"
SEMVER = rf"{NUMBER}\.{NUMBER}\.{NUMBER}(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z.-]+)?"
RANGE_PART = rf"\s*(?:(?:[<>=!]=|[<>])\s*)?(?:0|{SEMVER})\s*"
TERM = r"[^\s/\\\x00-\x1f]{2,}"
URI = r"[a-z][a-z0-9+.-]*:\S+"
LICENSES = """agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1 gpl_2 gpl_3 lgpl_2_1 lgpl_3_0 mit
    mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0 ssleay sun zlib open_source restricted unrestricted unknown""".split()
REQUIRED = ("abstract", "license", "maintainer", "meta-spec", "name", "provides", "version")
OPTIONAL = ("description", "generated_by", "no_index", "prereqs", "release_status", "resources", "tags")
PHASES = ("configure", "build", "test", "runtime", "develop")
RELATIONS = ("requires", "recommends", "suggests", "conflicts")

breaches = []


def expect(holds, text):
    if not holds:
        breaches.append(text)


def is_text(value, pattern=r"(?s).+"):
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def texts(value):
    return value if isinstance(value, list) and value else [value]


def check_provides(provides):
    expect(isinstance(provides, dict) and provides, "provides names no extension")
    for name, extension in provides.items():
        expect(is_text(name, TERM), f"provides: {name} is not a name")
        expect(is_text(extension.get("version"), SEMVER), f"provides {name}: version is not three numbers")
        for key in {"file", "docfile"} & extension.keys() | {"file"}:
            path = extension.get(key)
            expect(is_text(path) and os.path.isfile(path), f"provides {name}: there is no {key} {path}")
        for key in extension.keys() - {"abstract", "docfile", "file", "version"}:
            expect(key.lower().startswith("x_"), f"provides {name}: unknown key {key}")


def check_prereqs(prereqs):
    for phase, relations in prereqs.items():
        expect(phase in PHASES, f"prereqs: unknown phase {phase}")
        for relation, names in relations.items():
            expect(relation in RELATIONS, f"prereqs {phase}: unknown relation {relation}")
            for name, versions in names.items():
                expect(is_text(name, TERM), f"prereqs {phase}: {name} is not a name")
                expect(versions == 0 or is_text(versions, rf"{RANGE_PART}(?:,{RANGE_PART})*"), f"prereqs {name}: {versions} is not a range")


def check_resources(resources):
    for name, value in resources.items():
        for uri in value.values() if isinstance(value, dict) else [value]:
            expect(is_text(uri), f"resources {name}: {uri}")
        if name == "homepage":
            expect(is_text(value, URI), f"resources: homepage {value} is not a URI")
        expect(name in ("homepage", "bugtracker", "repository") or name.lower().startswith("x_"), f"resources: unknown {name}")


def main():
    with open("META.json", encoding="utf-8") as file:
        meta = json.load(file)
    for key in REQUIRED:
        expect(key in meta, f"{key} is missing")
    for key in meta.keys() - {*REQUIRED, *OPTIONAL}:
        expect(key.lower().startswith("x_"), f"unknown key {key}")
    for key in {"abstract", "description", "generated_by"} & meta.keys():
        expect(is_text(meta[key]), f"{key} is not a text")
    for name in texts(meta.get("maintainer")):
        expect(is_text(name), "maintainer is not a text")
    expect(is_text(meta.get("name"), TERM), "name is not a name")
    expect(is_text(meta.get("version"), SEMVER), "version is not three numbers")
    if isinstance(meta.get("license"), dict):
        for uri in meta["license"].values():
            expect(is_text(uri, URI), f"license: {uri} is not a URI")
    else:
        for name in texts(meta.get("license")):
            expect(name in LICENSES, f"license: {name} is not one of the specification's")
    expect(meta.get("release_status", "stable") in ("stable", "testing", "unstable"), "release_status is unknown")
    expect(is_text(meta.get("meta-spec", {}).get("version"), r"1\.0\.\d+"), "meta-spec is not 1.0")
    expect(is_text(meta.get("meta-spec", {}).get("url", "a:b"), URI), "meta-spec: url is not a URI")
    for tag in meta.get("tags", ["none"]):
        expect(is_text(tag, r"[^/\\\x00-\x1f]{1,255}"), f"tags: {tag}")
    for key in meta.get("no_index", {}):
        expect(key in ("file", "directory"), f"no_index: unknown {key}")
    check_provides(meta.get("provides", {}))
    check_prereqs(meta.get("prereqs", {}))
    check_resources(meta.get("resources", {}))
    print("".join(f"META.json: {breach}\n" for breach in breaches), end="")
    sys.exit(1 if breaches else 0)


main()
