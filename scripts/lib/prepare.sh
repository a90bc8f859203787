# prepare.sh - sourced by the scripts beside it: packages, then a Release build in build/.
# Everything said here goes to stderr; stdout belongs to the program.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build="$root/build"

packages=(g++ cmake ninja-build pkg-config libuv1-dev libgtest-dev libcli11-dev libfmt-dev
  nlohmann-json3-dev libboost-dev libwslay-dev nettle-dev)

say() { printf '%s\n' "idlewheel: $*" >&2; }

# install_missing PACKAGE...: what is not installed yet, by apt-get; elsewhere only says what it takes.
install_missing() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this system has no apt-get; going on in the hope that these are there (Debian's names): $*"
    return
  fi
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "missing packages, and neither root nor sudo to install them: ${missing[*]}"
      return 1
    fi
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# build_release [TARGET]: rebuilds only what has changed.
build_release() {
  [ -f "$build/build.ninja" ] ||
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >&2
  cmake --build "$build" ${1:+--target "$1"} >&2
}
