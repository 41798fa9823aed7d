"""runsvc.sh of a simulated GitHub Actions runner: its process keeps the runner online at a simulated GitHub, if it is registered there.

It runs in the Mac's own root with the standard library only. GitHub shows the runner as online as long as one request is open, so a
runner whose process or Mac is gone is offline at once.
"""

import codecs
import http.client
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Written by config.sh into the folder of the runner, in which launchd starts its job.
_CREDENTIALS = ".credentials"
_PATH = "/sim/runners"
_RETRY_SECONDS = 0.5
_DELETED = 401


def main() -> None:
    """Connect until the registration is deleted; without a GitHub, only run."""
    content = Path(_CREDENTIALS).read_bytes().removeprefix(codecs.BOM_UTF8)
    session = json.loads(content).get("data")
    if session is None:
        signal.pause()
        return
    while _status_after_connection(session) != _DELETED:
        time.sleep(_RETRY_SECONDS)
    # launchd does not start it again, as with the real one.
    sys.exit("The runner registration has been deleted from the server, please re-configure.")


def _status_after_connection(session: dict[str, Any]) -> int:
    """Connect, wait until GitHub ends the connection, and return the status; 0 if GitHub does not answer."""
    url = urlsplit(session["authorizationUrl"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    body = {"encoded_jit_config": session["clientId"], "until": "removal"}
    try:
        connection.request("POST", url.path.rstrip("/") + _PATH, json.dumps(body))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    main()
