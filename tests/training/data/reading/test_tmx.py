import os
import tracemalloc

import pytest

from training.data.reading.sources import resolve


def tmx(*units: str, header: str = '<header srclang="en"/>', start: str = "") -> str:
    return f'{start}<tmx version="1.4">{header}<body>{"".join(units)}</body></tmx>'


def unit(*, attribute: str = "xml:lang", **texts: str) -> str:
    variants = (
        f'<tuv {attribute}="{language.replace("_", "-")}"><seg>{text}</seg></tuv>'
        for language, text in texts.items()
    )
    return f"<tu>{''.join(variants)}</tu>"


def test_every_unit_is_a_row_in_the_direction_of_the_header(write, rows):
    spec = write("c.tmx", tmx(unit(en="a", de="b"), unit(de="d", en="c")))
    assert rows(spec) == [(1, "a", "b"), (2, "c", "d")]
    spec = write("d.tmx", tmx(unit(en="a", de="b"), header='<header srclang="de-DE"/>'))
    assert rows(spec) == [(1, "b", "a")]


@pytest.mark.parametrize("header", ["", "<header/>", '<header srclang="*all*"/>'])
def test_without_a_language_in_the_header_the_first_is_the_source(write, pairs, header):
    spec = write("c.tmx", tmx(unit(en="a", de="b"), unit(de="d", en="c"), header=header))
    assert pairs(spec) == [("a", "b"), ("c", "d")]


def test_languages_can_be_named(write, pairs):
    spec = write("c.tmx", tmx(unit(EN_us="a", fr="b", de_AT="c")))
    assert pairs(spec, "fr", "de") == [("b", "c")]
    assert pairs(spec, "DE-at", "en_US") == [("c", "a")]
    assert pairs(spec, "en", "it") == [("en-us: a | fr: b | de-at: c", None)]
    # "e" is no language that "en" is a form of, nor has "en-GB" been asked for.
    assert pairs(spec, "e", "fr")[0][1] is pairs(spec, "en-GB", "fr")[0][1] is None


def test_the_language_itself_comes_before_its_forms(write, pairs):
    spec = write("c.tmx", tmx(unit(en_US="a", en="b", de="c")))
    assert pairs(spec, "en", "de") == [("b", "c")]


def test_naming_one_side_is_enough_for_two_languages(write, pairs):
    spec = write("c.tmx", tmx(unit(en="a", de="b")))
    assert pairs(spec, "de", None) == pairs(spec, None, "en") == [("b", "a")]


def test_units_may_differ_in_the_country_unless_it_tells_the_sides_apart(write, pairs, error):
    spec = write("c.tmx", tmx(unit(en_US="a", de_DE="b"), unit(de_AT="d", en_GB="c")))
    assert pairs(spec) == [("a", "b"), ("c", "d")]
    header = '<header srclang="en-US"/>'
    spec = write(
        "d.tmx", tmx(unit(en_GB="a", en_US="b"), unit(en_US="d", en_GB="c"), header=header)
    )
    assert pairs(spec) == [("b", "a"), ("d", "c")]


@pytest.mark.parametrize(
    "units", [[unit(en="a", de="b", fr="c")], [unit(en="a", de="b"), unit(en="a", fr="c")]]
)
def test_other_languages_need_names(write, error, pairs, units):
    spec = write("c.tmx", tmx(*units))
    message = error(spec)
    assert f"c.tmx, unit {len(units)}: is in en" in message and "data.source_key" in message
    assert pairs(spec, "en", "fr")[-1] == ("a", "c")


def test_a_unit_that_lacks_a_side_is_malformed(write, rows):
    units = ["<tu/>", unit(en="a"), "<tu><tuv xml:lang='en'/></tu>", unit(en="a", de="")]
    assert rows(write("c.tmx", tmx(*units, unit(en="b" * 300)))) == [
        (1, "", None),
        (2, "en: a", None),
        (3, "", None),
        (4, "a", ""),
        (5, "en: " + "b" * 196, None),
    ]


def test_code_is_left_out_and_text_within_it_is_kept(write, pairs):
    segment = (
        'Press <bpt i="1">&lt;b></bpt><hi>the <hi>red</hi> button</hi><ept i="1">&lt;/b></ept>'
        ' now<ph>{0, see <sub>a <ph>x</ph>note</sub> and <it pos="begin">y</it>}</ph>'
        "<!-- no --><ut>\\par</ut>, <it>&lt;br></it>&amp; wait"
    )
    spec = write("c.tmx", tmx(unit(en=segment, de="b\n  c")))
    assert pairs(spec) == [("Press the red button nowa note, & wait", "b   c")]


def test_old_attribute_and_namespace_are_understood(write, pairs):
    old = tmx(unit(attribute="lang", en="a", de="b"))
    spaced = old.replace("<tmx", '<tmx xmlns="http://www.lisa.org/tmx14"')
    assert pairs(write("c.tmx", old)) == pairs(write("d.tmx", spaced)) == [("a", "b")]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1", "windows-1252"])
def test_the_encoding_is_the_declarations(write, pairs, encoding):
    start = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    content = tmx(unit(en="green", de="grün"), start=start)
    assert pairs(write("c.tmx", content.encode(encoding))) == [("green", "grün")]


@pytest.mark.parametrize("encoding", ["gb18030", "no-such", "idna"])
def test_an_encoding_that_cannot_be_read_is_named(write, error, encoding):
    start = f'<?xml version="1.0" encoding="{encoding}"?>'
    assert "c.tmx: its encoding cannot be read" in error(write("c.tmx", tmx(start=start)))


def test_broken_xml_is_named_with_its_line(write, error):
    good = tmx(*["\n" + unit(en="a", de="b")] * 3)
    message = error(write("c.tmx", good.replace("</body>", "\n</boy>")))
    assert "c.tmx, line 5: not whole XML (mismatched tag)" in message
    assert "c.tmx, line 4: not whole XML" in error(write("c.tmx", good[:-9]))
    assert "c.tmx, line 1: not whole XML (undefined entity" in error(
        write("c.tmx", tmx(unit(en="&nope;", de="b")))
    )
    assert "c.tmx, line 1: not whole XML" in error(write("c.tmx", ""))


def test_other_xml_is_named(write, error):
    assert "not TMX; its outermost element is <html>" in error(write("c.tmx", "<html></html>"))
    assert "100 deep" in error(write("c.tmx", "<tmx>" + "<hi>" * 100_000))


def test_entities_neither_multiply_nor_fetch(write, error):
    levels = "".join(
        f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(12)
    )  # a million million words
    for entities in (f'<!ENTITY e0 "word">{levels}', '<!ENTITY e12 SYSTEM "file:///etc/passwd">'):
        content = tmx(unit(en="&e12;", de="b"), start=f"<!DOCTYPE tmx [{entities}]>")
        assert "c.tmx, line 1: not whole XML" in error(write("c.tmx", content))


def test_memory_does_not_grow_with_the_file(write):
    spec = write("c.tmx", tmx("<prop>x</prop>" * 9000, *[unit(en="a" * 500, de="b")] * 9000))
    tracemalloc.start()
    assert sum(1 for _ in resolve(spec).parts[0].rows()) == 9000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 < os.path.getsize(spec) / 5
