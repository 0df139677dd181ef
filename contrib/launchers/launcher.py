"""Shared code of the launchers of `tailbound select --launch`: JSON lines in, JSON lines out.

A request has `id` and `op`: `create` (`count`, `tag`), `list` (`tag`), `delete` (`node`, `tag`). The
answer has the same `id`, and either `nodes`, each with `node` (its name) and `address`, or `error`.
"""

import json
import sys


def serve(create, list_, delete):
    """Answers requests until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"id": request["id"]}
        try:
            if request["op"] == "create":
                answer["nodes"] = create(request["count"], request["tag"])
            elif request["op"] == "list":
                answer["nodes"] = list_(request["tag"])
            elif request["op"] == "delete":
                delete(request["node"], request["tag"])
            else:
                answer["error"] = f"there is no {request['op']}"
        except Exception as error:  # The caller receives the cloud's error.
            answer["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)
