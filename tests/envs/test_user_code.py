"""Import paths: every form is found, every mistake is named with its place."""

from __future__ import annotations

import pickle
import sys

import pytest

from rayfish.errors import CodeError
from rayfish.experiment.imports import find_file, load_file, load_module, load_object, use_paths


def failing(path, folder):
    with pytest.raises(CodeError) as caught:
        load_object(path, folder.paths)
    return str(caught.value)


@pytest.mark.parametrize("path", ["thing.py:Outer", "thing:Outer", "thing.Outer"])
def test_every_form_of_an_import_path_gives_the_object(folder, path):
    folder.write("thing.py", "class Outer:\n    class Inner: pass\n")
    assert load_object(path, folder.paths).__qualname__ == "Outer"
    assert load_object(path + ".Inner", folder.paths).__qualname__ == "Outer.Inner"


def test_a_file_is_found_by_absolute_path_and_from_the_current_folder(folder, monkeypatch):
    file = folder.write("nearby.py", "A = 1")
    assert load_object(f"{file}:A") == 1
    monkeypatch.chdir(folder.path)
    assert find_file("nearby.py") == file.resolve()


def test_objects_from_a_file_pickle_by_reference(folder):
    folder.write("pickled.py", "class Thing: pass")
    thing = load_object("pickled.py:Thing", folder.paths)
    assert b"pickled" in pickle.dumps(thing)
    assert pickle.loads(pickle.dumps(thing)) is thing


def test_a_file_inside_a_package_keeps_its_relative_imports(folder):
    folder.write("mypack/__init__.py", "")
    folder.write("mypack/deep/__init__.py", "")
    folder.write("mypack/base.py", "VALUE = 7")
    folder.write("mypack/deep/leaf.py", "from ..base import VALUE")
    module = load_file("mypack/deep/leaf.py", folder.paths)
    assert (module.__name__, module.VALUE) == ("mypack.deep.leaf", 7)


def test_the_users_folder_comes_after_the_standard_library_and_before_packages(folder, monkeypatch):
    for name in ("wave", "farama_notifications"):  # one of the standard library, one installed
        folder.write(f"{name}.py", "MINE = True")
        monkeypatch.delitem(sys.modules, name, raising=False)
    use_paths(folder.paths)
    use_paths(folder.paths)
    assert sys.path.count(folder.paths[0]) == 1
    assert not hasattr(load_module("wave", folder.paths), "MINE")
    assert load_module("farama_notifications", folder.paths).MINE


def test_of_two_files_with_one_name_the_one_asked_for_is_loaded(folder):
    folder.write("one/twin.py", "WHICH = 1")
    folder.write("two/twin.py", "WHICH = 2")
    both = (str(folder.path / "one"), str(folder.path / "two"))
    assert load_object(f"{folder.path}/two/twin.py:WHICH", both) == 2


def test_a_second_file_of_the_same_name_is_refused_by_name(folder):
    folder.write("one/twin.py", "")
    folder.write("two/twin.py", "X = 1")
    load_file("one/twin.py", folder.paths)
    said = failing("two/twin.py:X", folder)
    assert "two/twin.py cannot be imported as 'twin'" in said
    assert "one/twin.py" in said
    assert "rename the file" in said


def test_a_file_named_like_a_standard_module_is_refused(folder):
    folder.write("json.py", "X = 1")
    assert "already the name of another module" in failing("json.py:X", folder)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("thing.py:Envv", ["has no 'Envv'", "did you mean Env?"]),
        ("thing.py", ["names a file, but not which object", "Env"]),
        ("thin.py:Env", ["there is no file 'thin.py'", "did you mean thing.py?"]),
        ("thin:Env", ["there is no module 'thin'", "did you mean thing?"]),
        ("thing.sub:Env", ["'thing' is a module, not a package"]),
        ("Env", ["is not an import path", "pkg.module:Name"]),
        (":Env", ["is not an import path"]),
    ],
)
def test_a_wrong_path_is_reported_with_the_nearest_right_one(folder, path, parts):
    folder.write("thing.py", "class Env: pass\n")
    said = failing(path, folder)
    for part in parts:
        assert part in said


def test_a_missing_import_inside_the_users_module_names_their_line(folder):
    folder.write("needy.py", "import sys\n\nimport not_installed_here\n")
    said = failing("needy:X", folder)
    assert "needy.py:3" in said
    assert "import not_installed_here" in said
    assert "pip install not_installed_here" in said


def test_a_package_that_an_import_error_names_is_the_next_step(folder):
    folder.write("moved.py", "raise ImportError('It moved. Install with `pip install mpe2[all]`. See x.')\n")
    assert failing("moved:Env", folder).endswith("next step: pip install mpe2[all]")


def test_an_exception_while_importing_names_the_innermost_line_of_the_user(folder):
    folder.write("helper_c.py", "def f():\n    return 1 / 0\n")
    folder.write("outer_c.py", "import helper_c\nX = helper_c.f()\n")
    said = failing("outer_c:X", folder)
    assert "helper_c.py:2" in said
    assert "ZeroDivisionError" in said


def test_a_syntax_error_shows_file_line_and_text(folder):
    folder.write("slip.py", "x = 1\ndef f(:\n    pass\n")
    said = failing("slip.py:f", folder)
    assert "slip.py:2 is not valid Python" in said
    assert "def f(:" in said


def test_a_module_that_was_fixed_loads_at_the_next_try(folder):
    folder.write("fixed.py", "1 / 0")
    failing("fixed:X", folder)
    folder.write("fixed.py", "X = 'now it is longer'")
    assert load_object("fixed:X", folder.paths).startswith("now")
