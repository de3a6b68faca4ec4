# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables of experiment files: what they take, and how they say what is wrong."""

import pytest

from terrace_lab.errors import SettingsError
from terrace_lab.settings import Settings, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [(4096, 4096), (4e12, 4 * 10**12), ("64KiB", 65536), ("1.5GB", 1500000000), ("7", 7)],
)
def test_bytes_are_numbers_with_or_without_a_unit(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "4 apples", "-1", "1e400", True, -3, float("nan")])
def test_what_is_no_size_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not bytes"):
        parse_bytes(text)


def test_times_have_units() -> None:
    assert parse_seconds("5min") == 300
    assert parse_seconds("50ms") == 0.05
    assert parse_seconds(0.05) == 0.05


def test_an_error_says_where() -> None:
    settings = Settings("meters.pdu", {"period": "often"})
    with pytest.raises(SettingsError, match=r"^meters\.pdu\.period: 'often' is not a time"):
        settings.seconds("period")
    with pytest.raises(SettingsError, match=r"^meters\.pdu\.host: is missing"):
        settings.text("host")


def test_a_key_that_nobody_reads_is_an_error() -> None:
    settings = Settings("repeat", {"min": 6, "maximum": 30})
    assert settings.integer("min") == 6
    expected = r"^repeat\.maximum: there is no such setting here; known are min$"
    with pytest.raises(SettingsError, match=expected):
        settings.finish()


def test_a_misspelt_key_names_the_nearest_and_all_others() -> None:
    settings = Settings("repeat", {"mni": 6})
    assert settings.integer("min", 6) == 6
    assert "max" not in settings
    settings.also_known("order")
    expected = r"^repeat\.mni: .*; did you mean 'min'\? known are min, max, order$"
    with pytest.raises(SettingsError, match=expected):
        settings.finish()
