"""Test that StringTable round-trips strings, and that two arrays are its only storage."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle.data.formats.string_table import StringTable

# Any text, including bytes that are not UTF-8, escaped as Python does in file names.
names = st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@settings(max_examples=50, deadline=None)
@given(st.lists(names))
def test_strings_come_back(strings):
    table = StringTable(iter(strings))
    assert len(table) == len(strings) and list(table) == strings
    assert [table[i - len(strings)] for i in range(len(strings))] == strings
    assert list(pickle.loads(pickle.dumps(table, protocol=5))) == strings


def test_out_of_range():
    table = StringTable(["a", "bc"])
    for index in (2, -3):
        with pytest.raises(IndexError, match=r"StringTable: index must be in \[-2, 2\), got"):
            table[index]
    with pytest.raises(IndexError):
        StringTable()[0]
