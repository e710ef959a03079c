"""Turns pip's installation reports into a requirements file with exact versions and hashes; see lock-template.sh."""

import json
import re
import sys


def packages(report_path):
    """Yields (normalised name, version, sha256) of every package a report would install."""
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    for item in report["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        yield name, item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"]


def main():
    action, *reports = sys.argv[1:]
    hashes = {}
    for report in reports:
        for name, version, sha256 in packages(report):
            hashes.setdefault((name, version), set()).add(sha256)
    names = [name for name, _ in hashes]
    if len(names) != len(set(names)):
        sys.exit("lock_template: the platforms resolve to different versions")
    if action == "lock":
        print("# Written by scripts/lock-template.sh from requirements.in; do not edit.")
    for (name, version), digests in sorted(hashes.items()):
        pin = f"{name}=={version}"
        if action == "lock":
            pin = " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in sorted(digests))])
        print(pin)


main()
