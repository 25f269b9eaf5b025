"""The locked server: nothing on it runs code of a user outside of a sandbox.

One line of configuration, ``c.JupyterSandbox.locked = True``.  The output wall stands in front of a
server that can start programs; on a locked one, what got through the wall would find nothing to
use.  A server that cannot be locked does not start.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_core.paths import jupyter_path
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.nbconvert import handlers as nbconvert
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.handlers import MainKernelHandler, default_handlers
from jupyter_server.services.sessions import handlers as sessions
from tornado import web
from traitlets import Bool
from traitlets.config import Configurable

__all__ = [
    "HostKernelRefusedError",
    "JupyterSandbox",
    "SandboxKernelSpecManager",
    "handlers",
    "lock",
    "make_sure",
    "page_policy",
    "runs_in_sandbox",
]

_RELAY = "sandbox_kernel.kernel.launch"
# jupyter_client puts the server's own interpreter in the place of the names.
_INTERPRETERS = (
    [sys.executable],
    ["python"],
    ["python3"],
    [f"python{sys.version_info[0]}.{sys.version_info[1]}"],
)
_VARIABLES = frozenset({"MALLOC_ARENA_MAX", "SANDBOX_ID"})
_DEFAULT_KERNEL = "sandbox-python"
_HOST_EXTENSIONS = frozenset({"jupyter_lsp"})
"""Extensions that start programs on files of users; by the alphabet they are linked after ours."""
_CONFIGURATION = str(Path(__file__).parent / "locked")
# By any letters: nbconvert finds its exporters so.  Those of text documents hand outputs to pandoc,
# which reads files for LaTeX, and addresses for HTML, as they are told to.
_PROGRAM_EXPORTS = frozenset({"asciidoc", "latex", "pdf", "qtpdf", "qtpng", "rst", "webpdf"})
_EXPORTER = re.compile(r"[A-Za-z0-9_-]+")
_SCRIPT_TYPE = re.compile(r"javascript|ecmascript|jscript|livescript", re.IGNORECASE)
_INLINE_SCRIPT = re.compile(
    r"<script(?:\s+type=['\"](?:text/javascript|module)['\"])?\s*>(.*?)</script>", re.DOTALL
)


class JupyterSandbox(Configurable):
    """What the server does for sandboxes."""

    locked = Bool(
        False,
        help=(
            "Whether nothing on this server runs outside of sandboxes: no kernels and terminals of"
            " the host, and pages with a strict policy."
        ),
    ).tag(config=True)
    stop_sandboxes = Bool(
        False,
        help=(
            "Whether the user's sandboxes stop when the server does; by default they go to sleep"
            " once they are idle, and the next server finds them as they are."
        ),
    ).tag(config=True)


class HostKernelRefusedError(NoSuchKernel):
    """A kernel that would run on the host was asked for on a locked server."""

    def __str__(self) -> str:
        return (
            f"The kernel {self.name!r} would run on the host; this server starts kernels in"
            " sandboxes only."
        )


class SandboxKernelSpecManager(KernelSpecManager):
    """Knows kernels in sandboxes, and refuses all others by whichever way they are asked for.

    ``allowed_kernelspecs`` of the stock class hides kernels and still starts them.
    """

    def find_kernel_specs(self) -> dict[str, str]:
        """Return name and folder of each kernel that runs in a sandbox."""
        return {
            name: folder
            for name, folder in super().find_kernel_specs().items()
            if self._is_ours(name)
        }

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return a kernel's specification; every start of a kernel needs it.

        Raises
        ------
        HostKernelRefusedError
            It does not run in a sandbox.
        NoSuchKernel
            There is none of that name.
        """
        spec = super().get_kernel_spec(kernel_name)
        if not runs_in_sandbox(spec):
            raise HostKernelRefusedError(kernel_name)
        return spec

    def _is_ours(self, name: str) -> bool:
        try:
            self.get_kernel_spec(name)
        except (NoSuchKernel, OSError, ValueError):
            return False
        return True


def runs_in_sandbox(spec: KernelSpec) -> bool:
    """Whether a kernel is the relay, which runs no code of a notebook itself.

    The relay of this server's environment, that is: another program could do anything before it,
    and so could variables that tell an interpreter or the relay what to load and what to trust.
    """
    argv = list(spec.argv)
    # Without -P a module beside the notebook would be run; a provisioner could start anything.
    return (
        argv[:1] in _INTERPRETERS
        and argv[1:4] == ["-P", "-m", _RELAY]
        and set(spec.env or {}) <= _VARIABLES
        and "kernel_provisioner" not in (spec.metadata or {})
    )


# --- what the server is told ------------------------------------------------------------------


def lock(serverapp: ServerApp) -> None:
    """Lock a server whose parts are not made yet; end it where that cannot be done."""
    if serverapp.config.get("GatewayClient", {}).get("url") or os.environ.get(
        "JUPYTER_GATEWAY_URL"
    ):
        _refuse(serverapp, "its kernels would be those of a gateway")
    if serverapp.allow_origin == "*" or serverapp.allow_origin_pat:
        _refuse(serverapp, "ServerApp.allow_origin lets pages from elsewhere in")
    if serverapp.disable_check_xsrf:
        _refuse(serverapp, "ServerApp.disable_check_xsrf lets pages from elsewhere act")
    serverapp.kernel_spec_manager_class = SandboxKernelSpecManager
    serverapp.terminals_enabled = False
    serverapp.allow_external_kernels = False
    # Those that start first and are asked for later would be answered with success.
    serverapp.config.MultiKernelManager.use_pending_kernels = False
    serverapp.config.LabApp.extension_manager = "readonly"
    # Templates are programs, and nbconvert takes those beside the notebooks first of all.
    serverapp.config.TemplateExporter.extra_template_basedirs = []
    if sys.path[:1] in ([""], [os.getcwd()]):
        # Of ``python -m``: what is imported later shall not be what somebody has put there.
        del sys.path[0]
    for name in _HOST_EXTENSIONS & set(serverapp.extension_manager.extensions):
        serverapp.extension_manager.extensions[name].enabled = False
    path = [
        _CONFIGURATION,
        *filter(None, os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)),
    ]
    # First of all, so that JupyterLab's settings there come before those of others.
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(dict.fromkeys(path))


def make_sure(serverapp: ServerApp) -> None:
    """Look at the parts once they are made and everybody has had a say; end a server left open."""
    specs = serverapp.kernel_spec_manager
    if not isinstance(specs, SandboxKernelSpecManager):
        _refuse(serverapp, "another ServerApp.kernel_spec_manager_class was set")
    manager: Any = serverapp.kernel_manager  # of whatever class was chosen
    if manager.kernel_spec_manager is not specs:
        _refuse(serverapp, "its kernel manager has kernels of its own")
    if getattr(manager, "use_pending_kernels", False):
        manager.use_pending_kernels = False
    try:
        specs.get_kernel_spec(manager.default_kernel_name)
    except NoSuchKernel:
        # What is started when no name is given.
        manager.default_kernel_name = _DEFAULT_KERNEL
    if serverapp.terminals_enabled or serverapp.allow_external_kernels:
        _refuse(serverapp, "something has switched terminals or external kernels on")
    for apps in serverapp.extension_manager.extension_apps.values():
        for app in apps:
            if app.name == "lab" and app.has_trait("extension_manager"):
                app.extension_manager = "readonly"
    settings = serverapp.web_app.settings
    headers = dict(settings.get("headers") or {})
    own = headers.get("Content-Security-Policy")
    # Of several policies each must allow something; the last one is what handlers add to.
    headers["Content-Security-Policy"] = f"{own}, {page_policy()}" if own else page_policy()
    settings["headers"] = headers


def _refuse(serverapp: ServerApp, reason: str) -> NoReturn:
    # Extensions that fail with anything less are left out, and the server starts without them.
    serverapp.log.critical(
        "This server shall be locked (JupyterSandbox.locked) and cannot be: %s.", reason
    )
    sys.exit(1)


def page_policy() -> str:
    """Return the content security policy of the server's pages."""
    scripts = " ".join(sorted({f"'sha256-{digest}'" for digest in _inline_scripts()}))
    rules = {
        "default-src": "'self'",
        # JupyterLab compiles the schemas of its settings.
        "script-src": f"'self' 'unsafe-eval' {scripts}",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "frame-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'self'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())


def _inline_scripts() -> Iterator[str]:
    """Yield digests of the scripts in the pages of Jupyter's own applications."""
    for page in _pages():
        for script in _INLINE_SCRIPT.findall(page.read_text(encoding="utf-8", errors="replace")):
            # What is filled in differs from page to page, and has no digest.
            if "{{" not in script and "{%" not in script:
                yield base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _pages() -> Iterator[Path]:
    folders = [Path(folder) for folder in jupyter_path("lab", "static")]
    for package in ("jupyter_server", "jupyterlab", "jupyterlab_server", "notebook"):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folders += [Path(place, "templates"), Path(place, "static")]
    for folder in folders:
        yield from folder.glob("*.html")


# --- kernels by REST: a clear refusal, where the stock handlers answer 500 or 501 -----------------


def _check_kernel(handler: Any, name: object) -> None:  # a handler of jupyter_server
    """Answer a request for a kernel that will not be started, before anything else is done."""
    if not isinstance(name, str):
        raise web.HTTPError(400, "The name of a kernel is a text.")
    try:
        handler.kernel_spec_manager.get_kernel_spec(name)
    except HostKernelRefusedError as error:
        raise web.HTTPError(403, _escaped(error)) from error
    except NoSuchKernel as error:
        raise web.HTTPError(404, _escaped(error)) from error


def _escaped(error: Exception) -> str:
    """Return the message for tornado, which fills arguments into it."""
    return str(error).replace("%", "%%")


def _named(body: object, *keys: str) -> object:
    for key in keys:
        body = body.get(key) if isinstance(body, dict) else None
    return body


class KernelsHandler(MainKernelHandler):
    """``api/kernels``."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Start a kernel in a sandbox."""
        name = _named(self.get_json_body(), "name")
        _check_kernel(self, name or self.kernel_manager.default_kernel_name)
        await super().post()  # type: ignore[misc]


class SessionsHandler(sessions.SessionRootHandler):
    """``api/sessions``."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Start a session, with a kernel in a sandbox."""
        name = _named(self.get_json_body(), "kernel", "name")
        _check_kernel(self, name or self.kernel_manager.default_kernel_name)
        await super().post()  # type: ignore[misc]


class SessionHandler(sessions.SessionHandler):
    """``api/sessions/ID``."""

    @web.authenticated
    @authorized
    async def patch(self, session_id: str) -> None:
        """Change a session; a new kernel of it is one in a sandbox."""
        if name := _named(self.get_json_body(), "kernel", "name"):
            _check_kernel(self, name)
        await super().patch(session_id)  # type: ignore[misc]


class _NoScripts(web.RequestHandler):
    """Part of a handler whose answers are what users wrote: a page may load none as a script.

    The pages' policy lets scripts of the server in, and these come from the same server.
    """

    def set_header(self, name: str, value: Any) -> None:  # as tornado has it
        """Call no contents a script; all of the server's answers forbid to guess."""
        if name.lower() == "content-type" and _SCRIPT_TYPE.search(str(value)):
            value = "text/plain; charset=utf-8"
        super().set_header(name, value)


class _TamedContents:
    """The contents manager, whose notebooks do not say by which class they are converted.

    A name with dots would be imported, and that of an export which is refused would still be made.
    """

    def __init__(self, manager: Any) -> None:  # of whatever class was chosen
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    async def get(self, *arguments: Any, **named: Any) -> Any:
        """Return what the manager does, but for the exporter that it names."""
        model = await ensure_async(self._manager.get(*arguments, **named))
        content = model.get("content")
        language = _named(content, "metadata", "language_info")
        if isinstance(language, dict) and not _is_harmless_export(
            language.get("nbconvert_exporter")
        ):
            del language["nbconvert_exporter"]
        return model


def _is_harmless_export(name: object) -> bool:
    """Whether an exporter, or none, is one of nbconvert's own and starts no program."""
    return name is None or (
        isinstance(name, str)
        and _EXPORTER.fullmatch(name) is not None
        and name.lower() not in _PROGRAM_EXPORTS
    )


class ConvertedHandler(_NoScripts, nbconvert.NbconvertFileHandler):
    """``nbconvert``, whose scripts have the type that the notebook names.

    It stands before that for notebooks in the request as well, which is not there.
    """

    @property
    def contents_manager(self) -> Any:
        """Where notebooks come from."""
        return _TamedContents(super().contents_manager)


class ExportsHandler(JupyterHandler):
    """``nbconvert`` to what programs of the host draw, which read files as they are told to."""

    @web.authenticated
    def get(self, *_: str) -> None:
        """Refuse it."""
        raise web.HTTPError(403, "This server runs no program of the host to draw a notebook.")

    post = get


def _pattern(handlers: list[Any], handler: type) -> str:
    """Return where the stock handler is, to stand before it."""
    return next(str(entry[0]) for entry in handlers if entry[1] is handler)


def handlers(serverapp: ServerApp) -> list[tuple[Any, ...]]:
    """Return what a locked server has in place of stock handlers; routes of extensions come first.

    Parameters
    ----------
    serverapp : ServerApp
        With its contents manager, which says how files are handed out.
    """
    contents = serverapp.contents_manager
    made: list[tuple[Any, ...]] = [
        (_pattern(default_handlers, MainKernelHandler), KernelsHandler),
        (_pattern(sessions.default_handlers, sessions.SessionRootHandler), SessionsHandler),
        (_pattern(sessions.default_handlers, sessions.SessionHandler), SessionHandler),
        (rf"/nbconvert/(?i:{'|'.join(sorted(_PROGRAM_EXPORTS))})(?:/.*)?", ExportsHandler),
        (_pattern(nbconvert.default_handlers, nbconvert.NbconvertFileHandler), ConvertedHandler),
    ]
    if contents.files_handler_class is not None:
        files = type("FilesHandler", (_NoScripts, contents.files_handler_class), {})
        made.append((r"/files/(.*)", files, contents.files_handler_params))
    return made
