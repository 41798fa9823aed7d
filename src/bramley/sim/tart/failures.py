"""The failures of the simulated tart: exit codes and messages, which clients have to distinguish.

Tart's own errors are bare lines; what it passes on from the system or the registry starts with `Error: `; wrong usage ends
with 64 and a hint. Apple's texts have typographic quotes.
"""

OTHER, NOT_THERE, USAGE = 1, 2, 64


class Failed(Exception):
    """A command ends with this code and these lines on stderr."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class WrongUsage(Failed):
    """The arguments are invalid."""

    def __init__(self, message: str) -> None:
        super().__init__(USAGE, f"Error: {message}")


def does_not_exist(name: str) -> Failed:
    """Return the failure for a missing VM or image."""
    return Failed(NOT_THERE, f'the specified VM "{name}" does not exist')


def is_running(name: str) -> Failed:
    """Return the failure of what needs a stopped VM."""
    return Failed(OTHER, f'VM "{name}" is running')


def is_not_running(name: str) -> Failed:
    """Return the failure of what needs a running VM."""
    return Failed(NOT_THERE, f'VM "{name}" is not running')


def no_space(file: str) -> Failed:
    """Return the system's failure for a full volume."""
    return Failed(
        OTHER,
        f"Error: The file “{file}” couldn’t be saved because there isn’t enough space. "
        'Underlying error: Error Domain=NSPOSIXErrorDomain Code=28 "No space left on device"',
    )


def no_file(file: str) -> Failed:
    """Return the system's failure for a missing file."""
    return Failed(OTHER, f"Error: The file “{file}” doesn’t exist.")


def http_status(when: str, code: int) -> Failed:
    """Return the failure for an HTTP error of the registry, which tart does not retry."""
    return Failed(
        OTHER, f'Error: UnexpectedHTTPStatusCode(when: "{when}", code: {code}, details: "")'
    )


def virtualization(code: int, text: str) -> Failed:
    """Return an error of Apple's framework."""
    return Failed(OTHER, f'Error Domain=VZErrorDomain Code={code} "{text}" UserInfo={{}}')
