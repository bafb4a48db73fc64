#!/bin/bash
# Checks and measures zheng17 on the GPUs of this machine, in under five minutes: bash gpu-check.sh [FOLDER]
#
# It needs a CUDA driver and what lies beside this file. compute-sanitizer and CuPy are used where they are. Each step has a time of
# its own, and one that fails stops no other. Logs, gpu-check.txt and gpu-check.json go to FOLDER, which is `results` beside this file
# if not given. Success means that nothing failed. With --small before the folder everything is tiny: to try this script itself.
if [ -z "${BASH_VERSION:-}" ]; then
    exec bash "$0" "$@"
fi
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
check=${GPU_CHECK_PROGRAM:-$here/zheng17-gpu-check}
suite=() copy_size=1GiB
kernel_cells=(--cells 200000)
recipe_few=(--cells 200000 --scaled)
recipe_many=(--cells 1306127)
cupy_cells=(200000 1306127)
exported=(--cells 20000)
case "${1:-}" in
-h | --help)
    echo "bash gpu-check.sh [FOLDER]: checks and measures zheng17 on the GPUs of this machine; results go to FOLDER"
    exit 0
    ;;
--small) ;;
-*)
    echo "there is no option $1: bash gpu-check.sh [FOLDER]" >&2
    exit 2
    ;;
esac
if [ "${1:-}" = --small ]; then
    shift
    suite=(--quick) copy_size=1MiB
    kernel_cells=(--cells 600 --base 300 --genes 1000 --selected 50 --components 5)
    recipe_few=(--cells 5000 --base 500 --genes 1000 --selected 20 --components 5 --scaled)
    recipe_many=(--cells 9000 --base 500 --genes 1000 --selected 20 --components 5)
    cupy_cells=(500 1000)
    exported=(--cells 500 --genes 1000)
fi
out=${1:-$here/results}
if ! mkdir -p -- "$out" 2>/dev/null || [ ! -w "$out" ]; then
    echo "results can't be written to $out; give another folder: bash gpu-check.sh FOLDER" >&2
    exit 1
fi
rm -f -- "$out/gpu-check.txt" "$out/gpu-check.json" "$out/lines.jsonl"
lines=$out/lines.jsonl
all_limit=290
emulated=false

# Says how a step ended: its name, the outcome, its seconds, a note.
ended() {
    local seconds=$3
    [ $emulated = true ] && seconds=null
    printf '%-28s %s%s\n' "$1" "$2" "${4:+ ($4)}"
    printf '{"what": "step", "name": "%s", "outcome": "%s", "seconds": %s, "note": "%s", "emulated": %s}\n' \
        "$1" "$2" "$seconds" "$4" $emulated >>"$lines"
}

# The line of a log that tells most, without what JSON would mind.
telling_line() {
    local line
    line=$(grep -aE 'error|failed|FAILED|panicked' "$1" | tail -n 1)
    [ -n "$line" ] || line=$(tail -n 1 "$1")
    printf '%s' "$line" | LC_ALL=C tr -cd '\040-\176' | tr -d '"\\' | cut -c 1-200
}

# Runs a step: its name, its seconds at most, the command.
step() {
    local name=$1 limit=$2 start=$SECONDS left=$((all_limit - SECONDS)) log
    shift 2
    log="$out/${name// /-}.log"
    if [ $left -lt 3 ]; then
        ended "$name" "no time left" null ""
        return
    fi
    timeout -k 5 $((limit < left ? limit : left)) "$@" >"$log" 2>&1
    local status=$?
    case $status in
    # What nvidia-smi says, the driver's version among it, belongs to the figures.
    0) ended "$name" passed $((SECONDS - start)) "$([ "$name" = nvidia-smi ] && telling_line "$log")" ;;
    124 | 137) ended "$name" "stopped at its limit" $((SECONDS - start)) "" ;;
    *) ended "$name" failed $((SECONDS - start)) "$(telling_line "$log")" ;;
    esac
    return $status
}

# Whether a tool is here, and a GPU that it can look at; if not, says so for a step.
has() {
    [ $emulated = false ] && command -v "$2" >/dev/null && return
    ended "$1" "not here" null "$2"
    return 1
}

# Tools of the CUDA toolkit are often not on the path.
PATH=$PATH:/usr/local/cuda/bin
chmod +x "$check" 2>/dev/null

has "nvidia-smi" nvidia-smi && step "nvidia-smi" 20 nvidia-smi \
    --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current,clocks.max.sm,clocks.max.mem --format=csv
printf '{"what": "built", "commit": "%s"}\n' "$(cat "$here/commit" 2>/dev/null || echo unknown)" >>"$lines"
timeout -k 5 30 "$check" machine --json "$lines" >"$out/machine.log" 2>&1
status=$?
grep -q "not a GPU" "$out/machine.log" && emulated=true
if [ $status != 0 ]; then
    # What follows a semicolon is advice for another program.
    ended "machine" failed null "$(telling_line "$out/machine.log" | cut -d ';' -f 1)"
    echo
    "$check" report "$lines" "$out"
    exit 1
fi
ended "machine" passed null ""
step "conformance" 60 "$check" conformance ${suite[@]+"${suite[@]}"} --json "$lines"
step "copies" 15 "$check" copies --size $copy_size --json "$lines"
step "kernels" 45 "$check" kernels "${kernel_cells[@]}" --json "$lines"
step "recipe ${recipe_few[1]} cells" 45 "$check" recipe "${recipe_few[@]}" --json "$lines"
for tool in memcheck racecheck initcheck synccheck; do
    has "$tool" compute-sanitizer &&
        step "$tool" 25 compute-sanitizer --tool $tool --error-exitcode 9 "$check" conformance --quick
done
step "recipe ${recipe_many[1]} cells" 90 "$check" recipe "${recipe_many[@]}" --json "$lines"
if [ $emulated = false ] && timeout -k 5 30 python3 -c 'import cupy' 2>/dev/null; then
    # A folder of this run alone: it is removed.
    if cells=$(mktemp -d -p "$out"); then
        step "generated cells" 20 "$check" export "$cells" "${exported[@]}"
        step "CuPy" 60 python3 "$here/cupy_recipe.py" "$cells" --cells "${cupy_cells[@]}" --json "$lines"
        rm -rf -- "$cells"
    else
        ended "CuPy" failed null "no folder for the generated cells"
    fi
else
    ended "CuPy" "not here" null "python3 with cupy"
fi
echo
"$check" report "$lines" "$out"
