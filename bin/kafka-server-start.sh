#!/bin/sh
# Kafka's script of this name, for Odradek: with the .venv of this clone, or else the python3 on the PATH.
here=$(dirname -- "$(readlink -f -- "$0")")
python="$here/../.venv/bin/python"
[ -x "$python" ] || python=python3
exec "$python" -P -m odradek.server_scripts start "$@"
