#!/bin/bash
# Builds the image of the Docker engine: container/build.sh [TAG]
#
#   BASE=IMAGE   what to build on, by default debian:bookworm-slim
#
# Settings of pip in the environment are passed on, and certificates that the administrator of this
# machine has added are built in: without them an image could not be built behind a proxy that
# reads along.  Do not publish such an image.
set -euo pipefail
cd "$(dirname "$0")/.."

tag=${1:-jupyter-sandbox}
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

mkdir "$context/ca"
touch "$context/ca/.keep"
find /usr/local/share/ca-certificates -name '*.crt' -exec cp -t "$context/ca" {} + 2>/dev/null || true
cp container/Dockerfile constraints.txt "$context"
cp -r "$(PYTHONPATH=.:container python3 -c '
from sandbox_kernel.engines.runtime_code import prepare
print(prepare())')" "$context/runtime"
find "$context/runtime" -name __pycache__ -prune -exec rm -r {} +

arguments=(--build-arg "RUNTIME=$(<"$context/runtime/digest")")
[[ -n ${BASE-} ]] && arguments+=(--build-arg "BASE=$BASE")
for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
    [[ -n ${!name-} ]] && arguments+=(--build-arg "$name")
done
docker build --quiet --tag "$tag" "${arguments[@]}" "$context"
