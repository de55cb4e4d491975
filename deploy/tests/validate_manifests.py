"""Checks manifests against the strict schemas of a Kubernetes minor: validate_manifests.py MINOR FILE...

Prints a line per file with its objects. Kinds of the Prometheus operator and of OpenShift are checked against the schemas in schemas/. Ends with 1 and the place at the first error.
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

SCHEMAS = pathlib.Path(__file__).parent / "schemas"
# libyaml is ten times as fast, where it is built in.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check(document, minor):
    if document["apiVersion"].startswith(("monitoring.coreos.com/", "security.openshift.io/")):
        jsonschema.validate(document, json.loads((SCHEMAS / f"{document['kind']}.json").read_text()))
    else:
        kubernetes_validate.validate(document, minor, strict=True)


def checked(file, minor):
    """Names of the objects in a file, all of them valid."""
    names = []
    for document in yaml.load_all(pathlib.Path(file).read_text(), LOADER):
        if not document:
            continue
        names.append(f"{document['kind']}/{document['metadata']['name']}")
        try:
            check(document, minor)
        except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
            sys.exit(f"{file}: {names[-1]}: {error}")
    return names


def main(minor, *files):
    for file in files:
        print(*checked(file, minor))


main(*sys.argv[1:])
