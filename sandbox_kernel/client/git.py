"""Git repositories in a sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_kernel.arguments import inside_path
from sandbox_kernel.client.callbacks import tell
from sandbox_kernel.client.files import stream
from sandbox_kernel.client.time_limits import limit_to_send
from sandbox_kernel.client.transfer import FolderTransfers
from sandbox_kernel.wire.git_operations import (
    GitCheckoutRequest,
    GitCheckoutResult,
    GitProgress,
)

__all__ = ["GitCheckout", "GitCheckoutProgress", "GitOperations"]


@dataclass(frozen=True, kw_only=True)
class GitCheckoutProgress:
    """How far git is.

    Parameters
    ----------
    phase : str
        In git's words, such as ``Receiving objects``.
    percent : int or None
        0 to 100.
    done, total : int or None
        Of what the phase counts.
    """

    phase: str
    percent: int | None = None
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True, kw_only=True)
class GitCheckout:
    """A repository that was cloned.

    Parameters
    ----------
    path : str
        Its folder in the sandbox.
    branch : str or None
        The branch that is checked out; None for a tag.
    commit : str or None
        The commit; None of an empty repository.
    """

    path: str
    branch: str | None
    commit: str | None


class GitOperations(FolderTransfers):
    """Cloning, for a class that has the operations on files and folders."""

    async def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        target_dir: str | os.PathLike[str] | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = 600.0,  # noqa: ASYNC109  travels to the runtime
        on_progress: Callable[[GitCheckoutProgress], object] | None = None,
    ) -> GitCheckout:
        """Clone a repository, with the sandbox's own git and network.

        The folder appears when everything is there; when it fails, or is cancelled, nothing is
        left.  Hooks and submodules of the repository are not run or fetched.

        Parameters
        ----------
        url : str
            ``https://``, ``http://``, ``ssh://``, ``git://`` or ``file://`` (in the sandbox), or
            ``user@host:path``.
        branch : str, optional
            A branch or tag; by default the repository's own choice.
        target_dir : str, optional
            A folder that does not exist or is empty; by default the repository's name.
        depth : int, optional
            Only so many commits.
        username, password : str, optional
            For ``http`` and ``https``; a token is a password.  They reach only the host of `url`,
            and no argument, file, log or error.
        timeout : float, optional
            Seconds; None for no limit.
        on_progress : callable, optional
            Called with a `GitCheckoutProgress` some times a second.

        Raises
        ------
        InvalidGitUrlError, GitRepositoryNotFoundError, GitBranchNotFoundError
            There is nothing to clone.
        GitAuthenticationError, GitNetworkError
            The host does not let us in, or cannot be reached.
        GitCloneError, GitCheckoutError, NoSpaceError
            git failed.
        PathExistsError
            `target_dir` holds something.
        CommandTimeoutError
            The time limit passed.
        CommandNotFoundError
            The sandbox has no git.
        """
        request = GitCheckoutRequest(
            url=url,
            folder=await self._base(),
            branch=branch,
            target_dir=None if target_dir is None else inside_path("target_dir", target_dir),
            depth=depth,
            timeout=limit_to_send(timeout),
            username=username,
            password=password,
        )
        async with stream(self, "git.checkout", request) as events:
            async for event in events:
                assert isinstance(event, GitProgress)  # noqa: S101  as the table declares
                await tell(
                    on_progress,
                    GitCheckoutProgress(
                        phase=event.phase,
                        percent=event.percent,
                        done=event.done,
                        total=event.total,
                    ),
                )
            end = events.end
        assert isinstance(end, GitCheckoutResult)  # noqa: S101  likewise
        return GitCheckout(path=end.path, branch=end.branch, commit=end.commit)
