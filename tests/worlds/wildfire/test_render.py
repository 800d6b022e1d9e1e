from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import codes
from rayfish.worlds.wildfire.pictures import parts, render


def hills(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    return 300 * np.sin(x / 9) * np.cos(y / 7)


def fuels(height: int, width: int) -> np.ndarray:
    fuel = np.where(np.arange(width) < width // 2, 1, 4) * np.ones((height, 1), int)
    fuel[:, width // 4] = 98
    fuel[height // 4] = 91
    return fuel


@pytest.fixture(scope="module")
def painter() -> render.Painter:
    return render.Painter(hills(32, 48), fuels(32, 48), 50.0, size=240)


@pytest.fixture
def quiet(painter: render.Painter) -> np.ndarray:
    return np.zeros(painter.shape, np.uint8)


def cell(painter: render.Painter, picture: np.ndarray, x: int, y: int) -> np.ndarray:
    """The middle of a cell on a frame, as a mean colour."""
    left, top, right, bottom = painter.map_box
    height, width = painter.shape
    across, down = (right - left) / width, (bottom - top) / height
    px, py = left + int((x + 0.5) * across), top + int((y + 0.5) * down)
    return picture[py : py + 1, px : px + 1].reshape(-1, 3).mean(0)


@pytest.mark.parametrize(
    ("height", "width"), [(64, 64), (96, 128), (20, 160), (160, 20), (512, 512), (1, 1), (900, 700)]
)
def test_a_frame_has_the_documented_shape_for_maps_of_any_form(height, width):
    painter = render.Painter(hills(height, width), fuels(height, width), 50.0)
    picture = painter.frame(np.ones((height, width), np.uint8))
    assert picture.dtype == np.uint8
    assert picture.shape == painter.frame_shape
    left, top, right, bottom = painter.map_box
    assert 512 <= max(right - left, bottom - top) <= 768
    assert abs((right - left) / (bottom - top) * height / width - 1) < 0.1
    assert 0 < left < right < picture.shape[1]
    assert 0 < top < bottom < picture.shape[0]


def test_the_size_of_a_frame_does_not_depend_on_what_it_shows(painter, quiet):
    full = painter.frame(
        quiet,
        [(3, 4, 1)],
        [[(1, 4), (3, 4)]],
        wind=(7, 90),
        clock_minutes=2000,
        title="a title " * 40,
        figures={f"figure {i}": i for i in range(40)},
    )
    assert full.shape == painter.frame(quiet).shape == painter.frame_shape


@pytest.mark.parametrize("code", [codes.BURNING, codes.BURNED, *parts.LINE_COLOURS])
def test_a_changed_cell_changes_the_pixels_at_its_place(painter, quiet, code):
    before = painter.frame(quiet)
    quiet[20, 30] = code
    after = painter.frame(quiet)
    assert np.abs(cell(painter, after, 30, 20) - cell(painter, before, 30, 20)).max() > 40
    rows, columns = np.nonzero((before != after).any(axis=-1))
    left, top, right, _ = painter.map_box
    pixels = (right - left) / painter.shape[1]
    assert abs(columns.mean() - left - 30.5 * pixels) < pixels
    assert abs(rows.mean() - top - 20.5 * pixels) < pixels


def test_fire_is_warm_char_is_dark_and_lines_have_their_colours(painter, quiet):
    quiet[18:23, 28:33] = codes.BURNING
    quiet[2:7, 28:33] = codes.BURNED
    for row, code in enumerate(parts.LINE_COLOURS):
        quiet[26 + 2 * row, 5:20] = code
    picture = painter.frame(quiet)
    core, edge = cell(painter, picture, 30, 20), cell(painter, picture, 28, 18)
    assert core[0] > 240 and core[0] > core[1] > core[2]
    assert core[1] > edge[1] + 20, "the core is nearer to yellow than the edge"
    assert cell(painter, picture, 30, 4).max() < 110
    for row, colour in enumerate(parts.LINE_COLOURS.values()):
        np.testing.assert_allclose(cell(painter, picture, 12, 26 + 2 * row), colour, atol=3)


def test_relief_shows_through_burned_ground(painter, quiet):
    left, top, right, bottom = painter.map_box
    burned = painter.frame(quiet + codes.BURNED)[top:bottom, left:right].mean(-1)
    alive = painter.frame(quiet)[top:bottom, left:right].mean(-1)
    assert burned.std() > 5
    land = (slice(60, None), slice(130, None))  # away from water and road
    assert np.corrcoef(burned[land].ravel(), alive[land].ravel())[0, 1] > 0.8


def test_single_line_cells_stay_visible_on_large_maps():
    painter = render.Painter(np.zeros((900, 900)), None, 50.0)
    lines = np.zeros((900, 900), np.uint8)
    lines[450, 100:800] = codes.WETLINE
    np.testing.assert_allclose(cell(painter, painter.frame(lines), 450, 450), parts.LINE_COLOURS[5], atol=40)


def test_agents_and_their_trails_are_drawn_where_they_are(painter, quiet):
    bare = painter.frame(quiet)
    agent = painter.frame(quiet, [(40, 10, 7)])
    other = painter.frame(quiet, [(40, 10, 8)])
    trail = painter.frame(quiet, [(40, 10, 7)], [[(25, 10), (40, 10)]])
    assert (agent != bare).any() and (agent != other).any(), "the number is on the marker"
    _, columns = np.nonzero((agent != bare).any(axis=-1))
    left, _, right, _ = painter.map_box
    assert abs(columns.mean() - left - 40.5 * (right - left) / 48) < 3
    faint, strong = (np.abs(cell(painter, trail, x, 10) - cell(painter, bare, x, 10)).max() for x in (25, 36))
    assert strong > 30 and strong >= faint


def test_a_marker_at_the_border_stays_on_the_map(painter, quiet):
    changed = (painter.frame(quiet, [(0, 0, 1), (47, 31, 2)]) != painter.frame(quiet)).any(axis=-1)
    left, top, right, bottom = painter.map_box
    changed[top:bottom, left:right] = False
    assert not changed.any()


@pytest.mark.parametrize(
    "shown", [{"wind": (7, 45)}, {"clock_minutes": 5}, {"title": "x"}, {"figures": {"saved": 0.5}}]
)
def test_texts_and_wind_are_outside_the_map(painter, quiet, shown):
    changed = (painter.frame(quiet, **shown) != painter.frame(quiet)).any(axis=-1)
    assert changed.any()
    left, top, right, bottom = painter.map_box
    assert not changed[top:bottom, left:right].any()


@pytest.mark.parametrize("name", ["note", "a long name " * 20])
def test_long_figures_are_cut_at_the_map(name):
    painter, quiet = render.Painter(np.zeros((40, 40)), size=400), np.zeros((40, 40), np.uint8)
    changed = (painter.frame(quiet, figures={name: "a value " * 40}) != painter.frame(quiet)).any(axis=-1)
    assert changed.any()
    assert not changed[:, : painter.map_box[2]].any()


def test_equal_inputs_give_equal_pixels_and_arrays_of_their_own(painter, quiet):
    quiet[5:9, 5:9] = codes.BURNING
    again = render.Painter(hills(32, 48), fuels(32, 48), 50.0, size=240)
    shown = {"agents": [(3, 4, 1)], "trails": [[(1, 4), (3, 4)]], "wind": (7, 90), "clock_minutes": 12}
    first = painter.frame(quiet, **shown)
    kept = first.copy()
    np.testing.assert_array_equal(first, again.frame(quiet, **shown))
    painter.frame(quiet * 0)
    np.testing.assert_array_equal(first, kept)


def test_the_legend_lists_only_fuels_that_occur(painter):
    assert [name for name, _ in painter.fuels] == ["Grass", "Shrub", "Road, town", "Water"]
    assert render.Painter(np.zeros((8, 8)), size=80).fuels == []


def test_flat_noisy_and_unknown_ground_can_be_painted():
    noise = np.random.default_rng(0).normal(size=(16, 16)) * 400
    for elevation, fuel in ((np.zeros((16, 16)), None), (noise, np.full((16, 16), -9999))):
        assert render.Painter(elevation, fuel, 98.0, size=160).frame(np.zeros((16, 16))).std() > 0


@pytest.mark.parametrize(
    ("minutes", "text"), [(0, "00:00"), (165, "02:45"), (165.9, "02:45"), (24 * 60 + 61, "1 d 01:01")]
)
def test_the_clock_reads_as_hours_and_minutes(minutes, text):
    assert parts.clock(minutes) == text


@pytest.mark.parametrize(
    ("cell_ft", "pixels", "name"), [(50, 10, "500 ft"), (50, 1.25, "1 mi"), (98, 5, "2,000 ft")]
)
def test_the_scale_bar_has_a_round_length_that_is_true(cell_ft, pixels, name):
    length, text = parts.scale_bar(cell_ft, pixels, 192)
    feet = float(text.split()[0].replace(",", "")) * (5280 if text.endswith("mi") else 1)
    assert text == name
    assert length == pytest.approx(feet / cell_ft * pixels)


@pytest.mark.parametrize(("degrees", "dx", "dy"), [(0, 0, -1), (90, 1, 0), (180, 0, 1), (270, -1, 0)])
def test_the_wind_arrow_points_where_the_wind_blows_to(degrees, dx, dy):
    tip = parts.arrow(0, 0, 1, degrees)[0]
    np.testing.assert_allclose(tip, (dx, dy), atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_mosaic_shows_every_fire(painter, count):
    maps = np.zeros((count, 32, 48), np.uint8)
    quiet = render.frames(painter, maps, wind=(7, 90), clock_minutes=3, size=500)
    assert quiet.dtype == np.uint8 and quiet.ndim == 3
    for fire in range(count):
        maps[:] = 0
        maps[fire] = codes.BURNING
        changed = render.frames(painter, maps, wind=(7, 90), clock_minutes=3, size=500) != quiet
        assert changed.any()
    several = render.frames([painter] * count, maps, clock_minutes=range(count), agents=[[(1, 1, 1)]] * count)
    assert several.shape[2] == 3


@pytest.mark.parametrize("suffix", ["fire.gif", "new/folder/fire.gif"])
def test_a_gif_has_every_frame_and_holds_the_last(tmp_path, painter, quiet, suffix):
    pictures = []
    for size in (1, 2, 4, 4, 4, 6):
        quiet[16 - size : 16 + size, 24 - size : 24 + size] = codes.BURNING
        pictures.append(painter.frame(quiet))
    path = render.save_gif(tmp_path / suffix, pictures, fps=10, hold_seconds=1.5)
    with Image.open(path) as gif:
        assert gif.n_frames == len(pictures)
        durations = []
        for i, picture in enumerate(pictures):
            gif.seek(i)
            durations.append(gif.info["duration"])
            shown = np.asarray(gif.convert("RGB"), int)
            assert np.abs(shown - picture).mean() < 3
    assert durations == [100] * 5 + [1500]


def test_a_gif_of_one_picture_can_be_opened(tmp_path, painter, quiet):
    with Image.open(render.save_gif(tmp_path / "one.gif", [painter.frame(quiet)])) as gif:
        assert gif.size == (painter.frame_shape[1], painter.frame_shape[0])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda p, tmp: p.frame(np.zeros((3, 32, 48))), r"\[3, 32, 48\], the landscape is \[32, 48\]"),
        (lambda p, tmp: p.frame(np.full((32, 48), 6)), "codes from 6 to 6"),
        (lambda p, tmp: render.Painter(np.zeros(5)), r"shape \[5\]"),
        (lambda p, tmp: render.Painter(np.zeros((5, 5)), np.zeros((4, 5))), r"fuel is \[4, 5\]"),
        (lambda p, tmp: render.Painter(np.zeros((5, 5)), cell_ft=0), "cells of 0 ft"),
        (lambda p, tmp: render.frames(p, []), "no fire"),
        (lambda p, tmp: render.frames(p, np.zeros((2, 32, 48)), captions=["one"]), "2 fires, but 1 captions"),
        (
            lambda p, tmp: render.frames(p, np.zeros((2, 32, 48)), clock_minutes=[1.0]),
            "2 fires, but 1 values",
        ),
        (lambda p, tmp: render.save_gif(tmp / "a.gif", []), "no frame"),
        (
            lambda p, tmp: render.save_gif(tmp / "a.gif", [np.zeros((4, 4, 3))], fps=0),
            "0 pictures per second",
        ),
        (
            lambda p, tmp: render.save_gif(tmp / "a.gif", [np.zeros((4, 4, 3)), np.zeros((4, 5, 3))]),
            "differ in size",
        ),
    ],
)
def test_what_cannot_be_painted_is_said_with_its_values(tmp_path, painter, wrong, says):
    with pytest.raises(RayfishError, match=says) as caught:
        wrong(painter, tmp_path)
    assert caught.value.hint
