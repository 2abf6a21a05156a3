#!/usr/bin/env bash
# Installs edge-rag from this folder. Needs python3 and nothing else: no network, no compiler, no pip.
#
#   ./install.sh                    as root: a systemd service in /opt/edge-rag, or an upgrade of it; the options of
#                                   scripts/install-service may follow (--dry-run, --drop-in NAME, uninstall, ...)
#   ./install.sh --prefix DIR       the programs only, below DIR, which must not exist: DIR/bin/edge-rag
#   ./install.sh --verify           only compare the files with SHA256SUMS
#
# Whatever is asked for, every file of this folder is compared with SHA256SUMS first. That finds damage, not forgery: compare
# the SHA-256 of the bundle itself with the published one. PYTHON names the interpreter.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# Prints the first interpreter that the wheels of this bundle are for.
find_python() {
    local candidate versions
    versions=$(tr '\n' ' ' <pythons)
    for candidate in ${PYTHON:+"$PYTHON"} python3 $(sed 's/^/python/' pythons); do
        if command -v "$candidate" >/dev/null &&
            grep -qxF "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" pythons; then
            command -v "$candidate"
            return
        fi
    done
    fail "this bundle is for Python $versions; none of them is installed"
}

[[ ${1-} != -h && ${1-} != --help ]] || { sed -n '2,/^# the SHA/s/^# \{0,1\}//p' install.sh; exit 0; }
[[ $(uname -m) == "$(<machine)" ]] || fail "this bundle is for $(<machine); this machine is $(uname -m)"
sha256sum --quiet --check SHA256SUMS || fail "the bundle is damaged; nothing was installed"
case ${1-} in
    --verify) ;;
    --prefix)
        [[ $# == 2 && -n $2 ]] || fail "--prefix takes one folder, and nothing else"
        [[ ! -e $2 ]] || fail "$2 exists already"
        python=$(find_python)
        trap 'rm -rf -- "$2"' EXIT
        "$python" -m venv --without-pip -- "$2"
        pip=(wheels/pip-*.whl)
        "$2/bin/python" "${pip[0]}/pip" install --quiet --no-index --disable-pip-version-check --find-links wheels \
            --constraint constraints.txt 'edge-rag[http,genai]' edge-rag-models
        trap - EXIT
        ;;
    *) exec scripts/install-service "$@" ;;
esac
