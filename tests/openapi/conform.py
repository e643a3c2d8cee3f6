"""Holds answers and examples against the OpenAPI document. Driven by tests/it/api/openapi_fuzz.rs.

Reads {"document", "exchanges"} on standard input and prints what does not fit, one line each. Schemas are read
strictly: a member that the document does not know is an error.
"""

import json
import sys

import jsonschema_rs
import openapi_spec_validator

OPEN = "__open"


def strict(schema, part=False):
    """The schema, taking no unknown members; a `part` of a larger object leaves that to the whole."""
    if isinstance(schema, list):
        return [strict(item, part) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {**schema, "$ref": schema["$ref"] + OPEN} if part else schema
    out = dict(schema)
    for name in ("allOf", "oneOf", "anyOf"):
        if name in out:
            out[name] = strict(out[name], part or name == "allOf")
    if "properties" in out:
        out["properties"] = {key: strict(value) for key, value in out["properties"].items()}
    if "items" in out:
        out["items"] = strict(out["items"])
    whole = "allOf" in out or ("properties" in out and "additionalProperties" not in out)
    if whole and not part:
        out["unevaluatedProperties"] = False
    return out


def main():
    given = json.load(sys.stdin)
    document, exchanges = given["document"], given["exchanges"]
    problems = []
    try:
        openapi_spec_validator.validate(document)
    except openapi_spec_validator.validation.exceptions.OpenAPIValidationError as error:
        problems.append(f"the document: {error.message} at {list(error.absolute_path)}")

    schemas = {}
    for name, schema in document["components"]["schemas"].items():
        schemas[name] = strict(schema)
        schemas[name + OPEN] = strict(schema, part=True)

    checked = 0

    def check(where, schema, value):
        nonlocal checked
        checked += 1
        whole = {**strict(schema), "components": {"schemas": schemas}}
        for error in jsonschema_rs.Draft202012Validator(whole, validate_formats=True).iter_errors(value):
            problems.append(f"{where}: {error.message} at {list(error.instance_path)}")

    for path, item in document["paths"].items():
        for method, operation in item.items():
            contents = {"request": operation.get("requestBody", {}).get("content", {})}
            for status, response in operation["responses"].items():
                contents[status] = response.get("content", {})
            for what, by_type in contents.items():
                for kind, content in by_type.items():
                    examples = [one["value"] for one in content.get("examples", {}).values()]
                    if "example" in content:
                        examples.append(content["example"])
                    for example in examples:
                        check(f"{method} {path}: the example of {what}", content["schema"], example)
            for parameter in operation.get("parameters", []):
                if "example" in parameter:
                    check(f"{method} {path}: {parameter['name']}", parameter["schema"], parameter["example"])

    for said in exchanges:
        if not said["content_type"].endswith("json"):
            continue
        where = f"{said['method']} {said['path']}: {said['status']}"
        response = document["paths"][said["path"]][said["method"]]["responses"][str(said["status"])]
        schema = response["content"][said["content_type"]]["schema"]
        check(where, schema, json.loads(said["body"]))

    print("\n".join(sorted(set(problems))))
    print(f"checked {checked}", file=sys.stderr)


main()
