"""Checks manifests against the strict schemas of Kubernetes minors: validate_manifests.py FILE MINOR...

Kinds of the Prometheus operator and of OpenShift are checked against the schemas in schemas/. Ends with 1 and the place at the first error.
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

SCHEMAS = pathlib.Path(__file__).parent / "schemas"


def check(document, minors):
    if document["apiVersion"].startswith(("monitoring.coreos.com/", "security.openshift.io/")):
        jsonschema.validate(document, json.loads((SCHEMAS / f"{document['kind']}.json").read_text()))
        return
    for minor in minors:
        kubernetes_validate.validate(document, minor, strict=True)


def main(file, *minors):
    documents = [document for document in yaml.safe_load_all(pathlib.Path(file).read_text()) if document]
    for document in documents:
        name = f"{document['kind']}/{document['metadata']['name']}"
        try:
            check(document, minors)
        except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
            sys.exit(f"{file}: {name}: {error}")
        print(name)


main(*sys.argv[1:])
