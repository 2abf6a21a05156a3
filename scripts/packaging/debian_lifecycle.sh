#!/usr/bin/env bash
# The life of the Debian package on a clean system, which it may change: install, first answer, upgrade, downgrade, removal,
# purge. Every step is checked; prints "seconds STEP VALUE" for those that an operator waits for.
#
#   debian_lifecycle.sh PACKAGE.deb NEWER.deb
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

older=$1
newer=$2
question="How often must the pump bearings be greased?"
answer="every 2,000 operating hours"

fail() {
    printf 'lifecycle: %s\n' "$*" >&2
    if [[ -f /tmp/daemon.log ]]; then tail -n 20 /tmp/daemon.log >&2; fi
    exit 1
}

now() { date +%s.%N; }
took() { awk -v step="$1" -v from="$2" -v to="$(now)" 'BEGIN { printf "seconds %s %.1f\n", step, to - from }'; }
apt() { apt-get -qq install --yes --no-install-recommends "$@" >/tmp/apt.log 2>&1; }

# What a package can leave: files outside of dpkg's own and the caches, and users.
system_files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /mnt -o -path /var/lib/dpkg -o \
        -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -path /run/lock \) -prune -o -print |
        grep -v -e '^/etc/\.pwd\.lock$' -e '^/etc/g\?\(passwd\|shadow\|group\)-$' -e '^/etc/gshadow-$' | sort
    # Groups of devices belong to the system once they are there.
    cut -d: -f1 /etc/passwd /etc/group | grep -v -e '^render$' -e '^video$' | sort
}

# Starts the service's command as its user, as systemd does.
start() {
    local command
    command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/edge-rag.service)
    install -d -o edge-rag -g edge-rag -m 0755 /run/edge-rag
    # shellcheck disable=SC2086
    RUNTIME_DIRECTORY=/run/edge-rag setpriv --reuid edge-rag --regid edge-rag --init-groups --no-new-privs \
        --bounding-set=-all --inh-caps=-all $command >/tmp/daemon.log 2>&1 </dev/null &
    daemon=$!
    edge-rag status --wait 240 >/dev/null || fail "the service does not serve"
}

stop() {
    kill "$daemon"
    wait "$daemon" || fail "the service did not stop as asked"
}

ask() {
    edge-rag ask "$question" >/tmp/answer.txt 2>&1 || fail "no answer: $(cat /tmp/answer.txt)"
    grep -q "$answer" /tmp/answer.txt || fail "another answer: $(cat /tmp/answer.txt)"
    grep -q 'lubrication-schedule.md' /tmp/answer.txt || fail "no citation: $(cat /tmp/answer.txt)"
}

documents() { edge-rag docs list --json | sort | sha256sum; }

for program in gcc g++ cc c++; do
    if command -v "$program" >/dev/null; then fail "this system has a compiler"; fi
done
# dpkg itself makes these when it is first used.
system_files >/tmp/before

from=$(now)
apt "$older" || fail "the installation failed: $(cat /tmp/apt.log)"
took install "$from"
for file in bash-completion/completions/edge-rag zsh/vendor-completions/_edge-rag fish/vendor_completions.d/edge-rag.fish \
    man/man1/edge-rag.1.gz; do
    dpkg -L edge-rag | grep -qxF "/usr/share/$file" || fail "/usr/share/$file is missing"
done
[[ $(edge-rag --version) == *" $(dpkg-deb -f "$older" Version | sed 's/+.*//')" ]] || fail "another version runs"
serving=$(now)
start
took serve "$serving"
ingesting=$(now)
edge-rag ingest --quiet /usr/share/edge-rag/samples || fail "the samples were not ingested"
took ingest "$ingesting"
asking=$(now)
ask
took answer "$asking"
took install-to-answer "$from"
[[ $(find /usr/lib/edge-rag -newer /tmp/before -name '*.pyc' -cmin -1 -newer /tmp/apt.log | wc -l) == 0 ]] ||
    fail "Python compiles what the package should have compiled"
kept=$(documents)
cp /etc/edge-rag/edge-rag.toml /tmp/settings
echo '# the operator was here' >>/etc/edge-rag/edge-rag.toml

from=$(now)
apt -o Dpkg::Options::=--force-confold "$newer" || fail "the upgrade failed: $(cat /tmp/apt.log)"
took upgrade "$from"
backup=$(find /var/backups/edge-rag -name 'before-*.edge-rag')
[[ -s $backup ]] || fail "the upgrade made no backup: $(cat /tmp/apt.log)"
stop
start
[[ $(edge-rag --version) == *" $(dpkg-deb -f "$newer" Version | sed 's/+.*//')" ]] || fail "the older version runs"
[[ $(documents) == "$kept" ]] || fail "the documents changed"
grep -q 'the operator was here' /etc/edge-rag/edge-rag.toml || fail "the settings of the operator are gone"
ask

if dpkg --install "$older" >/tmp/dpkg.log 2>&1; then fail "a downgrade was not refused"; fi
grep -q 'is older than' /tmp/dpkg.log || fail "the refusal says no reason: $(cat /tmp/dpkg.log)"
dpkg --audit | grep -q . && fail "the refused downgrade left the package broken: $(dpkg --audit)"
ask

stop
apt-get -qq remove --yes edge-rag >/tmp/apt.log 2>&1 || fail "the removal failed: $(cat /tmp/apt.log)"
[[ ! -e /usr/lib/edge-rag && ! -e /usr/bin/edge-rag ]] || fail "the removal left $(find /usr/lib/edge-rag | head -n 5)"
[[ -n $(find /var/lib/edge-rag -name '*.sqlite3') && -f /etc/edge-rag/edge-rag.toml ]] || fail "the removal took documents or settings"

apt "$newer" || fail "it cannot be installed again: $(cat /tmp/apt.log)"
start
[[ $(documents) == "$kept" ]] || fail "the documents are gone after a removal"
stop
from=$(now)
apt-get -qq purge --yes edge-rag >/tmp/apt.log 2>&1 || fail "the purge failed: $(cat /tmp/apt.log)"
took purge "$from"
system_files >/tmp/after
diff /tmp/before /tmp/after >/tmp/left || fail "the purge left: $(cat /tmp/left)"
