"""The one exception for what a user can put right."""


class InputError(ValueError):
    """Something the user gave is missing, malformed or contradictory.

    The message is a single line that names the file, line, key or argument, says what was
    received and what to do. Command lines print it as it is and exit with status 2; anything
    else that is raised is a fault of the program and keeps its traceback.
    """
