"""What schemathesis cannot know: names that are there, and that long waits are only long."""

import schemathesis

# As `schemathesis.sh` has made them.
TARGETS = ["known", "ended", "reserved", "parked"]
NAMES = ["go", "add"]
LONGEST_MS = 30


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Half of the requests are about something that is there."""
    if isinstance(path_parameters, dict):
        for field, there in (("target", TARGETS), ("name", NAMES)):
            value = path_parameters.get(field)
            if isinstance(value, str) and value.isprintable() and len(value) % 2 == 0 and value:
                path_parameters[field] = there[len(value) // 2 % len(there)]
    return path_parameters


def shortened(fields):
    if isinstance(fields, dict):
        value = fields.get("wait_ms")
        if isinstance(value, int) and not isinstance(value, bool) and LONGEST_MS < value <= 60_000:
            fields["wait_ms"] = LONGEST_MS
        if isinstance(value, str) and value.isdigit() and LONGEST_MS < int(value) <= 60_000:
            fields["wait_ms"] = str(LONGEST_MS)
    return fields


@schemathesis.hook
def map_body(context, body):
    return shortened(body)


@schemathesis.hook
def map_query(context, query):
    return shortened(query)
