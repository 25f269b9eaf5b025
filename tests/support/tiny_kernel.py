"""A kernel that is not Python's: it echoes cells, after ipykernel's example of a wrapper kernel."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class TinyKernel(Kernel):
    implementation = "tiny"
    implementation_version = "1"
    banner = "Echoes"
    language_info = {"name": "echo", "mimetype": "text/plain", "file_extension": ".txt"}  # noqa: RUF012

    async def do_execute(  # the base's signature
        self, code: str, silent: Any, *args: Any, allow_stdin: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        status = "ok"
        if code == "die":
            os._exit(7)
        if code == "ask":
            self._allow_stdin = allow_stdin
            code = self.raw_input("? ")
        if code.startswith("many "):
            for i in range(int(code[5:])):
                self.say(f"{i}\n")
        elif code == "wait":
            self.say("waiting")
            try:
                time.sleep(60)  # noqa: ASYNC251 - as kernels do that know no better
            except KeyboardInterrupt:
                code, status = "interrupted", "abort"
        self.say(code)
        return {"status": status, "execution_count": self.execution_count, "user_expressions": {}}

    def say(self, text: str) -> None:
        self.send_response(self.iopub_socket, "stream", {"name": "stdout", "text": text})


if __name__ == "__main__":
    IPKernelApp.launch_instance(
        argv=["-f", sys.argv[1], "--log-level=ERROR"], kernel_class=TinyKernel
    )
