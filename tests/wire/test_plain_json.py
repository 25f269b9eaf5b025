"""Our way to the JSON accelerator is `json`'s own dialect, made strict."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.wire import plain_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FORMS = [plain_json._accelerated(), plain_json._standard()]


def refuses(load: Any, text: str) -> bool:
    try:
        load(text)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("form", FORMS, ids=["accelerated", "standard"])
@given(value=VALUES)
def test_both_forms_write_and_read_the_same(form: Any, value: object) -> None:
    """The accelerator's text is what `json` writes, and each reads the other's."""
    dump, dump_ascii, load = form

    assert dump(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert dump_ascii(value) == json.dumps(value, separators=(",", ":"))
    assert load(json.dumps(value, indent=2)) == value


@pytest.mark.parametrize("form", FORMS, ids=["accelerated", "standard"])
@given(text=st.text(alphabet=' \n[]{}":,.0123456789eE+-truefalsnNI\\u"a\x00', max_size=20))
def test_both_forms_refuse_the_same(form: Any, text: str) -> None:
    """Whatever is no strict JSON is a ValueError, in both."""

    def strict(_name: str) -> None:
        raise ValueError

    try:
        expected = json.loads(text, parse_constant=strict)
    except ValueError:
        assert refuses(form[2], text)
    else:
        assert form[2](text) == expected


@pytest.mark.parametrize("text", ["{", '{"a"', '{"a":1', '{"a":1,', '["', '"\\u12', "[1 2]"])
def test_what_is_malformed_is_refused_without_the_package(text: str) -> None:
    """The C functions make their errors by the `json` package, which a runtime never imports."""
    code = (
        "import sys\n"
        "from sandbox_kernel.wire.plain_json import loads\n"
        "assert 'json' not in sys.modules\n"
        "try:\n    loads(sys.argv[1])\nexcept ValueError:\n    print('refused')\n"
    )
    said = subprocess.run([sys.executable, "-c", code, text], capture_output=True, check=True)
    assert said.stdout == b"refused\n"


@pytest.mark.parametrize("form", FORMS, ids=["accelerated", "standard"])
def test_what_is_no_json_value_is_refused(form: Any) -> None:
    """NaN, infinities and foreign objects never leave."""
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            form[0]([value])
    with pytest.raises(TypeError, match="JSON"):
        form[0]([object()])


def test_the_accelerated_form_is_in_use() -> None:
    """On this interpreter the fast form works."""
    assert plain_json.loads.__qualname__.startswith("_accelerated")
