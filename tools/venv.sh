#!/bin/sh
# Make the virtual environment $1, or bring it up to date: a Python of at least 3.11, packages pinned by hash, Bramley editable.
set -eu
venv=$1

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "Bramley needs Python 3.11 or newer and found none on the PATH." >&2
    echo "Debian 12 and newer: apt-get install python3 python3-venv   macOS: brew install python@3.13" >&2
    echo "A Python elsewhere: make install PYTHON=/path/to/python3" >&2
    exit 1
}

# Debian has ensurepip in a separate package, and venv fails half-way without it.
require_ensurepip() {
    if "$1" -c 'import ensurepip' 2>/dev/null; then
        return
    fi
    package=python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Installing $package, which Debian keeps apart from Python"
        apt-get install -y -q "$package" || { apt-get update -q && apt-get install -y -q "$package"; }
    else
        echo "This Python cannot make virtual environments. Run: sudo apt-get install $package" >&2
        exit 1
    fi
}

if ! is_new_enough "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    require_ensurepip "$python"
    echo "Making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
echo "Installing the packages of requirements/dev.txt, pinned by hash"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
