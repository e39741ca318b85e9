#!/usr/bin/env bash
# Three stages, each left out when its result is there already.
set -euo pipefail
mkdir -p data out
echo "=== stage 1: prepare"
[ -s data/pairs.npz ] || python stage.py prepare
echo "=== stage 2: pretrain"
[ -s out/pretrained.json ] || python stage.py pretrain --steps 60
echo "=== stage 3: finetune"
python stage.py finetune --steps 40
