#!/bin/sh
# Installs the cleaner from the directory this stands in, without a network.
#
#   ./install.sh [DIRECTORY]     /opt/cleaner unless told otherwise; the same again upgrades or downgrades
#
# Needs Linux, sha256sum and a Python that there are wheels for (PYTHON=python3.13 chooses one); neither pip nor venv's
# own installer. The directory gets an environment of its own and the compiled kernels; nothing else is written to.
set -eu
umask 022
cd "$(dirname "$0")"
place=${1:-/opt/cleaner}

die() {
    echo "install.sh: $*" >&2
    exit 1
}

case $place in
/*) ;;
*) die "$place: give the directory from the root on, such as /opt/cleaner" ;;
esac
sha256sum --check --quiet --strict SHA256SUMS || die "a file of the bundle is not what was packed; get the bundle again"
machine=$(uname -m)
grep -qx "$machine" machine || die "this bundle is for $(cat machine), this machine is $machine"

python=${PYTHON:-python3}
command -v "$python" >/dev/null || die "no $python here; PYTHON names another one"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
grep -qx "$version" pythons ||
    die "$python is $version, and the bundle has wheels for $(tr '\n' ' ' < pythons); PYTHON names another one"

if [ -e "$place/pyvenv.cfg" ]; then
    old=$("$place/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo "no longer there")
    [ "$old" = "$version" ] || die "the Python of $place is $old, not $version: move $place away first"
elif [ -d "$place" ] && [ -n "$(ls -A "$place")" ]; then
    die "$place is there and no environment of Python: name another directory"
else
    "$python" -m venv --without-pip "$place"
fi

# --isolated and PYTHONPATH: nobody's settings of pip or Python have a part in it.
unset PYTHONPATH PYTHONHOME
pip=$(echo "$PWD"/wheels/pip-*.whl)
"$place/bin/python" "$pip/pip" --isolated --disable-pip-version-check install --quiet --root-user-action ignore \
    --no-index --find-links wheels --require-hashes --requirement requirements.txt
mkdir -p "$place/kernels"
"$place/bin/cleaner" warm
"$place/bin/cleaner" --version
echo "installed: $place/bin/cleaner doctor LOG_DIR looks at a log dir next"
