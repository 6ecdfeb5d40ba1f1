"""What calls raise. A denial is never an exception: it is a verdict."""


class TollgateError(Exception):
    """A call that could not be answered. Nothing was charged."""

    code: str
    """What is wrong, as one word: ``"cost_above_capacity"``, say."""

    def __init__(self, message: str, code: str = "other") -> None:
        super().__init__(message)
        self.code = code


class RequestError(TollgateError, ValueError):
    """An argument that no limiter takes, or that this one doesn't know."""


class PolicyError(TollgateError, ValueError):
    """An invalid policy, or an invalid limit."""


class FullError(TollgateError, RuntimeError):
    """There is no room: for another agent, reservation, slot or override."""


class BusyError(TollgateError, RuntimeError):
    """Another process that shares the limiter holds a lock and doesn't go on, or this one can have none."""


class FileError(TollgateError, OSError):
    """A file that could not be read, written or shared."""


# As callers import them, in tracebacks and in logs.
for _error in (TollgateError, RequestError, PolicyError, FullError, BusyError, FileError):
    _error.__module__ = "tollgate_limiter"
