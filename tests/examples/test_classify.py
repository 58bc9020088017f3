import re

from examples.classify import main


def test_a_small_classifier_learns_and_shows_what_it_looked_at(capsys):
    accuracy = main(pairs=600, epochs=3)
    assert accuracy > 0.9
    out = capsys.readouterr().out
    assert f"{accuracy:.1%}" in out
    looked = re.findall(r"^(English|German): .+\n    looked at: (.+)$", out, re.MULTILINE)
    assert [language for language, _ in looked] == ["English", "German"] * 3
    for _, words in looked:
        shares = [int(share) for share in re.findall(r" (\d+)%", words)]
        assert len(shares) == 3 and sorted(shares, reverse=True) == shares and sum(shares) <= 101
