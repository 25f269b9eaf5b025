"""Ten notebooks of different kinds, executed by nbclient: outputs equal those of a plain kernel.

Compared cell by cell, byte by byte (figures too), after these normalisations and no others:

* texts of one stream in one cell are joined: where a stream is cut depends on a flush timer;
* standard error is compared apart from the order of the rest: it is another pipe;
* what names a run and not its outcome is numbered in order of appearance: ids of widgets' models,
  addresses of objects, the process id in the name of a cell's temporary source file;
* times that magics and progress bars measure are replaced;
* what a child prints comes before the result of the cell that waited for it: a local kernel reads
  it from a pipe in a thread of its own and, on a busy machine, shows it after the result;
* a line end ``\\r\\n`` is ``\\n``: a local kernel runs ``!commands`` on a terminal that adds the
  carriage return, ours keeps what the program wrote.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL

pytestmark = pytest.mark.usefixtures("trusted_outputs")

NOTEBOOKS: dict[str, list[str]] = {
    "pandas": [
        "import pandas as pd\nframe = pd.read_csv('sales.csv')\nframe",
        "frame.describe()",
        "frame.groupby('town')['sold'].sum()",
        "frame.assign(price=lambda f: f.sold * 1.5).style.format(precision=1).to_html(table_uuid='t')[:200]",
        "frame.to_csv('out.csv', index=False); print(open('out.csv').read())",
        "frame['no such column']",
        "pd.DataFrame({'ä': ['€', '😀']})",
    ],
    "matplotlib": [
        "%matplotlib inline\nimport matplotlib.pyplot as plt, numpy as np",
        "x = np.linspace(0, 6, 50)\nplt.plot(x, np.sin(x), label='sine'); plt.legend(); plt.show()\nprint('after')",
        "fig, axes = plt.subplots(1, 2)\naxes[0].bar([1, 2], [3, 4]); axes[1].imshow(np.eye(4));",
        "fig",
        "plt.close('all')\nfrom matplotlib_inline.backend_inline import set_matplotlib_formats\nset_matplotlib_formats('jpeg')\nplt.plot([1]);",
        "for i in range(3):\n    plt.figure(); plt.plot([i]); plt.show()",
    ],
    "widgets": [
        "import ipywidgets as w\nfrom IPython.display import display",
        "slider = w.IntSlider(value=3, description='n'); slider",
        "out = w.Output()\ndisplay(out)\nwith out:\n    print('captured'); display(5)\n    1 / 0",
        "out.outputs[0]['text']",
        "@w.interact(x=(0, 5))\ndef f(x=2):\n    print('x is', x); return x * 2",
        "w.HBox([w.Button(description='b'), w.Text('t')])",
        "out.clear_output(); out.append_stdout('again'); slider.value = 9; slider.value",
        "w.Image(value=b'\\x89PNG\\r\\n', format='png')",
    ],
    "shell": [
        "%%bash\necho to stdout; echo to stderr >&2; for i in 1 2 3; do echo $i; done",
        "%%bash\nexit 3",
        "!echo one && echo two",
        "got = !printf 'a\\nb\\n'\ngot",
        "%%sh --out kept\necho kept",
        "kept",
        "import os; os.system('echo from system; echo wrong >&2')",
        "%cd -q .\n%env GREETING=hello\n!echo $GREETING",
        "!echo {6 * 7} $PWD | sed 's/ .*//'",
        "%%script bash --no-raise-error\nfalse",
        "!cat sales.csv | wc -l",
        "%ls sales.csv",
    ],
    "errors": [
        "1 / 0",
        "def inner(n):\n    return [][n]\ndef outer(n):\n    return inner(n)\nouter(3)",
        "for",
        "import json; json.loads('{')",
        "raise ExceptionGroup('two', [ValueError('a'), TypeError('b')])",
        "try:\n    {}['k']\nexcept KeyError as error:\n    raise RuntimeError('later') from error",
        "class Odd(Exception):\n    def __str__(self): return 'odd ä'\nraise Odd",
        "import sys; sys.exit('bye')",
        "assert 1 == 2, 'no'",
        "raise KeyboardInterrupt",
        "print('still here')",
        "def deep(n): return deep(n + 1)\ntry: deep(0)\nexcept RecursionError as e: print('deep')",
    ],
    "magics": [
        "%%capture got\nprint('out'); import sys; print('err', file=sys.stderr); display(7)",
        "got.show()",
        "print(repr(got.stdout), repr(got.stderr), len(got.outputs))",
        "%%time\nsum(range(1000))",
        "%timeit -n1 -r1 pass",
        "%%writefile module.py\nvalue = 42\nprint('imported as', __name__)",
        "import module; module.value",
        "%run module.py",
        "%load_ext autoreload\n%autoreload 2",
        "%xmode Plain\n1 / 0",
        "%xmode Context",
        "%precision 3\n3.14159265",
        "%pprint\nlist(range(30))",
        "%pprint\nlist(range(30))",
        "%who_ls module",
        "%history -n -l 2",
        "%config InteractiveShell.ast_node_interactivity = 'all'",
        "1\n2\n'three'",
    ],
    "async": [
        "import asyncio\nawait asyncio.sleep(0.01)\nprint('slept')",
        "async def work(n):\n    await asyncio.sleep(0.01 * n)\n    print('worked', n)\n    return n\nawait asyncio.gather(*(work(n) for n in (3, 1, 2)))",
        "task = asyncio.create_task(work(1))\nprint('first')",
        "await task",
        "async with asyncio.timeout(0.01):\n    await asyncio.sleep(5)",
        "async for x in (i async for i in aiter_numbers()):\n    print(x)",
        "async def numbers():\n    for n in range(3):\n        yield n\n[n async for n in numbers()]",
        "process = await asyncio.create_subprocess_exec('echo', 'child')\nawait process.wait()",
        "asyncio.get_running_loop().is_running()",
        "await asyncio.to_thread(lambda: sum(range(10)))",
    ],
    "rich": [
        "from IPython.display import *\nimport base64",
        "display(HTML('<b>html</b>'), Markdown('*md*'), Latex('$x^2$'), Math('y'), JSON({'a': [1]}), Javascript('1'))",
        'SVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="4"/></svg>\')',
        "Image(data=base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='), width=20)",
        "handle = display('first', display_id='shown')\nhandle.update('second')",
        "update_display('third', display_id='shown')",
        "print('gone'); clear_output(wait=True); print('stays')",
        "print('gone too'); display(1); clear_output(); display(2)",
        "class Both:\n    def _repr_html_(self): return '<i>both</i>'\n    def _repr_mimebundle_(self, **kw): return {'text/plain': 'both', 'application/x-mine+json': {'k': 1}}, {'text/plain': {'m': 2}}\nBoth()",
        "display({'text/plain': 'raw', 'text/html': '<u>raw</u>'}, raw=True, metadata={'text/html': {'isolated': True}})",
        "class Broken:\n    def _repr_html_(self): raise ValueError('in repr')\nBroken()",
        "publish_display_data({'text/plain': 'published'}, transient={'display_id': 'p'})",
        "Pretty('pretty')",
        "IFrame('about:blank', 100, 50)",
        "display(*range(5)); None",
        "ProgressBar(3)",
    ],
    "processes": [
        "import subprocess, sys, os, multiprocessing as mp",
        "subprocess.run(['sh', '-c', 'echo child; echo error >&2'], check=True).returncode",
        "subprocess.check_output(['echo', 'collected'])",
        "def square(n):\n    print('square', n, flush=True)\n    return n * n\nwith mp.get_context('fork').Pool(1) as pool:\n    print(pool.map(square, range(4)))",
        "p = mp.get_context('fork').Process(target=lambda: print('from a child', flush=True)); p.start(); p.join(); p.exitcode",
        "os.write(1, b'written to 1\\n'); os.write(2, b'written to 2\\n');",
        "with subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cat:\n    print(cat.communicate('through cat'))",
        "import concurrent.futures as cf\nwith cf.ThreadPoolExecutor(2) as pool: print(list(pool.map(str.upper, ['a', 'b'])))",
        "import threading\nt = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()",
        "for i in range(3): subprocess.run(['echo', str(i)])",
        "subprocess.run('exit 4', shell=True)",
    ],
    "logging": [
        "import logging, sys, warnings, time\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')",
        "logging.info('informed'); logging.error('failed')",
        "warnings.warn('careful')",
        "print('to stderr', file=sys.stderr); print('to stdout')",
        "for i in range(4):\n    print(f'\\r{i * 33}%', end='', flush=True); time.sleep(0.05)\nprint()",
        # Without times: they decide how wide the bar is, and how often it is drawn.
        (
            "from tqdm import tqdm\n"
            "form = dict(ncols=40, ascii=True, mininterval=0, bar_format='{l_bar}{bar}|{n_fmt}')\n"
            "for i in tqdm(range(3), **form): pass"
        ),
        "from tqdm.auto import tqdm as auto\nfor i in auto(range(2), disable=True): print(i)",
        "for i in range(2000): print('line', i)",
        "print('x' * 200_000)",
        "sys.stdout.write('no newline')",
        "print('a', 'b', sep='-', end='!'); print('ä€😀')",
        "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc(limit=0)",
        "print('\\x1b[31mred\\x1b[0m', '\\t|', '\\x08back')",
    ],
}

_TIMES = re.compile(
    r"(CPU times: |Wall time: |user |sys: |total: )[^\n,]*|[\d.]+ [mnuμµ]?s ± [^\n]*per loop[^\n]*"
    r"|\[\d\d:\d\d<[^\]]*\]"
)
# Cells whose children write to the kernel's own standard output.
_CHILD_PRINTS = re.compile(r"os\.(system|write)\(|subprocess\.run\(|\.Process\(")
_RUN_IDS = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])|\b0x[0-9a-f]{8,16}\b|ipykernel_\d+")


def execute(codes: list[str], kernel_name: str, home: JupyterHome) -> Any:
    """Execute cells with nbclient and return the notebook, failures included."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
    client = NotebookClient(
        notebook,
        timeout=60,
        kernel_name=kernel_name,
        allow_errors=True,
        store_widget_state=True,
        resources={"metadata": {"path": str(home.work)}},
    )
    client.execute(env=home.env())
    return notebook


def normalised(notebook: Any) -> list[Any]:
    """Return each cell's outcome, and the widgets' state last."""
    numbers: dict[str, str] = {}

    def settle(value: Any) -> Any:
        if isinstance(value, str):
            text = _TIMES.sub("TIME", value.replace("\r\n", "\n"))
            return _RUN_IDS.sub(lambda m: numbers.setdefault(m[0], f"id-{len(numbers)}"), text)
        if isinstance(value, dict):
            return {settle(key): settle(item) for key, item in value.items()}
        return [settle(item) for item in value] if isinstance(value, list) else value

    cells: list[Any] = []
    for cell in notebook.cells:
        streams = {"stdout": "", "stderr": ""}
        order: list[Any] = []
        for output in cell.outputs:
            if output.output_type == "stream":
                streams[output.name] += output.text
                if output.name == "stdout" and order[-1:] != ["stdout"]:
                    order.append("stdout")
            else:
                order.append(output)
        cells.append(settle({"count": cell.execution_count, "order": order, **streams}))
    widgets = notebook.metadata.get("widgets", {}).get(
        "application/vnd.jupyter.widget-state+json", {}
    )
    # The order in which models appear is that of their random ids.
    states = sorted(
        _RUN_IDS.sub("id", json.dumps(model, sort_keys=True))
        for model in widgets.get("state", {}).values()
    )
    return [*cells, states]


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOTEBOOKS)
def test_a_notebook_has_the_outputs_of_a_plain_kernel(home: JupyterHome, kind: str) -> None:
    """Every cell of every notebook ends with the outputs that a local kernel gives it.

    Under load a local kernel loses, cuts or moves what children print: where it moved that behind
    the cell's result, ours is compared with the order in which things happened; where it lost or
    cut it, the local kernel is asked again.
    """
    rows = "".join(f"{town},{n}\n" for n, town in enumerate(["Ulm", "Bonn", "Ulm", "Jena"] * 5))
    (home.work / "sales.csv").write_text("town,sold\n" + rows)

    ours = execute(NOTEBOOKS[kind], KERNEL, home)
    left = sorted(path.name for path in home.work.iterdir())
    for name in left:
        if name != "sales.csv":
            shutil.rmtree(path) if (path := home.work / name).is_dir() else path.unlink()
    codes = [*NOTEBOOKS[kind], "(state of widgets)"]
    seen = normalised(ours)
    missing = list(range(len(codes)))
    expected: list[Any] = []
    for _ in range(3 if kind in ("processes", "shell") else 1):
        expected = normalised(execute(NOTEBOOKS[kind], "python3", home))
        for cell in (expected[at] for at, code in enumerate(codes) if _CHILD_PRINTS.search(code)):
            cell["order"].sort(key=lambda output: output != "stdout")
        missing = [at for at in missing if seen[at] != expected[at]]
        if not missing:
            break

    if KERNEL != "python3":
        assert left == ["sales.csv"], "the notebook's folder on the host is as it was"
    for at in missing:
        assert seen[at] == expected[at], codes[at]


def test_the_saved_notebook_shows_the_last_update_of_a_display(home: JupyterHome) -> None:
    """Updates made by later cells are in the output of the cell that displayed first."""
    notebook = execute(
        [
            "from IPython.display import display; h = display('v1', display_id=True)",
            "h.update('v2')",
            "for i in range(100): h.update(i)",
        ],
        KERNEL,
        home,
    )

    assert [o.data["text/plain"] for o in notebook.cells[0].outputs] == ["99"]
    assert not notebook.cells[1].outputs
    assert not notebook.cells[2].outputs


def test_a_progress_bar_is_saved_as_one_line(home: JupyterHome) -> None:
    """Carriage returns are in the saved text as they were printed."""
    notebook = execute(
        [
            "import time\nfor i in range(5): print(f'\\r{i*25}%', end='', flush=True); time.sleep(.1)"
        ],
        KERNEL,
        home,
    )

    text = "".join(output.text for output in notebook.cells[0].outputs)
    assert text == "\r0%\r25%\r50%\r75%\r100%"
