# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this package.

They are raised in the thread that called Causeway, from `optimizer.step()` for
instance, and never from a thread of the library. After any of them but Timeout,
InvalidArgument, ModelMismatch and Unimplemented the island has ended:
should_stop is set, and every further call raises the same exception again. An
error of the folder in `save()` or `state_dict()` does not end it either.
"""


class Error(RuntimeError):
    """The base of all exceptions of this package.

    code: the canonical code of gRPC, as in causeway.h.
    """

    code = 2


class RunFinished(SystemExit):
    """The run was finished before this process joined it, so nothing is left to
    train.

    A script that does not catch it ends with exit status 0, so a supervisor
    that restarts islands need not know when the run ends.
    """

    def __init__(self, message: str):
        super().__init__(0)
        self._message = message

    def __str__(self) -> str:
        return self._message


class Left(Error):
    """The island has left the run, as it was asked to."""

    code = 1


class InvalidArgument(Error, ValueError):
    """The call was wrong, or came too early, and changed nothing."""

    code = 3


class ModelMismatch(InvalidArgument):
    """The model's parameters do not match the run's. The message names the
    tensors."""


class TensorMoved(Error):
    """The memory of a parameter was replaced after it had been attached."""

    code = 9


class Timeout(Error, TimeoutError):
    """The time is up; the call may be repeated. After attach() and a step of
    the optimizer, call island.wait() instead."""

    code = 4


class NotFound(Error):
    """A file or a part of the run does not exist."""

    code = 5


class NameTaken(Error):
    """A live process already is the island of this name."""

    code = 6


class PermissionDenied(Error, PermissionError):
    """The coordinator or the system does not allow it."""

    code = 7


class ResourceExhausted(Error):
    """A limit of the coordinator or of this host was reached."""

    code = 8


class RunMismatch(Error):
    """The run and this island do not match, or a child process uses the island
    of its parent."""

    code = 9


class RankFailed(Error):
    """Another rank of the island has failed or does not answer; the message
    names it and its last action. All ranks have ended: start them again."""

    code = 10


class Diverged(Error):
    """Values are not finite, or the coordinator has quarantined a contribution.
    Join again to continue from the run's parameters, with a new optimizer: the
    old one's state may not be finite."""

    code = 11


class Unimplemented(Error, NotImplementedError):
    """Causeway cannot do it, or this build of the library cannot."""

    code = 12


class Internal(Error):
    """The library has a bug."""

    code = 13


class Unavailable(Error, ConnectionError):
    """The coordinator cannot be reached."""

    code = 14


class DataLoss(Error):
    """Data that were stored or sent are damaged."""

    code = 15


class Unauthenticated(Error):
    """The coordinator does not accept the island's certificate or token, the
    island does not accept the coordinator's, or only one of them uses TLS."""

    code = 16


_BY_CODE = {
    kind.code: kind
    for kind in (Error, Left, InvalidArgument, Timeout, NotFound, NameTaken,
                 PermissionDenied, ResourceExhausted, RunMismatch, RankFailed,
                 Diverged, Unimplemented, Internal, Unavailable, DataLoss,
                 Unauthenticated)
}


def error_of(code: int, message: str) -> Error:
    """Returns the exception of a code of causeway.h."""
    return _BY_CODE.get(code, Error)(message or f"failed with code {code}")
