import pytest

from kformer.errors import InputError
from training.data.reading.names import Names
from training.data.reading.sources import resolve


@pytest.fixture
def write(tmp_path):
    """Writes a file and gives its name."""

    def write(name, content: bytes | str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


@pytest.fixture(scope="session")
def rows():
    """All rows that a name stands for."""

    def rows(spec, source=None, target=None):
        found = resolve(spec, Names(source, target))
        return [tuple(row) for part in found.parts for row in part.rows()]

    return rows


@pytest.fixture(scope="session")
def pairs(rows):
    """Both texts of each row, without its number."""
    return lambda *args, **options: [row[1:] for row in rows(*args, **options)]


@pytest.fixture(scope="session")
def error(rows):
    """The one line that reading ends with."""

    def error(spec, *names):
        with pytest.raises(InputError) as raised:
            rows(spec, *names)
        message = str(raised.value)
        assert "\n" not in message
        return message

    return error
