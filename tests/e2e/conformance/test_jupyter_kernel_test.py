"""The Jupyter project's own kernel test suite, every sample filled in, beside a plain ipykernel."""

from __future__ import annotations

import io
import json
import unittest

import jupyter_kernel_test
import pytest

from tests.support import docker
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL

# The suite asks for the first entry that it just ran by the session number of an earlier reply and
# gets one entry too many: IPython counts from its own session. A local ipykernel fails it too.
SHARED_WITH_PLAIN = {"test_history (hist_access_type='range')"}


class _Samples:
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = (
        {"text": "zi", "matches": {"zip"}},
        {"text": "import collections; collections.OrderedD", "matches": {"OrderedDict"}},
    )
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n", "a = 3")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2", "for i in x:")
    invalid_code_samples = ("import = 7q", "x = = 1")
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('on purpose')"
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
        {"code": "'ä\\u20ac😀'", "result": "'ä€😀'"},
    )
    code_display_data = (
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>t</b>'))",
            "mime": "text/html",
        },
        {
            "code": "from IPython.display import Math; display(Math('\\\\frac{1}{2}'))",
            "mime": "text/latex",
        },
        {
            "code": "display({'application/json': {'a': 1}, 'text/plain': 'a'}, raw=True)",
            "mime": "application/json",
        },
    )
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    support_iopub_welcome = True


# One of each kind: what reaches the interpreter and comes back does not depend on the engine.
SMOKE = ("execute_stdout", "execute_stderr", "execute_result", "display_data", "error", "pager")


def run_smoke(kernel_name: str) -> unittest.TestResult:
    """Run a few tests of the suite."""
    case = type("Smoke", (_Samples, jupyter_kernel_test.KernelTests), {"kernel_name": kernel_name})
    suite = unittest.TestSuite(case(f"test_{name}") for name in SMOKE)
    return unittest.TextTestRunner(io.StringIO(), verbosity=0).run(suite)


def run_suite(kernel_name: str) -> tuple[int, set[str], str]:
    """Return how many tests ran, the names of those which failed or were skipped, and why."""
    suite = unittest.TestSuite()
    for base in (jupyter_kernel_test.KernelTests, jupyter_kernel_test.IopubWelcomeTests):
        case = type(base.__name__, (_Samples, base), {"kernel_name": kernel_name})
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    report = io.StringIO()
    result = unittest.TextTestRunner(report, verbosity=2).run(suite)
    bad = {
        case.id().rsplit(".", 1)[-1]
        for case, _ in [*result.failures, *result.errors, *result.skipped]
    }
    return result.testsRun, bad, report.getvalue()


@pytest.mark.slow
def test_it_passes_the_jupyter_kernel_test_suite_as_a_plain_kernel_does(
    home: JupyterHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every test of the suite with every sample has the result it has on a plain ipykernel."""
    # A kernel that sees it does not capture what children write.
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    plain_ran, plain_bad, plain_report = run_suite("python3")
    ran, bad, report = run_suite(KERNEL)

    assert ran == plain_ran >= 13
    assert plain_bad == SHARED_WITH_PLAIN, plain_report
    assert bad == SHARED_WITH_PLAIN, report


@pytest.mark.slow
def test_it_passes_on_docker_too(home: JupyterHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of the same, in the image that the project builds."""
    docker.need_docker()
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setenv("SANDBOX_ENGINE", "docker")
    settings = {"DockerEngine": {"host": docker.HOST, "image": docker.IMAGE}}
    monkeypatch.setenv("SANDBOX_CONFIG", json.dumps(settings))

    result = run_smoke(KERNEL)

    assert result.testsRun == len(SMOKE)
    assert (result.failures, result.errors, result.skipped) == ([], [], [])
