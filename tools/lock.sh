#!/bin/sh
# Pin dependencies by hash into requirements/, for every platform and Python from 3.11; the files name no host.
set -eu
tools=$1/lock-tools
[ -x "$tools/bin/uv" ] || { "$1/bin/python" -m venv "$tools" && "$tools/bin/pip" install --quiet uv; }
export UV_PYTHON_DOWNLOADS=never

compile() {
    "$tools/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --upgrade \
        --no-header --no-emit-index-url --no-emit-find-links "$@"
}

compile --extra postgres --group test --group lint --group build pyproject.toml -o requirements/dev.txt
compile --group bench -c requirements/dev.txt pyproject.toml -o requirements/bench.txt
compile --group pyproject.toml:go -o requirements/go.txt
# The agent's archive holds what its tests ran with.
compile --group pyproject.toml:agent -c requirements/dev.txt -o requirements/agent.txt
